/* One iteration of cascades, placed on ranks: the output of the planner (cascade_planner.h) and
 * the input of the executor (train/cascade/cascade_executor.h).
 *
 *     sample 0   bucket 2, 1 clip      s0.text [3] ─┐
 *                                      s0.vae  [0 1] ─> s0.dit [0 1 2]        lists of ranks
 *     sample 1   bucket 0, 4 clips     s1.text [2] ──┬> s1.dit [3]
 *                                      s1.vae  [3] ──┘
 *
 * A sample is a batch of the training stage's loader: clips of one bucket. Its loss contributes to
 * the step like one batch of `accumulate`. A sample has at most one cascade of each module, and
 * only a DiT cascade where latents come from the cache. All ranks have the same plan.
 *
 * With `encoders: ahead` an iteration also encodes the samples of the next step, after its own
 * samples in the list. The encoders of its own samples are then `kept` cascades, at the end of the
 * list: their rows are on these ranks already.
 *
 *     step 1   s0.dit [0 1]   s1.dit [2]   s2.vae [2]   s3.vae [1]
 *     step 2   s0.dit [0 1]   s1.dit [2]   s2.vae [0]   s3.vae [2]   kept: s0.vae [2]   s1.vae [1]
 *              after s0.vae   after s1.vae */
#ifndef WEFT_TRAIN_CASCADE_ITERATION_LAYOUT_H
#define WEFT_TRAIN_CASCADE_ITERATION_LAYOUT_H

#include "data/loader_order.h"
#include "plan/cascade/assign.h"

typedef enum weft_cascade_module {
    WEFT_CASCADE_TEXT, /* frozen text encoders; on one rank */
    WEFT_CASCADE_VAE,  /* pixels to latents */
    WEFT_CASCADE_DIT,  /* forward and backward, with trained encoders */
    WEFT_CASCADE_MODULES
} weft_cascade_module;

typedef struct weft_placed_sample {
    int64_t batch;         /* batch of the stage's loader, from 0 (weft_batch.step) */
    int bucket;            /* index in the training stage */
    int64_t clips;         /* clips of the batch */
    const weft_item *item; /* [clips] from weft_loader_peek */
    double weight;         /* share in the step's mean loss; all weights add up to 1 */
    bool ahead;            /* of the next step: only encoders, and weight 0 */
} weft_placed_sample;

/* One cascade. at.id is "s<sample>.<module>", at.device lists the ranks of the job in group order,
 * and at.after lists the indices of its predecessors. Every rank runs its cascades by start, then
 * by index. A cascade must therefore not start before its predecessors. */
typedef struct weft_placed_cascade {
    weft_assigned at;
    int32_t sample;
    weft_cascade_module module;
    weft_sp_method method; /* method of a DiT on several ranks; NONE: the executor's default */
    /* An encoder of the iteration before. Needs no time, and starts at -1 s. Runs on its ranks if
     * their rows no longer exist, after a resume. */
    bool kept;
} weft_placed_cascade;

typedef struct weft_placed_iteration {
    int64_t step; /* step of the run, from 0 */
    weft_placed_sample *sample;
    int64_t samples;
    weft_placed_cascade *cascade;
    int64_t cascades;
    double makespan, lower_bound; /* planned seconds */
    bool late;                    /* rank 0 may move cascades to other ranks (cascade_late.h) */
    /* rank 0 also searches ranks and order whenever cascades end (plan/cascade/replan.h) */
    bool search;
} weft_placed_iteration;

/* Measurements of one cascade on one rank. Times are seconds since this rank began the iteration.
 * in_place and received count the bytes of the cascade's inputs. */
typedef struct weft_cascade_timing {
    bool took_part;
    double start, end; /* inputs ready; last kernel finished */
    double busy;       /* seconds of the cascade without waits for other ranks */
    double waited;     /* seconds of waiting for inputs before `start` */
    bool first;        /* first run of its program */
    double compiled;   /* seconds of compilation; 0: found in the cache */
    double bound;      /* seconds of binding to the group */
    int64_t in_place;  /* input bytes that this rank produced */
    int64_t received;  /* input bytes from other ranks */
    int64_t sent;      /* result bytes sent to other ranks */
    double peak;       /* program bytes on this rank */
} weft_cascade_timing;

typedef struct weft_iteration_done {
    weft_cascade_timing *cascade; /* [cascades] of this rank; owned by the caller */
    double begin;                 /* time of second 0 on the common clock */
    double clock_age;             /* seconds since the common clock was measured; 0: simulated */
    /* seconds from this rank's last cascade to the end of the update */
    double reduce;
    double seconds;        /* duration of the iteration */
    int64_t searches;      /* searches of rank 0 during the iteration; 0 on other ranks */
    int64_t reduced_bytes; /* bytes that this rank sent to reduce gradients */
    /* Seconds from `begin` to the end of the gradient all-reduce; 0: the update reduces
     * gradients. */
    double summed;
    /* CPU seconds of this rank's thread: in the iteration, in running cascades, and in getting and
     * binding programs. The rest of `own` is bookkeeping. */
    double own, running, taking;
} weft_iteration_done;

/* Returns the number of cascades without the kept ones. */
int64_t weft_placed_scheduled(const weft_placed_iteration *plan);
/* Returns the number of samples that the step trains on, without samples of the next step. */
int64_t weft_placed_trained(const weft_placed_iteration *plan);
/* Returns the cascade of `module` of the sample of batch `batch` that `plan` encodes ahead; NULL:
 * none. */
const weft_placed_cascade *weft_placed_ahead(const weft_placed_iteration *plan, int64_t batch,
                                             weft_cascade_module module);
/* Checks a plan. Each sample has one DiT cascade and at most one cascade of each other module;
 * samples of the next step have only the latter and follow the others, as kept cascades do, also in
 * the predecessors of a cascade.
 * Ranks are of the job, without duplicates in a group; predecessors start first; weights add up to
 * 1. Returns WEFT_E_ARG with the cascade's id; `where` begins the message. */
weft_status weft_placed_check(const weft_placed_iteration *plan, int ranks, const char *where);
/* Sets order[cascades] to the order in which all ranks run cascades: by start, then by index. Each
 * rank runs a subsequence of this order, so groups never wait for each other in a cycle. */
weft_status weft_placed_order(const weft_placed_iteration *plan, int32_t *order);
/* The gradient all-reduce overlaps with the last backward passes (grad_reduce.h): each part starts
 * when all ranks have it.
 *
 *     s0.dit  [ forward |  backward       ]          makespan
 *     s1.dit       [ forward   |  backward           ]
 *     reduce                   [▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒|▒▒▒▒]
 *                              <----- hidden ------->|<--> exposed
 *
 * weft_placed_reductions_during returns the seconds from the start of the last backward to the
 * makespan. The backward is the last two thirds of a DiT cascade.
 *
 * weft_placed_reductions_after returns the seconds of the all-reduce after the makespan. `seconds`:
 * of the complete all-reduce; `last`: of its last part. Parts become ready evenly over a
 * backward. */
double weft_placed_reductions_during(const weft_placed_iteration *plan);
double weft_placed_reductions_after(const weft_placed_iteration *plan, double seconds, double last);
const char *weft_cascade_module_name(weft_cascade_module module); /* "text", "vae", "dit" */

#endif
