/* weft plan compare: the same iterations by weft and by the baselines. */
#include "base/json.h"
#include "base/log.h"
#include "cli/plan.h"
#include "plan/cascade/iteration.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STATIC_MAX = 64 };

typedef struct tally {
    double seconds, idle, variation; /* sums */
    double variation_squares;
    int64_t feasible;
    int64_t degree;
    const char *name;
} tally;

typedef struct comparison {
    tally cp[STATIC_MAX], ulysses[STATIC_MAX]; /* one per divisor of the devices */
    int64_t divisor[STATIC_MAX], divisors;
    tally flexsp, knapformer, at_once, weft;
    int64_t samples; /* of an iteration */
    double gap, gap_worst, planning, planning_worst, cp_each, ulysses_each;
    double best_gap; /* of the plan with every degree */
    int64_t proved, iterations, chosen[WEFT_ITERATION_CANDIDATES];
    double sync;
    double mapped[4],
        mapped_idle[4]; /* simulated seconds with parts of the mapper, see mappers[] */
} comparison;

static const struct {
    const char *name;
    weft_assign_options options;
} mappers[4] = {{"all", {true, true}},
                {"without inter-cascade", {true, false}},
                {"without intra-cascade", {false, true}},
                {"no mapper", {false, false}}};

/* Plans and simulates with parts of the mapper switched off. `it` has all of it. */
static weft_status try_mappers(const weft_plan_setup *s, const weft_workload *w,
                               const weft_iteration *it, weft_arena *arena, comparison *all)
{
    for (int i = 0; i < 4; i++) {
        double seconds = it->simulated, idle = it->idle;
        if (i > 0) {
            int32_t *first, *device;
            weft_simulation run;
            WEFT_TRY(weft_assign(&it->problem, &it->result.schedule, &s->cluster,
                                 mappers[i].options, arena, &first, &device));
            WEFT_TRY(weft_iteration_simulate(&s->costs, w, &it->kept, &it->problem,
                                             &it->result.schedule, first, device, &run));
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
    t->name = b->name;
    t->degree = b->degree;
    if (!b->feasible)
        return;
    t->feasible++;
    t->seconds += b->makespan + sync;
    t->idle += b->idle;
    t->variation += b->variation;
    t->variation_squares += b->variation * b->variation;
}

/* CV of busy FLOPs, time and idle of the plan as simulated (the gradient exchange is in it). */
static weft_status own_figures(const weft_plan_setup *s, const weft_workload *w,
                               const weft_iteration *it, weft_arena *arena, weft_baseline *out)
{
    const weft_cascade_problem *p = &it->problem;
    double *flops = weft_arena_alloc(arena, p->devices * (int64_t)sizeof *flops);
    if (!flops)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    double mean = 0, square = 0;
    for (int64_t c = 0; c < p->count; c++) {
        if (!strstr(it->kept.item[c].id, ".dit"))
            continue;
        weft_dit_cost d;
        WEFT_TRY(weft_dit_cost_of(&s->costs, &w->bucket[c / (s->costs.text ? 3 : 2)],
                                  p->degree[it->result.schedule.option[c]], WEFT_SP_NONE, 0, &d));
        for (int32_t j = it->first[c]; j < it->first[c + 1]; j++)
            flops[it->devices[j]] += d.flops;
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

static weft_status one_iteration(const weft_plan_setup *s, uint64_t seed, comparison *all)
{
    weft_arena *arena = weft_arena_create();
    weft_workload w;
    weft_iteration it = {0};
    weft_baseline b;
    weft_status_code status = arena ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status != WEFT_OK)
        return status;
    WEFT_GO(weft_workload_draw(arena, &s->buckets, s->samples, seed, &w));
    double cp = INFINITY, ulysses = INFINITY;
    for (int64_t i = 0; i < all->divisors; i++) {
        WEFT_GO(weft_baseline_static(&s->costs, &w, all->divisor[i], WEFT_SP_RING, arena, &b));
        note(&all->cp[i], &b, all->sync);
        cp = b.feasible ? fmin(cp, b.makespan + all->sync) : cp;
        WEFT_GO(weft_baseline_static(&s->costs, &w, all->divisor[i], WEFT_SP_ULYSSES, arena, &b));
        note(&all->ulysses[i], &b, all->sync);
        ulysses = b.feasible ? fmin(ulysses, b.makespan + all->sync) : ulysses;
    }
    all->cp_each += cp;
    all->ulysses_each += ulysses;
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
    const weft_assign_options place = {s->config.inner, s->config.inter};
    WEFT_GO(weft_iteration_plan(&s->costs, &w, &search, place, arena, &it));
    const double took = (double)(clock() - begun) / CLOCKS_PER_SEC; /* of all cores */
    all->planning += took;
    all->planning_worst = fmax(all->planning_worst, took);
    /* the gap of the schedule that is carried out, not of the best that was found */
    const double gap = it.result.schedule.makespan / it.result.bound.value - 1;
    all->gap += gap;
    all->gap_worst = fmax(all->gap_worst, gap);
    all->best_gap += it.candidate[0].planned / it.result.bound.value - 1;
    all->proved += it.result.proved;
    all->chosen[it.chosen]++;
    WEFT_GO(own_figures(s, &w, &it, arena, &b));
    note(&all->weft, &b, 0);
    WEFT_GO(try_mappers(s, &w, &it, arena, all));
out:
    weft_iteration_free(&it);
    weft_arena_free(arena);
    return status;
}

/* The static configuration that is best on average among those that always fit. */
static const tally *best_static(const tally *list, int64_t count, int64_t iterations)
{
    const tally *best = NULL;
    for (int64_t i = 0; i < count; i++)
        if (list[i].feasible == iterations && (!best || list[i].seconds < best->seconds))
            best = &list[i];
    return best;
}

/* The static configuration with a group per sample: all launch at once, as Arachne §III describes
 * it. */
static const tally *one_each(const weft_plan_setup *s, const tally *list, const comparison *all)
{
    const tally *widest = NULL;
    for (int64_t i = 0; i < all->divisors; i++)
        if (weft_cluster_devices(&s->cluster) / all->divisor[i] >= all->samples &&
            list[i].feasible == all->iterations)
            widest = &list[i];
    return widest;
}

static void row(const char *name, const tally *t, const comparison *all, json_t *rows)
{
    const double n = (double)all->iterations, own = all->weft.seconds / n;
    if (!t || t->feasible < all->iterations) {
        printf("%-34s does not fit the memory in %lld of %lld iterations\n", name,
               (long long)(all->iterations - (t ? t->feasible : 0)), (long long)all->iterations);
        return;
    }
    const double seconds = t->seconds / n, mean = t->variation / n,
                 spread = sqrt(fmax(0, t->variation_squares / n - mean * mean));
    printf("%-34s %10.2f %9.1f %8.2f %8.1f %8.3f %8.3f\n", name, seconds, 100 * (1 - own / seconds),
           seconds / own, 100 * t->idle / n, mean, spread);
    json_array_append_new(rows,
                          json_pack("{s:s,s:f,s:f,s:f,s:f,s:f}", "system", name, "seconds", seconds,
                                    "reduction", 1 - own / seconds, "idle", t->idle / n,
                                    "variation", mean, "variation_spread", spread));
}

static weft_status report(const weft_args *args, const weft_plan_setup *s, const comparison *all)
{
    const double n = (double)all->iterations;
    json_t *rows = json_array();
    printf(
        "%s, %s, %s, %lld devices, %lld samples per iteration, %lld iterations from seed %llu\n\n",
        s->model.name, s->config.buckets.count ? "own buckets" : s->config.stage,
        s->config.cluster_spec, (long long)weft_cluster_devices(&s->cluster), (long long)s->samples,
        (long long)all->iterations, (unsigned long long)s->search.seed);
    printf("%-34s %10s %9s %8s %8s %8s %8s\n", "", "s / iter.", "weft -%", "/ weft", "idle %", "CV",
           "CV sd");
    char name[64];
    for (int64_t i = 0; i < all->divisors; i++) {
        snprintf(name, sizeof name, "DP %lld x CP %lld",
                 (long long)(weft_cluster_devices(&s->cluster) / all->divisor[i]),
                 (long long)all->divisor[i]);
        row(name, &all->cp[i], all, rows);
    }
    for (int64_t i = 0; i < all->divisors; i++) {
        if (s->model.heads % all->divisor[i])
            continue;
        snprintf(name, sizeof name, "DP %lld x Ulysses %lld",
                 (long long)(weft_cluster_devices(&s->cluster) / all->divisor[i]),
                 (long long)all->divisor[i]);
        row(name, &all->ulysses[i], all, rows);
    }
    row("best DP x CP (Megatron)", best_static(all->cp, all->divisors, all->iterations), all, rows);
    row("best DP x Ulysses (DeepSpeed)", best_static(all->ulysses, all->divisors, all->iterations),
        all, rows);
    row("FlexSP-like", &all->flexsp, all, rows);
    row("KnapFormer-like", &all->knapformer, all, rows);
    row("at once: DP x CP (Megatron)", one_each(s, all->cp, all), all, rows);
    row("at once: DP x Ulysses (DeepSpeed)", one_each(s, all->ulysses, all), all, rows);
    row("at once: FlexSP-like", &all->at_once, all, rows);
    row("weft", &all->weft, all, rows);
    printf("\nplanning %.3f core seconds mean, %.3f worst; gap to the lower bound %.2f %% mean, "
           "%.2f %% worst (%.2f %% "
           "mean with every degree); %lld of %lld proved optimal; %.3f s of gradient and weight "
           "exchange are in every system's time\n",
           all->planning / n, all->planning_worst, 100 * all->gap / n, 100 * all->gap_worst,
           100 * all->best_gap / n, (long long)all->proved, (long long)all->iterations, all->sync);
    printf("plans kept: one pool %lld, by nodes %lld, powers of two or whole nodes %lld, within a "
           "node %lld times\n",
           (long long)all->chosen[0], (long long)all->chosen[1], (long long)all->chosen[2],
           (long long)all->chosen[3]);
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
    const char *out = weft_args_string(args, "--out");
    if (out) {
        json_t *json = json_pack(
            "{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:I,s:O,s:O}", "model", s->model.name,
            "stage", s->config.stage, "cluster", s->config.cluster_spec, "devices",
            (json_int_t)weft_cluster_devices(&s->cluster), "samples", (json_int_t)s->samples,
            "iterations", (json_int_t)all->iterations, "seed", (json_int_t)s->search.seed,
            "planning_seconds", all->planning / n, "planning_worst", all->planning_worst, "gap",
            all->gap / n, "gap_worst", all->gap_worst, "gap_every_degree", all->best_gap / n,
            "proved", (json_int_t)all->proved, "systems", rows, "simulated", placed);
        status = json ? weft_json_save(out, json) : weft_fail(WEFT_E_MEMORY, "out of memory");
        json_decref(json);
    }
    json_decref(rows);
    json_decref(placed);
    return status;
}

weft_status weft_plan_compare_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    weft_plan_setup s = {0};
    comparison *all = arena ? weft_arena_alloc(arena, sizeof *all) : NULL;
    weft_status_code status = all ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK)
        status = weft_plan_setup_load(args, count > 1 ? words[1] : NULL, arena, &s);
    if (status == WEFT_OK)
        status = weft_plan_model_work(arena, s.config.model_name, &s.buckets, &s.cluster.device,
                                      &s.model);
    if (status == WEFT_OK) {
        const int64_t devices = weft_cluster_devices(&s.cluster);
        all->iterations = s.config.iterations;
        all->sync = weft_sync_seconds(&s.costs);
        for (int64_t d = 1; d <= devices && all->divisors < STATIC_MAX; d++)
            if (devices % d == 0)
                all->divisor[all->divisors++] = d;
        weft_progress progress;
        weft_progress_begin(&progress, "compare", all->iterations, 0);
        for (int64_t i = 0; i < all->iterations && status == WEFT_OK; i++) {
            status = one_iteration(&s, s.search.seed + (uint64_t)i, all);
            weft_progress_update(&progress, i + 1, NULL);
        }
        weft_progress_end(&progress, all->iterations, NULL);
    }
    if (status == WEFT_OK)
        status = report(args, &s, all);
    weft_arena_free(arena);
    return status;
}
