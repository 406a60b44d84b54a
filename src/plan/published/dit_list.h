/* Operator list of a diffusion transformer with self-attention, cross-attention to text, MLP (dense
 * or mixture of experts) and AdaLN, in the pieces of Aquarius' Table 2. One sample, 2-byte values.
 * Every layer has the same operator names, so that a planner can decide by name. */
#ifndef WEFT_PLAN_PUBLISHED_DIT_LIST_H
#define WEFT_PLAN_PUBLISHED_DIT_LIST_H

#include "plan/ops/op_list.h"

typedef struct weft_dit_shape {
    const char *name;
    int64_t layers, hidden, heads, tokens;
    int64_t text_tokens, text_width; /* 0: no cross-attention */
    int64_t adaln_rank;              /* AdaLN-LoRA; 0: full projections of 9 h^2 */
    int64_t experts, top_k;          /* 0 or 1: a dense MLP */
} weft_dit_shape;

/* Returns the workload number `index` from 0; NULL after the last. The workloads are NeMo §4.5.2,
 * Table 1: "dit-7b-8k", "dit-7b-74k", "dit-28b-8k", "dit-28b-74k". */
const weft_dit_shape *weft_dit_preset_at(int index);
const weft_dit_shape *weft_dit_preset(const char *name); /* NULL: unknown name */

weft_status weft_dit_costs(weft_arena *arena, const weft_dit_shape *shape, weft_op_list *out);

#endif
