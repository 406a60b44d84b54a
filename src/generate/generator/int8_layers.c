#include "generate/generator/int8_layers.h"

#include "base/fs.h"
#include "generate/generator/generator_parts.h"

#include <string.h>

static const char *const file_name = "int8.json";

/* ---- the file ------------------------------------------------------------------------------- */

static weft_status read_kept(const json_t *json, const char *path, bool bf16, json_t **kept)
{
    const char *format;
    size_t i;
    const json_t *name,
        *list = json_object_get(json_object_get(json, bf16 ? "bf16" : "f32"), "kept");
    WEFT_TRY(weft_json_get_string(json, "format", path, &format));
    if (strcmp(format, WEFT_INT8_FORMAT) != 0)
        return weft_error(
            WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "format", .value = format),
            "'%.40s' is not " WEFT_INT8_FORMAT ". Remove the file, and run `weft eval int8` again.",
            format);
    json_t *set = json_object();
    bool valid = set && json_is_array(list);
    json_array_foreach(list, i, name) valid =
        valid && json_is_string(name) &&
        json_object_set_new(set, json_string_value(name), json_true()) == 0;
    if (!valid) {
        json_decref(set);
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "kept"),
                          "the value is not a list of names of layers. Remove the file, and run "
                          "`weft eval int8` again.");
    }
    *kept = set;
    return WEFT_OK;
}

weft_status weft_int8_kept_load(const char *folder, bool bf16, json_t **kept)
{
    char *path = weft_path_join(folder, file_name);
    json_t *json = NULL;
    weft_status_code status = WEFT_OK;
    *kept = NULL;
    WEFT_GO(WEFT_ALLOCATED(path, "a path"));
    if (!weft_path_exists(path))
        goto out;
    WEFT_GO(weft_json_load(path, &json));
    WEFT_GO(read_kept(json, path, bf16, kept));
out:
    json_decref(json);
    weft_free(path);
    return status;
}

weft_status weft_int8_kept_save(const char *folder, json_t *choice)
{
    char *path = weft_path_join(folder, file_name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(
        path && json_object_set_new(choice, "format", json_string(WEFT_INT8_FORMAT)) == 0,
        "the choice of layers"));
    WEFT_GO(weft_json_save(path, choice));
out:
    weft_free(path);
    return status;
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
