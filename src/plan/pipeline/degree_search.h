/* Which degrees of tensor, context, expert, pipeline and data parallelism, which ZeRO stage,
 * microbatch and interleaving, what to recompute and to offload, for models of equal layers.
 *
 * The cost terms are in weft_degrees_terms, their formulas in docs/planning-pipelines.md. Nothing
 * here prefers a kind of parallelism: preferences come out of the terms. */
#ifndef WEFT_PLAN_DEGREES_H
#define WEFT_PLAN_DEGREES_H

#include "plan/cluster/fabric.h"

typedef struct weft_degrees {
    int64_t tp, cp, ep, pp, dp; /* tp cp pp dp = devices; ep divides dp cp */
    int64_t zero; /* 0..3: what is sharded over dp cp: nothing, optimizer, + gradients, + weights */
    int64_t microbatch, accumulation, interleave;
    bool offload; /* activations and, where needed, optimizer states may go to the host */
} weft_degrees;

/* Seconds of one iteration, by cause; they add up to `seconds`. */
typedef struct weft_degrees_terms {
    double gemm, attention, pointwise; /* of the slowest stage, forward and backward */
    double tp, cp, ep, dp;             /* communication that is not hidden */
    double send, bubble;               /* pipeline */
    double recompute, offload;
    double optimizer;
    double seconds;
    /* bytes on the fullest device */
    double weights, gradients, states, activations, workspace, memory;
    double host;    /* bytes of the host per device */
    double mfu;     /* model FLOPs (without recompute) per second over the peak */
    double dropped; /* share of the activations that is recomputed or offloaded */
} weft_degrees_terms;

typedef struct weft_degrees_candidate {
    weft_degrees layout;
    weft_degrees_terms terms;
    bool fits;
    const char *why; /* why it lost; NULL for the best. Arena */
} weft_degrees_candidate;

typedef struct weft_degrees_limits { /* 0: no limit */
    int64_t tp, cp, ep, pp, zero_min;
} weft_degrees_limits;

typedef struct weft_degrees_plan {
    weft_degrees_candidate *candidate; /* arena; best first, one per (tp, cp, ep, pp, dp, zero) */
    int64_t count;
    int64_t tried;
} weft_degrees_plan;

/* Prices one layout. WEFT_E_INFEASIBLE when degrees do not fit the model or the devices. */
weft_status weft_degrees_price(const weft_op_list *model, int64_t experts,
                               const weft_fabric *fabric, int64_t batch, const weft_degrees *layout,
                               weft_degrees_terms *out, bool *fits);

/* `batch` samples per iteration. WEFT_E_INFEASIBLE says how much the smallest layout needs. */
weft_status weft_degrees_tune(weft_arena *arena, const weft_op_list *model, int64_t experts,
                              const weft_fabric *fabric, int64_t batch,
                              const weft_degrees_limits *limits, weft_degrees_plan *out);
/* The causes that add up to `seconds`, by number, with what to call them. */
enum { WEFT_DEGREES_CAUSES = 12 };
double weft_degrees_cause(const weft_degrees_terms *terms, int cause, const char **name);
void weft_degrees_text(const weft_degrees *degrees, char text[96]);

#endif
