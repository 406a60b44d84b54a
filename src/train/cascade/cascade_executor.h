/* Executes placed iterations of cascades (train/cascade/iteration_layout.h) on real ranks.
 *
 *     rank 0   [s0.vae ──]─┐ [s1.dit ────────────]     All cascades have one order;
 *     rank 1   [s0.vae ──]─┤ [s0.dit ──]               a rank runs the cascades of its groups.
 *     rank 2               └>[s0.dit ──] [s2.dit ──]
 *                transfer    grad.* += local gradients. After a rank's last cascade has added to a
 *                            gradient, its all-reduce overlaps with the running cascades. The
 *                            optimizer update follows.
 *
 * A DiT cascade is a GRADIENTS program (train_step.h) of one sample's bucket. The program is
 * compiled for a mesh of the cascade's degree and for the index of this rank in the group. It is
 * bound to the ranks that the plan names. Its gradient states hold the local gradients of this
 * rank on every axis. One all-reduce over all ranks therefore gives the gradient of all samples,
 * for any grouping (Arachne, IV-D).
 *
 * Programs are compiled on first use and cached. The least recently used programs are evicted when
 * the cache exceeds its byte limit. All programs share one arena, of the size of the largest. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_EXECUTOR_H
#define WEFT_TRAIN_CASCADE_CASCADE_EXECUTOR_H

#include "comm/common_clock.h"
#include "plan/cascade/dispatch.h"
#include "train/cascade/cascade_mesh.h"
#include "train/cascade/grad_reduce.h"
#include "train/cascade/latent_transfer.h"
#include "train/cascade/rank_cover.h"
#include "train/step/train_step.h"

/* Callbacks of the executor into the run's models and data. */
typedef struct weft_cascade_calls {
    void *user;
    /* Creates the unsharded training graph of a sample of this bucket, with output "objective". */
    weft_status (*graph)(void *user, int bucket, weft_graph **graph);
    /* Fills the inputs "batch.*" of this rank's clips of cascade `index` from the received rows.
     * The clips are step->local_first to step->local_first + step->local_count - 1. */
    weft_status (*fill)(void *user, const weft_placed_iteration *plan, int32_t index,
                        const weft_step *step,
                        const weft_received_latents received[WEFT_CASCADE_MODULES]);
    /* Returns the shape of the row that a module sends per clip. */
    weft_cascade_row (*row)(void *user, int bucket, weft_cascade_module module);
    /* Runs the encoders on this rank's share of the sample and writes the result, and the sample
     * of each unit, at its position in the sample's rows. `group`: the ranks that encode the
     * other parts of the same clips; NULL: none. */
    weft_status (*encode)(void *user, const weft_placed_iteration *plan, int32_t index,
                          const weft_cascade_share *share, weft_group *group,
                          const weft_latent_rows *rows);
    /* Called with the next cascade `index` of this rank before the current cascade runs, to read
     * its clips in advance. NULL: no prefetch. */
    weft_status (*prefetch)(void *user, const weft_placed_iteration *plan, int32_t index,
                            weft_item_range clips);
} weft_cascade_calls;

typedef struct weft_cascade_setup {
    weft_comm *comm;   /* borrowed, as all pointers */
    weft_store *store; /* trained tensors */
    /* Exec config of the programs. Its mesh, kind and zero apply to the update: one axis "dp" of
     * all ranks. */
    const weft_exec_config *exec;
    const weft_optimizer_config *optimizer;
    weft_sp_method context; /* method of a DiT on several ranks if the plan sets none */
    /* True: representatives reduce the gradients before the update (rank_cover.h), and all ranks
     * run the same update. Cannot be combined with zero. False: each rank keeps its local
     * gradients, and one all-reduce over all ranks adds the gradients of all samples
     * (grad_reduce.h). With zero the update reduce-scatters instead. */
    bool representative;
    /* The all-reduce starts after the last cascade of a rank, not while that cascade still runs
     * (train/cascade/grad_reduce.h). Used to measure the gain of the overlap. */
    bool late_reduce;
    /* Rank 0 dispatches cascades of plans with `late` to idle ranks (cascade_late.h). Cannot
     * be combined with `representative`. */
    bool late_dispatch;
    uint64_t seed;
    int buckets;
    const int64_t *clips; /* [buckets] clips of a sample */
    int64_t cache_bytes;  /* limit of programs and graphs; 0 (default): 1 GiB */
    weft_own_clock clock; /* clock of this rank; a simulated device uses its own */
    weft_cascade_calls calls;
} weft_cascade_setup;

