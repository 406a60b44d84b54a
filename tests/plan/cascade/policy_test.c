/* Plans by the rules of other systems: legal, what the rules say, and never shorter than what
 * nothing can be shorter than. */
#include "base/rng.h"
#include "plan/cascade/bound.h"
#include "plan/cascade/genetic.h"
#include "plan/cascade/policy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* `samples` of text (degree 1), vae and dit; a sample of weight w takes w / k seconds and bytes on
 * k devices. */
static weft_cascade_list make_list(weft_arena *arena, const double *weight, int64_t samples,
                                   int64_t devices, int32_t **sample)
{
    static const char *const modules[] = {"text", "vae", "dit"};
    weft_cascade_list list = {.count = 3 * samples};
    list.item = weft_arena_alloc(arena, list.count * (int64_t)sizeof *list.item);
    *sample = weft_arena_alloc(arena, list.count * (int64_t)sizeof **sample);
    for (int64_t i = 0; i < list.count; i++) {
        weft_cascade *c = &list.item[i];
        const int64_t s = i / 3, widest = i % 3 ? devices : 1;
        (*sample)[i] = (int32_t)s;
        c->id = weft_arena_printf(arena, "s%d.%s", (int)s, modules[i % 3]);
        c->option = weft_arena_alloc(arena, widest * (int64_t)sizeof *c->option);
        c->after = weft_arena_alloc(arena, 2 * (int64_t)sizeof *c->after);
        for (int64_t k = 1; k <= widest; k++)
            c->option[c->option_count++] = (weft_cascade_option){
                k, (i % 3 == 2 ? 1 : 0.1) * weight[s] / (double)k, weight[s] / (double)k};
        for (int64_t a = i - i % 3; i % 3 == 2 && a < i; a++)
            c->after[c->after_count++] = (int32_t)a;
    }
    return list;
}

static weft_policy_request request_of(const weft_cascade_list *list, const int32_t *sample,
                                      int64_t devices)
{
    return (weft_policy_request){
        .list = list, .sample = sample, .samples = list->count / 3, .devices = devices};
}

Test(policy, plans_are_legal_and_not_below_the_bound)
{
    weft_rng rng = weft_rng_make(7, WEFT_RNG_PLAN);
    for (int round = 0; round < 60; round++) {
        weft_arena *arena = weft_arena_create();
        double weight[12];
        int32_t *sample;
        const int64_t samples = 1 + (int64_t)weft_rng_below(&rng, 12),
                      devices = 1 + (int64_t)weft_rng_below(&rng, 12);
        for (int64_t s = 0; s < samples; s++)
            weight[s] = 1 + 20 * weft_rng_f64(&rng);
        const weft_cascade_list list = make_list(arena, weight, samples, devices, &sample);
        weft_policy_request r = request_of(&list, sample, devices);
        weft_cascade_problem p;
        weft_cascade_bound bound;
        cr_assert_eq(weft_cascade_problem_create(&list, devices, 0, &p), WEFT_OK);
        cr_assert_eq(weft_cascade_lower_bound(&p, 1e9, &bound), WEFT_OK);
        for (int policy = WEFT_POLICY_STATIC; policy < WEFT_POLICY_COUNT; policy++) {
            weft_placement a, b;
            cr_assert_eq(weft_policy_place(policy, &r, arena, &a), WEFT_OK, "%s",
                         weft_error_message());
            cr_assert_eq(weft_placement_check(&a, &list, devices, 0), WEFT_OK, "%s",
                         weft_error_message());
            cr_assert_geq(a.makespan, bound.value * (1 - 1e-9), "%s: %g below %g",
                          weft_policy_names[policy], a.makespan, bound.value);
            cr_assert(a.idle >= -1e-9 && a.idle < 1);
            cr_assert_eq(weft_policy_place(policy, &r, arena, &b), WEFT_OK);
            cr_assert_arr_eq(a.start, b.start, (size_t)a.count * sizeof *a.start);
        }
        weft_cascade_problem_free(&p);
        weft_arena_free(arena);
    }
}

