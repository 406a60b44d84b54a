/* Jobs of cascades on threads: a small Wan DiT whose sizes do not divide, samples of four sizes,
 * inputs that are functions of the sample, random plans, and runs on several ranks. */
#ifndef TESTS_TRAIN_CASCADE_CASCADE_JOBS_H
#define TESTS_TRAIN_CASCADE_CASCADE_JOBS_H

#include "../../model_of.h"
#include "train/cascade/cascade_executor.h"

#include <stdatomic.h>

enum {
    REPRESENTATIVE = -1,
    RANKS = 8,
    STEPS = 10,
    CHANNELS = 3,
    TOKENS = 4,
    WIDTH = 6,
    BUCKETS = 4,
    SAMPLES = 5
};

extern const weft_bucket cascade_bucket[BUCKETS];
extern const char cascade_small_model[];
extern const weft_optimizer_config cascade_adamw;

/* Creates the training graph of a sample of bucket `b`, with output "objective". */
weft_status cascade_graph_make(const weft_model *model, int b, weft_graph **out);
/* Callbacks of the executor. */
weft_status cascade_fill(void *user, const weft_placed_iteration *plan, int32_t index,
                         const weft_step *step,
                         const weft_received_latents handed[WEFT_CASCADE_MODULES]);
weft_cascade_row cascade_row_of(void *user, int b, weft_cascade_module module);

typedef struct cascade_plan {
    weft_placed_iteration all;
    weft_placed_sample sample[SAMPLES];
    weft_placed_cascade cascade[3 * SAMPLES];
    int32_t device[3 * SAMPLES][RANKS], after[SAMPLES][2];
    char id[3 * SAMPLES][16];
} cascade_plan;

/* Makes a random plan in any order of starts with encoders before their readers. */
void cascade_plan_make(cascade_plan *p, uint64_t seed, int64_t step, int ranks);

/* Ticks instead of seconds: each read advances the clock, so that times do not depend on the speed
 * of the ranks. Each rank's clock has an offset. */
typedef struct cascade_ticks {
    atomic_llong now;
    atomic_int encoded; /* iterations in which rank 0 has encoded; the other rank begins then */
} cascade_ticks;

/* Phases in which a rank may be killed: before it participates in a plan, while it encodes, before
 * and after the inputs of a denoiser, before the reductions. */
enum { LIVES, DIES_AT_PLAN, DIES_ENCODING, DIES_AT_INPUTS, DIES_AT_SUMS, PHASES };

typedef struct cascade_job {
    cascade_ticks *ticks;     /* NULL: weft_now() */
    const cascade_plan *plan; /* [STEPS] */
    const weft_model *model;
    weft_comm *comm;
    weft_store *store;
    int ranks, rank, zero; /* REPRESENTATIVE: none, and sums go by way of representatives */
    int64_t cache;
    bool late;              /* sums begin when a rank's cascades are over */
    cascade_plan *executed; /* [STEPS] rank 0 dispatches, and these are written; NULL: as planned */
    double deadline;
    int dies; /* phase in which this rank is killed; 0: it is not */
    double loss[STEPS], norm[STEPS];
    weft_store *grad[STEPS]; /* copies of gradient states before the update */
    int64_t handed[STEPS], in_place[STEPS], sent[STEPS];
    weft_cascade_counts counts;
    char error[400];
} cascade_job;

/* Sets an input of one element. */
void cascade_set(const weft_step *step, const char *name, double value);
/* Copies the gradients and runs the update of iteration `i`. */
weft_status cascade_update(cascade_job *j, const weft_step *step, int i);
/* Runs all steps of the jobs, each rank on a thread. */
void cascade_run_all(cascade_job *jobs, int ranks);
/* Sets the jobs of like->ranks ranks to `like`, each with a store, and runs them. No rank may
 * fail. */
void cascade_run_ranks(const cascade_job *like, cascade_job *jobs);
/* Frees the stores of the jobs. */
void cascade_jobs_end(cascade_job *jobs, int ranks);

#endif
