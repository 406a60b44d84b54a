#include "estimate/plan_comparison.h"

#include "base/json.h"
#include "base/log.h"
#include "plan/cascade/baselines.h"
#include "plan/cascade/iteration.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STATIC_MAX = 64, METHODS = 2 };

static const struct {
    weft_sp_method method;
    const char *axis, *best, *at_once;
} methods[METHODS] = {
    {WEFT_SP_RING, "CP", "best DP x CP (Megatron)", "at once: DP x CP (Megatron)"},
    {WEFT_SP_ULYSSES, "Ulysses", "best DP x Ulysses (DeepSpeed)",
     "at once: DP x Ulysses (DeepSpeed)"}};

typedef struct tally {
    double seconds, idle, variation; /* sums */
    double variation_squares;
    int64_t feasible;
    weft_equal_groups groups; /* of static layouts; width 0: groups differ */
} tally;

typedef struct comparison {
    tally exact[METHODS][STATIC_MAX]; /* groups that cover all devices: one per divisor */
    int64_t divisor[STATIC_MAX], divisors;
    weft_static_layouts layouts[METHODS]; /* devices may stay idle */
    /* layouts with the fewest seconds of all iterations; at once: a group per sample */
    tally best[METHODS], best_at_once[METHODS];
    tally flexsp, knapformer, at_once, weft;
    int64_t samples; /* samples of an iteration */
    double gap, gap_worst, planning, planning_worst;
    double best_gap; /* optimality gap of the plan with every degree */
    int64_t proved, iterations, chosen[WEFT_ITERATION_CANDIDATES];
    double sync;
    double mapped[4],
        mapped_idle[4]; /* simulated seconds with parts of the mapper disabled, see mappers[] */
} comparison;

static const struct {
    const char *name;
    weft_assign_options options;
} mappers[4] = {{"all", {true, true}},
                {"without inter-cascade", {true, false}},
                {"without intra-cascade", {false, true}},
                {"no mapper", {false, false}}};

/* Plans and simulates with parts of the mapper disabled. `it` uses all parts. */
static weft_status try_mappers(const weft_plan_setup *s, const weft_workload *w,
                               const weft_iteration *it, weft_arena *arena, comparison *all)
{
    for (int i = 0; i < 4; i++) {
        double seconds = it->simulated, idle = it->idle;
        if (i > 0) {
            weft_cascade_solution other = it->best;
            weft_simulation run;
            WEFT_TRY(weft_assign(&other.problem, &other.result.schedule, &s->cluster,
                                 mappers[i].options, arena, &other.first, &other.devices));
            WEFT_TRY(weft_iteration_simulate(&s->costs, w, &other, &run));
            seconds = run.seconds;
            idle = 1;
            for (int64_t d = 0; d < run.devices; d++)
                idle -= (run.busy[d] + run.exposed[d]) / (run.seconds * (double)run.devices);
            weft_simulation_free(&run);
        }
        all->mapped[i] += seconds;
        all->mapped_idle[i] += idle;
    }
    return WEFT_OK;
}

static void note(tally *t, const weft_baseline *b, double sync)
{
    if (!b->feasible)
        return;
    t->feasible++;
    t->seconds += b->makespan + sync;
    t->idle += b->idle;
    t->variation += b->variation;
    t->variation_squares += b->variation * b->variation;
}

/* Computes the CV of busy FLOPs, the time and the idle share of the simulated plan, including the
 * gradient reduction. */
static weft_status own_figures(const weft_plan_setup *s, const weft_workload *w,
                               const weft_iteration *it, weft_arena *arena, weft_baseline *out)
{
    const weft_cascade_problem *p = &it->best.problem;
    double *flops;
    WEFT_TRY(WEFT_ARENA_NEW(arena, flops, p->devices, "the comparison of plans"));
    double mean = 0, square = 0;
    for (int64_t c = 0; c < p->count; c++) {
        if (!strstr(it->best.list.item[c].id, ".dit"))
            continue;
        weft_dit_cost d;
        WEFT_TRY(weft_dit_cost_of(&s->costs, &w->bucket[c / (s->costs.text ? 3 : 2)],
                                  p->degree[it->best.result.schedule.option[c]], WEFT_SP_NONE, 0,
                                  &d));
        for (int32_t j = it->best.first[c]; j < it->best.first[c + 1]; j++)
            flops[it->best.devices[j]] += d.flops;
    }
    for (int64_t d = 0; d < p->devices; d++)
        mean += flops[d] / (double)p->devices;
    for (int64_t d = 0; d < p->devices; d++)
        square += (flops[d] - mean) * (flops[d] - mean) / (double)p->devices;
    *out = (weft_baseline){.name = "weft",
                           .makespan = it->simulated,
                           .feasible = true,
                           .idle = it->idle,
                           .variation = mean > 0 ? sqrt(square) / mean : 0};
    return WEFT_OK;
}

