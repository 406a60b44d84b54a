/* The model of bench/robust on simulated ranks (simulated_ranks.h). Plans run in the executor of
 * `weft train`, with the seconds of the cost model.
 *
 * Dispatch decisions, transfers, collectives and gradient reductions are the executor's, and
 * messages advance the clocks. The denoiser is a transformer of one block, with slower kernels: a
 * cascade needs its predicted seconds times its error and the slowdown of the rank. Encoders
 * advance the clock. Links are slower by the ratio of gradient bytes, so a reduction needs the
 * seconds of the complete model. One object for the whole program. */
#ifndef WEFT_BENCH_ROBUST_RANKS_H
#define WEFT_BENCH_ROBUST_RANKS_H

#include "plan/cascade/expect.h"
#include "simulated_ranks.h"

enum { ROBUST_RANKS = SIMULATED_RANKS, ROBUST_CASCADES = 3 * ROBUST_RANKS / 4 };

/* A plan to execute, with its errors. All pointers are borrowed. */
typedef struct robust_job {
    const weft_cascade_list *list;
    const weft_placement *plan;
    bool late;
    const weft_dispatch_replan *replan; /* searches of late dispatch; NULL: none */
    const double *factor;               /* [cascades] executed / predicted seconds */
    const double *slow;                 /* [ranks] slowdown factors, which the dispatcher knows */
    /* Encoders are of the samples of the next iteration. The execution before ran the encoders of
     * this one; its plan has the same cascades. */
    bool ahead;
} robust_job;

typedef struct robust_times {
    double makespan, total; /* seconds to the end of the last cascade; of the gradient reduction */
    int64_t moved;          /* cascades on another first rank than planned */
} robust_times;

/* Starts the ranks of the cluster. `gradients`: bytes of the complete model's gradients; `latents`:
 * bytes of a sample's latents. */
void robust_ranks_begin(const weft_cluster *cluster, double gradients, double latents);
robust_times robust_ranks_execute(const robust_job *job);
/* Sets the seconds of the gradient reduction of idle ranks, and of its last part. */
void robust_ranks_reduce(double *seconds, double *last);
void robust_ranks_end(void);

#endif
