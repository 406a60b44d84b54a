/* Internals of the cascade planner, shared by its files: planner and job of an iteration. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_PLANNER_INTERNAL_H
#define WEFT_TRAIN_CASCADE_CASCADE_PLANNER_INTERNAL_H

#include "plan/cascade/genetic.h"
#include "train/cascade/cascade_planner.h"

#include <pthread.h>
#include <stdatomic.h>

/* Result of a search so far, written under the lock. */
typedef struct weft_planning_result {
    weft_placement best;
    double lower_bound, seconds, busy;
    int64_t rounds;
    bool there, proved, done;
    /* `best` minimises expected seconds, and a shorter makespan does not replace it */
    bool expected;
    bool late;   /* late dispatch is allowed */
    bool search; /* with `late`: rank 0 searches whenever cascades end */
    weft_status_code status;
    weft_error_copy *error; /* error of `status` */
} weft_planning_result;

/* One iteration being planned. */
typedef struct weft_planning_job {
    int holders; /* references, under the lock: up to two of the caller, one of the thread */
    weft_arena *arena;
    int64_t step, samples, left_out;
    weft_placed_sample *sample;
    weft_cascade_list list;
    /* [list.count + kept], without ranks and times; kept cascades are last and not in the list */
    weft_placed_cascade *cascade;
    int64_t kept;
    int32_t *sample_of;
    double *work;
    bool replayed; /* `plan` was found; no search */
    /* copy of the record at the start; NULL: empty record, or another objective */
    weft_price_errors *errors;
    double *slow; /* [ranks] copy of the slowdown factors */
    weft_placed_iteration plan;
    atomic_bool over;    /* no better plan is needed */
    weft_arena *callers; /* memory of the caller's thread, as the planner's thread uses `arena` */
    weft_planning_result found;
} weft_planning_job;

struct weft_cascade_planner {
    weft_cascade_planner_setup s;
    bool is_rank0;
    int64_t degree;                      /* degree of equal groups; 0: not known */
    weft_plans *known;                   /* reusable plans, for plan: static */
    weft_planning_job *job;              /* latest started weft_planning_job */
    weft_planning_job *delivered;        /* latest delivered weft_planning_job */
    const weft_placed_iteration *before; /* of weft_cascade_planner_set_before */
    weft_arena *arena;                   /* memory of the latest delivered plan */
    char *text;
    bool *warned; /* [buckets] a skipped sample was reported */
    pthread_t thread;
    bool running, stop;
    pthread_mutex_t lock;
    pthread_cond_t change;
};

#endif
