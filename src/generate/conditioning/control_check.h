/* Checks the inputs of a control video. */
#ifndef WEFT_GENERATE_CONDITIONING_CONTROL_CHECK_H
#define WEFT_GENERATE_CONDITIONING_CONTROL_CHECK_H

#include "generate/conditioning/visual_condition.h"

/* Checks that the model takes the control of the files, or has none that it needs, and sets the
 * channels of the control in `visual`. grid: pixels to latents. channels: the latents of the
 * control are channels after the noisy ones. */
weft_status weft_visual_check_control(const weft_visual_inputs *files, const weft_grid *grid,
                                      bool channels, const weft_visual_condition_setup *setup,
                                      weft_visual_condition *visual);

/* Whether the model has a control in the form of VACE (control_video.h), which takes a mask and
 * reference images. */
bool weft_control_has_mask(const weft_model *denoiser, const weft_grid *grid);

#endif
