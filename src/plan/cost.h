/* What the planners know of a model: a sequence of operators with their numbers, and the skips
 * between them. Lists come from plan/model_costs.h, plan/unet_costs.h, from a graph's cost rows, or
 * from a file of measurements; the planners never see a model.
 *
 * All figures are for ONE sample (or micro-batch, as the maker of the list says) on ONE device. A
 * multiply-add counts as 2 FLOPs. */
#ifndef WEFT_PLAN_COST_H
#define WEFT_PLAN_COST_H

#include "base/memory.h"

/* What limits an operator: which achieved fraction of a device it runs at. */
typedef enum weft_op_kind {
    WEFT_OP_GEMM,      /* dense products */
    WEFT_OP_ATTENTION, /* softmax(QK^T)V; its work grows with the square of the tokens */
    WEFT_OP_CONV,      /* 2D and 3D convolutions */
    WEFT_OP_MEMORY,    /* norms, modulation, residuals, copies: bytes, not FLOPs */
    WEFT_OP_KIND_COUNT,
} weft_op_kind;

typedef struct weft_op_cost {
    const char *name; /* borrowed: a literal or the list's arena */
    weft_op_kind kind;
    double forward_flops, backward_flops;
    double forward_bytes, backward_bytes; /* traffic to and from device memory */
    double param_bytes;                   /* in the compute dtype */
    double activation_bytes;              /* kept for backward when nothing is recomputed */
    double recompute_flops;               /* to get the kept activations again from the input */
    double output_bytes;                  /* what the next operator reads */
} weft_op_cost;

/* Output of op `from` is read again by op `to` (from < to). */
typedef struct weft_skip {
    int32_t from, to;
    double bytes;
} weft_skip;

typedef struct weft_op_list {
    const char *name;
    weft_op_cost *op; /* arena */
    int64_t count;
    weft_skip *skip; /* arena; NULL when there are none */
    int64_t skip_count;
    /* facts that layouts need; 0 where they make no sense */
    int64_t layers, heads, hidden;
    int64_t tokens;      /* sequence length of one sample */
    int64_t dtype_bytes; /* of activations */
} weft_op_list;

/* Appends in the arena; capacity grows by doubling inside. WEFT_E_MEMORY. */
weft_status weft_op_list_add(weft_arena *arena, weft_op_list *list, weft_op_cost op);
weft_status weft_op_list_skip(weft_arena *arena, weft_op_list *list, weft_skip skip);
/* Sums over the list; `name` and `kind` are unset. */
weft_op_cost weft_op_list_total(const weft_op_list *list);

#endif
