/* Pipelines of a run: the pipeline stages, their devices, and the schedule of their tasks.
 *
 *   config ─> schedule (plan/pipeline/schedule.h) ───────────────┐
 *   graph of one rank ─> chain ─> cuts (plan/pipeline/partition.h)
 *                └──────────────────> stages ─> F, B, W programs of this rank's stages
 *                                               │
 *                                               └── pp_executor.h: its row of the schedule */
#ifndef WEFT_TRAIN_PIPELINE_PP_LAYOUT_H
#define WEFT_TRAIN_PIPELINE_PP_LAYOUT_H

#include "exec/program.h"
#include "plan/pipeline/schedule.h"
#include "train/graph/optimizer.h"
#include "transform/passes.h"
#include "transform/sharding/mesh_config.h"
#include "transform/sharding/pp_stages.h"

/* The pipeline of a mesh with a pipeline axis. Equal on all ranks, except `device`. */
typedef struct weft_pp_layout {
    const char *schedule;  /* borrowed from the config */
    int kind;              /* weft_pp_schedule_kind; -1: from a file */
    weft_pp_schedule file; /* schedule of the file if kind is -1 */
    int axis, devices, device;
    int pp_stages;
    int32_t *device_of;
    bool apart; /* the backward has two programs, B and W */
    weft_collocation collocate;
    /* Pipeline stage q has the units [cut[q], cut[q + 1]). Computed for the first graph and used
     * for all graphs of a run. */
    int64_t *cut;
    char **unit; /* [units] names */
    int units;   /* 0: not computed yet */
} weft_pp_layout;

/* WEFT_E_CONFIG for an autoencoder on a pipeline mesh: it has no blocks. The message names the axes
 * to use instead. `path`: of the config. */
weft_status weft_pp_layout_check_trained(const weft_mesh *mesh, bool denoises, const char *path);
/* config-no-effect: the schedule or the virtual stages are set without pipeline stages.
 * config-value: the schedule is neither a name nor a file. A file with another content is an error
 * as well. `path`: of the config. */
weft_status weft_pp_layout_check_used(const weft_parallel *config, const char *path);
/* *pp is NULL for a mesh without a pipeline. `path`: of the config, for messages. */
weft_status weft_pp_layout_open(const weft_parallel *config, const weft_mesh *mesh, int rank,
                                const char *path, weft_pp_layout **pp);
void weft_pp_layout_free(weft_pp_layout *pp); /* accepts NULL */
/* Prints the schedule and the device and blocks of each pipeline stage. `microbatches`: of a step.
 * Call after the first graph is cut. */
void weft_pp_layout_print(const weft_pp_layout *pp, int64_t microbatches, weft_buf *out);
/* The schedule of a step with `microbatches` microbatches. */
weft_status weft_pp_schedule_csv(const weft_pp_layout *pp, int64_t microbatches,
                                 weft_pp_schedule *table);
/* Number of microbatches per batch. `batch`: greatest common divisor of the batch sizes of a
 * training stage. `accumulate`: batches of a step. `shares`: number of mesh positions that split
 * the samples. Without parallel.microbatches, every position gets at least one sample per
 * microbatch, if possible. WEFT_E_CONFIG: the number does not divide `batch` or does not fit the
 * schedule. */
weft_status weft_pp_layout_microbatches(const weft_parallel *config, const weft_pp_layout *pp,
                                        int64_t batch, int64_t accumulate, int64_t shares,
                                        int64_t *microbatches);

/* ---- programs -------------------------------------------------------------------------------- */

enum { WEFT_PP_TASK_KINDS = 3 }; /* F, B, W: weft_pp_task_kind */

/* A pipeline stage on this rank. */
typedef struct weft_pp_local_stage {
    int pp_stage;
    weft_graph *whole; /* differentiated graph after its passes; split into the programs */
    weft_graph *graph[WEFT_PP_TASK_KINDS];
    weft_program *program[WEFT_PP_TASK_KINDS]; /* W: NULL unless `apart` */
} weft_pp_local_stage;

/* The programs of a microbatch on this rank. */
typedef struct weft_pp_step {
    weft_pp_stages pp_stages; /* cut from the graph of one rank */
    weft_pp_local_stage *own;
    int owns;
    weft_cost cost;          /* one microbatch on this rank */
    const char *offload_dir; /* weft_program_options.offload_dir of its programs; borrowed */
} weft_pp_step;

/* Cuts `graph` into pipeline stages, differentiates this rank's stages and plans their programs.
 * `graph` (borrowed) is the sharded form of `whole`, whose costs determine the cuts, so that all
 * ranks cut alike. Blocks are scopes inside `trunk`. */
weft_status weft_pp_step_plan(weft_pp_layout *pp, const weft_graph *whole, const weft_graph *graph,
                              const char *trunk, const weft_pass_setup *setup,
                              const weft_program_options *options,
                              const weft_optimizer_config *optimizer, weft_pp_step **out);
void weft_pp_step_free(weft_pp_step *step); /* accepts NULL */
/* Bytes per microbatch that this rank's stages send to stages of other ranks: values forward,
 * gradients back. */
void weft_pp_step_sends(const weft_pp_layout *pp, const weft_pp_step *step, int64_t *forward,
                        int64_t *backward);

#endif
