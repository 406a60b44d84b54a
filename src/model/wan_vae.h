/* Wan causal 3D video autoencoder (Wan 2.1; diffusers' AutoencoderKLWan): 4x8x8 compression by
 * default.
 *
 * Causal in time: frame 0 stands alone, then each group of 4 frames makes one latent frame. So 1 +
 * 4n frames give 1 + n latent frames, and any chunking of the stream at those borders gives the
 * same result as one shot. */
#ifndef WEFT_MODEL_WAN_VAE_H
#define WEFT_MODEL_WAN_VAE_H

#include "base/json.h"
#include "graph/graph.h"

enum { WEFT_WAN_VAE_MAX_LEVELS = 8, WEFT_WAN_VAE_MAX_Z = 64 };

typedef struct weft_wan_vae_config {
    int64_t base_dim, decoder_base_dim, z_dim;
    int64_t levels; /* dim_mult's length */
    int64_t dim_mult[WEFT_WAN_VAE_MAX_LEVELS];
    bool temporal_downsample[WEFT_WAN_VAE_MAX_LEVELS]; /* levels - 1 of them */
    int64_t res_blocks;
    int64_t attn_scale_count;
    double attn_scales[WEFT_WAN_VAE_MAX_LEVELS];
    int64_t in_channels, out_channels;
    double latents_mean[WEFT_WAN_VAE_MAX_Z],
        latents_std[WEFT_WAN_VAE_MAX_Z]; /* per latent channel */
} weft_wan_vae_config;

weft_status weft_wan_vae_config_read(const json_t *json, const char *where,
                                     weft_wan_vae_config *config);
json_t *weft_wan_vae_config_write(
    const weft_wan_vae_config *config); /* new reference; NULL: out of memory */

int64_t weft_wan_vae_time_factor(const weft_wan_vae_config *config);  /* 4 */
int64_t weft_wan_vae_space_factor(const weft_wan_vae_config *config); /* 8 */
int64_t weft_wan_vae_latent_frames(const weft_wan_vae_config *config,
                                   int64_t frames); /* 1 + (frames - 1) / 4 */

/* How a graph takes part in a stream. ALONE is the whole video at once (training). FIRST is the
 * beginning of a stream and NEXT its continuation: both leave the last frames of every causal
 * convolution in states
 * (".cache.N" in its scope), which NEXT reads. The two graphs share one store. */
typedef enum weft_vae_stream { WEFT_VAE_ALONE, WEFT_VAE_FIRST, WEFT_VAE_NEXT } weft_vae_stream;

/* video (B,T,Y,X,in) in [-1,1] -> mean and logvar, (B,T',Y',X',2 z). T is 1 + 4n (ALONE, FIRST) or
 * 4n (NEXT); Y and X multiples of 8. */
weft_value weft_wan_vae_encode(weft_graph *g, const weft_wan_vae_config *config,
                               weft_vae_stream stream, weft_value video_btyxc);
/* latents (B,T',Y',X',z) -> video (B,T,Y,X,out), not clamped. */
weft_value weft_wan_vae_decode(weft_graph *g, const weft_wan_vae_config *config,
                               weft_vae_stream stream, weft_value latents_btyxc);

/* Splits the encoder's output: mean, and logvar clamped to [-30, 20]. */
void weft_wan_vae_moments(weft_graph *g, weft_value moments_btyx2z, weft_value *mean,
                          weft_value *logvar);

#endif
