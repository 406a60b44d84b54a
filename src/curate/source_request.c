#include "curate/source_request.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

/* Vectors as rows; a failed attempt is an empty row. JSON has 17 digits, so floats are exact. */
static json_t *embeddings_of(const weft_embeddings *e)
{
    json_t *rows = json_array(), *spans = json_array();
    for (int64_t i = 0; i < e->count; i++) {
        json_t *row = json_array();
        const float *v = e->width > 0 ? e->vector + i * e->width : NULL;
        for (int64_t k = 0; v && isfinite(v[0]) && k < e->width; k++)
            json_array_append_new(row, json_real(v[k]));
        json_array_append_new(rows, row);
        json_array_append_new(
            spans, json_pack("[I,I]", (json_int_t)e->span[i][0], (json_int_t)e->span[i][1]));
    }
    return json_pack("{s:I,s:o,s:o,s:s}", "width", (json_int_t)e->width, "spans", spans, "vectors",
                     rows, "failed", e->failed);
}

json_t *weft_source_request_make(const weft_curate_plan *p, const weft_curate_source *s)
{
    return json_pack("{s:I,s:O?,s:O?,s:o}", "source", (json_int_t)(s - p->source), "record",
                     s->record, "scores", s->scores, "embeddings", embeddings_of(&s->embeddings));
}

static weft_status apply_embeddings(const json_t *request, weft_embeddings *e)
{
    const json_t *spans = json_object_get(request, "spans"),
                 *rows = json_object_get(request, "vectors");
    const int64_t width = json_integer_value(json_object_get(request, "width"));
    float *vector = NULL;
    weft_status_code status = WEFT_OK;
    weft_embeddings_free(e);
    WEFT_TRY(WEFT_NEW(vector, width + 1, "an embedding"));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *of = json_array_get(spans, i);
        const int64_t span[2] = {json_integer_value(json_array_get(of, 0)),
                                 json_integer_value(json_array_get(of, 1))};
        for (size_t k = 0; k < json_array_size(row); k++)
            vector[k] = (float)json_number_value(json_array_get(row, k));
        WEFT_GO(weft_embeddings_add(e, span, json_array_size(row) ? vector : NULL, width));
    }
    snprintf(e->failed, sizeof e->failed, "%s",
             json_string_value(json_object_get(request, "failed")));
out:
    weft_free(vector);
    return status;
}

weft_status weft_source_request_apply(weft_curate_plan *p, const json_t *request,
                                      weft_curate_source **source)
{
    weft_curate_source *s = &p->source[json_integer_value(json_object_get(request, "source"))];
    json_decref(s->record);
    json_decref(s->scores);
    s->record = json_incref(json_object_get(request, "record"));
    s->scores = json_incref(json_object_get(request, "scores"));
    *source = s;
    return apply_embeddings(json_object_get(request, "embeddings"), &s->embeddings);
}
