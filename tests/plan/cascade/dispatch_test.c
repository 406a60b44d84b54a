/* Dispatch to idle devices and plans by expected makespan (plan/cascade/dispatch.h, expect.h).
 *
 *   bitwise  an iteration without errors starts everything as planned; equal seeds, equal plans
 *   exact    small instances by hand */
#include "base/rng.h"
#include "plan/cascade/expect_plan.h"
#include "plan/cascade/genetic.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 10, COUNT = 2 * SAMPLES, DEVICES = 16, PER_NODE = 8 };

/* An encoder and a transformer per sample, on 1, 2, 4 or 8 devices. */
typedef struct instance {
    weft_arena *arena;
    weft_cascade cascade[COUNT];
    weft_cascade_option option[COUNT][4];
    int32_t after[SAMPLES];
    char id[COUNT][16];
    bool trains[COUNT];
    weft_cascade_list list;
    weft_cascade_problem problem;
    weft_cascade_result result;
    weft_cluster cluster;
    weft_placement placed;
    weft_assigned item[COUNT];
} instance;

static void make(instance *x, uint64_t seed)
{
    const weft_cascade_search search = {.seed = seed, .threads = 1, .effort = 0.05};
    const weft_assign_options place = {true, true};
    int32_t *first, *devices;
    *x = (instance){.arena = weft_arena_create(), .list = {x->cascade, COUNT}};
    for (int s = 0; s < SAMPLES; s++) {
        const double work = 1 + 30 * (double)weft_random_uniform(seed, WEFT_RNG_TEST, (uint64_t)s);
        x->after[s] = 2 * s;
        for (int m = 0; m < 2; m++) {
            const int c = 2 * s + m;
            snprintf(x->id[c], sizeof x->id[c], "s%d.%s", s, m ? "dit" : "vae");
            for (int o = 0; o < 4; o++)
                x->option[c][o] =
                    (weft_cascade_option){1 << o, (m ? work : 0.1 * work) / pow(2, 0.9 * o), 1};
            x->cascade[c] = (weft_cascade){.id = x->id[c],
                                           .after = m ? &x->after[s] : NULL,
                                           .after_count = m,
                                           .option = x->option[c],
                                           .option_count = 4};
            x->trains[c] = m;
        }
    }
    cr_assert_eq(weft_cluster_load(x->arena, "h100:2", &x->cluster), WEFT_OK);
    cr_assert_eq(weft_cascade_problem_create(&x->list, DEVICES, 0, &x->problem), WEFT_OK);
    x->problem.per_node = PER_NODE;
    x->problem.by_producers = true;
    cr_assert_eq(weft_cascade_solve(&x->problem, &search, x->arena, &x->result), WEFT_OK);
    cr_assert_eq(weft_assign(&x->problem, &x->result.schedule, &x->cluster, place, x->arena, &first,
                             &devices),
                 WEFT_OK);
    cr_assert_eq(
        weft_placement_of(&x->problem, &x->result.schedule, first, devices, x->arena, &x->placed),
        WEFT_OK);
    for (int c = 0; c < COUNT; c++)
        x->item[c] = (weft_assigned){.id = x->id[c],
                                     .device = devices + first[c],
                                     .degree = first[c + 1] - first[c],
                                     .start = x->placed.start[c],
                                     .seconds = x->placed.end[c] - x->placed.start[c],
                                     .after = x->cascade[c].after,
                                     .after_count = x->cascade[c].after_count};
}

static void end(instance *x)
{
    weft_cascade_problem_free(&x->problem);
    weft_arena_free(x->arena);
}

static weft_dispatch *dispatch_of(const weft_assigned *item, int64_t count, int64_t devices,
                                  int64_t per_node, const bool *trains, const double *slow)
{
    const weft_dispatch_setup setup = {.item = item,
                                       .count = count,
                                       .devices = devices,
                                       .per_node = per_node,
                                       .trains = trains,
                                       .slow = slow};
    weft_dispatch *d;
    cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
    return d;
}

Test(dispatch, cascades_on_time_run_as_planned)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        instance x;
        double start[COUNT], last[COUNT];
        int32_t device[COUNT * DEVICES], *at = device;
        const weft_dispatch_played played = {start, last, device};
        make(&x, seed);
        weft_dispatch *d = dispatch_of(x.item, COUNT, DEVICES, PER_NODE, x.trains, NULL);
        const weft_dispatch_times late = weft_dispatch_play(d, true, NULL, &played);
        cr_expect_eq(late.makespan, x.placed.makespan, "seed %d: %.17g, not %.17g", (int)seed,
                     late.makespan, x.placed.makespan);
        for (int c = 0; c < COUNT; c++) {
            cr_expect_eq(start[c], x.item[c].start, "seed %d: %s", (int)seed, x.id[c]);
            cr_expect(!memcmp(at, x.item[c].device, (size_t)x.item[c].degree * sizeof *at),
                      "seed %d: %s moved", (int)seed, x.id[c]);
            at += x.item[c].degree;
        }
        cr_expect_eq(weft_dispatch_play(d, false, NULL, NULL).makespan, x.placed.makespan);
        weft_dispatch_free(d);
        end(&x);
    }
}

