/* The baselines of `weft plan compare` with the costs of a published model, over clusters of growing
 * size: more devices make none longer. */
#include "estimate/plan_models.h"
#include "plan/cascade/baselines.h"
#include "plan/cluster/cluster.h"

#include <criterion/criterion.h>
#include <math.h>

enum { FLEXSP, KNAPFORMER, AT_ONCE, CP, ULYSSES, CP_AT_ONCE, ULYSSES_AT_ONCE, ROWS };
static const char *const row_names[ROWS] = {"FlexSP",         "KnapFormer",   "all at once",
                                            "best CP",        "best Ulysses", "CP at once",
                                            "Ulysses at once"};

typedef struct sweep {
    weft_arena *arena;
    weft_workload buckets;
    weft_model_work model;
    double last[ROWS];
} sweep;

/* Seconds of two iterations of 12 samples; INFINITY: no plan fits the memory. */
static void rows_of(sweep *x, const weft_cluster *cluster, double *row)
{
    enum { ITERATIONS = 2, SAMPLES = 12 };
    const weft_cascade_costs costs = {
        .cluster = cluster, .model = &x->model, .zero = 2, .text = true};
    weft_static_layouts cp = {0}, ulysses = {0};
    for (int i = 0; i < ROWS; i++)
        row[i] = 0;
    for (uint64_t seed = 1; seed <= ITERATIONS; seed++) {
        weft_workload w;
        weft_baseline b[3];
        cr_assert_eq(weft_workload_draw(x->arena, &x->buckets, SAMPLES, seed, &w), WEFT_OK);
        cr_assert_eq(weft_baseline_flexsp(&costs, &w, x->arena, &b[FLEXSP]), WEFT_OK);
        cr_assert_eq(weft_baseline_knapformer(&costs, &w, 0, x->arena, &b[KNAPFORMER]), WEFT_OK);
        cr_assert_eq(weft_baseline_at_once(&costs, &w, x->arena, &b[AT_ONCE]), WEFT_OK);
        for (int i = 0; i < 3; i++)
            row[i] += b[i].feasible ? b[i].makespan : (double)INFINITY;
        cr_assert_eq(weft_baseline_layouts(&costs, &w, WEFT_SP_RING, x->arena, &cp), WEFT_OK);
        cr_assert_eq(weft_baseline_layouts(&costs, &w, WEFT_SP_ULYSSES, x->arena, &ulysses),
                     WEFT_OK);
    }
    const weft_static_layout *best[4] = {
        weft_static_layouts_best(&cp, 0), weft_static_layouts_best(&ulysses, 0),
        weft_static_layouts_best(&cp, SAMPLES), weft_static_layouts_best(&ulysses, SAMPLES)};
    for (int i = 0; i < 4; i++)
        row[CP + i] = best[i] ? best[i]->seconds : (double)INFINITY;
}

Test(plan_comparison, more_devices_make_no_baseline_longer)
{
    sweep x = {.arena = weft_arena_create()};
    weft_cluster cluster;
    for (int i = 0; i < ROWS; i++)
        x.last[i] = INFINITY;
    cr_assert_eq(weft_workload_stage(x.arena, "720p", &x.buckets), WEFT_OK);
    cr_assert_eq(weft_cluster_load(x.arena, "h100:1", &cluster), WEFT_OK);
    cr_assert_eq(
        weft_plan_model_work(x.arena, "hunyuanvideo-13b", &x.buckets, &cluster.device, &x.model),
        WEFT_OK, "%s", weft_error_message());
    for (int nodes = 1; nodes <= 24; nodes++) {
        double row[ROWS];
        cr_assert_eq(
            weft_cluster_load(x.arena, weft_arena_printf(x.arena, "h100:%d", nodes), &cluster),
            WEFT_OK);
        rows_of(&x, &cluster, row);
        for (int i = 0; i < ROWS; i++) {
            cr_expect_leq(row[i], x.last[i] * (1 + 1e-12), "%s: %g s on %d nodes, not %g",
                          row_names[i], row[i], nodes, x.last[i]);
            x.last[i] = row[i];
        }
        cr_expect_leq(row[CP], row[CP_AT_ONCE]);
        cr_expect_leq(row[ULYSSES], row[ULYSSES_AT_ONCE]);
        cr_expect_leq(row[FLEXSP], row[CP], "%d nodes", nodes);
    }
    for (int i = 0; i < ROWS; i++)
        cr_expect(isfinite(x.last[i]), "%s", row_names[i]);
    weft_arena_free(x.arena);
}
