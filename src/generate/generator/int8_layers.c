#include "generate/generator/int8_layers.h"

#include "base/fs.h"
#include "generate/generator/generator_parts.h"

#include <math.h>
#include <string.h>

static const char *const file_name = "int8.json";
enum { ZERO = '?' }; /* the character of step 0 */

/* ---- the file ------------------------------------------------------------------------------- */

static weft_status is_damaged(const char *path, const char *key, const char *expected)
{
    return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = key),
                      "the value is not %s. Remove the file, and run `weft eval int8` again.",
                      expected);
}

/* Whether a string has the characters of steps only. */
static bool has_steps(const char *text)
{
    for (; text && *text; text++)
        if (*text < ZERO - WEFT_INT8_STEPS || *text > ZERO + WEFT_INT8_STEPS)
            return false;
    return text != NULL;
}

static weft_status read_choice(const json_t *json, const char *path, bool bf16, json_t *choice)
{
    const char *format, *layer;
    size_t i;
    json_t *value, *smoothed = json_object_get(json, "smoothed"),
                   *list = json_object_get(json_object_get(json, bf16 ? "bf16" : "f32"), "kept");
    WEFT_TRY(weft_json_get_string(json, "format", path, &format));
    if (strcmp(format, WEFT_INT8_FORMAT) != 0)
        return weft_error(
            WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "format", .value = format),
            "'%.40s' is not " WEFT_INT8_FORMAT ". Remove the file, and run `weft eval int8` again.",
            format);
    json_object_foreach(smoothed, layer, value)
    {
        if (!has_steps(json_string_value(value)))
            return is_damaged(path, "smoothed", "an object of strings of steps");
        WEFT_TRY(WEFT_ALLOCATED(json_object_set(choice, layer, value) == 0, "the layers"));
    }
    if (!json_is_array(list))
        return is_damaged(path, "kept", "a list of names of layers");
    json_array_foreach(list, i, value)
    {
        if (!json_is_string(value))
            return is_damaged(path, "kept", "a list of names of layers");
        WEFT_TRY(WEFT_ALLOCATED(
            json_object_set_new(choice, json_string_value(value), json_true()) == 0, "the layers"));
    }
    return WEFT_OK;
}

weft_status weft_int8_choice_load(const char *folder, bool bf16, json_t **choice)
{
    char *path = weft_path_join(folder, file_name);
    json_t *json = NULL, *read = NULL;
    weft_status_code status = WEFT_OK;
    *choice = NULL;
    WEFT_GO(WEFT_ALLOCATED(path, "a path"));
    if (!weft_path_exists(path))
        goto out;
    read = json_object();
    WEFT_GO(WEFT_ALLOCATED(read, "the layers"));
    WEFT_GO(weft_json_load(path, &json));
    WEFT_GO(read_choice(json, path, bf16, read));
    *choice = json_incref(read);
out:
    json_decref(read);
    json_decref(json);
    weft_free(path);
    return status;
}

weft_status weft_int8_choice_save(const char *folder, json_t *file)
{
    char *path = weft_path_join(folder, file_name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(
        path && json_object_set_new(file, "format", json_string(WEFT_INT8_FORMAT)) == 0,
        "the choice of layers"));
    WEFT_GO(weft_json_save(path, file));
out:
    weft_free(path);
    return status;
}

const json_t *weft_generator_int8_choice(const weft_generator *p)
{
    return p->options.int8_layers ? p->options.int8_layers : p->parts.int8_layers;
}

/* ---- smoothing ------------------------------------------------------------------------------ */

int64_t weft_int8_block(int64_t columns)
{
    enum { LONGEST = 128, SHORTEST = 8 };
    int64_t elements = LONGEST;
    while (elements >= SHORTEST && columns % elements)
        elements /= 2;
    return elements >= SHORTEST ? elements : 0;
}

void weft_int8_write_steps(const int *step, int64_t columns, char *text)
{
    for (int64_t k = 0; k < columns; k++)
        text[k] = (char)(ZERO + step[k]);
    text[columns] = 0;
}

static float factor_of(int step)
{
    enum { THIRDS = 3 * WEFT_INT8_STEPS };
    static const float part[3] = {1, 1.25992105f, 1.58740105f}; /* bitwise equal everywhere */
    return ldexpf(part[(step + THIRDS) % 3], (step + THIRDS) / 3 - WEFT_INT8_STEPS);
}

void weft_int8_factors(const int *step, int64_t columns, bool inverse, float *factor)
{
    for (int64_t k = 0; k < columns; k++)
        factor[k] = factor_of(inverse ? -step[k] : step[k]);
}

bool weft_int8_read_factors(const json_t *choice, const char *layer, int64_t columns, bool inverse,
                            float *factor)
{
    const json_t *steps = json_object_get(choice, layer);
    if (!json_is_string(steps) || (int64_t)json_string_length(steps) != columns)
        return false;
    const char *text = json_string_value(steps);
    for (int64_t k = 0; k < columns; k++)
        factor[k] = factor_of(inverse ? ZERO - text[k] : text[k] - ZERO);
    return true;
}

/* ---- layers --------------------------------------------------------------------------------- */

/* Whether node `n` computes in int8. Half of an attention are its scores. */
static bool is_int8(const weft_graph *g, int32_t n, weft_int8_layer *layer)
{
    const weft_node *node = weft_graph_node(g, n);
    *layer = (weft_int8_layer){.flops = (double)weft_op_get(node->op)->cost(g, node).flops};
    if (node->op == WEFT_OP_ATTENTION) {
        layer->name = node->scope;
        layer->scores = true;
        layer->flops /= 2;
        return ((const weft_attr_attention *)node->attr)->int8;
    }
    if (node->op != WEFT_OP_LINEAR)
        return false;
    const weft_value_info *w = weft_value_get(g, node->in[1]);
    layer->name = w->name;
    return weft_int8_elements(w->dtype, &w->shape) > 0;
}

int64_t weft_generator_int8_layers(const weft_generator *p, weft_int8_layer *layer)
{
    int64_t count = 0;
    weft_int8_layer one;
    for (int i = 0; i < p->model.experts; i++) {
        const weft_graph *g = p->parts.denoiser[i].own;
        for (int32_t n = 0; n < weft_graph_node_count(g); n++)
            if (is_int8(g, n, &one) && one.name && one.name[0]) {
                if (layer)
                    layer[count] = one;
                count++;
            }
    }
    return count;
}
