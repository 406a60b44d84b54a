/* The cascade planner against brute force and against CBC on the MILP of Arachne Eq. 1-7. */
#include "base/rng.h"
#include "plan/cascade/assign.h"
#include "plan/cascade/cascade.h"
#include "plan/cascade/exact.h"
#include "plan/cascade/genetic.h"

#include <coin/Cbc_C_Interface.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPTIONS = 16 };

static weft_cascade_list random_list(weft_arena *arena, weft_rng *rng, int64_t count,
                                     int64_t devices, int options, bool whole)
{
    weft_cascade_list list = {.count = count};
    list.item = weft_arena_alloc(arena, count * (int64_t)sizeof *list.item);
    for (int64_t c = 0; c < count; c++) {
        weft_cascade *x = &list.item[c];
        x->id = weft_arena_printf(arena, "c%d", (int)c);
        x->option = weft_arena_alloc(arena, MAX_OPTIONS * (int64_t)sizeof *x->option);
        x->after = weft_arena_alloc(arena, 2 * (int64_t)sizeof *x->after);
        double work = 2 + 20 * weft_rng_f64(rng);
        int64_t degree = 1 + (int64_t)weft_rng_below(rng, 2);
        for (int k = 0; k < options && degree <= devices; k++) {
            double seconds = work / (double)degree + 0.3 * weft_rng_f64(rng);
            if (whole)
                seconds = fmax(1, round(seconds / 3));
            x->option[x->option_count++] =
                (weft_cascade_option){degree, seconds, work / (double)degree};
            degree += 1 + (int64_t)weft_rng_below(rng, 3);
        }
        for (int k = 0; c > 0 && k < 2; k++)
            if (weft_rng_below(rng, 3) == 0) {
                const int32_t q = (int32_t)weft_rng_below(rng, (uint64_t)c);
                if (!x->after_count || x->after[0] != q)
                    x->after[x->after_count++] = q;
            }
    }
    return list;
}

/* A random list and its problem, both in an arena of their own. */
typedef struct random_case {
    weft_arena *arena;
    weft_cascade_list list;
    weft_cascade_problem problem;
} random_case;

static random_case open_case(weft_rng *rng, int64_t count, int64_t devices, int options,
                             double memory, bool whole)
{
    random_case c = {.arena = weft_arena_create()};
    c.list = random_list(c.arena, rng, count, devices, options, whole);
    cr_assert_eq(weft_cascade_problem_create(&c.list, devices, memory, &c.problem), WEFT_OK, "%s",
                 weft_error_message());
    return c;
}

static void close_case(random_case *c)
{
    weft_cascade_problem_free(&c->problem);
    weft_arena_free(c->arena);
}

/* All orders and all degrees, each placed at the earliest time in a list of device-free times. The
 * sequence is by start, so nothing starts before the one placed last. */
typedef struct brute {
    const weft_cascade_problem *p;
    double best, end[16];
} brute;

static void brute_force(brute *b, uint32_t done, double now, const double *free_at, double span)
{
    const weft_cascade_problem *p = b->p;
    if (done + 1 == 1u << p->count) {
        b->best = fmin(b->best, span);
        return;
    }
    for (int32_t c = 0; c < p->count; c++) {
        if (done >> c & 1)
            continue;
        double ready = now;
        bool waits = false;
        for (int32_t e = p->first_after[c]; e < p->first_after[c + 1]; e++) {
            waits |= !(done >> p->after[e] & 1);
            ready = fmax(ready, b->end[p->after[e]]);
        }
        if (waits)
            continue;
        for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++) {
            double next[16], start = fmax(ready, free_at[p->degree[o] - 1]);
            const double end = start + p->seconds[o];
            if (end >= b->best)
                continue;
            for (int64_t d = 0; d < p->devices; d++)
                next[d] = d < p->degree[o] ? end : free_at[d];
            for (int64_t i = 1; i < p->devices; i++)
                for (int64_t j = i; j > 0 && next[j] < next[j - 1]; j--) {
                    const double swap = next[j];
                    next[j] = next[j - 1];
                    next[j - 1] = swap;
                }
            b->end[c] = end;
            brute_force(b, done | 1u << c, start, next, fmax(span, end));
        }
    }
}

