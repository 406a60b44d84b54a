/* What the planners know of a model: a sequence of operators with their numbers, and the skips
 * between them. Lists come from a graph's cost rows, from cli/published/ for models that have no
 * graph here, or from a file of measurements; the planners never see a model.
 *
 * All figures are for ONE sample (or micro-batch, as the maker of the list says) on ONE device. A
 * multiply-add counts as 2 FLOPs. */
#ifndef WEFT_PLAN_OP_LIST_H
#define WEFT_PLAN_OP_LIST_H

#include "base/memory.h"

/* What limits an operator: which achieved fraction of a device it runs at. */
typedef enum weft_work {
    WEFT_WORK_GEMM,      /* dense products */
    WEFT_WORK_ATTENTION, /* softmax(QK^T)V; its work grows with the square of the tokens */
    WEFT_WORK_CONV,      /* 2D and 3D convolutions */
    WEFT_WORK_MEMORY,    /* norms, modulation, residuals, copies: bytes, not FLOPs */
    WEFT_WORK_COUNT,
} weft_work;

typedef struct weft_op_cost {
    const char *name; /* borrowed: a literal or the list's arena */
    weft_work kind;
    double forward_flops, backward_flops;
    double forward_bytes, backward_bytes; /* traffic to and from device memory */
    double param_bytes;                   /* in the compute dtype */
    double activation_bytes;              /* kept for backward when nothing is recomputed */
    double recompute_flops;               /* to get the kept activations again from the input */
    double output_bytes;                  /* what the next operator reads */
    /* as measured, for one sample; 0: by the device's figures */
    double forward_seconds, backward_seconds;
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
    int64_t tokens;        /* sequence length of one sample */
    int64_t dtype_bytes;   /* of activations */
    double update_seconds; /* of clipping, optimizer and averages, as measured; 0: unknown */
} weft_op_list;

/* Appends in the arena; capacity grows by doubling inside. WEFT_E_MEMORY. */
weft_status weft_op_list_add(weft_arena *arena, weft_op_list *list, weft_op_cost op);
weft_status weft_op_list_skip(weft_arena *arena, weft_op_list *list, weft_skip skip);
/* Sums over the list; `name` and `kind` are unset. */
weft_op_cost weft_op_list_total(const weft_op_list *list);
/* FNV-1a of names and costs, going on from `hash`. */
uint64_t weft_op_list_hash(uint64_t hash, const weft_op_list *list);
/* The same alone, as 16 hex digits: plans carry it. */
void weft_op_list_id(const weft_op_list *list, char text[20]);

#endif