/* The drawing of dispatch.h: s0.dit takes 14 s instead of 10. */
Test(dispatch, a_cascade_moves_to_an_idle_device)
{
    static const int32_t zero[] = {0}, one[] = {1};
    const weft_assigned item[] = {{"s0.dit", zero, 1, 0, 10, NULL, 0},
                                  {"s1.dit", one, 1, 0, 8, NULL, 0},
                                  {"s3.dit", one, 1, 8, 3, NULL, 0},
                                  {"s2.dit", zero, 1, 10, 8, NULL, 0}};
    const double factor[] = {1.4, 1, 1, 1};
    double start[4], last[4];
    int32_t device[4];
    const weft_dispatch_played played = {start, last, device};
    weft_dispatch *d = dispatch_of(item, 4, 2, 0, NULL, NULL);
    cr_expect_eq(weft_dispatch_play(d, false, factor, &played).makespan, 22);
    cr_expect_eq(device[3], 0);
    cr_expect_eq(weft_dispatch_play(d, true, factor, &played).makespan, 19);
    cr_expect_eq(device[3], 1);
    cr_expect_eq(start[3], 11);
    weft_dispatch_free(d);
}

/* Device 0 needs 1.5 times the seconds: it gets a cascade only if waiting for device 1 takes longer. */
Test(dispatch, slow_devices_are_used_last)
{
    static const int32_t zero[] = {0};
    const double slow[] = {1.5, 1};
    const weft_assigned item[] = {{"s0.dit", zero, 1, 0, 4, NULL, 0},
                                  {"s1.dit", zero, 1, 4, 4, NULL, 0},
                                  {"s2.dit", zero, 1, 8, 16, NULL, 0}};
    double start[3], last[3];
    int32_t device[3];
    const weft_dispatch_played played = {start, last, device};
    weft_dispatch *d = dispatch_of(item, 3, 2, 0, NULL, slow);
    cr_expect_eq(weft_dispatch_play(d, true, NULL, &played).makespan, 20);
    cr_expect_eq(device[0], 1);
    cr_expect_eq(device[1], 0);
    cr_expect_eq(device[2], 1);
    weft_dispatch_free(d);
}

/* The devices of s0.dit end at different times. s1.dit, which needs all, starts before s2.text. */
Test(dispatch, devices_of_a_cascade_become_idle_together)
{
    static const int32_t all[] = {0, 1, 2, 3};
    const weft_assigned item[] = {{"s0.dit", all, 4, 0, 10, NULL, 0},
                                  {"s1.dit", all, 4, 10, 5, NULL, 0},
                                  {"s2.text", all, 1, 15, 1, NULL, 0}};
    int32_t index, device[4];
    weft_dispatch *d = dispatch_of(item, 3, 4, 0, NULL, NULL);
    cr_assert(weft_dispatch_next(d, 0, &index, device));
    cr_expect_eq(index, 0);
    for (int i = 0; i < 4; i++) {
        cr_expect(!weft_dispatch_next(d, 10 + 0.001 * i, &index, device), "s%d starts", index);
        weft_dispatch_release(d, i);
    }
    cr_assert(weft_dispatch_next(d, 10.004, &index, device));
    cr_expect_eq(index, 1);
    weft_dispatch_free(d);
}

/* s0.dit and s1.dit end together in the plan, and `apart` seconds apart in a run. s2.dit needs both
 * devices and begins before s3.dit, as planned, whichever of both ends first. */
static void check_together(double apart, int first)
{
    static const int32_t zero[] = {0}, one[] = {1}, both[] = {0, 1};
    const weft_assigned item[] = {{"s0.dit", zero, 1, 0, 10, NULL, 0},
                                  {"s1.dit", one, 1, 0, 10, NULL, 0},
                                  {"s2.dit", both, 2, 10, 5, NULL, 0},
                                  {"s3.dit", zero, 1, 15, 9, NULL, 0}};
    double factor[] = {1, 1, 1, 1}, start[4], last[4];
    const weft_dispatch_played played = {start, last, NULL};
    weft_dispatch *d = dispatch_of(item, 4, 2, 0, NULL, NULL);
    factor[1 - first] = 1 + apart / 10;
    cr_expect_float_eq(weft_dispatch_play(d, true, factor, &played).makespan, 24 + apart, 1e-9);
    cr_expect_float_eq(start[2], 10 + apart, 1e-9);
    weft_dispatch_free(d);
}