static weft_cascade_result solve(const weft_cascade_problem *p, weft_arena *arena,
                                 weft_cascade_search search)
{
    weft_cascade_result r;
    cr_assert_eq(weft_cascade_solve(p, &search, arena, &r), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_cascade_schedule_check(p, &r.schedule), WEFT_OK, "%s", weft_error_message());
    cr_assert(r.bound.value <= r.schedule.makespan);
    return r;
}

/* 200 random cases: the heuristics alone are within 1 % of the optimum, the bound never above it,
 * and the exact search finds it. */
Test(cascade, brute_force_agrees)
{
    weft_rng rng = weft_rng_make(11, WEFT_RNG_TEST);
    double worst = 0, gap = 0;
    for (int round = 0; round < 200; round++) {
        const int64_t count = 2 + (int64_t)weft_rng_below(&rng, 5);
        const int64_t devices = 1 + (int64_t)weft_rng_below(&rng, 6);
        random_case c = open_case(&rng, count, devices > 1 ? devices : 2, 3, 0, false);
        const weft_cascade_problem *p = &c.problem;
        brute b = {.p = p, .best = INFINITY};
        const double zero[16] = {0};
        brute_force(&b, 0, 0, zero, 0);
        const weft_cascade_result h =
            solve(p, c.arena, (weft_cascade_search){.seed = 1, .no_exact = true});
        worst = fmax(worst, h.schedule.makespan / b.best - 1);
        gap += b.best / h.bound.value - 1;
        cr_assert(h.schedule.makespan <= b.best * 1.01, "round %d: %g, optimum %g", round,
                  h.schedule.makespan, b.best);
        cr_assert(h.schedule.makespan >= b.best * (1 - 1e-12));
        cr_assert(h.bound.value <= b.best * (1 + 1e-12), "round %d: bound %.17g over optimum %.17g",
                  round, h.bound.value, b.best);
        weft_cascade_schedule exact;
        bool proved;
        int64_t nodes;
        cr_assert_eq(weft_cascade_schedule_create(c.arena, p->count, &exact), WEFT_OK);
        cr_assert_eq(weft_cascade_exact(p, &(weft_cascade_limits){.nodes = 1000000}, &exact,
                                        &proved, &nodes),
                     WEFT_OK);
        cr_assert(proved, "round %d", round);
        cr_assert_float_eq(exact.makespan, b.best, 1e-9 * b.best,
                           "round %d: exact %.17g, brute %.17g", round, exact.makespan, b.best);
        cr_assert_eq(weft_cascade_schedule_check(p, &exact), WEFT_OK, "%s", weft_error_message());
        close_case(&c);
    }
    fprintf(stderr,
            "200 cases: heuristics at most %.3f %% over the optimum, the bound %.2f %% under it on "
            "average\n",
            100 * worst, 100 * gap / 200);
}

