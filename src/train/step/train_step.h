/* Compiles a training graph for this rank: sharding, optimizer, passes, program. */
#ifndef WEFT_TRAIN_STEP_TRAIN_STEP_H
#define WEFT_TRAIN_STEP_TRAIN_STEP_H

#include "train/graph/objective.h"
#include "train/pipeline/pp_layout.h"
#include "transform/memory/saved_activations.h"
#include "transform/passes.h"
#include "transform/sharding/slices.h"

/* The part of a step that a program computes (train/graph/optimizer.h). */
typedef enum weft_step_kind {
    WEFT_STEP_WHOLE,     /* forward, backward and update, for one contribution */
    WEFT_STEP_GRADIENTS, /* forward and backward; adds to gradient states */
    WEFT_STEP_UPDATE,    /* update from gradient states; the graph is already sharded */
    WEFT_STEP_SHARE      /* pipeline reduction before the update; already sharded */
} weft_step_kind;

/* Execution config: the mesh, backend and passes of programs. */
typedef struct weft_exec_config {
    weft_comm *comm; /* borrowed; NULL: plan only, for ranks that do not run */
    int rank;        /* without `comm`: the rank to plan for */
    weft_mesh mesh;
    const weft_recipe_list *const *recipes; /* sharding recipes of the models besides dp and fsdp */
    int recipe_count;
    const weft_backend *backend;
    const char *const *recompute;
    int recompute_count;
    /* Activation plan of the blocks, in addition to the patterns. NULL: keep all. */
    const weft_activation_plan *activations;
    /* Activation plan of each training stage (memory_fit.h). NULL: `activations` for all. */
    const weft_activation_plan *stage_activations;
    const bool *encoded; /* [training stages] latents are already cached; NULL: none */
    /* Rates of this machine for activation plans (memory_fit.h). NULL: measured when needed. */
    const struct weft_fit_rates *fit_rates;
    const char *offload_dir; /* folder of the offload buffer; NULL: host memory */
    bool offload_states;     /* offload also optimizer states */
    int64_t prefetch_bytes;  /* prefetch budget (passes.h) */
    /* Called with this rank's training graphs before passes shorten them. NULL: not called. */
    weft_status (*inspect)(void *user, const weft_graph *graph);
    void *inspect_user;
    const weft_pass_switches *passes; /* NULL: weft_pass_defaults */
    weft_pass_log *log;  /* receives the changes made by the passes; NULL: not needed */
    bool profile;        /* measure the time of every node */
    bool no_overlap;     /* wait for every collective at its start (for measurements) */
    weft_step_kind kind; /* kind of programs that train */
    /* Floats of the rank telemetry (rank_telemetry.h); 0: off. `reduced_axes`: mesh axes (bits)
     * along which the gradient programs have already reduced it. */
    int64_t telemetry_floats;
    uint32_t reduced_axes;
    bool bf16_compute, bf16_reduce;   /* training programs compute, reduce in bf16 (passes.h) */
    bool tf32_compute;                /* programs may multiply in TF32 (passes.h) */
    int zero;                         /* shard optimizer states (1) and gradients (2) over dp */
    bool own;                         /* gradients of changing groups (weft_optimizer_config.own) */
    const weft_comm_overlap *overlap; /* layer slices (layer_slices.c); NULL: none */
    weft_pp_layout *pp;               /* borrowed; pipeline for gradient programs; NULL: none */
    const char *trunk; /* scope whose blocks are cut into pipeline stages; used with `pp` */
} weft_exec_config;

/* This rank, or the rank to plan for. */
static inline int weft_allocation_rank(const weft_exec_config *exec)
{
    return exec->comm ? weft_comm_rank(exec->comm) : exec->rank;
}

typedef struct weft_step {
    weft_graph *whole; /* global shapes; has the parameters and their names */
    /* graph of this rank; with a pipeline the forward of all stages */
    weft_graph *graph;
    weft_program *program;            /* NULL: `pp_step` has the programs */
    weft_pp_step *pp_step;            /* this rank's pipeline stages; NULL: no pipeline */
    weft_cost cost;                   /* one run on this rank */
    int64_t local_first, local_count; /* samples of the batch in this rank's input */
    int64_t local_ranks;              /* number of different local batches */
    double weight;                    /* elements over which the loss is a mean */
    uint32_t reduced_axes;            /* axes along which a run reduces the telemetry */
    int64_t made[WEFT_MADE];          /* counts of comm overlaps (weft_comm_overlap_count) */
} weft_step;

/* Plans a step: its graph, program and exact memory. Reserves no tensors. Otherwise as
 * weft_step_make. */
weft_status weft_step_plan(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_exec_config *exec, weft_step *step);
/* Replaces *graph, an unsharded forward graph, with its graph for the rank of `exec`. */
weft_status weft_step_forward(const weft_exec_config *exec, weft_graph **graph);
/* Compiles and binds a step. `whole` (taken, also on failure; freed with the step) has the output
 * "objective" to train. `optimizer` NULL: forward only. Adds missing parameters and states to the
 * store and initialises them with `seed`. */
weft_status weft_step_make(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_exec_config *exec, weft_store *store, uint64_t seed,
                           weft_step *step);
/* A copy of `config` with the settings of `exec`: ZeRO over the axis dp, and the reduction type. */
weft_optimizer_config weft_step_optimizer(const weft_optimizer_config *config,
                                          const weft_exec_config *exec);
/* Name patterns of optimizer states, for weft_store_set_offload. */
const char *const *weft_step_offloaded_states(int *count);
/* Initialises the EMA states of a store as copies of their parameters. */
weft_status weft_step_begin_averages(weft_store *store);
/* Collective. Replaces the parameters with their EMA after training. `step`: the step that updates
 * the EMA, unbound. */
weft_status weft_step_end_averages(const weft_step *step, const weft_exec_config *exec,
                                   weft_store *store);
void weft_step_free(weft_step *step);
/* Writes the programs of a step into list[] (NULL: not needed). Returns their number. */
int weft_step_programs(const weft_step *step, weft_program **list);
/* Writes the graphs that declare the step's parameters, states and gradients into list[] (NULL: not
 * needed). Returns their number. */
int weft_step_graphs(const weft_step *step, const weft_graph **list);
/* Adds all parameters and states of `steps` to the store with initial values from `seed`.
 * Collective with a pipeline, if exec->comm is not NULL. */
weft_status weft_steps_fill(weft_step *const *steps, int count, const weft_exec_config *exec,
                            weft_store *store, uint64_t seed);
/* Lists the tensors of one rank's steps as text, to plan for pipeline ranks that do not run. */
weft_status weft_steps_list(weft_step *const *steps, int count, weft_buf *list);
/* Does the same as weft_steps_fill, from the lists of all devices of exec->pp. */
weft_status weft_steps_fill_listed(weft_step *const *steps, int count, const weft_exec_config *exec,
                                   const weft_buf *lists, weft_store *store, uint64_t seed);
/* Output scalar of the last run; 0 if no output has this name. */
double weft_step_scalar(const weft_step *step, const char *name);
/* Sets this rank's telemetry before a training run. False: the program does not reduce telemetry
 * (train/monitor/rank_telemetry.h). */
bool weft_step_set_telemetry(const weft_step *step, const float *telemetry);
/* Reads the telemetry after the run: the sum over the ranks along step->reduced_axes. */
void weft_step_get_telemetry(const weft_step *step, float *telemetry);

#endif
