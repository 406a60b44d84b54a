#include "curate/model_copies.h"

#include "base/location.h"
#include "curate/operators/operators_config.h"
#include "storage/input_copy.h"

#include <string.h>

struct weft_model_copies {
    weft_curate_config given;
    weft_operator_config *operators; /* owned: the list of `given` */
    weft_input_copy **copy;          /* owned, [count] */
    int64_t count, capacity;
};

static weft_status copy(weft_model_copies *m, const char **place, const char *key)
{
    if (!*place || !weft_location_is_remote(*place))
        return WEFT_OK;
    WEFT_TRY(weft_grow((void **)&m->copy, m->count, &m->capacity, sizeof *m->copy));
    WEFT_TRY(weft_error_at(weft_input_copy_open(*place, &m->copy[m->count]), WEFT_AT(.key = key)));
    *place = weft_input_copy_path(m->copy[m->count++]);
    return WEFT_OK;
}

static weft_status copy_all(weft_model_copies *m, weft_curate_config *c)
{
    weft_operator_config *op = c->operators.item;
    WEFT_TRY(copy(m, &c->shots.weights, "shots.weights"));
    WEFT_TRY(copy(m, &c->embeddings.model, "embeddings.model"));
    WEFT_TRY(copy(m, &c->embeddings.onnx, "embeddings.onnx"));
    for (int64_t i = 0; i < c->operators.count; i++) {
        WEFT_TRY(copy(m, &op[i].onnx, "operators"));
        WEFT_TRY(copy(m, &op[i].aesthetics, "operators"));
        WEFT_TRY(copy(m, &op[i].text, "operators"));
    }
    return WEFT_OK;
}

static weft_status keep_given(weft_model_copies *m, const weft_curate_config *config)
{
    const int64_t count = config->operators.count;
    m->given = *config;
    WEFT_TRY(WEFT_NEW(m->operators, count + 1, "the models of the curation"));
    if (count)
        memcpy(m->operators, config->operators.item, (size_t)count * sizeof *m->operators);
    m->given.operators.item = m->operators;
    return WEFT_OK;
}

weft_status weft_model_copies_open(weft_curate_config *config, weft_model_copies **copies)
{
    weft_model_copies *m;
    WEFT_TRY(WEFT_NEW(m, 1, "the models of the curation"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(keep_given(m, config));
    WEFT_GO(copy_all(m, config));
    config->given = m->count ? &m->given : NULL;
    *copies = m;
    return WEFT_OK;
out:
    weft_model_copies_close(m);
    return status;
}

void weft_model_copies_close(weft_model_copies *m)
{
    if (!m)
        return;
    for (int64_t i = 0; i < m->count; i++)
        weft_input_copy_close(m->copy[i]);
    weft_free(m->copy);
    weft_free(m->operators);
    weft_free(m);
}
