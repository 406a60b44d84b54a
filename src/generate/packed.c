#include "generate/packed.h"

#include <string.h>

/* Blocks that lie in rows, with nothing beside them to be multiplied by. */
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
    size_t skip; /* of a name in the graph */
} lookup;

static const weft_stored_tensor *find(const lookup *l, const char *name, const weft_shape *shape)
{
    const weft_stored_tensor *t = weft_tensors_find(l->file, name);
    const int rank = shape->rank;
    return t && is_block(t) && rank >= 2 && t->dim[0] == shape->dim[rank - 2] &&
                   t->dim[1] == shape->dim[rank - 1]
               ? t
               : NULL;
}

/* Of a stack all items, packed alike. */
static bool how_packed(void *user, const char *name, const weft_shape *shape, weft_attr_unpack *how)
{
    const lookup *l = user;
    const char *own = name + l->skip;
    const bool stack = weft_name_is_stack(own);
    const weft_packing *packing = NULL;
    if (shape->rank != 2 + stack)
        return false;
    for (int64_t i = 0; i < (stack ? shape->dim[0] : 1); i++) {
        char room[600];
        if (stack)
            weft_stack_item(own, i, room, sizeof room);
        const weft_stored_tensor *t = find(l, stack ? room : own, shape);
        if (!t || (packing && packing != t->packing))
            return false;
        packing = t->packing;
    }
    if (packing)
        *how = (weft_attr_unpack){packing->gguf, packing->elements, packing->bytes};
    return packing != NULL;
}

weft_status weft_packed_graph(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, weft_graph **out)
{
    lookup l = {.skip = strlen(prefix)};
    weft_tensors *file;
    WEFT_TRY(weft_dialect_open(family, g, prefix, path, &file));
    l.file = file;
    const weft_status_code status = weft_pass_pack(g, how_packed, &l, out);
    weft_tensors_close(file);
    return status;
}
