#include "parity/parity_store.h"

#include "exec/store/tensor_copy.h"

/* Copies all values of `from` to `to`, which has the same tensors in the same order. */
static weft_status copy_all(weft_store *to, weft_store *from)
{
    for (int64_t i = 0; i < weft_store_count(from); i++)
        WEFT_TRY(weft_tensor_copy(weft_store_at(to, i), weft_store_at(from, i)));
    return WEFT_OK;
}

weft_status weft_parity_device_store(weft_parity *p, weft_store **store)
{
    *store = p->store;
    if (p->backend->device == weft_store_device(p->store))
        return WEFT_OK;
    if (!p->device_store) {
        p->device_store = weft_store_create_for(p->backend);
        WEFT_TRY(WEFT_ALLOCATED(p->device_store, "the comparison"));
        for (int64_t i = 0; i < weft_store_count(p->store); i++) {
            weft_tensor *made;
            WEFT_TRY(weft_store_add_like(p->device_store, weft_store_at(p->store, i), &made));
        }
        WEFT_TRY(copy_all(p->device_store, p->store));
    }
    *store = p->device_store;
    return WEFT_OK;
}

weft_status weft_parity_fetch_store(weft_parity *p)
{
    return p->device_store ? copy_all(p->store, p->device_store) : WEFT_OK;
}

void weft_parity_free_stores(weft_parity *p)
{
    weft_store_free(p->device_store);
    weft_store_free(p->store);
    p->device_store = p->store = NULL;
}
