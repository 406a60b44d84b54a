/* The config section `parallel.cascades` of `weft train`: iterations of cascades
 * (docs/explanation/cascades.md). The plan is computed for every step, computed once, or read from
 * a file. */
#ifndef WEFT_TRAIN_CONFIG_CASCADE_CONFIG_H
#define WEFT_TRAIN_CONFIG_CASCADE_CONFIG_H

#include "plan/cascade/policy.h"
#include "transform/sharding/mesh_config.h"

/* How gradients are reduced (train/cascade/rank_cover.h). */
typedef enum weft_cascade_accumulation {
    WEFT_ACCUMULATE_OWN,           /* local gradients of each rank; one reduction over all ranks */
    WEFT_ACCUMULATE_REPRESENTATIVE /* groups reduce, then representative ranks; then a broadcast */
} weft_cascade_accumulation;

/* The ranks that run a cascade. */
typedef enum weft_cascade_dispatch {
    WEFT_DISPATCH_PLANNED, /* ranks of the plan */
    WEFT_DISPATCH_LATE,    /* idle ranks that rank 0 chooses (cascade_late.h) */
    WEFT_DISPATCH_SEARCH   /* ranks that rank 0 searches whenever cascades end (replan.h) */
} weft_cascade_dispatch;

/* The iteration that encodes a sample. */
typedef enum weft_cascade_encode {
    WEFT_ENCODERS_IN_STEP, /* the iteration that trains on it */
    WEFT_ENCODERS_AHEAD    /* the one before */
} weft_cascade_encode;

/* Quantity that the search minimises. */
typedef enum weft_cascade_objective {
    WEFT_OBJECTIVE_MAKESPAN, /* predicted seconds until the last cascade ends */
    WEFT_OBJECTIVE_EXPECTED  /* mean seconds of iterations with the run's own estimate errors */
} weft_cascade_objective;

/* Action for a sample that does not fit on any degree. */
typedef enum weft_cascade_unfit {
    WEFT_UNFIT_REFUSE, /* the run ends with an error that names the sample */
    WEFT_UNFIT_SKIP    /* the step skips the sample with a warning */
} weft_cascade_unfit;

/* Weight of a sample in the mean loss of its step. */
typedef enum weft_cascade_weights {
    WEFT_WEIGH_ELEMENTS, /* elements of its latents, as without cascades */
    WEFT_WEIGH_SAMPLES   /* number of its clips */
} weft_cascade_weights;

typedef enum weft_cascade_plans {
    WEFT_CASCADES_NONE,
    WEFT_CASCADES_EVERY,  /* a new plan for every iteration */
    WEFT_CASCADES_STATIC, /* one plan for each list of sizes, computed at its first use */
    WEFT_CASCADES_FILE    /* replay of plans that a run wrote */
} weft_cascade_plans;

typedef struct weft_cascade_config {
    const char *plan;      /* "none", "every-iteration", "static", or a file */
    weft_i64_list degrees; /* empty: all degrees */
    int policy;            /* weft_policy */
    int64_t degree;        /* degree of equal groups; 0: the best */
    int64_t memory;        /* bytes per rank; 0: memory of the cluster's devices */
    const char *cluster;   /* "local", a preset or a file */
    int accumulation;      /* weft_cascade_accumulation */
    int weigh;             /* weft_cascade_weights */
    int unfit;             /* weft_cascade_unfit */
    int dispatch;          /* weft_cascade_dispatch */
    int objective;         /* weft_cascade_objective */
    int encoders;          /* weft_cascade_encode */
    bool inner, inter;     /* options of the rank mapper (plan/cascade/assign.h) */
    int64_t cache;         /* bytes of cached programs */
} weft_cascade_config;
extern const weft_section weft_cascade_section;

weft_cascade_plans weft_cascades_planned(const weft_cascade_config *config);
/* True: rank 0 may move cascades that have not started to other ranks. */
static inline bool weft_cascades_move(const weft_cascade_config *config)
{
    return config->dispatch != WEFT_DISPATCH_PLANNED;
}
/* Checks that the config table cannot express: keys without a plan, degrees that do not fit `ranks`
 * (0: unknown), and conflicts with other layout keys of `parallel`. WEFT_E_CONFIG names the file
 * `path`. */
weft_status weft_cascades_check(const weft_cascade_config *config, const weft_parallel *parallel,
                                int ranks, const char *path);

#endif
