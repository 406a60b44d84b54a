/* Model description of the planners: a sequence of operators with their costs, and the skips
 * between operators. Lists come from a graph's cost rows, from plan/published/ for models without a
 * graph, or from a file of measurements. The planners never read a model.
 *
 * All figures are for ONE sample (or microbatch, as the maker of the list defines) on ONE device. A
 * multiply-add counts as 2 FLOPs. */
#ifndef WEFT_PLAN_OPS_OP_LIST_H
#define WEFT_PLAN_OPS_OP_LIST_H

#include "base/memory.h"
#include "graph/op_work.h"

typedef struct weft_op_cost {
    const char *name; /* borrowed: a literal or in the list's arena */
    weft_work kind;
    double forward_flops, backward_flops;
    double forward_bytes, backward_bytes; /* traffic to and from device memory */
    double param_bytes;                   /* in the compute dtype */
    double activation_bytes;              /* saved for the backward without recompute */
    double recompute_flops;               /* to recompute the saved activations from the input */
    double output_bytes;                  /* read by the next operator */
    /* measured for one sample; 0: use the device's figures */
    double forward_seconds, backward_seconds;
} weft_op_cost;

/* The output of op `from` is also read by op `to` (from < to). */
typedef struct weft_skip {
    int32_t from, to;
    double bytes;
} weft_skip;

typedef struct weft_op_list {
    const char *name;
    weft_op_cost *op; /* arena */
    int64_t count;
    weft_skip *skip; /* arena; NULL: none */
    int64_t skip_count;
    /* values that layouts need; 0: not applicable */
    int64_t layers, heads, hidden;
    int64_t tokens;        /* sequence length of one sample */
    int64_t dtype_bytes;   /* of an activation element */
    double update_seconds; /* measured: gradient clipping, optimizer, EMA; 0: unknown */
} weft_op_list;

/* Appends to the list; capacity grows by doubling in `arena`. WEFT_E_MEMORY. */
weft_status weft_op_list_add(weft_arena *arena, weft_op_list *list, weft_op_cost op);
weft_status weft_op_list_skip(weft_arena *arena, weft_op_list *list, weft_skip skip);
/* Returns the sums over the list; `name` and `kind` are unset. */
weft_op_cost weft_op_list_total(const weft_op_list *list);
/* Returns the FNV-1a hash of names and costs, continued from `hash`. */
uint64_t weft_op_list_hash(uint64_t hash, const weft_op_list *list);
/* Hash of the list alone, as 16 hex digits. Plans contain it. */
void weft_op_list_id(const weft_op_list *list, char text[20]);

#endif