Test(dispatch, ends_that_are_nearly_equal_count_as_one)
{
    for (int first = 0; first < 2; first++) {
        check_together(0, first);
        check_together(0.0005, first);
        check_together(0.009, first);
    }
}

/* The same cascades, but s1.dit takes 2 s longer than planned: s3.dit waits for 0.01 s, a
 * thousandth of the seconds of s1.dit. */
Test(dispatch, decisions_wait_for_nearly_equal_ends_for_a_limited_time)
{
    static const int32_t zero[] = {0}, one[] = {1}, both[] = {0, 1};
    const weft_assigned item[] = {{"s0.dit", zero, 1, 0, 10, NULL, 0},
                                  {"s1.dit", one, 1, 0, 10, NULL, 0},
                                  {"s2.dit", both, 2, 10, 5, NULL, 0},
                                  {"s3.dit", zero, 1, 15, 9, NULL, 0}};
    const double factor[] = {1, 1.2, 1, 1};
    double start[4], last[4];
    const weft_dispatch_played played = {start, last, NULL};
    weft_dispatch *d = dispatch_of(item, 4, 2, 0, NULL, NULL);
    weft_dispatch_play(d, true, factor, &played);
    cr_expect_float_eq(start[3], 10.01, 1e-9);
    cr_expect_float_eq(start[2], 19.01, 1e-9);
    weft_dispatch_free(d);
}

/* Devices that were retired get no gradients afterwards, and everything still runs. */
Test(dispatch, retired_devices_get_no_gradients)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        instance x;
        double until[DEVICES] = {0}, now = 0;
        int32_t c, device[DEVICES];
        bool retired[DEVICES] = {0}, busy[DEVICES] = {0};
        int64_t early = 0;
        make(&x, seed);
        weft_dispatch *d = dispatch_of(x.item, COUNT, DEVICES, PER_NODE, x.trains, NULL);
        while (isfinite(now)) {
            while (weft_dispatch_next(d, now, &c, device)) {
                const double factor =
                    1 + (double)weft_random_uniform(seed, WEFT_RNG_TEST, (uint64_t)(100 + c));
                for (int64_t i = 0; i < x.item[c].degree; i++) {
                    cr_assert(!busy[device[i]] && !(x.trains[c] && retired[device[i]]));
                    busy[device[i]] = true;
                    until[device[i]] = now + factor * x.item[c].seconds;
                }
                weft_dispatch_retire(d, c, now, retired);
                for (int i = 0; i < DEVICES; i++)
                    early += retired[i] && weft_dispatch_left(d) > 0;
            }
            double next = INFINITY;
            for (int i = 0; i < DEVICES; i++)
                next = busy[i] ? fmin(next, until[i]) : next;
            for (int i = 0; i < DEVICES; i++)
                if (busy[i] && until[i] <= next) {
                    weft_dispatch_release(d, i);
                    busy[i] = false;
                }
            now = next;
        }
        cr_expect_eq(weft_dispatch_left(d), 0, "seed %d", (int)seed);
        for (int i = 0; i < DEVICES; i++)
            cr_expect(retired[i]);
        weft_dispatch_free(d);
        end(&x);
        (void)early;
    }
}

/* Executes an iteration as a run does (cascade_late.c): decisions at the ends of parts, and ranks
 * that retire when a cascade starts. */
static void run_late(weft_dispatch *d, const instance *x, const double *factor, double *start,
                     int32_t (*on)[DEVICES])
{
    double until[DEVICES] = {0}, now = 0;
    int32_t c, device[DEVICES];
    bool retired[DEVICES] = {0}, busy[DEVICES] = {0};
    while (isfinite(now)) {
        while (weft_dispatch_next(d, now, &c, device)) {
            start[c] = now;
            for (int64_t i = 0; i < x->item[c].degree; i++) {
                on[c][i] = device[i];
                busy[device[i]] = true;
                until[device[i]] = now + factor[c] * x->item[c].seconds;
            }
            weft_dispatch_retire(d, c, now, retired);
        }
        const double held = weft_dispatch_held(d, now);
        now = held > now ? held : INFINITY;
        for (int i = 0; i < DEVICES; i++)
            now = busy[i] ? fmin(now, until[i]) : now;
        for (int i = 0; i < DEVICES; i++)
            if (busy[i] && until[i] <= now) {
                weft_dispatch_release(d, i);
                busy[i] = false;
            }
    }
}