/* Eq. 1-7 with whole seconds: x[c][k][t] = 1 when c starts at t with option k. */
static double by_cbc(const weft_cascade_problem *p, int horizon)
{
    Cbc_Model *m = Cbc_newModel();
    Cbc_setParameter(m, "logLevel", "0");
    const int options = p->first_option[p->count];
    int index[64 * 64];
    double value[64 * 64];
    Cbc_addCol(m, "T", 0, horizon, 1, 0, 0, NULL, NULL);
    for (int o = 0; o < options; o++)
        for (int t = 0; t < horizon; t++)
            Cbc_addCol(m, "x", 0, t + p->seconds[o] <= horizon ? 1 : 0, 0, 1, 0, NULL, NULL);
    for (int c = 0; c < p->count; c++) {
        int n = 0;
        for (int o = p->first_option[c]; o < p->first_option[c + 1]; o++)
            for (int t = 0; t < horizon; t++, n++) {
                index[n] = 1 + o * horizon + t;
                value[n] = 1;
            }
        Cbc_addRow(m, "one", n, index, value, 'E', 1); /* Eq. 5 */
        n = 0;
        for (int o = p->first_option[c]; o < p->first_option[c + 1]; o++)
            for (int t = 0; t < horizon; t++, n++)
                value[n] = t + p->seconds[o];
        index[n] = 0;
        value[n++] = -1;
        Cbc_addRow(m, "end", n, index, value, 'L', 0); /* Eq. 2, 3 */
        for (int e = p->first_after[c]; e < p->first_after[c + 1]; e++) {
            n = 0; /* Eq. 4 */
            const int q = p->after[e];
            for (int o = p->first_option[q]; o < p->first_option[q + 1]; o++)
                for (int t = 0; t < horizon; t++, n++) {
                    index[n] = 1 + o * horizon + t;
                    value[n] = t + p->seconds[o];
                }
            for (int o = p->first_option[c]; o < p->first_option[c + 1]; o++)
                for (int t = 0; t < horizon; t++, n++) {
                    index[n] = 1 + o * horizon + t;
                    value[n] = -t;
                }
            Cbc_addRow(m, "after", n, index, value, 'L', 0);
        }
    }
    for (int now = 0; now < horizon; now++) { /* Eq. 7 */
        int n = 0;
        for (int o = 0; o < options; o++)
            for (int t = 0; t <= now; t++)
                if (t + p->seconds[o] > now) {
                    index[n] = 1 + o * horizon + t;
                    value[n++] = p->degree[o];
                }
        Cbc_addRow(m, "devices", n, index, value, 'L', (double)p->devices);
    }
    Cbc_setParameter(m, "sec", "60");
    cr_assert_eq(Cbc_solve(m), 0);
    cr_assert(Cbc_isProvenOptimal(m));
    const double best = Cbc_getObjValue(m);
    Cbc_deleteModel(m);
    return best;
}

Test(cascade, cbc_agrees)
{
    weft_rng rng = weft_rng_make(5, WEFT_RNG_TEST);
    for (int round = 0; round < 12; round++) {
        const int64_t devices = 4 + (int64_t)weft_rng_below(&rng, 5);
        random_case c = open_case(&rng, 6 + (int64_t)weft_rng_below(&rng, 3), devices, 3, 0, true);
        const weft_cascade_result r =
            solve(&c.problem, c.arena, (weft_cascade_search){.seed = 3, .exact_nodes = 2000000});
        cr_assert(r.proved, "round %d", round);
        const double best = by_cbc(&c.problem, (int)r.schedule.makespan + 1);
        cr_assert_float_eq(r.schedule.makespan, best, 1e-6, "round %d: %g, CBC %g", round,
                           r.schedule.makespan, best);
        close_case(&c);
    }
}

Test(cascade, same_plan_on_any_threads)
{
    weft_rng rng = weft_rng_make(23, WEFT_RNG_TEST);
    random_case c = open_case(&rng, 60, 16, 8, 0, false);
    const weft_cascade_result a =
        solve(&c.problem, c.arena, (weft_cascade_search){.seed = 9, .threads = 1});
    const weft_cascade_result b =
        solve(&c.problem, c.arena, (weft_cascade_search){.seed = 9, .threads = 4});
    cr_assert_eq(a.schedule.makespan, b.schedule.makespan);
    cr_assert_eq(memcmp(a.schedule.option, b.schedule.option, 60 * sizeof(int32_t)), 0);
    cr_assert_eq(memcmp(a.schedule.start, b.schedule.start, 60 * sizeof(double)), 0);
    close_case(&c);
}

static bool asked(void *user)
{
    int *times = user;
    return --*times < 0;
}

/* A list within 4 devices: the first options of every cascade. A cascade that fits on more devices
 * only keeps all options. */
