/* Key mapping rules for autoencoders with the names of latent diffusion's own files, shared by
 * several families. The rules are for four levels, which the decoder counts from the last. */
#ifndef WEFT_MODEL_AUTOENCODERS_LATENT_DIFFUSION_H
#define WEFT_MODEL_AUTOENCODERS_LATENT_DIFFUSION_H

#include "model/family.h"

/* clang-format off */
#define WEFT_LATENT_DIFFUSION_NAMES \
    {"decoder.up.0",    "decoder.up_blocks.3"}, \
    {"decoder.up.1",    "decoder.up_blocks.2"}, \
    {"decoder.up.2",    "decoder.up_blocks.1"}, \
    {"decoder.up.3",    "decoder.up_blocks.0"}, \
    {"encoder.down.#",  "encoder.down_blocks.#"}, \
    {"block",           "resnets"}, \
    {"downsample",      "downsamplers.0"}, \
    {"upsample",        "upsamplers.0"}, \
    {"nin_shortcut",    "conv_shortcut"}, \
    {"mid.block_1",     "mid_block.resnets.0"}, \
    {"mid.block_2",     "mid_block.resnets.1"}
/* clang-format on */

#endif
