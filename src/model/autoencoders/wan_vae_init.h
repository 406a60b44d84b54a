/* Initial weights of a Wan autoencoder. */
#ifndef WEFT_MODEL_AUTOENCODERS_WAN_VAE_INIT_H
#define WEFT_MODEL_AUTOENCODERS_WAN_VAE_INIT_H

#include "model/family.h"

/* Sets the initial parameters of an autoencoder for training from scratch. The network starts as
 * a box average (4x8x8 pixels of a colour -> a latent -> that colour):
 *
 *  - Seven channels carry +r +g +b -r -g -b and a constant through all levels. Resamplers average
 *    and repeat these channels. Residual blocks add nothing (conv2 and the attention's projection
 *    are zero). After a norm, which the large constant makes almost linear, silu(x) - silu(-x) = x
 *    restores the colour exactly.
 *  - The other channels are random features of the current frame (normal, 1/sqrt(fan in)).
 *  - The posterior's deviation starts at exp(-3). At 1, its noise would hide the means of an
 *    untrained encoder.
 *
 * In a network too narrow for the seven channels, only the posterior and a constant channel are
 * set. The other weights stay random. */
void weft_wan_vae_begin(const weft_weight *weight, int64_t count, int64_t z_dim, uint64_t seed);

#endif