Test(cascade, a_list_within_a_node_keeps_what_fits)
{
    weft_arena *arena = weft_arena_create();
    weft_cascade_option small[] = {{1, 8, 10}, {4, 3, 4}, {8, 2, 2}},
                        large[] = {{2, 9, 30}, {4, 5, 20}, {8, 3, 10}}, wide[] = {{8, 1, 1}};
    weft_cascade item[] = {{.option = small, .option_count = 3},
                           {.option = large, .option_count = 3},
                           {.option = wide, .option_count = 1}};
    const weft_cascade_list list = {item, 3};
    weft_cascade_list out;
    cr_assert_eq(weft_cascade_list_within(&list, 4, 15, arena, &out), WEFT_OK);
    cr_expect_eq(out.count, 3);
    cr_expect_eq(out.item[0].option_count, 2);
    cr_expect_eq(out.item[0].option, small);
    cr_expect_eq(out.item[1].option_count, 3, "20 bytes on 4 devices are more than 15");
    cr_expect_eq(out.item[2].option_count, 1, "no option within 4 devices");
    cr_assert_eq(weft_cascade_list_within(&list, 4, 0, arena, &out), WEFT_OK);
    cr_expect_eq(out.item[1].option_count, 2, "no limit");
    weft_arena_free(arena);
}

/* A search ends when its bound is reached, with the same schedule for any number of threads. A stopped
 * search has a legal schedule, also if it is stopped before it begins. */
Test(cascade, searches_end_early)
{
    weft_rng rng = weft_rng_make(29, WEFT_RNG_TEST);
    for (int round = 0; round < 8; round++) {
        random_case c = open_case(&rng, 12 + 6 * round, 8, 4, 0, false);
        const weft_cascade_problem *p = &c.problem;
        const weft_cascade_result whole =
            solve(p, c.arena, (weft_cascade_search){.seed = 4, .threads = 1});
        const double gap = weft_cascade_gap(whole.schedule.makespan, whole.bound.value),
                     enough = gap + 0.02;
        weft_cascade_search s = {
            .seed = 4, .threads = 1, .enough = enough, .bound = &whole.bound, .no_exact = true};
        const weft_cascade_result early = solve(p, c.arena, s);
        cr_assert_leq(early.schedule.makespan, whole.bound.value * (1 + enough), "round %d", round);
        cr_assert_lt(early.evaluations, whole.evaluations, "round %d", round);
        s.threads = 4;
        const weft_cascade_result other = solve(p, c.arena, s);
        cr_assert_eq(other.schedule.makespan, early.schedule.makespan, "round %d", round);
        cr_assert_eq(memcmp(other.schedule.option, early.schedule.option,
                            (size_t)p->count * sizeof(int32_t)),
                     0);
        int times = round; /* one thread asks */
        s = (weft_cascade_search){
            .seed = 4, .threads = 1, .bound = &whole.bound, .stop = asked, .user = &times};
        const weft_cascade_result stopped = solve(p, c.arena, s);
        cr_assert_lt(stopped.evaluations, whole.evaluations, "round %d", round);
        cr_assert(stopped.cut || stopped.proved, "round %d", round);
        close_case(&c);
    }
}

/* A limit of seconds adds to the fixed work: never a longer plan, on one thread or several. */
Test(cascade, a_limit_of_time_is_never_worse)
{
    weft_rng rng = weft_rng_make(77, WEFT_RNG_PLAN);
    for (int round = 0; round < 4; round++) {
        random_case c = open_case(&rng, 60 + 30 * round, 24, 8, 0, false);
        const weft_cascade_problem *p = &c.problem;
        weft_cascade_result fixed, timed;
        cr_assert_eq(
            weft_cascade_solve(p, &(weft_cascade_search){.seed = 5, .threads = 1}, c.arena, &fixed),
            WEFT_OK);
        for (int threads = 1; threads <= 2; threads++) {
            const weft_cascade_search s = {.seed = 5, .threads = threads, .seconds = 0.05};
            cr_assert_eq(weft_cascade_solve(p, &s, c.arena, &timed), WEFT_OK);
            cr_expect_leq(timed.schedule.makespan, fixed.schedule.makespan, "round %d", round);
        }
        close_case(&c);
    }
}