Test(dispatch, simulated_iterations_take_the_decisions_of_a_run)
{
    int64_t other = 0;
    for (uint64_t seed = 1; seed < 30; seed++) {
        instance x;
        double factor[COUNT], run[COUNT], start[COUNT], last[COUNT];
        int32_t on[COUNT][DEVICES], device[COUNT * DEVICES], *at = device;
        const weft_dispatch_played played = {start, last, device};
        make(&x, seed);
        for (int c = 0; c < COUNT; c++)
            factor[c] = 1 + (double)weft_random_uniform(seed, WEFT_RNG_TEST, (uint64_t)(100 + c));
        weft_dispatch *d = dispatch_of(x.item, COUNT, DEVICES, PER_NODE, x.trains, NULL);
        run_late(d, &x, factor, run, on);
        weft_dispatch_play(d, true, factor, &played); /* nothing retires */
        for (int c = 0; c < COUNT; c++)
            other += start[c] != run[c];
        weft_dispatch_free(d);
        const weft_dispatch_setup setup = {.item = x.item,
                                           .count = COUNT,
                                           .devices = DEVICES,
                                           .per_node = PER_NODE,
                                           .trains = x.trains,
                                           .retire = true};
        cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
        weft_dispatch_play(d, true, factor, &played);
        for (int c = 0; c < COUNT; c++) {
            cr_expect_eq(start[c], run[c], "seed %d: %s at %.17g, not %.17g", (int)seed, x.id[c],
                         start[c], run[c]);
            cr_expect(!memcmp(at, on[c], (size_t)x.item[c].degree * sizeof *at), "seed %d: %s",
                      (int)seed, x.id[c]);
            at += x.item[c].degree;
        }
        weft_dispatch_free(d);
        end(&x);
    }
    cr_expect_gt(other, 0);
}

/* The example of dispatch.h, but at 8 s device 1 is predicted to end after the last start.
 * It gets no further gradients, so s2.dit waits for device 0. */
Test(dispatch, a_simulated_device_retires)
{
    static const int32_t zero[] = {0}, one[] = {1};
    const weft_assigned item[] = {{"s0.dit", zero, 1, 0, 10, NULL, 0},
                                  {"s1.dit", one, 1, 0, 8, NULL, 0},
                                  {"s3.dit", one, 1, 8, 3, NULL, 0},
                                  {"s2.dit", zero, 1, 10, 9, NULL, 0}};
    const double factor[] = {1.4, 1, 1, 1};
    const weft_dispatch_setup setup = {.item = item, .count = 4, .devices = 2, .retire = true};
    weft_dispatch *d;
    cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
    const weft_dispatch_times t = weft_dispatch_play(d, true, factor, NULL);
    cr_expect_eq(t.makespan, 23);
    cr_expect_eq(t.summing, 17); /* from the last two thirds of s2.dit; s0.dit ends before, at 14 */
    weft_dispatch_free(d);
}

/* Device 2 gets no further cascade, which is not known at 0 s: its gradients are summed after the
 * end of s1.dit, which needs three times the seconds. */
Test(dispatch, a_device_that_has_not_retired_sums_after_its_cascade)
{
    static const int32_t pair[] = {0, 1}, two[] = {2};
    const weft_assigned item[] = {{"s0.dit", pair, 2, 0, 10, NULL, 0},
                                  {"s1.dit", two, 1, 0, 6, NULL, 0},
                                  {"s2.dit", pair, 2, 10, 3, NULL, 0}};
    const double factor[] = {1, 3, 1};
    const double summing[] = {11, 18}; /* s2.dit's backward; the end of s1.dit */
    for (int retire = 0; retire < 2; retire++) {
        const weft_dispatch_setup setup = {
            .item = item, .count = 3, .devices = 3, .retire = retire};
        weft_dispatch *d;
        cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
        cr_expect_eq(weft_dispatch_play(d, true, factor, NULL).summing, summing[retire]);
        weft_dispatch_free(d);
    }
}

/* An encoder of the next iteration ends after the last start of a transformer. Its device reduces
 * gradients before the encoder, and not after it. */
Test(dispatch, a_device_retires_before_an_encoder)
{
    static const int32_t zero[] = {0}, one[] = {1};
    const weft_assigned item[] = {{"s0.dit", zero, 1, 0, 10, NULL, 0},
                                  {"s1.dit", one, 1, 0, 4, NULL, 0},
                                  {"s2.vae", one, 1, 4, 20, NULL, 0},
                                  {"s3.dit", zero, 1, 10, 3, NULL, 0}};
    const bool trains[] = {true, true, false, true};
    const weft_dispatch_setup setup = {
        .item = item, .count = 4, .devices = 2, .trains = trains, .retire = true};
    weft_dispatch *d;
    bool retired[2];
    int32_t c, device;
    cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
    const weft_dispatch_times t = weft_dispatch_play(d, true, NULL, NULL);
    cr_expect_eq(t.makespan, 24);
    cr_expect_eq(t.summing, 11); /* the backward of s3.dit */
    weft_dispatch_reset(d, NULL);
    for (int k = 0; k < 3; k++) {
        cr_assert(weft_dispatch_next(d, k < 2 ? 0 : 4, &c, &device));
        weft_dispatch_retire(d, c, k < 2 ? 0 : 4, retired);
        if (k == 1)
            weft_dispatch_release(d, 1);
    }
    cr_expect_eq(c, 2);
    cr_expect(retired[1] && !retired[0]);
    weft_dispatch_free(d);
}

