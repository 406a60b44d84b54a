/* The networks of Stable Diffusion's image autoencoder. Another autoencoder that has them applies
 * them to each frame of a video. */
#ifndef WEFT_MODEL_AUTOENCODERS_SD_VAE_H
#define WEFT_MODEL_AUTOENCODERS_SD_VAE_H

#include "graph/graph.h"

enum { WEFT_SD_LEVELS = 8 };
typedef struct weft_sd_networks {
    int64_t in_channels, out_channels;
    int64_t levels, width[WEFT_SD_LEVELS];
    int64_t layers, z, groups; /* z: latent channels */
    bool quant, post_quant,
        attention; /* quant, post_quant: 1 x 1 convolutions of moments, latents */
} weft_sd_networks;

/* Returns the moments (B,T,Y,X,2Z) of frames (B,T,Y,X,C). */
weft_value weft_sd_encode(weft_graph *g, const weft_sd_networks *net, weft_value video);
/* Returns the frames of latents (B,T,Y,X,Z). */
weft_value weft_sd_decode(weft_graph *g, const weft_sd_networks *net, weft_value latents);

#endif
