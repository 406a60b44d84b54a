/* Layout tuner: which degrees of tensor, context, expert, pipeline and data parallelism, which ZeRO
 * stage, microbatch and interleaving, what to recompute and to offload.
 *
 * Two levels. weft_tune_pulse() is PULSE §VI to the letter: (P, G, b) by Eq. 14-17 for models whose
 * skips are collocated. weft_tune_layout() goes on to all the degrees for models of equal layers;
 * its cost terms are in weft_layout_terms, their formulas in docs/planning-pipelines.md. Nothing in
 * it prefers a kind of parallelism: preferences come out of the terms. */
#ifndef WEFT_PLAN_TUNE_H
#define WEFT_PLAN_TUNE_H

#include "base/json.h"
#include "plan/cluster.h"
#include "plan/partition.h"

/* What the closed forms need of a cluster. */
typedef struct weft_fabric {
    int64_t nodes, per_node;
    double intra, inter; /* B/s per device: to its neighbours in the node; its share of the NICs */
    double intra_latency, inter_latency;
    double host;                  /* B/s per device to host memory, 0: none */
    double memory;                /* bytes per device */
    double flops;                 /* peak FLOP/s */
    double gemm, attention, conv; /* achieved fractions of it on large operands */
    double memory_rate;           /* achieved B/s */
    double launch;                /* seconds: no kernel is shorter */
} weft_fabric;
weft_fabric weft_fabric_from_cluster(const weft_cluster *cluster);

/* Bytes of a device that a plan may fill: the rest is for contexts, the allocator and buffers of
 * the communication library. */
double weft_fabric_usable(const weft_fabric *fabric);

/* Seconds of a collective over `ranks` of which `together` share a node; `bytes` is the full
 * tensor. Rings inside and between nodes overlap (the slower one counts); every group of a node is
 * active at once, so a rank has its own share of the NICs. */
double weft_fabric_gather(const weft_fabric *f, int64_t ranks, int64_t together, double bytes);

/* ---- PULSE Eq. 14-17 ----------------------------------------------------------------------- */

typedef struct weft_pulse_choice {
    int64_t p, g, b;                  /* pipeline devices, replicas, microbatch */
    double seconds_per_sample;        /* Eq. 17 */
    double compute, send, all_reduce; /* the terms of Eq. 15 */
    double memory;                    /* Eq. 14 */
    double bottleneck;                /* T_f: the slowest stage, one forward */
    bool fits;
} weft_pulse_choice;

/* `costs` are for one sample; a microbatch of b takes b times as long plus `overhead` (0..1): the
 * share of an operator's time that does not grow with b. Enumerates P G = devices and b = 1, 2, 4,
 * ... up to `most_b`; choices are sorted, best first, those that do not fit last. `out` has room
 * for `room`; *count is how many there are. */
weft_status weft_tune_pulse(const weft_pipe_costs *costs, const weft_fabric *fabric,
                            int64_t devices, int64_t most_b, double overhead,
                            weft_pulse_choice *out, int64_t room, int64_t *count);

/* ---- all degrees --------------------------------------------------------------------------- */

typedef struct weft_layout {
    int64_t tp, cp, ep, pp, dp; /* tp cp pp dp = devices; ep divides dp cp */
    int64_t zero; /* 0..3: what is sharded over dp cp: nothing, optimizer, + gradients, + weights */
    int64_t microbatch, accumulation, interleave;
    bool offload; /* activations and, where needed, optimizer states may go to the host */
} weft_layout;

/* Seconds of one iteration, by cause; they add up to `seconds`. */
typedef struct weft_layout_terms {
    double gemm, attention, pointwise; /* of the slowest stage, forward and backward */
    double tp, cp, ep, dp;             /* communication that is not hidden */
    double send, bubble;               /* pipeline */
    double recompute, offload;
    double optimizer;
    double seconds;
    /* bytes on the fullest device */
    double weights, gradients, states, activations, workspace, memory;
    double mfu;     /* model FLOPs (without recompute) per second over the peak */
    double dropped; /* share of the activations that is recomputed or offloaded */
} weft_layout_terms;

typedef struct weft_layout_candidate {
    weft_layout layout;
    weft_layout_terms terms;
    bool fits;
    const char *why; /* why it lost; NULL for the best. Arena */
} weft_layout_candidate;

typedef struct weft_layout_limits { /* 0: no limit */
    int64_t tp, cp, ep, pp, zero_min;
} weft_layout_limits;

typedef struct weft_layout_plan {
    weft_layout_candidate *candidate; /* arena; best first, one per (tp, cp, ep, pp, dp, zero) */
    int64_t count;
    int64_t tried;
} weft_layout_plan;

/* Prices one layout. WEFT_E_INFEASIBLE when degrees do not fit the model or the devices. */
weft_status weft_layout_price(const weft_op_list *model, int64_t experts, const weft_fabric *fabric,
                              int64_t batch, const weft_layout *layout, weft_layout_terms *out,
                              bool *fits);

/* `batch` samples per iteration. WEFT_E_INFEASIBLE says how much the smallest layout needs. */
weft_status weft_tune_layout(weft_arena *arena, const weft_op_list *model, int64_t experts,
                             const weft_fabric *fabric, int64_t batch,
                             const weft_layout_limits *limits, weft_layout_plan *out);
/* The causes that add up to `seconds`, by number, with what to call them. */
enum { WEFT_LAYOUT_CAUSES = 12 };
double weft_layout_cause(const weft_layout_terms *terms, int cause, const char **name);
void weft_layout_text(const weft_layout *layout, char text[96]);
/* {"format": "weft.layout/1", "best": {...}, "candidates": [...]}: the best and `others` more. */
json_t *weft_layout_plan_json(const weft_layout_plan *plan, int64_t others);
void weft_layout_plan_print(const weft_layout_plan *plan, int64_t others, weft_buf *out);
/* Stacked bars of the causes; those that do not fit are left out. Appends an SVG document. */
void weft_layout_plan_draw(const weft_layout_plan *plan, int64_t others, weft_buf *out);

#endif
