/* One iteration of cascades, placed on ranks: what a planner gives (train/cascade_ahead.h) and the
 * executor runs (train/cascade_run.h).
 *
 *     sample 0   bucket 2, 1 clip      s0.text [3] ─┐
 *                                      s0.vae  [0 1] ─> s0.dit [0 1 2]        lists of ranks
 *     sample 1   bucket 0, 4 clips     s1.text [2] ──┬> s1.dit [3]
 *                                      s1.vae  [3] ──┘
 *
 * A sample is a batch of the stage's loader: clips of one bucket, whose loss is one contribution to
 * the step, as those of `accumulate` are. Its cascades are at most one of each module; where
 * latents come from the cache there is the DiT's only. All ranks have the same plan. */
#ifndef WEFT_TRAIN_CASCADE_PLAN_H
#define WEFT_TRAIN_CASCADE_PLAN_H

#include "data/loader.h"
#include "plan/cascade/assign.h"

typedef enum weft_cascade_module {
    WEFT_CASCADE_TEXT, /* caption encoders that are not trained; on one rank */
    WEFT_CASCADE_VAE,  /* pixels to latents */
    WEFT_CASCADE_DIT,  /* forward and backward; trained encoders belong to it */
    WEFT_CASCADE_MODULES
} weft_cascade_module;

typedef struct weft_placed_sample {
    int64_t batch;         /* of the stage's loader, from 0: as weft_batch.step counts */
    int bucket;            /* of the stage */
    int64_t clips;         /* of the batch */
    const weft_item *item; /* [clips], as weft_loader_peek gives them */
    double weight;         /* share in the step's mean loss; those of all samples add up to 1 */
} weft_placed_sample;

/* Ranks, times and what comes before: `at`. Its id is "s<sample>.<module>", at.device lists ranks
 * of the job in the group's order, at.after holds indices of cascades. Starts decide the order in
 * which a rank takes its cascades (ties: the index), so one that comes after others must not start
 * before them. */
typedef struct weft_placed_cascade {
    weft_assigned at;
    int32_t sample;
    weft_cascade_module module;
    weft_sp_method method; /* of a DiT on several ranks; NONE: weft_cascade_method chooses */
} weft_placed_cascade;

typedef struct weft_placed_iteration {
    int64_t step; /* of the run, from 0 */
    weft_placed_sample *sample;
    int64_t samples;
    weft_placed_cascade *cascade;
    int64_t cascades;
    double makespan, lower_bound; /* seconds, as planned */
    bool late; /* rank 0 may move cascades to idle ranks (train/cascade_late.h) */
} weft_placed_iteration;

/* Of one cascade on one rank, as it went. Seconds from this rank's begin of the iteration; bytes of
 * results of producers that its inputs were made of. */
typedef struct weft_cascade_done {
    bool took_part;
    double start, end; /* from when its inputs were there to when its kernels were done */
    double busy;       /* of that: not waiting for other ranks */
    double waited;     /* before it: for inputs */
    bool first;        /* its program had not run before */
    double compiled;   /* seconds of making it now; 0: it was in the cache, */
    double bound;      /* and of laying it over the group */
    int64_t in_place;  /* bytes that this rank had as a producer */
    int64_t received;  /* bytes that came from other ranks, */
    int64_t sent;      /* and that went to other ranks when it was done */
    double peak;       /* bytes of the program on this rank */
} weft_cascade_done;

typedef struct weft_iteration_done {
    weft_cascade_done *cascade; /* [cascades], of this rank; the caller's */
    double begin;               /* second 0, on the clock that all ranks share */
    double clock_age;           /* seconds since that clock was measured; 0: it is modelled */
    double reduce;              /* seconds from the last cascade's end here to the update's end */
    double seconds;             /* of all of it */
    int64_t reduced_bytes;      /* that this rank sent for sums of gradients */
    /* From the begin to when gradients were summed over all ranks; 0: the update sums them. */
    double summed;
    /* Seconds that a processor worked for this rank's thread in the iteration; of them in what
     * cascades run, and in taking programs and laying them over groups. What is left is
     * bookkeeping. */
    double own, running, taking;
} weft_iteration_done;

/* Each sample's DiT is there once and other modules at most once, groups are of ranks of the job
 * and of each rank once, what comes before starts before, and weights add up to 1. WEFT_E_ARG with
 * the cascade's id; `where` begins the message. */
weft_status weft_placed_check(const weft_placed_iteration *plan, int ranks, const char *where);
/* The order in which cascades are taken by all ranks: by start, then index; order[cascades]. With
 * each rank's list a part of one order no two groups ever wait for each other in a circle. */
weft_status weft_placed_order(const weft_placed_iteration *plan, int32_t *order);
/* Sums of gradients run beside the last backwards (train/cascade_sums.h), each part when all ranks
 * have it: seconds that they have before the makespan ends, from when the last DiT cascade is in
 * its backward, the last two thirds of it.
 *
 *     s0.dit  [ forward |  backward       ]          makespan
 *     s1.dit       [ forward   |  backward           ]
 *     sums                     [▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒|▒▒▒▒]
 *                              <------ beside ------>|<--> behind
 *
 * Parts become final evenly over a backward, so that sums of `seconds` in all, of which the part
 * that is final last takes `last`, end so many seconds behind the last cascade. */
double weft_placed_sums_beside(const weft_placed_iteration *plan);
double weft_placed_sums_behind(const weft_placed_iteration *plan, double seconds, double last);
const char *weft_cascade_module_name(weft_cascade_module module); /* "text", "vae", "dit" */

#endif
