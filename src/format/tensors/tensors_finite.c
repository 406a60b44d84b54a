/* Stored tensors whose elements are NaN or infinite: damaged files and diverged training runs. */
#include "format/tensors/tensors_finite.h"

#include "base/convert.h"
#include "format/tensors/tensors.h"

#include <math.h>

weft_status weft_stored_check_data(const weft_stored_tensor *t, int64_t first, const void *data,
                                   weft_dtype dtype, int64_t count)
{
    const int64_t at = weft_first_not_finite(data, dtype, count);
    if (at < 0)
        return WEFT_OK;
    float value;
    weft_convert(&value, WEFT_F32, (const char *)data + at * weft_dtype_bytes(dtype), dtype, 1);
    return weft_error(
        WEFT_MSG_TENSOR_NOT_FINITE, WEFT_AT(.file = t->file, .key = t->name, WEFT_NUMBER(value)),
        "element %" PRId64 " is %s. The file is damaged or comes from a training run that "
        "diverged; download it again or use an earlier checkpoint.",
        first + at, isnan(value) ? "NaN" : "infinite");
}

weft_status weft_stored_check_finite(const weft_stored_tensor *t)
{
    enum { CHUNK = 1 << 16 };
    if (!weft_dtype_is_float(t->dtype))
        return WEFT_OK;
    if (weft_stored_is_plain(t))
        return weft_stored_check_data(t, 0, t->data, t->dtype, t->count);
    float *chunk = weft_calloc(CHUNK, sizeof *chunk);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(chunk, "%s", t->file));
    for (int64_t at = 0; at < t->count; at += CHUNK) {
        const int64_t here = t->count - at < CHUNK ? t->count - at : CHUNK;
        weft_stored_read(t, at, here, chunk);
        WEFT_GO(weft_stored_check_data(t, at, chunk, WEFT_F32, here));
    }
out:
    weft_free(chunk);
    return status;
}
