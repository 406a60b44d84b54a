/* The control branch of Cosmos Transfer 2.5 (diffusers' CosmosControlNetModel): blocks on the
 * latents of a control video. Each gives a hint to one block of the transformer.
 *
 *   control, zeros, marks, padding --patch_embed--> c;  latents, marks, padding --> x
 *   c = before_proj(c) + x, in the first block
 *   block i:   c = block(c);  hint i = scale i * after_proj(c)
 *
 * Timestep, text and image are embedded by layers of the branch. In the transformer its parameters
 * have the prefix "controlnet.". */
#ifndef WEFT_MODEL_DENOISERS_COSMOS_CONTROL_H
#define WEFT_MODEL_DENOISERS_COSMOS_CONTROL_H

#include "model/denoisers/cosmos_blocks.h"

enum { WEFT_COSMOS_MAX_HINTS = 128 };

typedef struct weft_cosmos_control {
    int64_t blocks; /* first member: 0 if the config has no control branch */
    /* channels of the control with marks and padding, and of the latents with both */
    int64_t in_channels, latent_channels;
    int64_t width;
    weft_cosmos net;
} weft_cosmos_control;

/* The field table. Not a family of its own: only a part of the transformer's config. */
extern const weft_family weft_family_cosmos_control;

/* Sets hint[i] (B,S,C) for each block, from WEFT_PORT_CONTROL, WEFT_PORT_CONTROL_SCALE and the
 * transformer's inputs. `size`: tokens along frames, rows, columns. */
void weft_cosmos_control_build(weft_graph *g, const weft_cosmos_control *c, const weft_ports *in,
                               const int64_t size[3], weft_value hint[WEFT_COSMOS_MAX_HINTS]);

#endif