/* The encoder on device 2 ends at 15 s instead of the predicted 5 s. The device retires at 6 s and
 * reduces gradients after the encoder. */
Test(dispatch, a_device_that_retires_during_an_encoder_sums_after_it)
{
    static const int32_t pair[] = {0, 1}, two[] = {2};
    const weft_assigned item[] = {{"s0.vae", two, 1, 0, 5, NULL, 0},
                                  {"s1.dit", pair, 2, 0, 6, NULL, 0},
                                  {"s2.dit", pair, 2, 6, 3, NULL, 0}};
    const bool trains[] = {false, true, true};
    const double factor[] = {3, 1, 1};
    const weft_dispatch_setup setup = {
        .item = item, .count = 3, .devices = 3, .trains = trains, .retire = true};
    weft_dispatch *d;
    cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
    const weft_dispatch_times t = weft_dispatch_play(d, true, factor, NULL);
    cr_expect_eq(t.makespan, 15);
    cr_expect_eq(t.summing, 15);
    weft_dispatch_free(d);
}

/* ---- searches during an iteration ------------------------------------------------------------ */

/* The drawing of replan.h: s0.dit takes 14 s instead of 10. The longer one of the other cascades
 * takes the device that is free first. */
Test(replan, a_search_moves_a_cascade_that_has_not_started)
{
    static const int32_t zero[] = {0}, one[] = {1};
    static const double factor[] = {1.4, 1, 1, 1};
    const weft_assigned item[] = {
        {.id = "s0.dit", .device = zero, .degree = 1, .start = 0, .seconds = 10},
        {.id = "s1.dit", .device = one, .degree = 1, .start = 0, .seconds = 8},
        {.id = "s2.dit", .device = zero, .degree = 1, .start = 10, .seconds = 6},
        {.id = "s3.dit", .device = one, .degree = 1, .start = 8, .seconds = 2}};
    const weft_dispatch_replan replan = {
        .evaluations = 50, .scenarios = 1, .factor = factor, .seed = 1};
    weft_dispatch_setup setup = {.item = item, .count = 4, .devices = 2, .replan = &replan};
    weft_dispatch *d;
    double start[4], last[4];
    const weft_dispatch_played played = {.start = start, .end = last};
    cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
    cr_expect_eq(weft_dispatch_play(d, false, factor, NULL).makespan, 20);
    cr_expect_eq(weft_dispatch_play(d, true, factor, &played).makespan, 16);
    cr_expect_eq(start[1], 0);
    weft_dispatch_free(d);
}

static double mean_played(weft_dispatch *d, bool late, const double *factor, int draws)
{
    double sum = 0;
    for (int k = 0; k < draws; k++)
        sum += weft_dispatch_play(d, late, factor + k * COUNT, NULL).makespan;
    return sum / draws;
}

/* Without a search cascades keep their devices and order. Searches shorten the mean iteration with
 * unknown errors, and repeat their decisions. Cascades start after their producers and devices. */
Test(replan, searches_shorten_iterations_with_errors)
{
    enum { SCENARIOS = 16, DRAWS = 8, INSTANCES = 8 };
    double planned = 0, searched = 0;
    for (uint64_t seed = 1; seed <= INSTANCES; seed++) {
        instance x;
        double factor[(SCENARIOS + DRAWS) * COUNT], start[COUNT], last[COUNT];
        int32_t device[COUNT * DEVICES], first[COUNT + 1] = {0};
        const weft_dispatch_played played = {start, last, device};
        make(&x, seed);
        for (int i = 0; i < (SCENARIOS + DRAWS) * COUNT; i++)
            factor[i] = 1 + 0.4 * (double)weft_random_uniform(seed, WEFT_RNG_TEST, 100 + i);
        const double *unknown = factor + SCENARIOS * COUNT;
        weft_dispatch_replan replan = {.scenarios = SCENARIOS, .factor = factor, .seed = seed};
        const weft_dispatch_setup setup = {.item = x.item,
                                           .count = COUNT,
                                           .devices = DEVICES,
                                           .per_node = PER_NODE,
                                           .trains = x.trains,
                                           .retire = true,
                                           .replan = &replan};
        weft_dispatch *d;
        cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
        const double as_planned = mean_played(d, false, unknown, DRAWS);
        cr_expect_float_eq(mean_played(d, true, unknown, DRAWS), as_planned, 1e-12);
        replan.evaluations = 100;
        const double now = mean_played(d, true, unknown, DRAWS);
        cr_expect_eq(mean_played(d, true, unknown, DRAWS), now, "other decisions");
        planned += as_planned;
        searched += now;
        weft_dispatch_play(d, true, unknown, &played);
        for (int c = 0; c < COUNT; c++)
            first[c + 1] = first[c] + (int32_t)x.item[c].degree;
        for (int c = 0; c < COUNT; c++)
            for (int o = 0; o < COUNT; o++) {
                const bool after = x.item[c].after_count && x.item[c].after[0] == o;
                cr_expect(!after || start[c] >= last[o], "%s starts early", x.id[c]);
                for (int i = first[c]; c < o && i < first[c + 1]; i++)
                    for (int k = first[o]; k < first[o + 1]; k++)
                        cr_expect(device[i] != device[k] || start[c] >= last[o] ||
                                      start[o] >= last[c],
                                  "%s and %s on device %d", x.id[c], x.id[o], device[i]);
            }
        weft_dispatch_free(d);
        end(&x);
    }
    cr_log_info("planned %g s, searched %g s", planned / INSTANCES, searched / INSTANCES);
    cr_expect(searched < 0.998 * planned, "%g s, planned %g s", searched, planned);
}

