/* Pipelines of a run: which stages there are and where, and the table that says who does what when.
 *
 *   config ─> table (plan/pipeline/schedule.h) ──────────────┐
 *   graph of one place ─> chain ─> cuts (plan/pipeline/partition.h)
 *                └──────────────────> stages ─> F, B, W programs of this rank's stages
 *                                               │
 *                                               └── train/pipe_run.h: its row of the table */
#ifndef WEFT_TRAIN_PIPE_H
#define WEFT_TRAIN_PIPE_H

#include "pass/parallel.h"
#include "pass/passes.h"
#include "pass/stage.h"
#include "plan/pipeline/schedule.h"
#include "runtime/runtime.h"
#include "train/optimizer.h"

/* Of a mesh with that axis; the same on all ranks but `device`. */
typedef struct weft_pipe {
    const char *schedule; /* borrowed from the config */
    int kind;             /* weft_schedule_kind; -1: of a file */
    weft_schedule file;   /* -1: that table */
    int axis, devices, device;
    int stages;
    int32_t *device_of;
    bool apart; /* the backward is two programs, B and W */
    weft_collocation collocate;
    /* Stage q is the units [cut[q], cut[q + 1]): the same for all graphs of a run, found for the
     * first that is cut */
    int64_t *cut;
    char **unit; /* [units] names */
    int units;   /* 0: not found yet */
} weft_pipe;

/* WEFT_E_CONFIG where an autoencoder is to be trained in stages: it has no blocks, and what splits
 * its training instead. `path`: of the config. */
weft_status weft_pipe_check_trained(const weft_mesh *mesh, bool denoises, const char *path);
/* *pipe is NULL for a mesh without stages. `path`: of the config, for messages. */
weft_status weft_pipe_open(const weft_parallel *config, const weft_mesh *mesh, int rank,
                           const char *path, weft_pipe **pipe);
void weft_pipe_free(weft_pipe *pipe); /* accepts NULL */
/* What runs where: the schedule, and of each stage its device and blocks; `microbatches` of a step.
 * After the first graph is cut. */
void weft_pipe_print(const weft_pipe *pipe, int64_t microbatches, weft_buf *out);
/* The table of a step of so many microbatches. */
weft_status weft_pipe_table(const weft_pipe *pipe, int64_t microbatches, weft_schedule *table);
/* Parts of a batch that the config asks for: `batch` is the greatest common divisor of the batches
 * of a stage, of which a step has `accumulate`, `shares` how many places split the samples of each,
 * none of which is to be without one where the config says no number. WEFT_E_CONFIG: it does not
 * divide that, or the schedule cannot have so many. */
weft_status weft_pipe_microbatches(const weft_parallel *config, const weft_pipe *pipe,
                                   int64_t batch, int64_t accumulate, int64_t shares,
                                   int64_t *microbatches);

/* ---- programs -------------------------------------------------------------------------------- */

enum { WEFT_PIPE_KINDS = 3 }; /* F, B, W: weft_stage_kind */

/* A stage on this rank. */
typedef struct weft_pipe_stage {
    int stage;
    weft_graph *whole; /* differentiated, and passes behind it: what the programs are parts of */
    weft_graph *graph[WEFT_PIPE_KINDS];
    weft_program *program[WEFT_PIPE_KINDS]; /* W: NULL if it is not apart */
} weft_pipe_stage;

/* A microbatch's programs on this rank. */
typedef struct weft_pipe_step {
    weft_stages stages; /* of the graph of one place */
    weft_pipe_stage *own;
    int owns;
    weft_cost cost;   /* of one microbatch on this rank */
    const char *away; /* weft_program_options.away of its programs; borrowed */
} weft_pipe_step;

/* Cuts `graph` of one place, made of `whole` (by whose sizes it is cut, so that all ranks cut at
 * the same places), differentiates this rank's stages and plans their programs. Blocks are scopes
 * below `trunk`. `graph` is borrowed. */
weft_status weft_pipe_step_plan(weft_pipe *pipe, const weft_graph *whole, const weft_graph *graph,
                                const char *trunk, const weft_pass_setup *setup,
                                const weft_program_options *options,
                                const weft_optimizer_config *optimizer, weft_pipe_step **out);
void weft_pipe_step_free(weft_pipe_step *step); /* accepts NULL */
/* Bytes that this rank's stages send to those of other ranks for one microbatch: values forward,
 * and their gradients back. */
void weft_pipe_step_sends(const weft_pipe *pipe, const weft_pipe_step *step, int64_t *forward,
                          int64_t *backward);

/* ---- the store ------------------------------------------------------------------------------- */

/* Adds what `graphs` of this rank keep, and of what only other stages have parts of no elements, so
 * that every rank's store names the same tensors in the same order. Of what several stages have the
 * first one's rank is the one that writes. Collective over the stages; `comm` NULL: only what is
 * this rank's. */
weft_status weft_pipe_fill(const weft_pipe *pipe, const weft_graph *const *graphs, int count,
                           weft_comm *comm, weft_store *store, uint64_t seed);
/* The same without ranks that run, for plans: what each device's graphs keep as a text, */
weft_status weft_pipe_list(const weft_graph *const *graphs, int count, weft_buf *list);
/* and the store of this one from those of all. */
weft_status weft_pipe_fill_listed(const weft_pipe *pipe, const weft_graph *const *graphs, int count,
                                  const weft_buf *lists, weft_store *store, uint64_t seed);

#endif