/* Two groups of two devices: samples 0 and 2 on the first, 1 and 3 on the second. */
Test(policy, static_groups_take_samples_in_turn)
{
    weft_arena *arena = weft_arena_create();
    int32_t *sample;
    const weft_cascade_list list = make_list(arena, (const double[]){8, 2, 4, 6}, 4, 4, &sample);
    weft_policy_request r = request_of(&list, sample, 4);
    weft_placement p;
    r.degree = 2;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_OK);
    cr_assert_eq(p.degree, 2);
    for (int64_t s = 0; s < 4; s++) {
        cr_assert_eq(p.devices[p.first[3 * s + 2]], 2 * (s % 2));
        cr_assert_eq(p.first[3 * s + 3] - p.first[3 * s + 2], 2);
    }
    /* texts on one device take 0.1 w, VAEs and DiTs half of 0.1 w and of w */
    cr_assert_float_eq(p.makespan, (0.1 + 0.05 + 0.5) * 12, 1e-12);
    cr_assert_float_eq(p.start[3 * 2], 0.65 * 8, 1e-12);
    weft_arena_free(arena);
}

/* Two long samples in a row, which a distribution by turns gives to one group. By work they are separated. */
Test(policy, bags_are_filled_by_work)
{
    weft_arena *arena = weft_arena_create();
    int32_t *sample;
    const weft_cascade_list list = make_list(arena, (const double[]){10, 1, 10, 1}, 4, 2, &sample);
    weft_policy_request r = request_of(&list, sample, 2);
    weft_placement turns, bags, flex;
    r.degree = 1;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &turns), WEFT_OK);
    cr_assert_eq(weft_policy_place(WEFT_POLICY_KNAPFORMER, &r, arena, &bags), WEFT_OK);
    cr_assert_eq(weft_policy_place(WEFT_POLICY_FLEXSP, &r, arena, &flex), WEFT_OK);
    cr_assert_float_eq(turns.makespan, 1.2 * 20, 1e-12);
    cr_assert_float_eq(bags.makespan, 1.2 * 11, 1e-12);
    cr_assert_leq(flex.makespan, bags.makespan + 1e-12);
    /* a given amount of work counts, not the seconds */
    r.work = (const double[]){1, 1, 1, 100};
    cr_assert_eq(weft_policy_place(WEFT_POLICY_KNAPFORMER, &r, arena, &bags), WEFT_OK);
    cr_assert_float_eq(bags.makespan, 1.2 * 21, 1e-12);
    weft_arena_free(arena);
}

Test(policy, heads_and_memory_decide_degrees)
{
    weft_arena *arena = weft_arena_create();
    int32_t *sample;
    const weft_cascade_list list = make_list(arena, (const double[]){12, 2}, 2, 6, &sample);
    weft_policy_request r = request_of(&list, sample, 6);
    weft_placement p;
    r.heads = 4;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_ULYSSES, &r, arena, &p), WEFT_OK);
    cr_assert_eq(4 % p.degree, 0, "3 and 6 do not divide 4 heads");
    r.degree = 3;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_ULYSSES, &r, arena, &p), WEFT_E_INFEASIBLE);
    cr_assert(strstr(weft_error_message(), "heads"), "%s", weft_error_message());
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_OK);
    r.degree = 4;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_E_INFEASIBLE);
    r.degree = 0;
    r.memory = 12; /* text is on one device and has the same bytes */
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_OK);
    cr_assert_eq(weft_placement_check(&p, &list, 6, 12), WEFT_OK, "%s", weft_error_message());
    r.memory = 11;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_FLEXSP, &r, arena, &p), WEFT_E_INFEASIBLE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_INFEASIBLE, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "s0.text");
    weft_arena_free(arena);
}

Test(policy, the_check_sees_what_is_wrong)
{
    weft_arena *arena = weft_arena_create();
    int32_t *sample;
    const weft_cascade_list list = make_list(arena, (const double[]){4, 4}, 2, 2, &sample);
    weft_policy_request r = request_of(&list, sample, 2);
    weft_placement p;
    r.degree = 1;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_OK);
    cr_assert_eq(weft_placement_check(&p, &list, 2, 0), WEFT_OK);
    cr_assert_eq(weft_placement_check(&p, &list, 2, 1), WEFT_E_INTERNAL, "bytes");
    cr_assert_eq(weft_placement_check(&p, &list, 1, 0), WEFT_E_INTERNAL, "a device that is not");
    const double start = p.start[2];
    p.start[2] = 0;
    cr_assert_eq(weft_placement_check(&p, &list, 2, 0), WEFT_E_INTERNAL, "before its VAE");
    p.start[2] = start;
    p.devices[p.first[3]] = 0;
    cr_assert_eq(weft_placement_check(&p, &list, 2, 0), WEFT_E_INTERNAL, "two on one device");
    weft_arena_free(arena);
}

