#include "exec/store/tensor_copy.h"

#include "base/memory.h"
#include "graph/infer.h"

#include <string.h>

weft_status weft_tensor_put(const weft_tensor *to, const weft_box *box, const void *data,
                            weft_dtype dtype, int64_t *count)
{
    const weft_box own = weft_box_of(to);
    if (!to->staging) {
        const int64_t copied = weft_box_copy(&own, to->data, to->dtype, box, data, dtype);
        if (count)
            *count = copied;
        return WEFT_OK;
    }
    const weft_box_runs runs = weft_box_overlap(&own, box);
    for (int64_t r = 0; r < runs.runs; r++)
        WEFT_TRY(weft_staging_write(
            to->staging,
            (char *)to->data + weft_box_run_offset(&own, &runs, r) * weft_dtype_bytes(to->dtype),
            to->dtype,
            (const char *)data + weft_box_run_offset(box, &runs, r) * weft_dtype_bytes(dtype),
            dtype, runs.length));
    if (count)
        *count = runs.runs * runs.length;
    return weft_staging_finish(to->staging);
}

weft_status weft_tensor_get(const weft_tensor *from, const weft_box *box, void *data,
                            weft_dtype dtype, int64_t *count)
{
    const weft_box own = weft_box_of(from);
    if (!from->staging) {
        const int64_t copied = weft_box_copy(box, data, dtype, &own, from->data, from->dtype);
        if (count)
            *count = copied;
        return WEFT_OK;
    }
    const weft_box_runs runs = weft_box_overlap(box, &own);
    for (int64_t r = 0; r < runs.runs; r++)
        WEFT_TRY(weft_staging_read(
            from->staging,
            (char *)data + weft_box_run_offset(box, &runs, r) * weft_dtype_bytes(dtype), dtype,
            (const char *)from->data +
                weft_box_run_offset(&own, &runs, r) * weft_dtype_bytes(from->dtype),
            from->dtype, runs.length));
    if (count)
        *count = runs.runs * runs.length;
    return WEFT_OK;
}

weft_status weft_tensor_put_bytes(const weft_tensor *to, int64_t at, int64_t bytes,
                                  const void *data)
{
    if (!to->staging) {
        memcpy((char *)to->data + at, data, (size_t)bytes);
        return WEFT_OK;
    }
    WEFT_TRY(weft_staging_write(to->staging, (char *)to->data + at, to->dtype, data, to->dtype,
                                bytes / weft_dtype_bytes(to->dtype)));
    return weft_staging_finish(to->staging);
}

weft_status weft_tensor_get_bytes(const weft_tensor *from, int64_t at, int64_t bytes, void *data)
{
    if (!from->staging) {
        memcpy(data, (const char *)from->data + at, (size_t)bytes);
        return WEFT_OK;
    }
    return weft_staging_read(from->staging, data, from->dtype, (const char *)from->data + at,
                             from->dtype, bytes / weft_dtype_bytes(from->dtype));
}

weft_status weft_tensor_clear(const weft_tensor *to)
{
    const int64_t bytes = weft_shape_count(&to->shape) * weft_dtype_bytes(to->dtype);
    if (to->staging)
        return weft_staging_zero(to->staging, to->data, bytes);
    memset(to->data, 0, (size_t)bytes);
    return WEFT_OK;
}

weft_status weft_tensor_on_host(const weft_tensor *from, const void **data, void **made)
{
    const int64_t bytes = weft_shape_count(&from->shape) * weft_dtype_bytes(from->dtype);
    *made = NULL;
    *data = from->data;
    if (!from->staging)
        return WEFT_OK;
    void *copy = weft_alloc(bytes + 1);
    WEFT_TRY(WEFT_ALLOCATED(copy, "a copy of \"%s\"", from->name));
    const weft_status_code status = weft_tensor_get_bytes(from, 0, bytes, copy);
    if (status != WEFT_OK) {
        weft_free(copy);
        return status;
    }
    *data = *made = copy;
    return WEFT_OK;
}

weft_status weft_tensor_copy(const weft_tensor *to, const weft_tensor *from)
{
    const weft_box box = weft_box_of(from);
    const void *data;
    void *made;
    WEFT_TRY(weft_tensor_on_host(from, &data, &made));
    const weft_status_code status = weft_tensor_put(to, &box, data, from->dtype, NULL);
    weft_free(made);
    return status;
}
