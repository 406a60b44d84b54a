#include "generate/generator/quantized_weights.h"

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

/* Layers whose inputs are complete blocks: of 128 where that divides them, else shorter. Q8_0 stays
 * as it is. */
static bool how_int8(void *user, const char *name, const weft_shape *shape, weft_attr_unpack *how)
{
    enum { Q8_0 = 8, LONGEST = 128, SHORTEST = 8 };
    const lookup *l = user;
    const weft_stored_tensor *t = weft_tensors_find(l->file, name + l->skip);
    const weft_packing *packing = t && is_block(t) ? t->packing : NULL;
    int elements = LONGEST;
    if (!t || shape->rank != 2 || json_object_get(l->from->kept, name) ||
        is_changed(l, name, shape))
        return false;
    while (elements >= SHORTEST && shape->dim[1] % elements)
        elements /= 2;
    if (packing && packing->gguf == Q8_0)
        elements = packing->elements;
    if (elements < SHORTEST)
        return false;
    *how = (weft_attr_unpack){Q8_0, elements, elements + 2};
    return true;
}

static bool scores_int8(void *user, const char *scope)
{
    const lookup *l = user;
    return !json_object_get(l->from->kept, scope);
}

weft_status weft_quantized_weights(const weft_graph *g, const weft_quantized_source *from,
                                   weft_graph **out)
{
    lookup l = {.skip = strlen(from->prefix), .from = from};
    weft_tensors *file;
    WEFT_TRY(weft_key_mapping_open(from->family, g, from->prefix, from->path, &file));
    l.file = file;
    const weft_status_code status = weft_pass_quantized_params(
        g, from->int8 ? how_int8 : how_packed, from->int8 ? scores_int8 : NULL, &l, out);
    weft_tensors_close(file);
    return status;
}