/* Tries all groups of 2^p devices on at most `rest` devices, and assigns `samples` to the groups: the
 * longest sample first, each to the group that ends it first. Keeps the shortest makespan. */
typedef struct cuts {
    const weft_policy_request *r;
    const double *weight;
    int64_t width[32], groups;
    double best;
} cuts;

static double seconds_on(const cuts *c, int64_t s, int64_t width)
{
    double seconds = 0;
    for (int64_t i = 3 * s; i < 3 * s + 3; i++) {
        const weft_cascade *item = &c->r->list->item[i];
        int32_t o = 0;
        while (o + 1 < item->option_count && item->option[o + 1].degree <= width)
            o++;
        seconds += item->option[o].seconds;
    }
    return seconds;
}

static void try_all(cuts *c, int64_t widest, int64_t rest)
{
    double load[32] = {0}, makespan = 0;
    bool used[16] = {0};
    for (int64_t w = widest; w > 0; w /= 2)
        if (w <= rest) {
            c->width[c->groups++] = w;
            try_all(c, w, rest - w);
            c->groups--;
        }
    for (int64_t n = 0; n < c->r->samples && c->groups; n++) {
        int64_t s = -1, to = 0;
        for (int64_t i = 0; i < c->r->samples; i++)
            s = !used[i] && (s < 0 || c->weight[i] > c->weight[s]) ? i : s;
        used[s] = true;
        for (int64_t g = 1; g < c->groups; g++)
            if (load[g] + seconds_on(c, s, c->width[g]) < load[to] + seconds_on(c, s, c->width[to]))
                to = g;
        load[to] += seconds_on(c, s, c->width[to]);
        makespan = fmax(makespan, load[to]);
    }
    if (c->groups)
        c->best = fmin(c->best, makespan);
}

/* Every cut into powers of two is considered. */
Test(policy, flexsp_is_not_longer_than_any_cut)
{
    weft_rng rng = weft_rng_make(5, WEFT_RNG_PLAN);
    for (int round = 0; round < 12; round++) {
        weft_arena *arena = weft_arena_create();
        double weight[8];
        int32_t *sample;
        const int64_t samples = 2 + (int64_t)weft_rng_below(&rng, 7),
                      devices = 3 + (int64_t)weft_rng_below(&rng, 14);
        for (int64_t s = 0; s < samples; s++)
            weight[s] = 1 + 20 * weft_rng_f64(&rng);
        const weft_cascade_list list = make_list(arena, weight, samples, devices, &sample);
        weft_policy_request r = request_of(&list, sample, devices);
        weft_placement p;
        cuts all = {.r = &r, .weight = weight, .best = INFINITY};
        cr_assert_eq(weft_policy_place(WEFT_POLICY_FLEXSP, &r, arena, &p), WEFT_OK);
        try_all(&all, 16, devices);
        cr_expect_leq(p.makespan, all.best * (1 + 1e-9),
                      "%" PRId64 " samples on %" PRId64 ": %g, not %g", samples, devices,
                      p.makespan, all.best);
        weft_arena_free(arena);
    }
}

/* More devices at equal costs make no plan longer, and FlexSP's is never longer than equal
 * groups. Narrow groups are efficient, wide ones less so, as exchanges cost. */
