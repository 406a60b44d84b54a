#include "base/rng.h"
#include "plan/published/block_items.h"

#include <criterion/criterion.h>
#include <math.h>

/* Aquarius Table 2: ratios from its formulas (125 frames of 720 x 1280: 115 k tokens, H 3072, 24
 * heads, TP 8) and its latencies. The paper rounds the bytes to whole MB first, which is up to 0.5
 * %. */
Test(memory, nine_ratios_of_table_2)
{
    static const double latency_ms[9] = {127.5, 13.4, 8.9, 8.6, 7.7, 1.9, 0.36, 0.58, 0.64};
    static const double mb[9] = {106, 84, 84, 337, 252, 168, 84, 168, 337};
    static const double ratio[9] = {0.8, 6.3, 9.4, 39.2, 32.7, 88.4, 233.3, 289.6, 526.6};
    const weft_block_shape shape = {
        .batch = 1, .tokens = 115000, .hidden = 3072, .heads = 24, .tp = 8, .layers = 1};
    const weft_block_rates rates = {1e14, 1e14, 1e12, 1e11, 0};
    weft_activation_item item[WEFT_BLOCK_PIECES];
    weft_block_items(&shape, &rates, item);
    for (int i = 0; i < 9; i++) {
        const double size = item[i].bytes / 1048576, got = size / latency_ms[i];
        cr_log_info("%-30s %.1f MiB (%.0f)  ratio %.2f (%.1f)", item[i].name, size, mb[i], got,
                    ratio[i]);
        cr_assert(fabs(size - mb[i]) < 1, "%s: %g MiB", item[i].name, size);
        cr_assert(fabs(got - ratio[i]) <= 0.05 + 0.005 * ratio[i], "%s: %g, paper %g", item[i].name,
                  got, ratio[i]);
    }
    /* greedy takes them in the order of the ratios */
    for (int i = 0; i < 9; i++)
        item[i].recompute = latency_ms[i] * 1e-3;
    static const int order[9] = {8, 7, 6, 5, 3, 4, 2, 1, 0};
    double all = 0;
    for (int i = 0; i < 9; i++)
        all += item[i].bytes;
    for (int n = 1; n <= 9; n++) {
        double limit = all;
        for (int k = 0; k < n; k++)
            limit -= item[order[k]].bytes;
        weft_activation_choice c;
        cr_assert_eq(weft_activations_choose_greedy(item, 9, (weft_offload_rates){0},
                                                    limit * (1 + 1e-12) + 1e-3, &c),
                     WEFT_OK, "%s", weft_error_message());
        cr_assert(c.recomputed[order[n - 1]] == 1 ||
                  c.seconds <= latency_ms[order[n - 1]] * 1e-3 + 1);
        weft_activation_choice_free(&c);
    }
}

static double brute(const weft_activation_item *item, int64_t items, weft_offload_rates copies,
                    double limit, int64_t at, double kept, double seconds, double transfer)
{
    if (kept > limit)
        return INFINITY;
    if (at == items)
        return seconds + fmax(copies.slowdown * transfer, transfer - copies.window);
    double best = INFINITY;
    for (int64_t x = 0; x <= item[at].count; x++)
        for (int64_t y = 0; x + y <= item[at].count; y++)
            if ((x == 0 || isfinite(item[at].recompute)) && (y == 0 || isfinite(item[at].offload)))
                best = fmin(best, brute(item, items, copies, limit, at + 1,
                                        kept + item[at].bytes * (double)(item[at].count - x - y),
                                        seconds + (x ? item[at].recompute * (double)x : 0),
                                        transfer + (y ? item[at].offload * (double)y : 0)));
    return best;
}

