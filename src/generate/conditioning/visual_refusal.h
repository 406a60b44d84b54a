/* Errors for models that take no given frames. */
#ifndef WEFT_GENERATE_CONDITIONING_VISUAL_REFUSAL_H
#define WEFT_GENERATE_CONDITIONING_VISUAL_REFUSAL_H

#include "generate/conditioning/visual_condition.h"

/* The option that requires given frames, and an alternative that works with any model. */
const char *weft_visual_option(const weft_visual_inputs *files);
const char *weft_visual_alternative(const weft_visual_inputs *files);
/* Returns the error that names the families with given frames. */
weft_status weft_visual_refuse(const weft_model *model, const weft_visual_inputs *files);

#endif