static weft_status try_static(const weft_plan_setup *s, const weft_workload *w, weft_arena *lists,
                              weft_arena *arena, comparison *all)
{
    weft_baseline b;
    for (int m = 0; m < METHODS; m++) {
        for (int64_t i = 0; i < all->divisors; i++) {
            const weft_equal_groups groups = {all->divisor[i], 0};
            WEFT_TRY(weft_baseline_static(&s->costs, w, groups, methods[m].method, arena, &b));
            note(&all->exact[m][i], &b, all->sync);
        }
        WEFT_TRY(weft_baseline_layouts(&s->costs, w, methods[m].method, lists, &all->layouts[m]));
    }
    return WEFT_OK;
}

static weft_status one_iteration(const weft_plan_setup *s, uint64_t seed, weft_arena *lists,
                                 comparison *all)
{
    weft_arena *arena = weft_arena_create();
    weft_workload w;
    weft_iteration it = {0};
    weft_baseline b;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(arena, "the comparison of plans"));
    WEFT_GO(weft_workload_draw(arena, &s->buckets, s->samples, seed, &w));
    WEFT_GO(try_static(s, &w, lists, arena, all));
    WEFT_GO(weft_baseline_flexsp(&s->costs, &w, arena, &b));
    note(&all->flexsp, &b, all->sync);
    WEFT_GO(weft_baseline_knapformer(&s->costs, &w, 0, arena, &b));
    note(&all->knapformer, &b, all->sync);
    WEFT_GO(weft_baseline_at_once(&s->costs, &w, arena, &b));
    note(&all->at_once, &b, all->sync);
    all->samples = w.count;
    const clock_t begun = clock();
    weft_cascade_search search = s->search;
    search.seed = seed;
    const weft_assign_options assign = {s->config.inner, s->config.inter};
    WEFT_GO(weft_iteration_plan(&s->costs, &w, &search, assign, arena, &it));
    const double took = (double)(clock() - begun) / CLOCKS_PER_SEC; /* CPU seconds of all cores */
    all->planning += took;
    all->planning_worst = fmax(all->planning_worst, took);
    /* gap of the executed schedule, not of the best schedule found */
    const double gap = it.best.result.schedule.makespan / it.best.result.bound.value - 1;
    all->gap += gap;
    all->gap_worst = fmax(all->gap_worst, gap);
    all->best_gap += it.candidate[0].planned / it.best.result.bound.value - 1;
    all->proved += it.best.result.proved;
    all->chosen[it.chosen]++;
    WEFT_GO(own_figures(s, &w, &it, arena, &b));
    note(&all->weft, &b, 0);
    WEFT_GO(try_mappers(s, &w, &it, arena, all));
out:
    weft_iteration_free(&it);
    weft_arena_free(arena);
    return status;
}

/* Adds up the figures of one static layout over all iterations. */
static weft_status add_iteration(const weft_plan_setup *s, uint64_t seed, weft_sp_method method,
                                 const comparison *all, tally *t)
{
    weft_workload w;
    weft_baseline b;
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(arena, "the comparison of plans"));
    WEFT_GO(weft_workload_draw(arena, &s->buckets, s->samples, seed, &w));
    WEFT_GO(weft_baseline_static(&s->costs, &w, t->groups, method, arena, &b));
    note(t, &b, all->sync);
out:
    weft_arena_free(arena);
    return status;
}

