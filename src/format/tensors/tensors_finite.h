#ifndef WEFT_FORMAT_TENSORS_TENSORS_FINITE_H
#define WEFT_FORMAT_TENSORS_TENSORS_FINITE_H

#include "base/dtype.h"
#include "base/status.h"
#include "format/tensors/tensors.h"

/* WEFT_E_FORMAT, with file, name and index, if one of its elements is NaN or infinite. */
weft_status weft_stored_check_finite(const weft_stored_tensor *tensor);
/* Checks `count` elements from index `first` on, which are at `data` as `dtype`. */
weft_status weft_stored_check_data(const weft_stored_tensor *tensor, int64_t first,
                                   const void *data, weft_dtype dtype, int64_t count);

#endif
