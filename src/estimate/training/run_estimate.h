/* Estimate of a training run before it starts: parameters, FLOPs, seconds, memory and messages of
 * every training stage.
 *
 *     run, ranks, cluster ──> layout_estimate.h: programs on a clock ──> seconds, memory, messages
 *                        └──> run_simulation.h: threads on virtual devices (execute) */
#ifndef WEFT_ESTIMATE_TRAINING_RUN_ESTIMATE_H
#define WEFT_ESTIMATE_TRAINING_RUN_ESTIMATE_H

#include "estimate/training/layout_estimate.h"
#include "estimate/training/run_simulation.h"

#define WEFT_RUN_ESTIMATE_FORMAT "weft.estimate/1"

typedef struct weft_run_estimate_options {
    const char *cluster; /* `spec` of weft_run_cluster; NULL: "local" */
    int ranks;           /* 0: product of the degrees */
    bool execute;        /* execute a step of every training stage on virtual devices */
} weft_run_estimate_options;

typedef struct weft_run_estimate {
    weft_cluster cluster;
    char cluster_name[512];
    int ranks;
    weft_layout_estimate layout;
    weft_run_simulation *simulation; /* [train_stages]; NULL: not executed */
    int64_t simulations;
    double took; /* duration of the estimate */
} weft_run_estimate;

/* Resolves the layout of `run` (`auto` values, layout file, ranks) and estimates the run. `run` is
 * checked and has no cascades. `message` gets lines about the layout. The strings are in `arena`.
 * WEFT_E_MEMORY: no choice of activations fits memory.limit. */
weft_status weft_run_estimate_make(weft_run *run, const char *path,
                                   const weft_run_estimate_options *options, weft_arena *arena,
                                   weft_run_estimate *out, weft_buf *message);
void weft_run_estimate_free(weft_run_estimate *estimate);
void weft_run_estimate_print(const weft_run *run, const char *path,
                             const weft_run_estimate *estimate, weft_buf *out);
/* NULL: out of memory. */
json_t *weft_run_estimate_json(const weft_run *run, const char *path,
                               const weft_run_estimate *estimate);

#endif
