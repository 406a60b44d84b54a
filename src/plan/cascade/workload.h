/* An iteration's samples, and what each costs as cascades (Arachne §III, §IV-B Eq. 8-9).
 *
 * Seconds of a DiT cascade of `batch` clips of S tokens on k devices, forward and backward:
 *
 *   compute        sum over operators of (forward + recompute + backward) / k, by device rates;
 *                  with head parallelism (Ulysses) attention takes ceil(heads / k) k / heads of
 *                  that, because a head is not split
 *   communication  Ulysses: 4 all-to-alls of the activations per layer and pass
 *                  ring: keys and values go round, hidden behind the attention of a block as far as
 *                  that is longer
 *
 * and the better of the two is taken. Memory is Eq. 8: model states by ZeRO stage, plus tokens / k.
 * A VAE cascade deals its tiles to k devices in turn. */
#ifndef WEFT_PLAN_WORKLOAD_H
#define WEFT_PLAN_WORKLOAD_H

#include "base/config.h"
#include "plan/cascade/policy.h"
#include "plan/cluster/cluster.h"
#include "plan/cost/model_work.h"

typedef struct weft_plan_bucket {
    int64_t batch, frames, height, width;
    double weight; /* of the distribution to draw from */
    int64_t count; /* exactly so many instead of drawing */
} weft_plan_bucket;
extern const weft_section weft_plan_bucket_section;

typedef struct weft_workload {
    weft_plan_bucket *bucket; /* arena */
    int64_t count;
} weft_workload;

/* The buckets of "360p", "720p", "1080p" (Arachne's stages 1 to 3). WEFT_E_NOT_FOUND. */
weft_status weft_workload_stage(weft_arena *arena, const char *stage, weft_workload *out);
/* `samples` draws from the weights; stream `seed`. Buckets with count > 0 come exactly so often
 * instead (then samples may be 0). WEFT_E_ARG when nothing is left: the workload is empty. */
weft_status weft_workload_draw(weft_arena *arena, const weft_workload *from, int64_t samples,
                               uint64_t seed, weft_workload *out);

typedef enum weft_sp_method { WEFT_SP_NONE, WEFT_SP_ULYSSES, WEFT_SP_RING } weft_sp_method;

typedef struct weft_cascade_costs {
    const weft_cluster *cluster;
    const weft_model_work *model; /* has counted every bucket of the workload */
    int64_t zero;                 /* ZeRO stage: 0..3 */
    int64_t max_degree;           /* 0: all devices */
    weft_i64_list degrees;        /* empty: every integer */
    weft_sp_method method;        /* of DiT cascades; NONE: the better of the two */
    bool text;                    /* text encoder cascades too */
} weft_cascade_costs;

typedef struct weft_dit_cost {
    double compute, exchange, seconds, bytes; /* exchange: exposed communication */
    double flops;                             /* per device, useful */
    double wire_bytes;                        /* sent per device */
    weft_sp_method method;
} weft_dit_cost;
/* Method NONE: the better of the two. `per_node`: devices of the group in one node (0: packed). */
weft_status weft_dit_cost_of(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                             int64_t degree, weft_sp_method method, int64_t per_node,
                             weft_dit_cost *out);
/* Its compute seconds apart: dense products and the rest, and attention; all three passes. */
weft_status weft_dit_parts(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                           int64_t degree, weft_sp_method method, double *dense, double *attention);
weft_status weft_vae_seconds(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                             int64_t degree, double *out);
weft_status weft_text_seconds(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                              double *out);
double weft_model_state_bytes(const weft_cascade_costs *costs);
/* Reduce-scatter of the gradients and all-gather of the weights over all devices, at the end. */
double weft_sync_seconds(const weft_cascade_costs *costs);

/* The cascades of an iteration: s<i>.text, s<i>.vae, s<i>.dit per sample, in this order. */
weft_status weft_workload_cascades(const weft_cascade_costs *costs, const weft_workload *workload,
                                   weft_arena *arena, weft_cascade_list *out);

/* Baselines with the same costs, §V-A. Every sample is a unit: text, VAE and DiT one after the
 * other on its group. */
typedef struct weft_baseline {
    const char *name;
    double makespan, idle, variation; /* variation: of busy FLOPs over devices, sigma / mean */
    int64_t degree;                   /* of the static ones */
    bool feasible;
} weft_baseline;
/* Static DP x CP with CP = degree. Samples go to the groups in the order of the iteration, round
 * robin, as a data loader deals them. */
weft_status weft_baseline_static(const weft_cascade_costs *costs, const weft_workload *workload,
                                 int64_t degree, weft_sp_method method, weft_arena *arena,
                                 weft_baseline *out);
/* FlexSP-like: the best cut of the devices into groups of powers of two for this iteration, samples
 * dealt longest first to the group that is done first; all groups start together. */
weft_status weft_baseline_flexsp(const weft_cascade_costs *costs, const weft_workload *workload,
                                 weft_arena *arena, weft_baseline *out);
/* KnapFormer-like: equal groups of `degree` (0: the best for this iteration), samples by falling
 * FLOPs to the group with the fewest. */
weft_status weft_baseline_knapformer(const weft_cascade_costs *costs, const weft_workload *workload,
                                     int64_t degree, weft_arena *arena, weft_baseline *out);
/* What plan/cascade/policy.h is asked about a list of weft_workload_cascades. */
weft_status weft_workload_request(const weft_cascade_costs *costs, const weft_workload *workload,
                                  const weft_cascade_list *list, weft_arena *arena,
                                  weft_policy_request *out);
/* As Arachne §III describes the systems before it: "all samples within an iteration launch
 * simultaneously", each on a group of its own (a power of two, the best for this iteration), which
 * waits for the slowest. */
weft_status weft_baseline_at_once(const weft_cascade_costs *costs, const weft_workload *workload,
                                  weft_arena *arena, weft_baseline *out);

#endif
