/* How the weights of a Wan autoencoder begin. */
#ifndef WEFT_MODEL_WAN_VAE_BEGIN_H
#define WEFT_MODEL_WAN_VAE_BEGIN_H

#include "model/family.h"

/* Sets the parameters of an autoencoder that training from nothing begins with, so that the network
 * begins as the box average that it has to beat (4x8x8 pixels of a colour -> a latent -> that
 * colour), and learns from there:
 *  - seven channels carry +r +g +b -r -g -b and a constant through all levels: resamplers average
 *    and repeat them, residual blocks add nothing to them yet (conv2 and the attention's projection
 *    are zero). Behind a norm, which the large constant makes almost linear, silu(x) - silu(-x) = x
 *    gives the colour back exactly;
 *  - the other channels are random features of the present frame (normal, 1/sqrt(fan in));
 *  - the posterior's deviation begins at exp(-3): at 1 its noise drowns the means of a fresh
 *    encoder.
 * A network too narrow for the seven channels keeps its random weights but for the posterior. */
void weft_wan_vae_begin(const weft_weight *weight, int64_t count, int64_t z_dim, uint64_t seed);

#endif
