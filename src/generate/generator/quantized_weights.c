#include "generate/generator/quantized_weights.h"

#include "generate/generator/int8_layers.h"
#include "graph/builder_helpers.h"
#include "transform/numeric/quantized_params.h"

#include <string.h>

/* Whether a tensor is quantized in blocks along its rows, without a separate scale tensor. */
static bool is_block(const weft_stored_tensor *t)
{
    return t->packing && t->packing->gguf >= 0 && t->packing->elements > 1 && !t->scaling &&
           t->rank == 2 && t->dim[1] > 0 && t->dim[1] % t->packing->elements == 0;
}

weft_status weft_packed_has(const char *path, bool *has)
{
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(path, &file));
    *has = false;
    for (int64_t i = 0; i < weft_tensors_count(file) && !*has; i++)
        *has = is_block(weft_tensors_at(file, i));
    weft_tensors_close(file);
    return WEFT_OK;
}

typedef struct lookup {
    const weft_tensors *file;
    size_t skip; /* bytes of a graph name before the name in the file */
    const weft_quantized_source *from;
} lookup;

/* Whether an adapter changes the parameter; tests by merging one element per item. */
static bool is_changed(const lookup *l, const char *name, const weft_shape *shape)
{
    bool changed = false, any = false;
    float one = 0;
    weft_adapter_box box = {
        .param = name, .dtype = WEFT_F32, .whole = *shape, .shape = *shape, .data = &one};
    for (int i = 0; i < shape->rank; i++)
        box.shape.dim[i] = 1;
    const int64_t items = weft_name_is_stack(name) ? shape->dim[0] : 1;
    for (; box.start[0] < items && l->from->uses && !any; box.start[0]++)
        any =
            weft_adapters_merge(l->from->use, l->from->uses, &box, &changed) != WEFT_OK || changed;
    return any;
}

static const weft_stored_tensor *find(const lookup *l, const char *name, const weft_shape *shape)
{
    const weft_stored_tensor *t = weft_tensors_find(l->file, name);
    const int rank = shape->rank;
    return t && is_block(t) && rank >= 2 && t->dim[0] == shape->dim[rank - 2] &&
                   t->dim[1] == shape->dim[rank - 1]
               ? t
               : NULL;
}

/* All items of a stack must have the same block format. */
static bool how_packed(void *user, const char *name, const weft_shape *shape, weft_attr_unpack *how)
{
    const lookup *l = user;
    const char *own = name + l->skip;
    const bool stack = weft_name_is_stack(own);
    const weft_packing *packing = NULL;
    if (shape->rank != 2 + stack || is_changed(l, name, shape))
        return false;
    for (int64_t i = 0; i < (stack ? shape->dim[0] : 1); i++) {
        char item_name[600];
        if (stack)
            weft_stack_item(own, i, item_name, sizeof item_name);
        const weft_stored_tensor *t = find(l, stack ? item_name : own, shape);
        if (!t || (packing && packing != t->packing))
            return false;
        packing = t->packing;
    }
    if (packing)
        *how = (weft_attr_unpack){packing->gguf, packing->elements, packing->bytes};
    return packing != NULL;
}

enum { Q8_0 = 8 };

static bool is_q8_0(const weft_stored_tensor *t)
{
    return is_block(t) && t->packing->gguf == Q8_0;
}

static bool is_kept(const lookup *l, const char *layer)
{
    return json_is_true(json_object_get(l->from->layers, layer));
}

/* Layers whose inputs are complete blocks. Q8_0 stays as it is. */
static bool how_int8(void *user, const char *name, const weft_shape *shape, weft_attr_unpack *how)
{
    const lookup *l = user;
    const weft_stored_tensor *t = weft_tensors_find(l->file, name + l->skip);
    if (!t || shape->rank != 2 || is_kept(l, name) || is_changed(l, name, shape))
        return false;
    const int64_t elements = is_q8_0(t) ? t->packing->elements : weft_int8_block(shape->dim[1]);
    *how = (weft_attr_unpack){Q8_0, elements, elements + 2};
    return elements > 0;
}

static bool scores_int8(void *user, const char *scope)
{
    return !is_kept(user, scope);
}

/* Q8_0 has the weights without factors. */
static bool smoothing_int8(void *user, const char *name, int64_t columns, float *factor)
{
    const lookup *l = user;
    const weft_stored_tensor *t = weft_tensors_find(l->file, name + l->skip);
    return t && !is_q8_0(t) && weft_int8_read_factors(l->from->layers, name, columns, true, factor);
}

weft_status weft_quantized_smooth(const weft_graph *own, const char *prefix, const json_t *layers,
                                  weft_tensors *file)
{
    const size_t skip = strlen(prefix);
    for (int32_t n = 0; n < weft_graph_node_count(own) && layers; n++) {
        const weft_node *node = weft_graph_node(own, n);
        const weft_value_info *info =
            node->op == WEFT_OP_PARAM ? weft_value_get(own, node->out[0]) : NULL;
        if (!info || info->dtype != WEFT_U8 || strncmp(info->name, prefix, skip) != 0)
            continue;
        const weft_stored_tensor *t = weft_tensors_find(file, info->name + skip);
        if (!t || t->rank != 2 || is_q8_0(t))
            continue;
        float *factor = weft_alloc(t->dim[1] * (int64_t)sizeof *factor + 1);
        weft_status_code status = WEFT_ALLOCATED(factor, "%s", info->name);
        if (weft_int8_read_factors(layers, info->name, t->dim[1], false, factor))
            status = weft_tensors_scale_columns(file, info->name + skip, factor);
        weft_free(factor);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

weft_status weft_quantized_weights(const weft_graph *g, const weft_quantized_source *from,
                                   weft_graph **out)
{
    lookup l = {.skip = strlen(from->prefix), .from = from};
    weft_tensors *file;
    WEFT_TRY(weft_key_mapping_open(from->family, g, from->prefix, from->path, &file));
    l.file = file;
    const weft_int8_rules int8 = {scores_int8, smoothing_int8};
    const weft_status_code status = weft_pass_quantized_params(
        g, from->int8 ? how_int8 : how_packed, from->int8 ? &int8 : NULL, &l, out);
    weft_tensors_close(file);
    return status;
}
