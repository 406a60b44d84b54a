/* fp8 and int8 weights with scale factors, in the forms that public files have:
 *
 *   X.weight alone                                   no factor
 *   X.weight, X.scale_weight, "scaled_fp8"           ComfyUI's older form: a marker with the type
 * of
 *                                                    the weights; X.scale_input is not used
 *   X.weight, X.weight_scale, X.comfy_quant          its newer form: JSON in the header
 *      or "_quantization_metadata" in the header     ("_quantization_metadata") or next to X
 *   X.weight, X.scale_weight of [out, 1], [out, n, 1]
 *
 * Everywhere w = q * factor. */
#include "format/tensors/scaled_weights.h"

#include "base/config.h"
#include "format/tensors/tensors_internal.h"

#include <stdio.h>
#include <string.h>

enum { TILE = 128 }; /* tile edge of factors in two dims */

static const char *const helpers[] = {".scale_weight", ".weight_scale", ".scale_input",
                                      ".input_scale", ".comfy_quant"};

/* The length of X if `name` is an auxiliary tensor of X; else 0. */
static size_t helped(const char *name)
{
    const size_t length = strlen(name);
    for (int i = 0; i < WEFT_COUNT(helpers); i++) {
        const size_t end = strlen(helpers[i]);
        if (length > end && !strcmp(name + length - end, helpers[i]))
            return length - end;
    }
    return 0;
}

static bool is_marker(const char *name)
{
    const char *end = strrchr(name, '.');
    return !strcmp(end ? end + 1 : name, "scaled_fp8");
}

static const weft_stored_tensor *find_sibling(const weft_tensors *ts, const char *x, size_t length,
                                              const char *suffix)
{
    char name[600];
    if (snprintf(name, sizeof name, "%.*s%s", (int)length, x, suffix) >= (int)sizeof name)
        return NULL;
    return weft_tensors_find(ts, name);
}

/* Derives from the shape of the factors which elements each one scales. */
static weft_status shape_of(const weft_stored_tensor *t, const weft_stored_tensor *from,
                            weft_scaling *s)
{
    const int64_t rows = t->rank > 0 ? t->dim[0] : 1, columns = rows > 0 ? t->count / rows : 1;
    const bool by_row = from->rank >= 1 && from->dim[0] == rows;
    *s = (weft_scaling){NULL, 1, 1, rows, columns};
    if (from->count == 1)
        return WEFT_OK;
    if (by_row && from->count == rows)
        *s = (weft_scaling){NULL, rows, 1, 1, columns};
    else if (by_row && from->rank == 3 && from->dim[2] == 1 && columns % from->dim[1] == 0)
        *s = (weft_scaling){NULL, rows, from->dim[1], 1, columns / from->dim[1]};
    else if (from->rank == 2 && from->dim[0] == (rows + TILE - 1) / TILE &&
             from->dim[1] == (columns + TILE - 1) / TILE)
        *s = (weft_scaling){NULL, from->dim[0], from->dim[1], TILE, TILE};
    else
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = t->file, .key = from->name),
                          "the scales of \"%s\" must be one value, or one per row, per block of a "
                          "row or per tile of %d x %d",
                          t->name, TILE, TILE);
    return WEFT_OK;
}

static weft_status attach(weft_tensors *ts, weft_stored_tensor *t, const weft_stored_tensor *from)
{
    weft_scaling *s = weft_arena_alloc(ts->arena, sizeof *s);
    float *factor = weft_arena_calloc(ts->arena, from->count, sizeof *factor);
    WEFT_TRY(WEFT_ALLOCATED(s && factor, "%s", t->file));
    WEFT_TRY(shape_of(t, from, s));
    weft_tensor_to_f32(from, factor);
    s->factor = factor;
    t->scaling = s;
    return WEFT_OK;
}

/* Rejects a form of X that needs more than a factor. */
static weft_status check_form(const weft_stored_tensor *t, const json_t *layer)
{
    static const char *const known[] = {"float8_e4m3fn", "float8_e5m2", "int8_tensorwise",
                                        "int8_blockwise"};
    const char *form = json_string_value(json_object_get(layer, "format"));
    for (int i = 0; form && i < WEFT_COUNT(known); i++)
        if (!strcmp(form, known[i]))
            return WEFT_OK;
    return form ? weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                             WEFT_AT(.file = t->file, .key = t->name, .value = form),
                             "the tensor is quantized as %s; weft reads float8_e4m3fn, "
                             "float8_e5m2, int8_tensorwise and int8_blockwise",
                             form)
                : WEFT_OK;
}

static weft_status check_forms(const weft_tensors *ts, const weft_stored_tensor *t, size_t length)
{
    const weft_stored_tensor *own = find_sibling(ts, t->name, length, ".comfy_quant");
    const char *header = weft_tensors_metadata(ts, "_quantization_metadata");
    json_t *json = NULL;
    if (own && !own->packing && own->dtype == WEFT_U8)
        WEFT_TRY(weft_json_parse(own->data, own->bytes, own->name, &json));
    else if (header)
        WEFT_TRY(weft_json_parse(header, (int64_t)strlen(header), "_quantization_metadata", &json));
    char layer[600];
    snprintf(layer, sizeof layer, "%.*s", (int)length, t->name);
    const weft_status_code status =
        check_form(t, own ? json : json_object_get(json_object_get(json, "layers"), layer));
    json_decref(json);
    return status;
}

static bool is_byte(const weft_stored_tensor *t)
{
    return (t->packing ? t->packing->elements == 1 && t->packing->bytes == 1
                       : t->dtype == WEFT_F8E4M3 || t->dtype == WEFT_U8) &&
           t->rank >= 1;
}

static weft_status drop_helpers(weft_tensors *ts)
{
    bool *helper;
    WEFT_TRY(WEFT_NEW(helper, ts->count + 1, "scaled weights"));
    for (int64_t i = 0; i < ts->count; i++) {
        const char *name = ts->tensor[i].name;
        const size_t stem = helped(name);
        helper[i] = is_marker(name) || (stem && find_sibling(ts, name, stem, ".weight"));
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < ts->count; i++)
        if (!helper[i])
            ts->tensor[kept++] = ts->tensor[i];
    ts->count = kept;
    weft_free(helper);
    return WEFT_OK;
}

weft_status weft_scaled_attach(weft_tensors *ts)
{
    bool any = false;
    for (int64_t i = 0; i < ts->count && !any; i++)
        any = helped(ts->tensor[i].name) > 0 || is_marker(ts->tensor[i].name);
    if (!any)
        return WEFT_OK;
    static const char end[] = ".weight";
    for (int64_t i = 0; i < ts->count; i++) {
        weft_stored_tensor *t = &ts->tensor[i];
        const size_t length = strlen(t->name), stem = length - (sizeof end - 1);
        if (!is_byte(t) || length < sizeof end || strcmp(t->name + stem, end))
            continue;
        WEFT_TRY(check_forms(ts, t, stem));
        const weft_stored_tensor *from = find_sibling(ts, t->name, stem, ".scale_weight");
        from = from ? from : find_sibling(ts, t->name, stem, ".weight_scale");
        if (from)
            WEFT_TRY(attach(ts, t, from));
    }
    return drop_helpers(ts);
}