Test(memory, exact_equals_brute_force)
{
    weft_rng rng = weft_rng_make(3, WEFT_RNG_TEST);
    double worst = 1, sum = 0;
    int cases = 0;
    for (int round = 0; round < 500; round++) {
        weft_activation_item item[6];
        const int64_t items = 1 + (int64_t)weft_rng_below(&rng, 6);
        double all = 0;
        for (int64_t i = 0; i < items; i++) {
            item[i] = (weft_activation_item){
                .name = "x",
                .bytes = (double)weft_rng_below(&rng, 50),
                .recompute = weft_rng_below(&rng, 6) ? weft_rng_f64(&rng) : INFINITY,
                .offload = weft_rng_below(&rng, 3) ? weft_rng_f64(&rng) : INFINITY,
                .count = (int64_t)weft_rng_below(&rng, 4)};
            all += item[i].bytes * (double)item[i].count;
        }
        const weft_offload_rates copies = {
            .window = weft_rng_below(&rng, 2) ? weft_rng_f64(&rng) : 0,
            .slowdown = weft_rng_below(&rng, 2) ? 1.5 * weft_rng_f64(&rng) : 0};
        const double limit = floor(all * weft_rng_f64(&rng));
        const double want = brute(item, items, copies, limit, 0, 0, 0, 0);
        weft_activation_choice exact, greedy;
        const weft_status_code status =
            weft_activations_choose_exact(item, items, copies, limit, 0, &exact);
        if (isinf(want)) {
            cr_assert_eq(status, WEFT_E_INFEASIBLE);
            continue;
        }
        cr_assert_eq(status, WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_activations_choose_greedy(item, items, copies, limit, &greedy), WEFT_OK);
        cr_assert(exact.proved && exact.saved <= limit && greedy.saved <= limit);
        cr_assert(fabs(exact.seconds - want) <= 1e-9, "round %d: %.12g, brute force %.12g", round,
                  exact.seconds, want);
        cr_assert(greedy.seconds >= exact.seconds - 1e-9);
        if (want > 0) {
            worst = fmax(worst, greedy.seconds / want);
            sum += greedy.seconds / want;
            cases++;
        }
        weft_activation_choice_free(&exact);
        weft_activation_choice_free(&greedy);
    }
    cr_log_info("greedy / exact: mean %.3f, worst %.2f in %d cases", sum / cases, worst, cases);
    cr_assert(cases > 200 && sum / cases < 1.3);
}

/* A whole model: 40 layers of nine pieces; the exact search must prove its answer. */
Test(memory, exact_on_a_model)
{
    const weft_block_shape shape = {
        .batch = 1, .tokens = 115200, .hidden = 3072, .heads = 24, .tp = 8, .layers = 40};
    const weft_block_rates rates = {4e14, 3e14, 2e12, 3e11, 25e9};
    weft_activation_item item[WEFT_BLOCK_PIECES];
    weft_block_items(&shape, &rates, item);
    double all = 0, previous = INFINITY;
    for (int i = 0; i < 9; i++)
        all += item[i].bytes * 40;
    for (double share = 0.05; share < 1; share += 0.1) {
        weft_activation_choice exact, greedy;
        cr_assert_eq(weft_activations_choose_exact(item, 9, (weft_offload_rates){.window = 0.5},
                                                   share * all, 0, &exact),
                     WEFT_OK, "%s", weft_error_message());
        cr_assert_eq(weft_activations_choose_greedy(item, 9, (weft_offload_rates){.window = 0.5},
                                                    share * all, &greedy),
                     WEFT_OK);
        cr_log_info("limit %2.0f %%: exact %.4f s, bound %.4f (%" PRId64 " nodes%s), greedy %.4f s",
                    100 * share, exact.seconds, exact.lower_bound, exact.nodes,
                    exact.proved ? "" : ", not proved", greedy.seconds);
        cr_assert(exact.seconds <= 1.015 * exact.lower_bound + 1e-3);
        cr_assert(exact.saved <= share * all && greedy.saved <= share * all);
        cr_assert(exact.seconds <= greedy.seconds && exact.seconds <= previous + 1e-9);
        previous = exact.seconds;
        weft_activation_choice_free(&exact);
        weft_activation_choice_free(&greedy);
    }
}

Test(memory, says_what_does_not_fit)
{
    weft_activation_item item[2] = {{"a", 60 * 1073741824.0, INFINITY, INFINITY, 2},
                                    {"b", 1e9, 1, INFINITY, 1}};
    weft_activation_choice c;
    cr_assert_eq(
        weft_activations_choose_exact(item, 2, (weft_offload_rates){0}, 80 * 1073741824.0, 0, &c),
        WEFT_E_INFEASIBLE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_INFEASIBLE, "%s", weft_error_message());
    cr_assert(strstr(weft_error_text(), " 120.00 GiB "), "%s", weft_error_message());
    item[1].recompute = NAN;
    cr_assert_eq(weft_activations_choose_greedy(item, 2, (weft_offload_rates){0}, 1e15, &c),
                 WEFT_E_ARG);
    item[1].recompute = -1;
    cr_assert_eq(weft_activations_choose_greedy(item, 2, (weft_offload_rates){0}, 1e15, &c),
                 WEFT_E_ARG);
    cr_assert_eq(weft_activations_choose_greedy(item, 0, (weft_offload_rates){0}, 1e15, &c),
                 WEFT_E_ARG);
}