/* Larger random problems: every schedule is legal, devices do not overlap. */
/* `chains` of `length` cascades in sequence; k devices need seconds / k^0.8. */
static double chain_gap(int chains, int length, int64_t devices)
{
    enum { OPTIONS = 8 };
    weft_arena *arena = weft_arena_create();
    weft_rng rng = weft_rng_make(3, WEFT_RNG_PLAN);
    weft_cascade_list list = {.count = chains * length};
    weft_cascade_problem p;
    weft_cascade_result r;
    const weft_cascade_search search = {.seed = 1, .threads = 1, .effort = 0.2};
    list.item = weft_arena_alloc(arena, list.count * (int64_t)sizeof *list.item);
    for (int i = 0; i < list.count; i++) {
        weft_cascade *c = &list.item[i];
        const double seconds = 0.5 + weft_rng_f64(&rng);
        c->id = weft_arena_printf(arena, "c%d", i);
        c->option = weft_arena_alloc(arena, OPTIONS * (int64_t)sizeof *c->option);
        for (int k = 1; k <= OPTIONS; k++)
            c->option[c->option_count++] = (weft_cascade_option){k, seconds / pow(k, 0.8), 1};
        c->after = weft_arena_alloc(arena, (int64_t)sizeof *c->after);
        if (i % length)
            c->after[c->after_count++] = i - 1;
    }
    cr_assert_eq(weft_cascade_problem_create(&list, devices, 0, &p), WEFT_OK);
    cr_assert_eq(weft_cascade_solve(&p, &search, arena, &r), WEFT_OK);
    const double gap = weft_cascade_gap(r.schedule.makespan, r.bound.value);
    weft_cascade_problem_free(&p);
    weft_arena_free(arena);
    return gap;
}

/* Every cascade of one chain runs at its fastest degree, however long the chain is. */
Test(cascade, long_chains_are_planned_at_the_optimum)
{
    static const int length[] = {9, 40, 200, 700};
    for (int i = 0; i < (int)(sizeof length / sizeof *length); i++) {
        cr_expect_lt(chain_gap(1, length[i], 8), 1e-9, "one chain of %d", length[i]);
        cr_expect_lt(chain_gap(2, length[i], 16), 1e-9, "two chains of %d", length[i]);
    }
}

Test(cascade, devices_are_legal)
{
    weft_rng rng = weft_rng_make(77, WEFT_RNG_TEST);
    for (int round = 0; round < 10; round++) {
        const int64_t n = 20 + (int64_t)weft_rng_below(&rng, 60),
                      devices = 3 + (int64_t)weft_rng_below(&rng, 30);
        random_case c = open_case(&rng, n, devices, 6, 15, false);
        const weft_cascade_problem *p = &c.problem;
        const weft_cascade_result r = solve(p, c.arena, (weft_cascade_search){.seed = 2});
        int32_t *first, *device;
        cr_assert_eq(weft_cascade_devices(p, &r.schedule, c.arena, &first, &device), WEFT_OK);
        for (int32_t a = 0; a < n; a++) {
            cr_assert_eq(first[a + 1] - first[a], p->degree[r.schedule.option[a]]);
            cr_assert(c.list.item[a].option[p->source[r.schedule.option[a]]].bytes <= 15);
            for (int32_t b = a + 1; b < n; b++) {
                if (r.schedule.end[a] <= r.schedule.start[b] ||
                    r.schedule.end[b] <= r.schedule.start[a])
                    continue;
                for (int32_t i = first[a]; i < first[a + 1]; i++)
                    for (int32_t j = first[b]; j < first[b + 1]; j++)
                        cr_assert_neq(device[i], device[j]);
            }
        }
        close_case(&c);
    }
}

static weft_status_code refuse(weft_cascade_list list, int64_t devices, double memory)
{
    weft_cascade_problem p;
    const weft_status_code status = weft_cascade_problem_create(&list, devices, memory, &p);
    if (status == WEFT_OK)
        weft_cascade_problem_free(&p);
    return status;
}

