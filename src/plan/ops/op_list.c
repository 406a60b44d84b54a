#include "plan/ops/op_list.h"

#include "base/hex.h"
#include "base/id_hash.h"

#include <string.h>

/* Doubles the capacity when the count is a power of two. The old array remains in the arena. */
static weft_status grow_array(weft_arena *arena, void **array, int64_t count, int64_t element_bytes)
{
    if (count && (count & (count - 1)))
        return WEFT_OK;
    void *larger = weft_arena_alloc(arena, (count ? 2 * count : 1) * element_bytes);
    WEFT_TRY(WEFT_ALLOCATED(larger, "a list of %" PRId64 " operators", count));
    if (count)
        memcpy(larger, *array, (size_t)(count * element_bytes));
    *array = larger;
    return WEFT_OK;
}

weft_status weft_op_list_add(weft_arena *arena, weft_op_list *list, weft_op_cost op)
{
    void *array = list->op;
    WEFT_TRY(grow_array(arena, &array, list->count, sizeof op));
    list->op = array;
    list->op[list->count++] = op;
    return WEFT_OK;
}

weft_status weft_op_list_skip(weft_arena *arena, weft_op_list *list, weft_skip skip)
{
    void *array = list->skip;
    WEFT_TRY(grow_array(arena, &array, list->skip_count, sizeof skip));
    list->skip = array;
    list->skip[list->skip_count++] = skip;
    return WEFT_OK;
}

weft_op_cost weft_op_list_total(const weft_op_list *list)
{
    weft_op_cost sum = {.name = NULL};
    for (int64_t i = 0; i < list->count; i++) {
        const weft_op_cost *op = &list->op[i];
        sum.forward_flops += op->forward_flops;
        sum.backward_flops += op->backward_flops;
        sum.forward_bytes += op->forward_bytes;
        sum.backward_bytes += op->backward_bytes;
        sum.param_bytes += op->param_bytes;
        sum.activation_bytes += op->activation_bytes;
        sum.recompute_flops += op->recompute_flops;
        sum.output_bytes += op->output_bytes;
        sum.forward_seconds += op->forward_seconds;
        sum.backward_seconds += op->backward_seconds;
    }
    return sum;
}

uint64_t weft_op_list_hash(uint64_t hash, const weft_op_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        const weft_op_cost *o = &list->op[i];
        const double n[] = {(double)o->kind,  o->forward_flops,   o->backward_flops,
                            o->forward_bytes, o->backward_bytes,  o->param_bytes,
                            o->output_bytes,  o->activation_bytes};
        hash = weft_id_mix(weft_id_mix(hash, o->name, strlen(o->name)), n, sizeof n);
    }
    for (int64_t i = 0; i < list->skip_count; i++) {
        const double n[] = {list->skip[i].from, list->skip[i].to, list->skip[i].bytes};
        hash = weft_id_mix(hash, n, sizeof n);
    }
    return hash;
}

void weft_op_list_id(const weft_op_list *list, char text[20])
{
    weft_hex_print(weft_op_list_hash(WEFT_ID_BEGIN, list), text);
}
