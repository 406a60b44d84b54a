/* Plans of bench/cascades: prices by profile, and the plan of each policy. */
#ifndef WEFT_BENCH_CASCADES_PLANS_H
#define WEFT_BENCH_CASCADES_PLANS_H

#include "cascades_ranks.h"
#include "plan/cascade/expect.h"
#include "train/cascade/cascade_cost_table.h"

enum { METHODS = 3 };

typedef struct planner {
    weft_arena *arena;
    weft_cascade_costs costs;
    weft_model_work work;
    bool hold; /* degrees 3, 6 and 12 and every fourth shape are held out of the profile */
    /* Prices by method of the transformer: closed form, and measured. */
    struct prices_of {
        double told[WEFT_CASCADE_MODULES][MOST_BUCKETS][MOST_RANKS + 1];
        bool known[WEFT_CASCADE_MODULES][MOST_BUCKETS][MOST_RANKS + 1];
        weft_cascade_cost_table *prices;
    } by[METHODS];
    /* Gradient reductions: all, after the shortest backward passes, and the rest after the
     * longest. INFINITY: not measured. */
    double sums, last_sum;
} planner;

void planner_begin(planner *p, weft_workload *stage, bool hold);
void planner_end(planner *p);
/* A price of this bucket and degree comes from others. */
bool held_out(const planner *p, int bucket, int degree);
/* The bucket of sample `sample`. */
int bucket_of(const weft_plan_bucket *bucket);
/* Degrees that are profiled or held out and fit; seconds of a tenth of the model. Profiles are
 * quiet: all.factor and all.slow are cleared. */
void make_list(planner *p, const weft_workload *w, weft_sp_method method, weft_arena *arena,
               weft_cascade_list *list);
/* How a policy splits tokens. */
weft_sp_method method_of(int policy);
/* Returns the best degree of equal groups over some iterations. 0: none fits. */
int64_t best_degree(weft_policy policy, planner *p, const weft_workload *stage, int64_t samples,
                    int iterations);

/* One policy's iteration. */
typedef struct made {
    weft_placement placed;
    weft_placed_iteration plan;
    double bound, planning;
    executed as;
    bool there;
} made;
/* A placement in the form of the executor. */
void place(const weft_placement *placement, const weft_cascade_list *list, const weft_workload *w,
           weft_sp_method method, weft_arena *arena, weft_placed_iteration *out);
void plan_one(planner *p, const weft_workload *w, int policy, uint64_t seed, int64_t degree,
              weft_arena *arena, made *m);

#endif
