/* Plans the next iteration while the current one runs.
 *
 *     rank 0    start(i+1) ──> samples, costs ──> planner thread: a first plan at once,
 *               run(i)   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒     then better plans until get(i+1)
 *               get(i+1) <── the best plan so far ─────────────┘
 *     others    get(i+1) <── the same plan, as text
 *
 * Only rank 0 plans, so all ranks have the same plan although the time limits the search. The
 * planner thread has low priority. A step that finds no plan computes the first plan itself; the
 * waiting time is in weft_planning_stats.late. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_PLANNER_H
#define WEFT_TRAIN_CASCADE_CASCADE_PLANNER_H

#include "comm/comm.h"
#include "plan/cascade/expect.h"
#include "train/cascade/cascade_cost_table.h"
#include "train/cascade/plan_replay.h"
#include "train/config/cascade_config.h"

typedef struct weft_cascade_planner_setup {
    const weft_cascade_config *config;
    const char *path;            /* path of the run's config, for messages */
    const weft_cluster *cluster; /* result of weft_cascade_planner_cluster */
    weft_comm *comm;             /* NULL: plan for `ranks` that do not run (dry run) */
    int ranks;
    double memory; /* bytes per rank; 0: no limit */
    weft_cascade_cost_table *cost_table;
    int buckets;
    const weft_bucket *bucket; /* pixel sizes; batch: clips of a sample */
    const double *work;        /* [buckets] FLOPs of a sample */
    int64_t heads;
    bool ring;      /* the model supports ring attention */
    bool text, vae; /* modules that are cascades in addition to the DiT */
    uint64_t seed;
    bool patient;             /* weft_cascade_planner_get waits until the search ends */
    const weft_plans *replay; /* plans of `plan: FILE`; NULL: none */
    /* measured errors and speeds of the objective `expected`, on rank 0; copied by
     * weft_cascade_planner_start */
    const weft_price_errors *errors; /* [WEFT_CASCADE_MODULES] */
    const weft_rank_speeds *speeds;
    const weft_dispatch_hand *transfer; /* [buckets] seconds to transfer a sample's latents */
    double reduce_seconds;              /* seconds of the complete gradient all-reduce */
    double reduce_last_seconds;         /* of its last part */
} weft_cascade_planner_setup;

/* Adapts `cluster` to the number of ranks: full nodes, or one node. Ranks that share a device share
 * its memory. *memory: bytes per rank; the config's value if set. */
void weft_cascade_planner_cluster(weft_cluster *cluster, const weft_cascade_config *config,
                                  int ranks, double *memory);
/* Returns how a policy splits the tokens of a DiT cascade. NONE: the executor chooses. `ring`: the
 * model supports ring attention. */
weft_sp_method weft_cascade_planner_method(const weft_cascade_config *config, bool ring);

typedef struct weft_cascade_planner weft_cascade_planner;
/* Borrows all pointers of the setup. */
weft_status weft_cascade_planner_create(const weft_cascade_planner_setup *setup,
                                        weft_cascade_planner **out);
void weft_cascade_planner_free(weft_cascade_planner *planner); /* accepts NULL */

/* Chooses the degree of equal groups that is best for several iterations: list[i] has count[i]
 * samples. Does nothing for policies without equal groups, or if the config sets a degree. Call
 * before the first weft_cascade_planner_start. */
weft_status weft_cascade_planner_fix_degree(weft_cascade_planner *planner,
                                            const weft_placed_sample *const *list,
                                            const int64_t *count, int iterations);
/* Starts to plan an iteration on rank 0; does nothing on other ranks. The samples are copied and
 * need batch, bucket, clips, item and weight. A sample that fits on no degree is refused with the
 * least memory that would be enough, or skipped, as the config sets. */
weft_status weft_cascade_planner_start(weft_cascade_planner *planner, int64_t step,
                                       const weft_placed_sample *sample, int64_t samples);

/* Sets the iteration before, whose encoders of samples of the next step are not planned again. NULL
 * (default): none. Before weft_cascade_planner_start it is the running plan, before
 * weft_cascade_planner_get the executed one, whose ranks the kept cascades get. Borrowed until the
 * end of that call. */
void weft_cascade_planner_set_before(weft_cascade_planner *planner,
                                     const weft_placed_iteration *before);

/* How the planner found a plan. */
typedef struct weft_planning_stats {
    double late;      /* seconds that the step waited for the plan */
    double seconds;   /* duration of the search */
    double busy;      /* CPU seconds of the search */
    int64_t rounds;   /* search rounds */
    bool proved;      /* no shorter plan exists */
    bool replayed;    /* read from a file, or reused from equal sizes */
    int64_t left_out; /* skipped samples, which fit on no degree */
    double idle;      /* planned idle share */
    int64_t searches; /* searches of rank 0 during the iteration; set by the caller */
} weft_planning_stats;
/* Collective. Returns the plan of the last weft_cascade_planner_start, and its JSON line in *text.
 * Both are borrowed and valid until the next call. */
weft_status weft_cascade_planner_get(weft_cascade_planner *planner,
                                     const weft_placed_iteration **plan, weft_planning_stats *stats,
                                     const char **text);

#endif