static weft_status add_up(const weft_plan_setup *s, weft_sp_method method,
                          const weft_static_layout *layout, const comparison *all, tally *t)
{
    if (!layout)
        return WEFT_OK;
    t->groups = layout->groups;
    for (int64_t i = 0; i < all->iterations; i++)
        WEFT_TRY(add_iteration(s, s->search.seed + (uint64_t)i, method, all, t));
    return WEFT_OK;
}

/* Chooses static layouts by the seconds of all iterations. */
static weft_status choose_static(const weft_plan_setup *s, comparison *all)
{
    for (int m = 0; m < METHODS; m++) {
        const weft_static_layouts *l = &all->layouts[m];
        WEFT_TRY(add_up(s, methods[m].method, weft_static_layouts_best(l, 0), all, &all->best[m]));
        WEFT_TRY(add_up(s, methods[m].method, weft_static_layouts_best(l, all->samples), all,
                        &all->best_at_once[m]));
    }
    return WEFT_OK;
}

static void row(const char *name, const tally *t, const comparison *all, json_t *rows)
{
    const double n = (double)all->iterations, own = all->weft.seconds / n;
    if (t->feasible < all->iterations) {
        printf("%-34s does not fit the memory in %" PRId64 " of %" PRId64 " iterations\n", name,
               all->iterations - t->feasible, all->iterations);
        return;
    }
    const double seconds = t->seconds / n, mean = t->variation / n,
                 spread = sqrt(fmax(0, t->variation_squares / n - mean * mean));
    printf("%-34s %10.2f %9.1f %8.2f %8.1f %8.3f %8.3f\n", name, seconds, 100 * (1 - own / seconds),
           seconds / own, 100 * t->idle / n, mean, spread);
    json_t *object = json_pack("{s:s,s:f,s:f,s:f,s:f,s:f}", "system", name, "seconds", seconds,
                               "reduction", 1 - own / seconds, "idle", t->idle / n, "variation",
                               mean, "variation_spread", spread);
    if (t->groups.width && object) {
        json_object_set_new(object, "groups", json_integer((json_int_t)t->groups.count));
        json_object_set_new(object, "degree", json_integer((json_int_t)t->groups.width));
    }
    json_array_append_new(rows, object);
}

/* Prints the layouts of the best static rows. */
static void print_layouts(const comparison *all, int64_t devices)
{
    for (int m = 0; m < METHODS; m++)
        for (int i = 0; i < 2; i++) {
            const tally *t = i ? &all->best_at_once[m] : &all->best[m];
            if (t->groups.width)
                printf("%s: DP %" PRId64 " x %s %" PRId64 ", %" PRId64 " idle devices\n",
                       i ? methods[m].at_once : methods[m].best, t->groups.count, methods[m].axis,
                       t->groups.width, devices - t->groups.count * t->groups.width);
        }
}

static void print_exact(const weft_plan_setup *s, const comparison *all, json_t *rows)
{
    char name[64];
    for (int m = 0; m < METHODS; m++)
        for (int64_t i = 0; i < all->divisors; i++) {
            if (methods[m].method == WEFT_SP_ULYSSES && s->model.heads % all->divisor[i])
                continue;
            snprintf(name, sizeof name, "DP %" PRId64 " x %s %" PRId64,
                     weft_cluster_devices(&s->cluster) / all->divisor[i], methods[m].axis,
                     all->divisor[i]);
            row(name, &all->exact[m][i], all, rows);
        }
}

