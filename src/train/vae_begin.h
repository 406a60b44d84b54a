/* How a video autoencoder's weights begin. */
#ifndef WEFT_TRAIN_VAE_BEGIN_H
#define WEFT_TRAIN_VAE_BEGIN_H

#include "runtime/runtime.h"

/* Sets the parameters under "vae." of a store that training from nothing begins with, so that the
 * network begins as the box average that it has to beat (4x8x8 pixels of a colour -> a latent ->
 * that colour), and learns from there:
 *  - seven channels carry +r +g +b -r -g -b and a constant through all levels: resamplers average
 * and repeat them, residual blocks add nothing to them yet (conv2 and the attention's projection
 * are zero). Behind a norm, which the large constant makes almost linear, silu(x) - silu(-x) = x
 * gives the colour back exactly;
 *  - the other channels are random features of the present frame (normal, 1/sqrt(fan in));
 *  - the posterior's deviation begins at exp(-3): at 1 its noise drowns the means of a fresh
 * encoder. A network too narrow for the seven channels keeps its random weights but for the
 * posterior. */
void weft_vae_begin(weft_store *store, int64_t z_dim, uint64_t seed);

#endif
