#include "serve/queue_view.h"

weft_status weft_queue_view_update(weft_queue_view *v, weft_queue_store *store, double elapsed,
                                   double left)
{
    const int64_t version = weft_queue_store_version(store);
    if (!v->version || v->version != version) {
        weft_queue_view_free(v);
        WEFT_TRY(weft_queue_store_waiting(store, &v->entries, &v->count));
        v->version = version;
        v->first_seconds = v->count ? v->entries->seconds : 0;
    }
    if (v->count && v->entries->held) {
        const double rest = v->first_seconds - elapsed;
        v->entries->seconds = left >= 0 ? left : rest > 0 ? rest : 0;
    }
    return WEFT_OK;
}

void weft_queue_view_free(weft_queue_view *v)
{
    weft_free(v->entries);
    *v = (weft_queue_view){0};
}
