/* Ranks of bench/cascades: threads with a device and a clock of their own, which run placed
 * iterations by the executor of `weft train`. One object for the whole program. */
#ifndef WEFT_BENCH_CASCADES_RANKS_H
#define WEFT_BENCH_CASCADES_RANKS_H

#include "model/model.h"
#include "plan/cascade/workload.h"
#include "train/cascade/cascade_executor.h"

#include <pthread.h>

/* FOLD: the whole model over what is run. */
enum { MOST_RANKS = 64, MOST_CASCADES = 256, MOST_BUCKETS = 16, FOLD = 10 };

/* State of all threads. The main thread plans between two turns at the barrier. */
typedef struct simulated_ranks {
    int ranks, buckets;
    weft_bucket size[MOST_BUCKETS]; /* pixels */
    double between;                 /* bytes per second of a rank to another node */
    weft_model denoiser, autoencoder, reader;
    weft_cluster cluster;
    pthread_barrier_t turn;
    const weft_placed_iteration *plan; /* NULL: the end */
    double factor[MOST_CASCADES];      /* factor of each cascade's seconds; 0: 1 */
    int slow;     /* index of the rank that needs SLOW times its seconds; -1: none */
    double begin; /* start of the iteration on all clocks, which never decrease */
    double known_slow[MOST_RANKS]; /* measured times, used by rank 0 for dispatch */
    const weft_placed_iteration *executed;
    double *clock[MOST_RANKS];
    weft_cascade_timing done[MOST_RANKS][MOST_CASCADES];
    weft_iteration_done of[MOST_RANKS]; /* seconds of the iteration outside its cascades */
    int64_t made[MOST_RANKS];           /* programs that a rank compiled meanwhile */
} simulated_ranks;
extern simulated_ranks all;
static const double SLOW = 1.5;

typedef struct executed {
    double makespan, idle;
    /* Processor seconds of the busiest rank; its seconds in launches and in fetching
     * programs. */
    double own, running, taking;
    double exposed; /* gradient reduction after the last cascade */
    int64_t made;   /* number of programs compiled in the iteration */
} executed;

/* Exits with the last error. */
void check(weft_status_code status);
/* Starts all threads, of `nodes` nodes of eight ranks, with buckets of the stage. */
void ranks_begin(weft_arena *arena, int nodes, bool slow_links, const weft_workload *stage);
void ranks_end(void);
/* Executes one iteration on all ranks. all.executed and all.done are valid until the next call. */
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