/* ---- expected makespans ---------------------------------------------------------------------- */

Test(expect, factors_are_the_record_and_depend_on_the_seed_only)
{
    enum { N = 3, SCENARIOS = 8 };
    weft_price_errors none = {0}, some = {0};
    const weft_price_errors *of[N] = {&none, &some, &some};
    double a[SCENARIOS * N], b[SCENARIOS * N], mean[N] = {0};
    for (int i = 0; i < 100; i++)
        weft_price_errors_add(&some, 1 + 0.004 * i);
    cr_assert_eq(weft_price_errors_draw(of, N, SCENARIOS, 5, a), WEFT_OK);
    cr_assert_eq(weft_price_errors_draw(of, N, SCENARIOS, 5, b), WEFT_OK);
    cr_expect_arr_eq(a, b, sizeof a);
    for (int s = 0; s < SCENARIOS; s++)
        for (int c = 0; c < N; c++)
            mean[c] += a[s * N + c] / SCENARIOS;
    cr_expect_eq(mean[0], 1);
    cr_expect_float_eq(mean[1], 1.198, 1e-9); /* each eighth of the record once */
    cr_expect_float_eq(mean[2], 1.198, 1e-9);
    cr_expect_neq(memcmp(a, a + N, N * sizeof *a), 0);
    cr_expect_float_eq(weft_price_errors_quantile(&some, 0.5), 1.198, 1e-9);
    for (int i = 0; i < 2 * WEFT_PRICE_ERRORS; i++) /* the oldest are replaced */
        weft_price_errors_add(&some, 2);
    cr_expect_eq(weft_price_errors_quantile(&some, 0), 2);
}

Test(expect, a_slow_rank_is_found_in_groups_and_alone)
{
    static const int32_t group[] = {0, 1, 2}, pair[] = {3, 4}, alone[] = {5};
    weft_rank_speeds speeds;
    double slow[6];
    cr_assert_eq(weft_rank_speeds_create(6, &speeds), WEFT_OK);
    weft_rank_speeds_get(&speeds, slow);
    for (int r = 0; r < 6; r++)
        cr_expect_eq(slow[r], 1);
    for (int i = 0; i < 4; i++) { /* waits are not counted, and jitter is the group's */
        const double jitter = 1 + 0.1 * i;
        weft_rank_speeds_add(&speeds, group, (double[]){2 * jitter, 3 * jitter, 2 * jitter}, 3,
                             2.4);
        weft_rank_speeds_add(&speeds, pair, (double[]){jitter, jitter}, 2, 1.2);
        weft_rank_speeds_add(&speeds, alone, (double[]){1.05}, 1, 1);
    }
    weft_rank_speeds_get(&speeds, slow);
    for (int r = 0; r < 6; r++)
        cr_expect_float_eq(slow[r], r == 1 ? 1.5 : 1, 1e-9, "rank %d: %g", r, slow[r]);
    weft_rank_speeds_free(&speeds);
}

static weft_expect_setup setup_of(const instance *x, const double *factor, int64_t scenarios,
                                  bool late)
{
    return (weft_expect_setup){.list = &x->list,
                               .problem = &x->problem,
                               .cluster = &x->cluster,
                               .assign = {true, true},
                               .scenarios = scenarios,
                               .factor = factor,
                               .trains = x->trains,
                               .late = late,
                               .seed = 3,
                               .evaluations = 150};
}

