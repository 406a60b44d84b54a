#include "train/cascade/kept_rows.h"

#include "comm/comm_world.h"

typedef struct weft_kept_row {
    int64_t batch;
    weft_cascade_module module;
    weft_send_buffer *held;
} weft_kept_row;

weft_status weft_kept_rows_add(weft_kept_rows *k, int64_t batch, weft_cascade_module module,
                               weft_send_buffer *held)
{
    const weft_status_code status =
        weft_grow((void **)&k->item, k->count, &k->capacity, sizeof *k->item);
    if (status == WEFT_OK)
        k->item[k->count++] = (weft_kept_row){batch, module, held};
    else
        weft_send_buffer_release(held);
    return status;
}

bool weft_kept_rows_take(weft_kept_rows *k, int64_t batch, weft_cascade_module module,
                         weft_send_buffer **held)
{
    for (int64_t i = 0; i < k->count; i++) {
        if (k->item[i].batch != batch || k->item[i].module != module)
            continue;
        *held = k->item[i].held;
        k->item[i] = k->item[--k->count];
        return true;
    }
    return false;
}

void weft_kept_rows_clear(weft_kept_rows *k)
{
    for (int64_t i = 0; i < k->count; i++)
        weft_send_buffer_release(k->item[i].held);
    weft_free(k->item);
    *k = (weft_kept_rows){0};
}
