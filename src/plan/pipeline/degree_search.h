/* Searches the degrees of tensor, context, expert, pipeline and data parallelism, the ZeRO stage,
 * microbatch, interleaving, recompute and offload, for models of equal layers.
 *
 * The cost terms are in weft_degrees_terms, their formulas in
 * docs/explanation/planning-pipelines.md. The
 * search has no preference for a kind of parallelism other than these terms. Among layouts within
 * 1 % of the fastest it prefers the one with the fewest mechanisms.
 *
 * plan/layout/degree_space.h enumerates the layouts and has their rules. */
#ifndef WEFT_PLAN_PIPELINE_DEGREE_SEARCH_H
#define WEFT_PLAN_PIPELINE_DEGREE_SEARCH_H

#include "plan/cluster/fabric.h"
#include "plan/layout/degree_space.h"
#include "plan/layout/layout_list.h"

/* Seconds of one iteration by cause, with the sum `seconds`. */
typedef struct weft_degrees_terms {
    double gemm, attention, pointwise; /* forward and backward of the slowest pipeline stage */
    double tp, cp, ep, dp;             /* exposed communication */
    double send, bubble;               /* pipeline */
    double recompute, offload;
    double optimizer;
    double seconds;
    /* bytes on the fullest device */
    double weights, gradients, states, activations, workspace, memory;
    double host;    /* bytes of host memory per device */
    double mfu;     /* model FLOPs (without recompute) per second, divided by the peak */
    double dropped; /* share of the activations that is recomputed or offloaded */
} weft_degrees_terms;

typedef struct weft_degrees_candidate {
    weft_degrees layout;
    weft_degrees_terms terms;
    bool fits;
    const char *why; /* reason for not being the best; NULL: the best. Arena */
} weft_degrees_candidate;

typedef struct weft_degrees_limits { /* 0: no limit */
    int64_t tp, cp, ep, pp, zero_min;
} weft_degrees_limits;

typedef struct weft_degrees_plan {
    weft_degrees_candidate *candidate; /* arena; best first, one per (tp, cp, ep, pp, dp, zero) */
    int64_t count;
    int64_t tried;
    weft_layout_list list; /* candidates for printing */
} weft_degrees_plan;

/* The model, machine and batch of a layout. */
typedef struct weft_degrees_job {
    const weft_op_list *model; /* borrowed */
    int64_t experts;           /* per layer; 1: dense */
    const weft_fabric *fabric; /* borrowed */
    int64_t batch;             /* samples per iteration */
} weft_degrees_job;

/* Estimates one layout. WEFT_E_INFEASIBLE: the degrees do not fit the model or the devices. */
weft_status weft_degrees_estimate(const weft_degrees_job *job, const weft_degrees *layout,
                                  weft_degrees_terms *out, bool *fits);

/* Searches the layouts of a job. `limits` NULL: none. WEFT_E_INFEASIBLE reports the bytes of the
 * smallest layout. */
weft_status weft_degrees_search(weft_arena *arena, const weft_degrees_job *job,
                                const weft_degrees_limits *limits, weft_degrees_plan *out);
/* Returns the seconds and the name of a cause, by number. The causes add up to `seconds`. */
enum { WEFT_DEGREES_CAUSES = 12 };
double weft_degrees_cause(const weft_degrees_terms *terms, int cause, const char **name);
void weft_degrees_text(const weft_degrees *degrees, char text[96]);

#endif
