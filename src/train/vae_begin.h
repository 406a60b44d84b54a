/* How a video autoencoder's weights begin. */
#ifndef WEFT_TRAIN_VAE_BEGIN_H
#define WEFT_TRAIN_VAE_BEGIN_H

#include "runtime/runtime.h"

/* Sets the parameters under "vae." of a store that training from nothing begins with:
 *  - convolutions keep the variance (normal, 1/sqrt(fan in)) and look at the present frame only, so that the network
 *    begins as one that codes frame by frame and learns from there what motion adds;
 *  - the posterior's deviation begins at exp(-3): at 1 its noise drowns the means of a fresh encoder. */
void weft_vae_begin(weft_store *store, int64_t z_dim, uint64_t seed);

#endif
