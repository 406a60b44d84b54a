/* A denoiser with more input channels: for an image or a control video after the noisy latents. */
#ifndef WEFT_CONVERT_WIDEN_MODEL_H
#define WEFT_CONVERT_WIDEN_MODEL_H

#include "model/model.h"

/* Returns the model with `channels` input channels and unchanged output channels. Its first layer
 * has the weights of the model, and zeros for the new channels (weft_convert_model). */
weft_status weft_widen_model(const weft_model *model, int64_t channels, weft_model *wide);

#endif
