/* Estimate of one layout of a run: the run's graphs, transformed as in training, with the memory
 * plan of training, and seconds at measured rates. Reserves nothing and starts no rank.
 *
 *     config, degrees ─> mesh ─> programs of the ranks (train/step/stage_programs.h) ──> bytes
 *                                       │ instructions on a clock (estimate/program_estimate.h)
 *     profile: kernels, collectives ────┘                                   ──> seconds
 *
 * Tensor shards have equal size or are shorter towards the end of an axis. So the first rank of
 * every axis except pp has the peak memory; along pp, every rank is estimated. */
#ifndef WEFT_ESTIMATE_TRAINING_LAYOUT_ESTIMATE_H
#define WEFT_ESTIMATE_TRAINING_LAYOUT_ESTIMATE_H

#include "plan/cluster/cluster.h"
#include "train/estimate/memory_estimate.h"
#include "train/estimate/memory_fit.h"
#include "train/estimate/rank_kinds.h"

/* Inputs common to all layouts; borrowed. */
typedef struct weft_layout_estimator {
    const weft_run *run;
    const char *path; /* path of the config, for messages */
    const weft_run_models *models;
    const weft_cluster *cluster;
    int ranks;
    int64_t process_bytes; /* bytes of a process before training */
    int64_t limit;         /* bytes of a rank without memory.limit; 0: no limit */
    const bool *encoded;   /* cached latents by training stage; NULL: none */
    /* choices of a started run; NULL: none; unused with a pipeline */
    weft_stored_activations *stored;
    bool by_stage; /* fill weft_layout_estimate.stage */
    weft_arena *arena;
} weft_layout_estimator;

/* Seconds of a step on the busiest rank. */
typedef struct weft_step_seconds {
    double total;
    /* Terms of `total`: kernels of forward and backward, waits for communication, kernels of the
     * update, pipeline bubbles. */
    double compute, comm, optimizer, bubble;
    double hidden; /* communication during compute, not in `total` */
    double exact;  /* share of kernel seconds measured at these shapes */
} weft_step_seconds;

/* Adds the seconds to a JSON object. */
void weft_step_seconds_json(const weft_step_seconds *time, json_t *to);

/* Estimate of a step of one training stage. */
typedef struct weft_stage_estimate {
    int64_t parameters;            /* trained together */
    double *flops;                 /* [buckets] of a step on all ranks; arena */
    weft_step_seconds time;        /* mean of the buckets */
    int64_t program_bytes;         /* reserved for the stage's programs by the rank with the peak */
    weft_sent sent[WEFT_MAX_AXES]; /* planned messages of the first rank in a step, by axis */
} weft_stage_estimate;

typedef struct weft_layout_estimate {
    weft_parallel parallel;
    weft_mesh mesh;
    bool legal;             /* training accepts the layout */
    bool fits;              /* the peak is within the limit */
    weft_step_seconds time; /* mean of all steps of the run */
    weft_run_bytes peak;    /* peak of the rank with the largest peak */
    int64_t limit; /* memory.limit to train with, met by recomputing activations; 0: no limit */
    const char *memory;   /* memory report of the rank with the largest peak; arena */
    const char *fit;      /* by_stage: choices for the limit, as text; "": none. Arena */
    int64_t weight_bytes; /* weights, optimizer and EMA of the rank with the largest peak */
    weft_stage_estimate *train_stage; /* [train_stages] with by_stage; arena */
    const char *why;                  /* reason if not legal or does not fit; arena */
} weft_layout_estimate;

/* Adds seconds and bytes to a JSON object. */
void weft_layout_estimate_json(const weft_layout_estimate *layout, json_t *to);

/* Estimates a layout. An illegal layout is reported in `out`, not as an error. */
weft_status weft_layout_estimate_make(const weft_layout_estimator *estimator,
                                      const weft_parallel *parallel, weft_layout_estimate *out);

/* Estimates the run's own layout. Errors of an illegal layout are returned. */
weft_status weft_layout_estimate_run(const weft_layout_estimator *estimator,
                                     weft_layout_estimate *out);

/* Loads the cluster of a run: `spec` as in weft_cluster_load, or "local": <out>/profile.json if it
 * exists. `name` (512 bytes) gets the name of the loaded cluster. */
weft_status weft_run_cluster(weft_arena *arena, const weft_run *run, const char *spec,
                             weft_cluster *cluster, char name[512]);
/* Loads the cluster of parallel.cascades.cluster; errors name the key. `path`: of the config. */
weft_status weft_cascade_cluster(weft_arena *arena, const weft_run *run, const char *path,
                                 weft_cluster *cluster, char name[512]);

#endif
