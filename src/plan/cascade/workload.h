/* Samples of an iteration, and their costs as cascades (Arachne §III, §IV-B Eq. 8-9).
 *
 * Seconds of a DiT cascade of `batch` clips of S tokens on k devices, forward and backward:
 *
 *   compute        sum over operators of (forward + recompute + backward) / k, by device rates.
 *                  With head parallelism (Ulysses) attention takes ceil(heads / k) k / heads times
 *                  that, because a head is not split
 *   communication  Ulysses: 4 all-to-alls of the activations per layer and pass
 *                  ring: keys and values circulate, hidden behind compute up to the attention time
 *                  of a block
 *
 * The cheaper method is used. Memory is Eq. 8: model states by ZeRO stage, plus tokens / k. A VAE
 * cascade distributes its tiles over k devices, round robin. */
#ifndef WEFT_PLAN_WORKLOAD_H
#define WEFT_PLAN_WORKLOAD_H

#include "base/config.h"
#include "plan/cascade/policy.h"
#include "plan/cluster/cluster.h"
#include "plan/ops/model_work.h"

typedef struct weft_plan_bucket {
    int64_t batch, frames, height, width;
    double weight; /* probability weight of a draw */
    int64_t count; /* exact number of samples, without a draw; 0: draw */
} weft_plan_bucket;
extern const weft_section weft_plan_bucket_section;

typedef struct weft_workload {
    weft_plan_bucket *bucket; /* array in the arena */
    int64_t count;
} weft_workload;

/* Sets the buckets of "360p", "720p" or "1080p" (Arachne's stages 1 to 3). WEFT_E_ARG: another
 * name. */
weft_status weft_workload_stage(weft_arena *arena, const char *train_stage, weft_workload *out);
/* Draws `samples` samples by weight from the stream `seed`. If any bucket has count > 0, each
 * bucket occurs `count` times instead, and `samples` is ignored. WEFT_E_ARG: the workload is
 * empty. */
weft_status weft_workload_draw(weft_arena *arena, const weft_workload *from, int64_t samples,
                               uint64_t seed, weft_workload *out);

typedef enum weft_sp_method { WEFT_SP_NONE, WEFT_SP_ULYSSES, WEFT_SP_RING } weft_sp_method;

typedef struct weft_cascade_costs {
    const weft_cluster *cluster;
    const weft_model_work *model; /* work counts of every bucket of the workload */
    int64_t zero;                 /* ZeRO stage: 0..3 */
    int64_t max_degree;           /* 0 (default): all devices */
    weft_i64_list degrees;        /* allowed degrees; empty: chosen automatically */
    weft_sp_method method;        /* method of DiT cascades; NONE: the faster one */
    bool text;                    /* adds text encoder cascades */
} weft_cascade_costs;

typedef struct weft_dit_cost {
    double compute, exposed_comm, seconds, bytes; /* seconds; bytes: per device */
    double flops;                                 /* useful FLOPs per device */
    double wire_bytes;                            /* bytes sent per device */
    weft_sp_method method;
} weft_dit_cost;
/* Estimates a DiT cascade. `method` NONE: the faster one. `per_node`: devices of the group per
 * node; 0: the fewest nodes, in equal parts. */
weft_status weft_dit_cost_of(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                             int64_t degree, weft_sp_method method, int64_t per_node,
                             weft_dit_cost *out);
/* Splits the compute seconds of all passes: attention, and dense products with all other
 * operators. */
weft_status weft_dit_parts(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                           int64_t degree, weft_sp_method method, double *dense, double *attention);
weft_status weft_vae_seconds(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                             int64_t degree, double *out);
weft_status weft_text_seconds(const weft_cascade_costs *costs, const weft_plan_bucket *bucket,
                              double *out);
double weft_model_state_bytes(const weft_cascade_costs *costs);
/* Returns the seconds to reduce-scatter gradients and all-gather weights over all devices. */
double weft_sync_seconds(const weft_cascade_costs *costs);

/* Creates the cascades of an iteration: s<i>.text (optional), s<i>.vae, s<i>.dit per sample, in
 * this order. */
weft_status weft_workload_cascades(const weft_cascade_costs *costs, const weft_workload *workload,
                                   weft_arena *arena, weft_cascade_list *out);

/* Result of a baseline with the same costs, §V-A. The text, VAE and DiT cascades of a sample run in
 * sequence on its group. */
typedef struct weft_baseline {
    const char *name;
    double makespan, idle, variation; /* variation: sigma / mean of the useful FLOPs over devices */
    int64_t degree;                   /* degree of equal groups */
    bool feasible;
} weft_baseline;

#endif
