/* Copies of dense tensors between element types. */
#ifndef WEFT_BASE_CONVERT_H
#define WEFT_BASE_CONVERT_H

#include "base/dtype.h"

/* Clamps `x` to the range of F8E4M3, -448 to 448. A larger weight is stored as 448, not as the NaN
 * that weft_f32_to_f8e4m3 returns. NaN stays NaN. */
static inline float weft_f8e4m3_clamp(float x)
{
    return x > 448 ? 448 : x < -448 ? -448 : x;
}

/* Floats to floats (rounded to nearest), integers to integers (truncated); a plain copy when equal.
 * Neither side need be aligned. */
void weft_convert(void *to, weft_dtype to_dtype, const void *from, weft_dtype from_dtype,
                  int64_t count);

/* Index of the first of `count` elements that is NaN or infinite; -1: all are finite. Integers are.
 * `data` need not be aligned. */
int64_t weft_first_not_finite(const void *data, weft_dtype dtype, int64_t count);

#endif
