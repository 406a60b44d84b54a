/* Graphs made ready to run on this rank: shard, optimizer, passes, program. */
#ifndef WEFT_TRAIN_STEP_H
#define WEFT_TRAIN_STEP_H

#include "pass/passes.h"
#include "runtime/runtime.h"
#include "train/objective.h"
#include "train/pipe.h"

/* What of a step a program does (train/optimizer.h). */
typedef enum weft_step_kind {
    WEFT_STEP_WHOLE,     /* forward, backward and update: the only contribution */
    WEFT_STEP_GRADIENTS, /* forward and backward: adds to gradient states */
    WEFT_STEP_UPDATE,    /* of what those added; its graph is this rank's already */
    WEFT_STEP_SHARE      /* before the update, what stages share; likewise */
} weft_step_kind;

/* Where and how programs run. */
typedef struct weft_place_of_run {
    weft_comm *comm; /* borrowed; NULL: a mesh that is not here, to plan for */
    int rank;        /* of that the one that is planned for */
    weft_mesh mesh;
    const weft_recipe_list *const *recipes; /* what the models know to split beside dp and fsdp */
    int recipe_count;
    const weft_backend *backend;
    const char *const *recompute;
    int recompute_count;
    const weft_fates *fates;       /* of what blocks keep, beside the patterns; NULL: it is kept */
    const weft_fates *stage_fates; /* the same by stage of a run (train/run_fit.h); NULL: those */
    const bool *encoded; /* by stage of a run: its latents are cached already; NULL: none are */
    const char *away;    /* folder of what is moved away; NULL: the host's memory */
    bool away_states;    /* the optimizer's states, too */
    int64_t room;        /* of copies under way (pass/passes.h) */
    /* Is shown the graphs of this rank that train, before passes shorten them; NULL: nobody is */
    weft_status (*look)(void *user, const weft_graph *graph);
    void *look_user;
    const weft_pass_switches *passes; /* NULL: weft_pass_defaults */
    weft_pass_log *log;  /* what the passes changed is added to it; NULL: nobody asks */
    bool profile;        /* time every node */
    bool no_overlap;     /* wait for every collective where it starts (to measure) */
    weft_step_kind kind; /* of programs that train */
    /* Floats of the bulletin (train/bulletin.h); 0: none is told. Mesh axes (bits) along which
     * those that add have summed it. */
    int64_t bulletin;
    uint32_t told;
    bool narrow, narrow_sums; /* programs that train compute in bf16 (pass/passes.h) */
    int zero; /* optimizer states (1), and gradients (2), in parts over the axis dp */
    bool own; /* of programs that add: terms of changing groups (weft_optimizer_config.own) */
    const weft_slices *slices; /* of layers (pass/slice.c); NULL: they stay whole */
    weft_pipe *pipe;           /* borrowed; stages of the mesh: of programs that add. NULL: none */
    const char *trunk;         /* with `pipe`: the scope whose blocks are cut into stages */
} weft_place_of_run;

/* This rank, or the one that is planned for. */
static inline int weft_place_rank(const weft_place_of_run *place)
{
    return place->comm ? weft_comm_rank(place->comm) : place->rank;
}

typedef struct weft_step {
    weft_graph *whole;                /* over the global shapes; parameters and their names */
    weft_graph *graph;                /* of this rank; with `pipe` the forward of all stages */
    weft_program *program;            /* NULL: there are those of `pipe` */
    weft_pipe_step *pipe;             /* this rank's stages; NULL: there are none */
    weft_cost cost;                   /* of one run on this rank */
    int64_t slice_first, slice_count; /* of the batch: the items that this rank's input holds */
    int64_t slice_parts;              /* ranks that hold different items */
    double weight;                    /* elements of the whole batch that its loss is a mean of */
    uint32_t told;                    /* axes along which a run has summed the bulletin */
    int64_t made[WEFT_MADE];          /* of slices that were asked for (weft_slices_count) */
} weft_step;

/* The step planned and not bound: its graph, program and exact memory, nothing reserved. As
 * weft_step_make otherwise. */
weft_status weft_step_plan(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_place_of_run *place, weft_step *step);
/* The forward of a step on `place`, by itself: in the place of the whole graph. */
weft_status weft_step_forward(const weft_place_of_run *place, weft_graph **graph);
/* Takes `whole`, whose output "objective" is trained (freed with the step, also on failure).
 * `optimizer` NULL: forward only. Sources that the store does not have yet are added and
 * initialised with `seed`. */
weft_status weft_step_make(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_place_of_run *place, weft_store *store, uint64_t seed,
                           weft_step *step);
/* `config` as it is where `place` is: who steps what (ZeRO over the axis dp). */
weft_optimizer_config weft_step_optimizer(const weft_optimizer_config *config,
                                          const weft_place_of_run *place);
/* Patterns of states that are the optimizer's, for weft_store_keep_away. */
const char *const *weft_step_away_states(int *count);
/* Moving averages of a store begin as copies of their parameters, */
void weft_step_begin_averages(weft_store *store);
/* and when all is trained they take their place. `step` is the one that updates them, unbound;
 * collective. */
weft_status weft_step_end_averages(const weft_step *step, const weft_place_of_run *place,
                                   weft_store *store);
void weft_step_free(weft_step *step);
/* The programs of a step into list[] (NULL: none is asked for); how many there are. */
int weft_step_programs(const weft_step *step, weft_program **list);
/* The graphs whose parameters and states it keeps, and where its gradients are; likewise. */
int weft_step_graphs(const weft_step *step, const weft_graph **list);
/* All that `steps` keep, with initial values from `seed`. With stages collective, if place->comm is
 * there. */
weft_status weft_steps_fill(weft_step *const *steps, int count, const weft_place_of_run *place,
                            weft_store *store, uint64_t seed);
/* To plan for ranks of a pipeline that do not run: what the steps of one of them keep, as a text,
 * */
weft_status weft_steps_list(weft_step *const *steps, int count, weft_buf *list);
/* and weft_steps_fill with those of all devices of place->pipe. */
weft_status weft_steps_fill_listed(weft_step *const *steps, int count,
                                   const weft_place_of_run *place, const weft_buf *lists,
                                   weft_store *store, uint64_t seed);
/* Output scalar of the last run; 0 if there is none of that name. */
double weft_step_scalar(const weft_step *step, const char *name);
/* Several ranks: the bulletin of this one, before a run that trains. False: that program does not
 * carry it (train/bulletin.h). */
bool weft_step_tell(const weft_step *step, const float *bulletin);
/* After it: the sum over the ranks along the axes of step->told. */
void weft_step_hear(const weft_step *step, float *bulletin);

#endif