static weft_status report(const char *out, const weft_plan_setup *s, const comparison *all)
{
    const double n = (double)all->iterations;
    json_t *rows = json_array();
    printf("%s, %s, %s, %" PRId64 " devices, %" PRId64 " samples per iteration, %" PRId64
           " iterations from seed %" PRIu64 "\n\n",
           s->model.name, s->config.buckets.count ? "own buckets" : s->config.train_stage,
           s->config.cluster_spec, weft_cluster_devices(&s->cluster), s->samples, all->iterations,
           s->search.seed);
    printf("%-34s %10s %9s %8s %8s %8s %8s\n", "", "s / iter.", "weft -%", "/ weft", "idle %", "CV",
           "CV sd");
    print_exact(s, all, rows);
    for (int m = 0; m < METHODS; m++)
        row(methods[m].best, &all->best[m], all, rows);
    row("FlexSP-like", &all->flexsp, all, rows);
    row("KnapFormer-like", &all->knapformer, all, rows);
    for (int m = 0; m < METHODS; m++)
        row(methods[m].at_once, &all->best_at_once[m], all, rows);
    row("at once: FlexSP-like", &all->at_once, all, rows);
    row("weft", &all->weft, all, rows);
    printf("\n");
    print_layouts(all, weft_cluster_devices(&s->cluster));
    printf("\nplanning %.3f core seconds mean, %.3f worst; gap to the lower bound %.2f %% mean, "
           "%.2f %% worst (%.2f %% "
           "mean with every degree); %" PRId64 " of %" PRId64
           " proved optimal; %.3f s of gradient and weight "
           "exchange are in every system's time\n",
           all->planning / n, all->planning_worst, 100 * all->gap / n, 100 * all->gap_worst,
           100 * all->best_gap / n, all->proved, all->iterations, all->sync);
    printf("plans kept: one pool %" PRId64 ", by nodes %" PRId64
           ", powers of two or whole nodes %" PRId64 ", within a "
           "node %" PRId64 " times\n",
           all->chosen[0], all->chosen[1], all->chosen[2], all->chosen[3]);
    printf("\nthe same schedules placed with parts of the mapper, simulated:\n");
    json_t *placed = json_array();
    for (int i = 0; i < 4; i++) {
        printf("  mapper: %-24s %10.2f s  %+6.2f %%  idle %.1f %%\n", mappers[i].name,
               all->mapped[i] / n, 100 * (all->mapped[i] / all->mapped[0] - 1),
               100 * all->mapped_idle[i] / n);
        json_array_append_new(placed, json_pack("{s:s,s:f,s:f,s:f}", "mapper", mappers[i].name,
                                                "seconds", all->mapped[i] / n, "slower",
                                                all->mapped[i] / all->mapped[0] - 1, "idle",
                                                all->mapped_idle[i] / n));
    }
    weft_status_code status = WEFT_OK;
    if (out) {
        json_t *json = json_pack(
            "{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:I,s:O,s:O}", "model", s->model.name,
            "stage", s->config.train_stage, "cluster", s->config.cluster_spec, "devices",
            (json_int_t)weft_cluster_devices(&s->cluster), "samples", (json_int_t)s->samples,
            "iterations", (json_int_t)all->iterations, "seed", (json_int_t)s->search.seed,
            "planning_seconds", all->planning / n, "planning_worst", all->planning_worst, "gap",
            all->gap / n, "gap_worst", all->gap_worst, "gap_every_degree", all->best_gap / n,
            "proved", (json_int_t)all->proved, "systems", rows, "simulated", placed);
        status = json ? weft_json_save(out, json) : weft_no_memory("the comparison of plans");
        json_decref(json);
    }
    json_decref(rows);
    json_decref(placed);
    return status;
}

static weft_status compare(const weft_plan_setup *setup, weft_arena *arena, weft_progress *progress,
                           comparison *all)
{
    for (int64_t i = 0; i < all->iterations; i++) {
        WEFT_TRY(one_iteration(setup, setup->search.seed + (uint64_t)i, arena, all));
        weft_progress_update(progress, i + 1, NULL);
    }
    return WEFT_OK;
}

weft_status weft_plan_compare(const weft_plan_setup *setup, const char *out, weft_arena *arena)
{
    comparison *all;
    WEFT_TRY(WEFT_ARENA_NEW(arena, all, 1, "the comparison of plans"));
    const int64_t devices = weft_cluster_devices(&setup->cluster);
    all->iterations = setup->config.iterations;
    all->sync = weft_sync_seconds(&setup->costs);
    for (int64_t d = 1; d <= devices && all->divisors < STATIC_MAX; d++)
        if (devices % d == 0)
            all->divisor[all->divisors++] = d;
    weft_progress progress;
    weft_progress_begin(&progress, "compare", all->iterations, 0);
    const weft_status_code status = compare(setup, arena, &progress, all);
    weft_progress_end(&progress, all->iterations, NULL);
    WEFT_TRY(status);
    WEFT_TRY(choose_static(setup, all));
    return report(out, setup, all);
}
