#include "serve/compute_fields.h"

#include "base/memory.h"
#include "serve/request_fields.h"

#include <string.h>

static const char *const precisions[] = {"f32", "tf32", "bf16", "auto", NULL};
static const char *const vae_precisions[] = {"f32", "tf32", "bf16", NULL};
/* Dequantized weights (gguf) need a model in this format, which the price checks. */
static const char *const weights[] = {"stored", "f32", "bf16", "int8", "gguf", "stream", NULL};

const weft_compute_kind weft_compute_kinds[WEFT_COMPUTE_FIELDS] = {
    [WEFT_COMPUTE_PRECISION] = {"precision", "--precision", precisions},
    [WEFT_COMPUTE_VAE_PRECISION] = {"vae_precision", "--vae-precision", vae_precisions},
    [WEFT_COMPUTE_WEIGHTS] = {"weights", "--weights", weights},
};

/* The value in the table; NULL: not a legal one. */
static const char *find(const weft_compute_kind *kind, const char *value)
{
    for (int i = 0; value && kind->values[i]; i++)
        if (!strcmp(kind->values[i], value))
            return kind->values[i];
    return NULL;
}

static void list_values(const weft_compute_kind *kind, weft_buf *names)
{
    for (int i = 0; kind->values[i]; i++)
        weft_buf_printf(names, "%s%s", i ? ", " : "", kind->values[i]);
}

weft_status weft_compute_defaults(const char *const given[WEFT_COMPUTE_FIELDS],
                                  weft_compute *compute)
{
    for (int i = 0; i < WEFT_COMPUTE_FIELDS; i++) {
        const weft_compute_kind *kind = &weft_compute_kinds[i];
        weft_buf names = {0};
        compute->value[i] = given[i] ? find(kind, given[i]) : kind->values[0];
        if (compute->value[i])
            continue;
        list_values(kind, &names);
        const weft_status_code status =
            weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = kind->option, .value = given[i]),
                       "'%.80s' is unknown; use one of %s", given[i], names.data ? names.data : "");
        weft_buf_free(&names);
        return status;
    }
    return WEFT_OK;
}

weft_status weft_compute_read(const json_t *fields, weft_compute *compute)
{
    for (int i = 0; i < WEFT_COMPUTE_FIELDS; i++) {
        const weft_compute_kind *kind = &weft_compute_kinds[i];
        const char *text = NULL;
        weft_buf names = {0};
        WEFT_TRY(weft_request_text(fields, kind->field, 16, &text));
        if (!text)
            continue;
        compute->value[i] = find(kind, text);
        if (compute->value[i])
            continue;
        list_values(kind, &names);
        const weft_status_code status =
            weft_request_refuse(kind->field, text, "\"%s\" is not a legal value; the values are %s",
                                text, names.data ? names.data : "");
        weft_buf_free(&names);
        return status;
    }
    return WEFT_OK;
}

weft_compute weft_compute_of(const json_t *request)
{
    weft_compute compute;
    for (int i = 0; i < WEFT_COMPUTE_FIELDS; i++) {
        const weft_compute_kind *kind = &weft_compute_kinds[i];
        const char *value = find(kind, json_string_value(json_object_get(request, kind->field)));
        compute.value[i] = value ? value : kind->values[0];
    }
    return compute;
}

void weft_compute_store(const weft_compute *compute, json_t *request)
{
    for (int i = 0; i < WEFT_COMPUTE_FIELDS; i++)
        if (strcmp(compute->value[i], weft_compute_kinds[i].values[0]) != 0)
            json_object_set_new(request, weft_compute_kinds[i].field,
                                json_string(compute->value[i]));
}

json_t *weft_compute_json(const weft_compute *defaults)
{
    json_t *all = json_object();
    for (int i = 0; all && i < WEFT_COMPUTE_FIELDS; i++) {
        const weft_compute_kind *kind = &weft_compute_kinds[i];
        json_t *values = json_array();
        for (int k = 0; values && kind->values[k]; k++)
            json_array_append_new(values, json_string(kind->values[k]));
        json_object_set_new(
            all, kind->field,
            json_pack("{s:o, s:s}", "values", values, "default", defaults->value[i]));
    }
    return all;
}
