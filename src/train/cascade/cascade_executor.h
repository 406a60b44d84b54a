/* Runs placed iterations of cascades (train/cascade_plan.h) on real ranks.
 *
 *     rank 0   [s0.vae ──]─┐ [s1.dit ────────────]            in the one order of all cascades;
 *     rank 1   [s0.vae ──]─┤ [s0.dit ──]                      a rank takes those that it is in
 *     rank 2               └>[s0.dit ──] [s2.dit ──]
 *                hand-off    grad.* += own terms, and when a rank's last cascade has added to one:
 *                            its sum over all ranks, beside what still runs; then the update
 *
 * A DiT cascade is a GRADIENTS program (train/step.h) of one sample's bucket, compiled for a mesh
 * of as many ranks as the cascade has and for this rank's number among them, and bound to whichever
 * ranks a plan names. Its gradient states hold this rank's own terms on every axis, so that after
 * any grouping one sum over all ranks is the gradient of all samples (Arachne, IV-D).
 *
 * Programs are made when they are first needed and kept, the least recently used go when there are
 * more bytes than allowed; all pass through one arena, of the largest. */
#ifndef WEFT_TRAIN_CASCADE_RUN_H
#define WEFT_TRAIN_CASCADE_RUN_H

#include "runtime/common_clock.h"
#include "train/cascade_grads.h"
#include "train/cascade_hand.h"
#include "train/step.h"

/* What the executor asks of whoever knows models and data. */
typedef struct weft_cascade_calls {
    void *user;
    /* What a sample of this bucket trains, over whole shapes, with output "objective". */
    weft_status (*graph)(void *user, int bucket, weft_graph **graph);
    /* Inputs "batch.*" of this rank's part of cascade `index`, clips step->slice_first to
     * slice_count behind it, from what was handed on where it was. */
    weft_status (*fill)(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step, const weft_handed handed[WEFT_CASCADE_MODULES]);
    /* What a module hands on of a clip, */
    weft_cascade_row (*row)(void *user, int bucket, weft_cascade_module module);
    /* and that of this rank's share of the sample, to where it stands in the sample's rows:
     * encoders run. `group`: of the ranks with the other parts of these clips; NULL: there are
     * none. */
    weft_status (*encode)(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group, float *rows);
    /* Cascade `index` is this rank's next, told before the one in front of it runs: its clips may
     * be read ahead. NULL: nothing is. */
    weft_status (*ahead)(void *user, const weft_placed_iteration *plan, int32_t index,
                         weft_item_range clips);
} weft_cascade_calls;

typedef struct weft_cascade_setup {
    weft_comm *comm;   /* borrowed like all others */
    weft_store *store; /* of what is trained */
    /* How programs run; its mesh, kind and zero are those of the update: one axis "dp" of all
     * ranks. */
    const weft_place_of_run *place;
    const weft_optimizer_config *optimizer;
    weft_sp_method context; /* of a DiT on several ranks where a plan names none */
    /* Sums of gradients go by way of representatives (train/cascade_grads.h); zero does not go with
     * it. False: each rank keeps its own terms, and one sum over all ranks is that of all samples
     * (train/cascade_sums.h); with zero the update scatters it. Else gradients are whole before
     * the update, which sums nothing and is the same on all ranks. */
    bool representative;
    /* Ranks' own sums begin when a rank's cascades are over, not when its last one has added to
     * them (train/cascade_sums.h): to measure what that hides. */
    bool late_sums;
    /* Rank 0 dispatches cascades of plans with `late` to idle ranks (train/cascade_late.h). Cannot
     * be combined with `representative`. */
    bool late_dispatch;
    uint64_t seed;
    int buckets;
    const int64_t *clips; /* [buckets] of a sample */
    int64_t cache_bytes;  /* of programs and graphs; 0: a GiB */
    weft_own_clock clock; /* this rank's; not used with a modelled device, which has its own */
    weft_cascade_calls calls;
} weft_cascade_setup;

typedef struct weft_cascade_run weft_cascade_run;
/* Plans the update and fills the store with what it and all buckets keep; nothing is bound. */
weft_status weft_cascade_run_create(const weft_cascade_setup *setup, weft_cascade_run **run);
void weft_cascade_run_free(weft_cascade_run *run); /* accepts NULL */
/* The program of a bucket's samples on one rank, which stays as long as `run`: its whole graph,
 * what it takes and the weight of its loss. Not bound. */
weft_status weft_cascade_run_alone(weft_cascade_run *run, int bucket, const weft_step **step);
/* A program that trains nothing, an encoder's: `make` builds its graph where the cache has none of
 * this key (any number that the caller gives it) and part. Ready to run over `store`, which gets
 * what it lacks, until the next program is asked for. */
typedef struct weft_cascade_forward {
    uint64_t key;
    weft_store *store;
    int part, parts;   /* of several ranks' (train/cascade_encode.h); parts 0 or 1: of one */
    weft_group *group; /* of those */
    weft_status (*make)(void *user, weft_graph **graph);
    void *user;
} weft_cascade_forward;
weft_status weft_cascade_run_forward(weft_cascade_run *run, const weft_cascade_forward *forward,
                                     const weft_step **step);
/* Runs it. */
weft_status weft_cascade_run_encoder(weft_cascade_run *run, const weft_step *step);
/* The program that updates, whether it is bound or not. */
weft_step *weft_cascade_run_update(weft_cascade_run *run);
/* The cascades of this rank, one after the other. done->cascade has room for the plan's. The plan
 * is one that weft_placed_check accepts and the same on all ranks. */
weft_status weft_cascade_run_iteration(weft_cascade_run *run, const weft_placed_iteration *plan,
                                       weft_iteration_done *done);
/* Seconds on the clock that all ranks share: rank 0's, or a modelled device's, which messages keep
 * in step. The first iteration measures offsets (runtime/common_clock.h). */
double weft_cascade_run_now(const weft_cascade_run *run);
/* Collective: measures offsets again, as clocks of machines drift. */
weft_status weft_cascade_run_measure_clock(weft_cascade_run *run);
/* NULL with a modelled device. */
const weft_common_clock *weft_cascade_run_clock(const weft_cascade_run *run);
/* For late dispatch: ranks of a node (0: one node), and on rank 0 the factor of each rank's seconds
 * (borrowed, read at each iteration; NULL: 1). */
void weft_cascade_run_nodes(weft_cascade_run *run, int per_node, const double *slow);
/* The plan with the ranks and the order of the last iteration, until the next one. Its starts are
 * the times of the decisions. To execute it gives bitwise the same results. Without late dispatch:
 * the plan that was given. */
const weft_placed_iteration *weft_cascade_run_executed(const weft_cascade_run *run);
/* Then the update, ready to be given its scalars and run; until the next iteration. */
weft_status weft_cascade_run_bind_update(weft_cascade_run *run, weft_step **update);

/* How `clips` clips are laid over the ranks of a cascade: see weft_cascade_shares; `context` is how
 * tokens are split where `method` does not say. */
weft_mesh weft_cascade_mesh(weft_sp_method method, weft_sp_method context, int64_t clips,
                            int degree);

typedef struct weft_cascade_counts {
    int64_t made, found, evicted; /* programs */
    int64_t bytes;                /* of those that are kept */
    int64_t bound;                /* of those: in memory, ready to run */
    double compiling;             /* seconds */
} weft_cascade_counts;
weft_cascade_counts weft_cascade_run_counts(const weft_cascade_run *run);

#endif