Test(cascade, refusals_say_why)
{
    int32_t one = 1, zero = 0;
    weft_cascade_option wide[] = {{4, 2.0, 96.2 * 1073741824}, {6, 1.5, 64e9}};
    weft_cascade_option plain[] = {{1, 2.0, 0}};
    weft_cascade a[] = {{.id = "a", .option = wide, .option_count = 2}};
    const weft_cascade_list single = {a, 1};
    cr_assert_eq(refuse(single, 0, 0), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_COSTS_INVALID, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "devices");
    cr_assert_eq(refuse((weft_cascade_list){a, 0}, 4, 0), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_COSTS_INVALID, "%s", weft_error_message());
    cr_assert_eq(refuse(single, 4, 80 * 1073741824.0), WEFT_E_INFEASIBLE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_INFEASIBLE);
    cr_assert_str_eq(weft_error_fields()->key, "a");
    cr_assert(
        strstr(weft_error_text(),
               "needs 96.2 GiB per device at degree 4, limit 80 GiB; smallest feasible degree 6"),
        "%s", weft_error_message());
    cr_assert_eq(refuse(single, 3, 0), WEFT_E_INFEASIBLE);
    cr_assert_eq(refuse(single, 6, 80 * 1073741824.0), WEFT_OK);
    for (int i = 0; i < 4; i++) {
        const double bad[] = {NAN, -1e-9, -1, INFINITY};
        weft_cascade_option o[] = {{1, bad[i], 0}};
        weft_cascade c[] = {{.id = "c", .option = o, .option_count = 1}};
        cr_assert_eq(refuse((weft_cascade_list){c, 1}, 4, 0), WEFT_E_ARG);
    }
    weft_cascade ring[] = {
        {.id = "p", .option = plain, .option_count = 1, .after = &one, .after_count = 1},
        {.id = "q", .option = plain, .option_count = 1, .after = &zero, .after_count = 1}};
    cr_assert_eq(refuse((weft_cascade_list){ring, 2}, 4, 0), WEFT_E_ARG);
    cr_assert(strstr(weft_error_message(), "p after q after p") ||
                  strstr(weft_error_message(), "q after p after q"),
              "%s", weft_error_message());
}

/* Nodes of a cascade's devices, and the largest and smallest number of its devices in a node. */
static int64_t nodes_of(const int32_t *device, int64_t degree, int64_t per_node, int64_t *most,
                        int64_t *fewest)
{
    int64_t in[16] = {0}, nodes = 0;
    for (int64_t i = 0; i < degree; i++)
        in[device[i] / per_node]++;
    *most = 0;
    *fewest = degree;
    for (int n = 0; n < WEFT_COUNT(in); n++) {
        nodes += in[n] > 0;
        *most = in[n] > *most ? in[n] : *most;
        *fewest = in[n] && in[n] < *fewest ? in[n] : *fewest;
    }
    return nodes;
}

/* Schedules for nodes are placed as scheduled: a cascade that fits a node is in one node. A wider one
 * is spread evenly over the fewest nodes, because its seconds were measured like this. */
Test(cascade, devices_are_those_that_were_scheduled)
{
    weft_rng rng = weft_rng_make(17, WEFT_RNG_TEST);
    for (int round = 0; round < 40; round++) {
        const bool inter = round % 2;
        const int64_t nodes = 2 + round % 3, per_node = 8, count = 12 + round % 20;
        random_case x = open_case(&rng, count, nodes * per_node, 6, 0, round % 4 == 0);
        weft_cluster cluster;
        int32_t *first, *devices;
        cr_assert_eq(
            weft_cluster_load(x.arena, weft_arena_printf(x.arena, "h100:%d", (int)nodes), &cluster),
            WEFT_OK);
        x.problem.per_node = per_node;
        x.problem.by_producers = inter;
        const weft_cascade_result r =
            solve(&x.problem, x.arena, (weft_cascade_search){.seed = 1, .effort = 0.05});
        cr_assert_eq(weft_assign(&x.problem, &r.schedule, &cluster,
                                 (weft_assign_options){true, inter}, x.arena, &first, &devices),
                     WEFT_OK, "%s", weft_error_message());
        for (int64_t c = 0; c < count; c++) {
            int64_t most, fewest;
            const int64_t degree = first[c + 1] - first[c];
            cr_expect_eq(nodes_of(devices + first[c], degree, per_node, &most, &fewest),
                         (degree + per_node - 1) / per_node, "round %d: cascade %d of %d", round,
                         (int)c, (int)degree);
            cr_expect(most - fewest <= 1, "round %d: %d and %d", round, (int)most, (int)fewest);
        }
        close_case(&x);
    }
}