static void more_devices(uint64_t seed, int64_t samples, const int64_t *devices, int counts)
{
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_PLAN);
    weft_arena *arena = weft_arena_create();
    double *weight = weft_arena_alloc(arena, samples * (int64_t)sizeof *weight),
           last[WEFT_POLICY_COUNT];
    int32_t *sample;
    for (int64_t s = 0; s < samples; s++)
        weight[s] = 1 + 40 * pow(weft_rng_f64(&rng), 4);
    const weft_cascade_list list = make_list(arena, weight, samples, devices[counts - 1], &sample);
    for (int64_t i = 0; i < list.count; i++)
        for (int32_t o = 1; o < list.item[i].option_count; o++)
            list.item[i].option[o].seconds += 0.02 * (double)list.item[i].option[o].degree;
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++)
        last[policy] = INFINITY;
    for (int n = 0; n < counts; n++) {
        weft_policy_request r = request_of(&list, sample, devices[n]);
        weft_placement p[WEFT_POLICY_COUNT];
        for (int policy = WEFT_POLICY_STATIC; policy < WEFT_POLICY_COUNT; policy++) {
            cr_assert_eq(weft_policy_place(policy, &r, arena, &p[policy]), WEFT_OK);
            cr_assert_eq(weft_placement_check(&p[policy], &list, r.devices, 0), WEFT_OK, "%s",
                         weft_error_message());
            cr_expect_leq(p[policy].makespan, last[policy] * (1 + 1e-9),
                          "%s: %g s on %" PRId64 ", not %g", weft_policy_names[policy],
                          p[policy].makespan, r.devices, last[policy]);
            last[policy] = p[policy].makespan;
        }
        for (int policy = WEFT_POLICY_STATIC; policy < WEFT_POLICY_COUNT; policy++)
            cr_expect_leq(p[WEFT_POLICY_FLEXSP].makespan, p[policy].makespan * (1 + 1e-9),
                          "%s is shorter on %" PRId64, weft_policy_names[policy], r.devices);
    }
    weft_arena_free(arena);
}

Test(policy, more_devices_make_no_plan_longer)
{
    static const int64_t each[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,
                                   14, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 70};
    static const int64_t large[] = {16, 32, 64, 96, 127, 128, 160, 200, 256, 257, 300, 512};
    for (uint64_t seed = 0; seed < 4; seed++)
        more_devices(seed, 2 + 5 * (int64_t)seed, each, sizeof each / sizeof *each);
    more_devices(1, 24, large, sizeof large / sizeof *large);
    more_devices(2, 70, large, sizeof large / sizeof *large - 1);
}

/* Sums of `iterations` lists for the static layouts of `devices`. */
static weft_static_layouts layouts_of(weft_policy policy, const weft_cascade_list *list,
                                      const int32_t *sample, int iterations, int64_t devices,
                                      weft_arena *arena)
{
    weft_static_layouts all = {0};
    for (int i = 0; i < iterations; i++) {
        weft_policy_request r = request_of(&list[i], sample, devices);
        r.heads = 24;
        if (!i)
            cr_assert_eq(weft_static_layouts_create(policy, &r, arena, &all), WEFT_OK);
        cr_assert_eq(weft_static_layouts_add(&all, &r, arena), WEFT_OK);
    }
    return all;
}

/* Seconds of all iterations as plans. */
static double placed(weft_policy policy, const weft_cascade_list *list, const int32_t *sample,
                     int iterations, weft_policy_request request, weft_arena *arena)
{
    double seconds = 0;
    for (int i = 0; i < iterations; i++) {
        weft_policy_request r = request;
        weft_placement p;
        r.list = &list[i];
        r.sample = sample;
        cr_assert_eq(weft_policy_place(policy, &r, arena, &p), WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_placement_check(&p, &list[i], r.devices, 0), WEFT_OK, "%s",
                     weft_error_message());
        seconds += p.makespan;
    }
    return seconds;
}

/* The best static layout of several iterations: with more devices not longer, and never longer than
 * equal groups on all devices. */