typedef struct weft_cascade_run weft_cascade_run;
/* Plans the update and initializes the store with the states of the update and of all buckets.
 * Binds no program. */
weft_status weft_cascade_run_create(const weft_cascade_setup *setup, weft_cascade_run **run);
void weft_cascade_run_free(weft_cascade_run *run); /* accepts NULL */
/* Sets *step to the one-rank program of a bucket's samples, with its unsharded graph, its inputs
 * and the weight of its loss. The program is not bound and stays valid as long as `run`. */
weft_status weft_cascade_run_alone(weft_cascade_run *run, int bucket, const weft_step **step);
/* A program without training, such as an encoder. The cache finds it by `key` (chosen by the
 * caller) and `part`; on a miss `make` builds its graph. The program is bound to `store`, which
 * receives the missing tensors, and stays ready until the next weft_cascade_run_forward. */
typedef struct weft_cascade_forward {
    uint64_t key;
    weft_store *store;
    int part, parts;   /* part of a clip (cascade_encoders.h); parts 0 or 1: complete clip */
    weft_group *group; /* ranks of the parts */
    weft_status (*make)(void *user, weft_graph **graph);
    void *user;
} weft_cascade_forward;
weft_status weft_cascade_run_forward(weft_cascade_run *run, const weft_cascade_forward *forward,
                                     const weft_step **step);
/* Runs a program of weft_cascade_run_forward. */
weft_status weft_cascade_run_encoder(weft_cascade_run *run, const weft_step *step);
/* Returns the update program, bound or not. */
weft_step *weft_cascade_run_update(weft_cascade_run *run);
/* Returns the all-reduces of gradients that overlap with cascades; NULL: none do. */
const weft_grad_reduce *weft_cascade_run_reduce(const weft_cascade_run *run);
/* Runs the cascades of this rank in sequence. done->cascade has plan->cascades entries. The plan
 * must pass weft_placed_check and be equal on all ranks. Rows of samples of the next step stay on
 * this rank until the next iteration. The plan of the latter has their encoders as kept cascades,
 * on the ranks of weft_cascade_run_executed. */
weft_status weft_cascade_run_iteration(weft_cascade_run *run, const weft_placed_iteration *plan,
                                       weft_iteration_done *done);
/* Returns seconds on the common clock of all ranks: the clock of rank 0, or simulated time, which
 * messages synchronize. The first iteration measures the offsets (comm/common_clock.h). */
double weft_cascade_run_now(const weft_cascade_run *run);
/* Collective. Measures the clock offsets again, because the clocks of machines drift. */
weft_status weft_cascade_run_measure_clock(weft_cascade_run *run);
/* Returns the common clock; NULL with a simulated device. */
const weft_common_clock *weft_cascade_run_clock(const weft_cascade_run *run);
/* Sets the ranks per node for late dispatch (0: one node) and, on rank 0, the slowdown factor of
 * each rank. `slow` is borrowed and read at each iteration; NULL: 1. */
void weft_cascade_run_nodes(weft_cascade_run *run, int per_node, const double *slow);
/* Sets predictions for late dispatch on rank 0 in the next iterations: transfer[cascades], seconds
 * of latent transfers (NULL: no time), and searches (plan/cascade/replan.h; NULL: no search,
 * cascades start on idle ranks). Borrowed. */
void weft_cascade_run_predict(weft_cascade_run *run, const weft_dispatch_hand *transfer,
                              const weft_dispatch_replan *replan);
/* Returns the executed plan of the last iteration, valid until the next one: its ranks, its order,
 * and the times of the dispatch decisions as starts. Executing this plan gives bitwise the same
 * results. Without late dispatch: the planned iteration. */
const weft_placed_iteration *weft_cascade_run_executed(const weft_cascade_run *run);
/* Binds the update after an iteration, so that the caller can set its scalars and run it. Valid
 * until the next iteration. */
weft_status weft_cascade_run_bind_update(weft_cascade_run *run, weft_step **update);

typedef struct weft_cascade_counts {
    int64_t made, found, evicted; /* programs */
    int64_t bytes;                /* size of cached programs and graphs */
    int64_t bound;                /* programs in memory, ready to run */
    double compiling;             /* seconds of compilation */
} weft_cascade_counts;
weft_cascade_counts weft_cascade_run_counts(const weft_cascade_run *run);

#endif