/* A DiT of 4 devices after a VAE of 2: both nodes have room for it, and the fuller one, which the
 * list scheduler takes, does not have the latents. */
Test(cascade, a_reader_is_placed_next_to_what_it_reads)
{
    static const int degree[] = {3, 2, 4, 4};
    static const double start[] = {0, 0, 0, 1}, end[] = {10, 1, 10, 5};
    int32_t vae = 1, *first, *devices, shared[2] = {0};
    weft_arena *arena = weft_arena_create();
    weft_cascade item[4] = {{.id = "busy"}, {.id = "vae"}, {.id = "busy too"}, {.id = "dit"}};
    weft_cascade_option option[4];
    weft_cascade_schedule s;
    weft_cascade_problem p;
    weft_cluster cluster;
    for (int c = 0; c < 4; c++) {
        option[c] = (weft_cascade_option){degree[c], end[c] - start[c], 1};
        item[c].option = &option[c];
        item[c].option_count = 1;
    }
    item[3].after = &vae;
    item[3].after_count = 1;
    cr_assert_eq(weft_cluster_load(arena, "h100:2", &cluster), WEFT_OK);
    cr_assert_eq(weft_cascade_problem_create(&(weft_cascade_list){item, 4}, 16, 0, &p), WEFT_OK);
    cr_assert_eq(weft_cascade_schedule_create(arena, 4, &s), WEFT_OK);
    for (int c = 0; c < 4; c++) {
        s.option[c] = c;
        s.start[c] = start[c];
        s.end[c] = end[c];
        s.start_order[c] = c;
    }
    for (int inter = 0; inter < 2; inter++) {
        cr_assert_eq(weft_assign(&p, &s, &cluster, (weft_assign_options){true, inter}, arena,
                                 &first, &devices),
                     WEFT_OK, "%s", weft_error_message());
        for (int32_t i = first[3]; i < first[4]; i++)
            for (int32_t j = first[1]; j < first[2]; j++)
                shared[inter] += devices[i] == devices[j];
        for (int32_t i = first[3]; i < first[4]; i++)
            cr_expect_eq(devices[i] / 8, devices[first[3]] / 8, "torn apart");
    }
    cr_expect_eq(shared[0], 0);
    cr_expect_eq(shared[1], 2, "%d devices have the latents", shared[1]);
    weft_cascade_problem_free(&p);
    weft_arena_free(arena);
}

/* Every allocation of a solve fails once: an error, no crash, no leak under ASan. */
Test(cascade, survives_failing_allocations)
{
    weft_rng rng = weft_rng_make(3, WEFT_RNG_TEST);
    weft_arena *arena = weft_arena_create();
    weft_cascade_list list = random_list(arena, &rng, 3, 4, 3, false);
    for (int64_t n = 1;; n++) {
        weft_arena *scratch = weft_arena_create();
        weft_cascade_problem p;
        weft_cascade_result r;
        weft_alloc_fail_at(n);
        const int64_t before = weft_alloc_count();
        weft_status_code status = weft_cascade_problem_create(&list, 4, 0, &p);
        if (status == WEFT_OK) {
            status = weft_cascade_solve(&p, &(weft_cascade_search){.seed = 1, .threads = 1},
                                        scratch, &r);
            weft_cascade_problem_free(&p);
        }
        const bool reached = weft_alloc_count() - before >= n;
        weft_alloc_fail_at(0);
        weft_arena_free(scratch);
        if (!reached) {
            cr_assert_eq(status, WEFT_OK, "%s", weft_error_message());
            break;
        }
        cr_assert_eq(status, WEFT_E_MEMORY, "allocation %d: %s", (int)n, weft_error_message());
        cr_assert(n < 500);
    }
    weft_arena_free(arena);
}