Test(expect, plans_are_legal_repeatable_and_not_worse)
{
    enum { SCENARIOS = 12 };
    weft_price_errors errors = {0};
    const weft_price_errors *of[COUNT];
    double factor[SCENARIOS * COUNT], gained = 0;
    for (int i = 0; i < 100; i++)
        weft_price_errors_add(&errors, 1 + 0.004 * i);
    for (int c = 0; c < COUNT; c++)
        of[c] = &errors;
    for (uint64_t seed = 1; seed < 6; seed++)
        for (int late = 0; late < 2; late++) {
            instance x;
            weft_placement out, again;
            double value, same, before, own;
            make(&x, seed);
            cr_assert_eq(weft_price_errors_draw(of, COUNT, SCENARIOS, seed, factor), WEFT_OK);
            const weft_expect_setup s = setup_of(&x, factor, SCENARIOS, late);
            cr_assert_eq(weft_expect_value(&s, &x.placed, &before), WEFT_OK);
            cr_assert_eq(
                weft_expect_search(&s, &x.result.schedule, &x.placed, 1, x.arena, &out, &value),
                WEFT_OK);
            cr_assert_eq(
                weft_expect_search(&s, &x.result.schedule, &x.placed, 1, x.arena, &again, &same),
                WEFT_OK);
            cr_assert_eq(weft_expect_value(&s, &out, &own), WEFT_OK);
            cr_expect_eq(value, same);
            cr_expect_arr_eq(out.start, again.start, COUNT * sizeof *out.start);
            cr_expect(value <= before, "%g, not %g", value, before);
            cr_expect_eq(own, value);
            cr_expect_eq(weft_placement_check(&out, &x.list, DEVICES, 0), WEFT_OK, "%s",
                         weft_error_message());
            gained += 1 - value / before;
            end(&x);
        }
    cr_expect_gt(gained, 0);
}

/* The found plan is best for the scenarios of the search, so other scenarios choose between it and the
 * plans of the comparison. */
Test(expect, other_scenarios_judge_plans)
{
    enum { SCENARIOS = 2, JUDGES = 64 };
    weft_price_errors errors = {0};
    const weft_price_errors *of[COUNT];
    double factor[SCENARIOS * COUNT], other[JUDGES * COUNT];
    int kept = 0;
    for (int i = 0; i < 100; i++)
        weft_price_errors_add(&errors, 1 + 0.01 * i);
    for (int c = 0; c < COUNT; c++)
        of[c] = &errors;
    for (uint64_t seed = 1; seed < 8; seed++) {
        instance x;
        weft_placement out;
        double value, before, own;
        make(&x, seed);
        cr_assert_eq(weft_price_errors_draw(of, COUNT, SCENARIOS, seed, factor), WEFT_OK);
        cr_assert_eq(weft_price_errors_draw(of, COUNT, JUDGES, 100 + seed, other), WEFT_OK);
        weft_expect_setup s = setup_of(&x, factor, SCENARIOS, false);
        s.validation = other;
        s.validations = JUDGES;
        cr_assert_eq(
            weft_expect_search(&s, &x.result.schedule, &x.placed, 1, x.arena, &out, &value),
            WEFT_OK);
        const weft_expect_setup judging = setup_of(&x, other, JUDGES, false);
        cr_assert_eq(weft_expect_value(&judging, &x.placed, &before), WEFT_OK);
        cr_assert_eq(weft_expect_value(&judging, &out, &own), WEFT_OK);
        cr_expect_eq(value, own);
        cr_expect_leq(value, before);
        kept += out.start == x.placed.start;
        end(&x);
    }
    cr_expect(kept > 0 && kept < 7, "%d", kept);
}

/* Reports of a search. */
typedef struct reports {
    weft_expect_setup planned, late; /* of the validation scenarios */
    double value;
    bool moves;
    int count;
} reports;

static void note_shorter(void *user, const weft_placement *plan, bool late)
{
    reports *to = user;
    double value;
    cr_assert_eq(weft_expect_value(late ? &to->late : &to->planned, plan, &value), WEFT_OK);
    value *= late ? 1 + WEFT_EXPECT_LATE : 1;
    cr_expect(!to->count++ || value < to->value, "%g, not below %g", value, to->value);
    to->value = value;
    to->moves = late;
}

/* A search begins with the best plans of both dispatches. The last search of late dispatch knows
 * the plan on planned devices, so it finds nothing longer than that plan with late dispatch. Short
 * searches that begin alone do. */
