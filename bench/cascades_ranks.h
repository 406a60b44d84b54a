/* The model of bench/cascades on simulated ranks (simulated_ranks.h): a tenth of HunyuanVideo, with
 * its encoders. One object for the whole program. */
#ifndef WEFT_BENCH_CASCADES_RANKS_H
#define WEFT_BENCH_CASCADES_RANKS_H

#include "model/model.h"
#include "plan/cascade/workload.h"
#include "simulated_ranks.h"

/* FOLD: the whole model over what is run. */
enum {
    MOST_RANKS = SIMULATED_RANKS,
    MOST_CASCADES = SIMULATED_CASCADES,
    MOST_BUCKETS = SIMULATED_BUCKETS,
    FOLD = 10
};

typedef struct bench_ranks {
    int ranks, buckets;
    weft_bucket size[MOST_BUCKETS]; /* pixels */
    double between;                 /* bytes per second of a rank to another node */
    weft_model denoiser, autoencoder, reader;
    weft_cluster cluster;
    double factor[MOST_CASCADES]; /* factor of each cascade's seconds; 0: 1 */
    int slow; /* index of the rank that needs SLOW times its seconds; -1: none */
} bench_ranks;
extern bench_ranks all;
static const double SLOW = 1.5;

typedef struct executed {
    double makespan, idle;
    /* Processor seconds of the busiest rank; its seconds in launches and in fetching
     * programs. */
    double own, running, taking;
    double exposed; /* gradient reduction after the last cascade */
    int64_t made;   /* number of programs compiled in the iteration */
} executed;

/* Starts all threads, of `nodes` nodes of eight ranks, with buckets of the stage. */
void ranks_begin(weft_arena *arena, int nodes, bool slow_links, const weft_workload *stage);
void ranks_end(void);
/* Executes one iteration on all ranks. `simulated` has the results until the next call. */
executed execute(const weft_placed_iteration *plan);
/* Times of cascade `index` of the last executed iteration. The ranks of an encoder arrive at
 * different times: seconds of the busiest rank. */
double seconds_of(const weft_placed_iteration *plan, int64_t index);
double end_of(const weft_placed_iteration *plan, int64_t index);
/* Transferred bytes of a module for a clip: a tenth of its latents in bf16. */
weft_cascade_row row_of(void *user, int bucket, weft_cascade_module module);
/* Pixels of all tiles that the busiest rank of an autoencoder's cascade encodes. */
double tile_pixels(int bucket, int degree);

#endif
