#ifndef WEFT_CONVERT_CONVERT_TARGET_H
#define WEFT_CONVERT_CONVERT_TARGET_H

#include "convert/convert_model.h"

/* Returns an error if the output exists. Removes the remains of an interrupted conversion first. */
weft_status weft_convert_refuse_existing(const char *out, bool folder);
/* Splits `out` into folder and stem and sets both in `c`, which borrows the two buffers. */
weft_status weft_convert_target(const char *out, weft_model_conversion *c, char folder[1100],
                                char stem[300]);

#endif