Test(expect, both_dispatches_begin_with_the_best_plans)
{
    enum { SCENARIOS = 4, JUDGES = 32 };
    weft_price_errors errors = {0};
    const weft_price_errors *of[COUNT];
    double factor[SCENARIOS * COUNT], other[JUDGES * COUNT];
    for (int i = 0; i < 100; i++)
        weft_price_errors_add(&errors, 1 + 0.004 * i);
    for (int c = 0; c < COUNT; c++)
        of[c] = &errors;
    for (uint64_t seed = 1; seed < 10; seed++) {
        instance x;
        weft_cascade_list narrow;
        weft_cascade_problem of_narrow;
        weft_expect_plans found;
        double value, moved;
        make(&x, seed);
        cr_assert_eq(weft_cascade_list_within(&x.list, 4, 0, x.arena, &narrow), WEFT_OK);
        cr_assert_eq(weft_cascade_problem_create(&narrow, DEVICES, 0, &of_narrow), WEFT_OK);
        of_narrow.per_node = PER_NODE;
        weft_cascade_result within;
        const weft_cascade_search search = {.seed = seed, .threads = 1, .effort = 0.02};
        cr_assert_eq(weft_cascade_solve(&of_narrow, &search, x.arena, &within), WEFT_OK);
        cr_assert_eq(weft_price_errors_draw(of, COUNT, SCENARIOS, seed, factor), WEFT_OK);
        cr_assert_eq(weft_price_errors_draw(of, COUNT, JUDGES, 100 + seed, other), WEFT_OK);
        reports told = {.planned = setup_of(&x, other, JUDGES, false),
                        .late = setup_of(&x, other, JUDGES, true)};
        weft_expect_request request = {.setup = setup_of(&x, factor, SCENARIOS, false),
                                       .sets = 2,
                                       .problem = {&x.problem, &of_narrow},
                                       .schedule = {&x.result.schedule, &within.schedule},
                                       .also = &x.placed,
                                       .also_count = 1,
                                       .move = true,
                                       .shorter = note_shorter,
                                       .user = &told};
        request.setup.validation = other;
        request.setup.validations = JUDGES;
        request.setup.evaluations = 25;
        cr_assert_eq(weft_expect_plan(&request, x.arena, &found), WEFT_OK);
        cr_assert_eq(weft_expect_value(&told.planned, &found.plan[0], &value), WEFT_OK);
        cr_expect_eq(value, found.value[0]);
        cr_assert_eq(weft_expect_value(&told.late, &found.plan[1], &value), WEFT_OK);
        cr_expect_eq(value * (1 + WEFT_EXPECT_LATE), found.value[1]);
        cr_assert_eq(weft_expect_value(&told.late, &found.plan[0], &moved), WEFT_OK);
        cr_expect_leq(value, moved, "seed %d", (int)seed);
        cr_expect_eq(found.late, found.value[1] < found.value[0]);
        cr_expect_eq(told.value, fmin(found.value[0], found.value[1]));
        cr_expect_eq(told.moves, found.late);
        for (int late = 0; late < 2; late++)
            cr_expect_eq(weft_placement_check(&found.plan[late], &x.list, DEVICES, 0), WEFT_OK,
                         "%s", weft_error_message());
        request.move = false;
        request.shorter = NULL;
        cr_assert_eq(weft_expect_plan(&request, x.arena, &found), WEFT_OK);
        cr_expect(isinf(found.value[1]) && !found.late);
        weft_cascade_problem_free(&of_narrow);
        end(&x);
    }
}

/* Sums begin with the last backward, so that a plan whose last transformer starts early ends
 * early. */
Test(expect, sums_are_part_of_the_objective)
{
    instance x;
    double factor[COUNT], value, with;
    make(&x, 4);
    for (int c = 0; c < COUNT; c++)
        factor[c] = 1;
    weft_expect_setup s = setup_of(&x, factor, 1, false);
    double summing = 0;
    for (int c = 1; c < COUNT; c += 2)
        summing = fmax(summing, x.item[c].start + x.item[c].seconds / 3);
    cr_assert_eq(weft_expect_value(&s, &x.placed, &value), WEFT_OK);
    cr_expect_float_eq(value, x.placed.makespan, 1e-9);
    s.reduce = 100;
    s.last = 1;
    cr_assert_eq(weft_expect_value(&s, &x.placed, &with), WEFT_OK);
    cr_expect_float_eq(with, summing + 100, 1e-9);
    s.reduce = 0;
    cr_assert_eq(weft_expect_value(&s, &x.placed, &with), WEFT_OK);
    cr_expect_float_eq(with, x.placed.makespan + 1, 1e-9);
    end(&x);
}

/* Two cascades on one device each, handed over between nodes. */
Test(expect, hand_offs_are_part_of_the_objective)
{
    static const int32_t zero[] = {0}, one[] = {1}, eight[] = {8}, after[] = {0};
    const weft_dispatch_hand hand[] = {{0, 0}, {0.5, 3}};
    weft_assigned item[] = {{"s0.vae", zero, 1, 0, 2, NULL, 0},
                            {"s0.dit", zero, 1, 2, 4, after, 1}};
    const weft_dispatch_setup setup = {
        .item = item, .count = 2, .devices = DEVICES, .per_node = PER_NODE, .transfer = hand};
    const int32_t *const on[] = {zero, one, eight};
    const double expected[] = {6, 6.5, 9};
    for (int i = 0; i < 3; i++) {
        weft_dispatch *d;
        item[1].device = on[i];
        cr_assert_eq(weft_dispatch_create(&setup, &d), WEFT_OK);
        cr_expect_eq(weft_dispatch_play(d, false, NULL, NULL).makespan, expected[i]);
        weft_dispatch_free(d);
    }
}