static void static_rows(weft_policy policy, uint64_t seed, int64_t samples, int64_t most)
{
    enum { ITERATIONS = 3 };
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_PLAN);
    weft_arena *arena = weft_arena_create();
    weft_cascade_list list[ITERATIONS];
    double *weight = weft_arena_alloc(arena, samples * (int64_t)sizeof *weight);
    double last = INFINITY, last_at_once = INFINITY;
    int32_t *sample;
    for (int i = 0; i < ITERATIONS; i++) {
        for (int64_t s = 0; s < samples; s++)
            weight[s] = 1 + 40 * pow(weft_rng_f64(&rng), 4);
        list[i] = make_list(arena, weight, samples, most, &sample);
        for (int64_t c = 0; c < list[i].count; c++)
            for (int32_t o = 1; o < list[i].item[c].option_count; o++)
                list[i].item[c].option[o].seconds += 0.02 * (o + 1);
    }
    for (int64_t n = 1; n <= most; n++) {
        const weft_static_layouts all = layouts_of(policy, list, sample, ITERATIONS, n, arena);
        const weft_static_layout *best = weft_static_layouts_best(&all, 0),
                                 *at_once = weft_static_layouts_best(&all, samples);
        weft_policy_request r = {.samples = samples, .devices = n, .heads = 24};
        cr_assert_not_null(best);
        cr_expect_leq(best->seconds, last, "%s: %g s on %" PRId64 ", not %g",
                      weft_policy_names[policy], best->seconds, n, last);
        cr_expect_eq(at_once != NULL, n >= samples);
        cr_expect(!at_once ||
                      (at_once->seconds <= last_at_once && best->seconds <= at_once->seconds),
                  "%s at once on %" PRId64, weft_policy_names[policy], n);
        r.degree = best->groups.width;
        r.groups = best->groups.count;
        cr_expect_float_eq(placed(policy, list, sample, ITERATIONS, r, arena), best->seconds,
                           1e-9 * best->seconds);
        r.groups = 0;
        for (r.degree = 1; r.degree <= n; r.degree++)
            if (n % r.degree == 0 && (policy == WEFT_POLICY_STATIC || 24 % r.degree == 0))
                cr_expect_leq(best->seconds,
                              placed(policy, list, sample, ITERATIONS, r, arena) * (1 + 1e-9),
                              "%s: groups of %" PRId64 " on %" PRId64 " are shorter",
                              weft_policy_names[policy], r.degree, n);
        last = best->seconds;
        last_at_once = at_once ? at_once->seconds : INFINITY;
    }
    weft_arena_free(arena);
}

Test(policy, more_devices_make_no_static_layout_longer)
{
    static_rows(WEFT_POLICY_STATIC, 1, 7, 64);
    static_rows(WEFT_POLICY_ULYSSES, 1, 7, 64);
    static_rows(WEFT_POLICY_STATIC, 2, 24, 50);
    static_rows(WEFT_POLICY_ULYSSES, 2, 24, 50);
}

/* Groups of a given number leave devices idle, and must fit on the devices. */
Test(policy, a_number_of_groups_leaves_devices_idle)
{
    weft_arena *arena = weft_arena_create();
    int32_t *sample;
    const weft_cascade_list list = make_list(arena, (const double[]){8, 4, 2, 1}, 4, 7, &sample);
    weft_policy_request r = request_of(&list, sample, 7);
    weft_placement p;
    r.degree = 3;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_E_INFEASIBLE);
    r.groups = 2;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_OK);
    for (int32_t i = 0; i < p.first[p.count]; i++)
        cr_assert_lt(p.devices[i], 6);
    cr_assert_eq(p.degree, 3);
    r.groups = 3;
    cr_assert_eq(weft_policy_place(WEFT_POLICY_STATIC, &r, arena, &p), WEFT_E_INFEASIBLE);
    weft_arena_free(arena);
}

/* Weft's own plan in the same form: legal, and not longer than any of the others. */
Test(policy, the_search_is_not_longer_than_any_rule)
{
    weft_arena *arena = weft_arena_create();
    int32_t *sample, *first, *devices;
    const weft_cascade_list list = make_list(arena, (const double[]){9, 5, 3, 2, 1}, 5, 6, &sample);
    weft_policy_request r = request_of(&list, sample, 6);
    const weft_cascade_search search = {.seed = 1, .threads = 1};
    weft_cascade_problem p;
    weft_cascade_result result;
    weft_placement own, other;
    cr_assert_eq(weft_cascade_problem_create(&list, 6, 0, &p), WEFT_OK);
    cr_assert_eq(weft_cascade_solve(&p, &search, arena, &result), WEFT_OK);
    cr_assert_eq(weft_cascade_devices(&p, &result.schedule, arena, &first, &devices), WEFT_OK);
    cr_assert_eq(weft_placement_of(&p, &result.schedule, first, devices, arena, &own), WEFT_OK);
    cr_assert_eq(weft_placement_check(&own, &list, 6, 0), WEFT_OK, "%s", weft_error_message());
    cr_assert_float_eq(own.makespan, result.schedule.makespan, 1e-12);
    for (int policy = WEFT_POLICY_STATIC; policy < WEFT_POLICY_COUNT; policy++) {
        cr_assert_eq(weft_policy_place(policy, &r, arena, &other), WEFT_OK);
        cr_assert_leq(own.makespan, other.makespan * (1 + 1e-9), "%s", weft_policy_names[policy]);
    }
    weft_cascade_problem_free(&p);
    weft_arena_free(arena);
}
