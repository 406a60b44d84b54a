/* What a run would take if it were laid over its ranks in a given way: its own graphs through the
 * passes that training runs them through, with the memory plan that training prints, and seconds by
 * measured rates. Nothing is reserved and no rank runs.
 *
 *     config, degrees ─> mesh ─> programs of the ranks (train/stage_steps.h) ──> bytes
 *                                       │ instructions on a clock (runtime/foresee.h)
 *     profile: kernels, exchanges ──────┘                                   ──> seconds
 *
 * Parts are of equal size or shorter towards the end of an axis, so the first rank of every axis
 * but pp takes most; of pp every rank is looked at. */
#ifndef WEFT_TRAIN_LAYOUT_PRICE_H
#define WEFT_TRAIN_LAYOUT_PRICE_H

#include "plan/cluster/cluster.h"
#include "train/run_fit.h"
#include "train/run_memory.h"

/* What is the same for all layouts; borrowed. */
typedef struct weft_pricer {
    const weft_run *run;
    const char *path; /* of the config, for messages */
    const weft_run_models *models;
    const weft_cluster *cluster;
    int ranks;
    int64_t process; /* bytes that a process has before it begins */
    int64_t limit;   /* of a rank, where the run's memory.limit says none; 0: none */
    weft_arena *arena;
} weft_pricer;

/* Seconds are of a step, in the mean over all steps of the run. */
typedef struct weft_layout_price {
    weft_parallel parallel;
    weft_mesh mesh;
    bool legal; /* training takes it; */
    bool fits;  /* and it keeps to the limit */
    double seconds;
    /* What they are made of, on the rank that has most to do: kernels of forward and backward,
     * waits for exchanges, kernels of the update, pauses of a pipeline */
    double compute, exchange, optimizer, bubble;
    double hidden;       /* seconds of exchanges behind kernels */
    double exact;        /* share of the kernels' seconds that was measured at these shapes */
    weft_run_bytes peak; /* of the rank that takes most */
    int64_t limit; /* memory.limit to run it with: stages make something again for it; 0: none */
    const char *memory; /* what the rank that takes most says of it; arena */
    const char *why;    /* not legal or does not fit; arena */
} weft_layout_price;

/* A layout that cannot be is told in `out`, not as an error. */
weft_status weft_layout_price_of(const weft_pricer *pricer, const weft_parallel *parallel,
                                 weft_layout_price *out);

/* The cluster of a run: `spec` as weft_cluster_load has it, or "local": <out>/profile.json, if it
 * is there. `name` (512 bytes) gets what was loaded. */
weft_status weft_run_cluster(weft_arena *arena, const weft_run *run, const char *spec,
                             weft_cluster *cluster, char name[512]);
/* That of parallel.cascades.cluster; errors name the key. */
weft_status weft_cascade_cluster(weft_arena *arena, const weft_run *run, weft_cluster *cluster,
                                 char name[512]);

#endif
