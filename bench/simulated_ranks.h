/* Ranks of a benchmark: threads with a device and a clock of their own, which run placed iterations
 * of cascades by the executor of `weft train`. Kernels and messages only advance the clocks. One
 * object for the whole program. */
#ifndef WEFT_BENCH_SIMULATED_RANKS_H
#define WEFT_BENCH_SIMULATED_RANKS_H

#include "base/rng.h"
#include "comm/link_model.h"
#include "kernel/virtual/virtual.h"
#include "train/cascade/cascade_executor.h"

#include <pthread.h>

enum {
    SIMULATED_RANKS = 64,
    SIMULATED_CASCADES = 256,
    SIMULATED_BUCKETS = 16,
    SIMULATED_DRAWS = 16
};

/* A rank; `user` of the callbacks. */
typedef struct simulated_rank {
    int index;
    double clock, factor; /* factor: of kernels' seconds */
    weft_cascade_run *run;
    weft_comm *comm;
    weft_virtual_rates rates;
    weft_backend *backend;
    pthread_t thread;
} simulated_rank;

typedef struct simulated_setup {
    int ranks, per_node;
    weft_link_model links;
    double flops, bytes; /* per second of a rank's device */
    const weft_model *denoiser;
    float clip_norm; /* of gradients; 0: no clipping */
    int buckets;
    int64_t clips[SIMULATED_BUCKETS]; /* of a sample */
    weft_cascade_calls calls;         /* `user` is set to the rank */
} simulated_setup;

/* State of all ranks. The main thread prepares a plan between two executions. */
typedef struct simulated_state {
    double slow[SIMULATED_RANKS];       /* slowdown factors that the dispatcher has */
    const weft_dispatch_replan *replan; /* searches of late dispatch; NULL: none */
    /* results of the last execution: */
    const weft_placed_iteration *executed;
    weft_cascade_timing done[SIMULATED_RANKS][SIMULATED_CASCADES];
    weft_iteration_done of[SIMULATED_RANKS];
    int64_t made[SIMULATED_RANKS]; /* programs that a rank compiled */
} simulated_state;
extern simulated_state simulated;

/* Fills at[count] (at most SIMULATED_DRAWS) with draws from 0 to 1, one in each of `count` equal
 * parts, in random order. */
void simulated_draws(weft_rng *rng, int count, double *at);
/* Exits with the last error. */
void check(weft_status_code status);
/* Starts the threads. The denoiser and the users' data of callbacks are borrowed. */
void simulated_begin(const simulated_setup *setup);
/* Runs an iteration on all ranks, from one time of all clocks. */
void simulated_run(const weft_placed_iteration *plan);
/* Returns the run of rank 0, after the first simulated_run. */
weft_cascade_run *simulated_first_run(void);
void simulated_end(void);

#endif
