/* The config section `parallel.cascades` of `weft train`: iterations of cascades
 * (docs/cascades.md), planned for every step, by a rule or by a file. */
#ifndef WEFT_TRAIN_CASCADE_CONFIG_H
#define WEFT_TRAIN_CASCADE_CONFIG_H

#include "pass/parallel.h"
#include "plan/cascade/policy.h"

/* How sums of gradients come about (train/cascade_grads.h). */
typedef enum weft_cascade_accumulation {
    WEFT_ACCUMULATE_OWN,           /* each rank adds its own terms; one reduction over all ranks */
    WEFT_ACCUMULATE_REPRESENTATIVE /* groups reduce; among ranks that cover all, then a broadcast */
} weft_cascade_accumulation;

/* Which ranks run a cascade. */
typedef enum weft_cascade_dispatch {
    WEFT_DISPATCH_PLANNED, /* those of the plan */
    WEFT_DISPATCH_LATE     /* idle ones, as rank 0 decides (train/cascade_late.h) */
} weft_cascade_dispatch;

/* What the search minimises. */
typedef enum weft_cascade_objective {
    WEFT_OBJECTIVE_MAKESPAN, /* predicted seconds until the last cascade ends */
    WEFT_OBJECTIVE_EXPECTED  /* mean seconds of iterations with the run's own price errors */
} weft_cascade_objective;

/* What becomes of a sample that fits on no degree. */
typedef enum weft_cascade_unfit {
    WEFT_UNFIT_REFUSE, /* the run ends and names it */
    WEFT_UNFIT_SKIP    /* it is left out of its step, and told */
} weft_cascade_unfit;

/* What a sample counts by in the mean loss of its step. */
typedef enum weft_cascade_weights {
    WEFT_WEIGH_ELEMENTS, /* of its latents, as the batches of `accumulate` do */
    WEFT_WEIGH_SAMPLES   /* clips */
} weft_cascade_weights;

typedef enum weft_cascade_plans {
    WEFT_CASCADES_NONE,
    WEFT_CASCADES_EVERY,  /* every iteration is planned */
    WEFT_CASCADES_STATIC, /* one plan for each list of sizes, made when it comes first */
    WEFT_CASCADES_FILE    /* plans that a run wrote, replayed */
} weft_cascade_plans;

typedef struct weft_cascade_config {
    const char *plan;      /* "none", "every-iteration", "static", or a file */
    weft_i64_list degrees; /* empty: every one */
    int policy;            /* weft_policy */
    int64_t degree;        /* of equal groups; 0: the best */
    int64_t memory;        /* bytes per rank; 0: what the cluster's devices have */
    const char *cluster;   /* "local", a preset or a file */
    int accumulation;      /* weft_cascade_accumulation */
    int weigh;             /* weft_cascade_weights */
    int unfit;             /* weft_cascade_unfit */
    int dispatch;          /* weft_cascade_dispatch */
    int objective;         /* weft_cascade_objective */
    bool inner, inter;     /* of the mapper: plan/cascade/assign.h */
    int64_t cache;         /* bytes of programs that stay */
} weft_cascade_config;
extern const weft_section weft_cascade_section;

weft_cascade_plans weft_cascades_planned(const weft_cascade_config *config);
/* What the table cannot say: keys without a plan, degrees that no number of ranks has (`ranks` 0:
 * not known yet), other keys of `parallel` that lay out a run. WEFT_E_CONFIG, beginning with
 * `path`. */
weft_status weft_cascades_check(const weft_cascade_config *config, const weft_parallel *parallel,
                                int ranks, const char *path);

#endif
