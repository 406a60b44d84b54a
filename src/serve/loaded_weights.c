#include "serve/loaded_weights.h"

static int64_t number(const weft_loaded_weights *w, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(w->state, key));
}

void weft_loaded_weights_set(weft_loaded_weights *w, json_t *state)
{
    json_decref(w->state);
    w->state = state;
}

void weft_loaded_weights_clear(weft_loaded_weights *w)
{
    w->loads = weft_loaded_weights_loads(w);
    w->unloads = weft_loaded_weights_unloads(w) +
                 (int64_t)json_array_size(json_object_get(w->state, "weights"));
    json_decref(w->state);
    w->state = NULL;
}

json_t *weft_loaded_weights_json(const weft_loaded_weights *w)
{
    json_t *list = json_object_get(w->state, "weights");
    return list ? json_incref(list) : json_array();
}

int64_t weft_loaded_weights_bytes(const weft_loaded_weights *w)
{
    const json_t *list = json_object_get(w->state, "weights");
    int64_t bytes = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        bytes += (int64_t)json_integer_value(json_object_get(json_array_get(list, i), "bytes"));
    return bytes;
}

int64_t weft_loaded_weights_loads(const weft_loaded_weights *w)
{
    return w->loads + number(w, "loads");
}

int64_t weft_loaded_weights_unloads(const weft_loaded_weights *w)
{
    return w->unloads + number(w, "unloads");
}
