#ifndef WEFT_FORMAT_TENSORS_SCALED_WEIGHTS_H
#define WEFT_FORMAT_TENSORS_SCALED_WEIGHTS_H

#include "base/status.h"
#include "format/tensors/tensors.h"

/* Attaches the scale factors of fp8 and int8 files (scaled_weights.c) to their tensors. Removes the
 * factors and all other auxiliary tensors from the set. */
weft_status weft_scaled_attach(weft_tensors *ts);

#endif
