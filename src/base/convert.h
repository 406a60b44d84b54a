/* Copies of dense tensors between element types. */
#ifndef WEFT_BASE_CONVERT_H
#define WEFT_BASE_CONVERT_H

#include "base/dtype.h"

/* Floats to floats (rounded to nearest), integers to integers (truncated); a plain copy when equal.
 * Neither side need be aligned. */
void weft_convert(void *to, weft_dtype to_dtype, const void *from, weft_dtype from_dtype,
                  int64_t count);

#endif
