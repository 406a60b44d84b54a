#include "base/log.h"
#include "base/rng.h"
#include "plan/pipeline/partition.h"

#include <criterion/criterion.h>
#include <math.h>

enum { MAX_OPS = 14 };

/* The objective, written down once more from the definition in the header. */
static double objective(const weft_pp_costs *c, const int64_t *cut, int64_t stages, bool priced)
{
    double worst = 0;
    for (int64_t q = 0; q < stages; q++) {
        double bytes = c->op[cut[q + 1] - 1].output_bytes, seconds = 0;
        for (int64_t i = cut[q]; i < cut[q + 1]; i++)
            seconds += c->op[i].forward;
        for (int64_t k = 0; k < c->skip_count && priced; k++) {
            int64_t a = 0, b = 0;
            for (int64_t s = 0; s < stages; s++) {
                a += c->skip[k].from >= cut[s + 1];
                b += c->skip[k].to >= cut[s + 1];
            }
            if (a == q && b != q && b != stages - 1 - q && c->skip[k].to > c->skip[k].from + 1)
                bytes += c->skip[k].bytes;
        }
        seconds += c->lambda * (c->latency + (c->lambda > 0 ? bytes / c->bandwidth : 0));
        worst = fmax(worst, seconds);
    }
    return worst;
}

static bool collocates(const weft_pp_costs *c, const int64_t *cut, int64_t stages)
{
    for (int64_t k = 0; k < c->skip_count; k++) {
        int64_t a = 0, b = 0;
        for (int64_t s = 0; s < stages; s++) {
            a += c->skip[k].from >= cut[s + 1];
            b += c->skip[k].to >= cut[s + 1];
        }
        if (c->skip[k].to > c->skip[k].from + 1 && a + b != stages - 1)
            return false;
    }
    return true;
}

/* Tries every cut. */
static double brute(const weft_pp_costs *c, int64_t stages, weft_collocation mode)
{
    int64_t cut[MAX_OPS + 1] = {0};
    double best = INFINITY;
    for (uint32_t set = 0; set < (uint32_t)1 << (c->op_count - 1); set++) {
        if (__builtin_popcount(set) != stages - 1)
            continue;
        int64_t q = 1;
        for (int64_t i = 1; i < c->op_count; i++)
            if (set >> (i - 1) & 1)
                cut[q++] = i;
        cut[stages] = c->op_count;
        if (mode == WEFT_COLLOCATE_ALL && !collocates(c, cut, stages))
            continue;
        best = fmin(best, objective(c, cut, stages, mode == WEFT_COLLOCATE_COST));
    }
    return best;
}

typedef struct instance {
    weft_pp_costs costs;
    weft_pp_op op[MAX_OPS];
    weft_skip skip[8];
} instance;

/* kind 0: no skips, 1: nested symmetric, 2: nested partial, 3: any. Costs may be 0 and equal. */
static void draw(weft_rng *rng, int kind, instance *x)
{
    *x = (instance){0};
    const int64_t n = 1 + (int64_t)weft_rng_below(rng, MAX_OPS);
    x->costs = (weft_pp_costs){.op = x->op,
                               .op_count = n,
                               .skip = x->skip,
                               .lambda = weft_rng_below(rng, 2) ? weft_rng_f64(rng) : 0,
                               .bandwidth = 10,
                               .latency = weft_rng_f64(rng)};
    const bool whole = weft_rng_below(rng, 2);
    for (int64_t i = 0; i < n; i++) {
        x->op[i].forward = whole ? (double)weft_rng_below(rng, 5) : weft_rng_f64(rng);
        x->op[i].output_bytes = (double)weft_rng_below(rng, 40);
    }
    for (int64_t a = 0, b = n - 1; kind > 0 && x->costs.skip_count < 7 && n > 1; a++, b--) {
        weft_skip s = {(int32_t)a, (int32_t)b, 0};
        if (kind == 3) {
            s.from = (int32_t)weft_rng_below(rng, (uint64_t)n - 1);
            s.to = s.from + 1 + (int32_t)weft_rng_below(rng, (uint64_t)(n - 1 - s.from));
            if (weft_rng_below(rng, 3) == 0)
                break;
        } else if (a >= b) {
            break;
        } else if (kind == 2 && weft_rng_below(rng, 2)) {
            continue;
        }
        s.bytes = x->op[s.from].output_bytes;
        x->skip[x->costs.skip_count++] = s;
    }
}

static void compare(const instance *x, int64_t stages, weft_collocation mode)
{
    const double want = brute(&x->costs, stages, mode);
    weft_partition got;
    const weft_status_code status = weft_partition_solve(&x->costs, stages, mode, &got);
    if (isinf(want)) {
        cr_assert_eq(status, WEFT_E_INFEASIBLE, "%" PRId64 " ops, %" PRId64 " stages",
                     x->costs.op_count, stages);
        return;
    }
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_message());
    cr_assert(got.proved);
    cr_assert(fabs(got.bottleneck - want) <= 1e-12 * (1 + want),
              "%" PRId64 " ops, %" PRId64 " stages, mode %d: %.17g, "
              "brute force %.17g",
              x->costs.op_count, stages, mode, got.bottleneck, want);
    cr_assert(fabs(objective(&x->costs, got.cut, stages, mode == WEFT_COLLOCATE_COST) - want) <=
              1e-12 * (1 + want));
    cr_assert(mode != WEFT_COLLOCATE_ALL || collocates(&x->costs, got.cut, stages));
    cr_assert_eq(got.cut[0], 0);
    cr_assert_eq(got.cut[stages], x->costs.op_count);
    for (int64_t q = 0; q < stages; q++)
        cr_assert(got.cut[q] < got.cut[q + 1]);
    weft_partition_free(&got);
}

Test(partition, equals_brute_force)
{
    weft_rng rng = weft_rng_make(4, WEFT_RNG_TEST);
    int feasible = 0;
    for (int round = 0; round < 400; round++) {
        instance x;
        draw(&rng, round % 4, &x);
        for (int64_t stages = 1; stages <= 7 && stages <= x.costs.op_count; stages++) {
            compare(&x, stages, WEFT_COLLOCATE_ALL);
            compare(&x, stages, WEFT_COLLOCATE_COST);
            if (x.costs.skip_count > 0 && stages > 2 &&
                isfinite(brute(&x.costs, stages, WEFT_COLLOCATE_ALL)))
                feasible++;
            if (round % 4 == 0)
                compare(&x, stages, WEFT_COLLOCATE_NONE);
        }
    }
    cr_assert(feasible > 150, "only %d instances with skips could be collocated", feasible);
}

/* Bisection tries about as many bottlenecks as the number of possible stages has bits. */
Test(partition, thousand_operators_into_32_stages)
{
    enum { N = 1000 };
    static weft_pp_op op[N];
    static weft_skip skip[N];
    for (int kind = 0; kind < 4; kind++) {
        weft_rng rng = weft_rng_make((uint64_t)kind, WEFT_RNG_TEST);
        weft_pp_costs c = {
            .op = op, .op_count = N, .skip = skip, .lambda = 1, .bandwidth = 1e9, .latency = 1e-5};
        for (int i = 0; i < N; i++)
            op[i] = (weft_pp_op){.forward = 1e-4 + 1e-3 * weft_rng_f64(&rng),
                                 .output_bytes = 1e5 * weft_rng_f64(&rng)};
        /* 0: a skip per operator, 1: every 20th, 2: one in the middle, 3: none */
        const int every = kind == 0 ? 1 : kind == 1 ? 20 : kind == 2 ? 490 : N;
        for (int i = kind == 2 ? 490 : 0; i < N / 2 - 1 && kind < 3; i += every)
            skip[c.skip_count++] = (weft_skip){i, N - 1 - i, op[i].output_bytes};
        weft_partition got;
        cr_assert_eq(weft_partition_solve(&c, 32, WEFT_COLLOCATE_ALL, &got), WEFT_OK, "%s",
                     weft_error_message());
        cr_log_info("kind %d: %" PRId64 " tries, bottleneck %.6f", kind, got.tries, got.bottleneck);
        cr_assert(kind == 3 ? got.tries == 0 : got.tries > 0 && got.tries < 2 * log2(N * N),
                  "kind %d: %" PRId64 " tries", kind, got.tries);
        double total = 0;
        for (int i = 0; i < N; i++)
            total += op[i].forward;
        cr_assert(got.bottleneck >= total / 32 && got.bottleneck < 1.3 * total / 32);
        weft_partition_free(&got);
    }
}

Test(partition, says_what_is_wrong)
{
    weft_pp_op op[6] = {{.forward = 1}, {.forward = 2}, {.forward = 3},
                        {.forward = 1}, {.forward = 1}, {.forward = 1}};
    weft_skip skip[2] = {{0, 2, 5}, {1, 4, 5}};
    weft_pp_costs c = {.op = op, .op_count = 6, .skip = skip};
    weft_partition got;
    cr_assert_eq(weft_partition_solve(&c, 0, WEFT_COLLOCATE_AUTO, &got), WEFT_E_ARG);
    cr_assert_eq(weft_partition_solve(&c, 7, WEFT_COLLOCATE_AUTO, &got), WEFT_E_INFEASIBLE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_INFEASIBLE, "%s", weft_error_message());
    cr_assert(strstr(weft_error_text(), "at least 7 operators; the model has 6"));
    c.skip_count = 1;
    cr_assert_eq(weft_partition_solve(&c, 4, WEFT_COLLOCATE_ALL, &got), WEFT_E_INFEASIBLE);
    cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_INFEASIBLE, "%s", weft_error_message());
    cr_assert(strstr(weft_error_text(), "at most 3 stages"), "%s", weft_error_message());
    cr_assert(strstr(weft_error_text(), "the skip [0, 2]"), "%s", weft_error_message());
    cr_assert_eq(weft_partition_solve(&c, 4, WEFT_COLLOCATE_AUTO, &got), WEFT_OK);
    cr_assert_eq(got.mode, WEFT_COLLOCATE_COST);
    weft_partition_free(&got);
    skip[0].to = 6;
    cr_assert_eq(weft_partition_solve(&c, 2, WEFT_COLLOCATE_ALL, &got), WEFT_E_ARG);
    skip[0] = (weft_skip){3, 3, 0};
    cr_assert_eq(weft_partition_solve(&c, 2, WEFT_COLLOCATE_ALL, &got), WEFT_E_ARG);
    c.skip_count = 0;
    op[3].forward = NAN;
    cr_assert_eq(weft_partition_solve(&c, 2, WEFT_COLLOCATE_ALL, &got), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_COSTS_INVALID, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "ops[3].forward");
    op[3].forward = -1;
    cr_assert_eq(weft_partition_solve(&c, 2, WEFT_COLLOCATE_ALL, &got), WEFT_E_ARG);
    op[3].forward = 0;
    c.lambda = 1;
    cr_assert_eq(weft_partition_solve(&c, 2, WEFT_COLLOCATE_ALL, &got), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_COSTS_INVALID, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "bandwidth");
}

Test(partition, failing_allocations)
{
    weft_rng rng = weft_rng_make(9, WEFT_RNG_TEST);
    instance x;
    do
        draw(&rng, 1, &x);
    while (x.costs.op_count < 8);
    const weft_collocation modes[] = {WEFT_COLLOCATE_ALL, WEFT_COLLOCATE_COST, WEFT_COLLOCATE_NONE};
    for (int m = 0; m < 3; m++)
        for (int64_t n = 1;; n++) {
            weft_partition got;
            weft_alloc_fail_at(n);
            const weft_status_code status = weft_partition_solve(&x.costs, 4, modes[m], &got);
            weft_alloc_fail_at(0);
            if (status == WEFT_OK) {
                weft_partition_free(&got);
                cr_assert(n > 3);
                break;
            }
            cr_assert_eq(status, WEFT_E_MEMORY);
        }
}

Test(partition, blockwise_is_the_baseline)
{
    weft_pp_op op[10] = {{0}};
    for (int i = 0; i < 10; i++)
        op[i].forward = i;
    weft_pp_costs c = {.op = op, .op_count = 10};
    weft_partition got;
    cr_assert_eq(weft_partition_blockwise(&c, 4, NULL, &got), WEFT_OK);
    const int64_t want[] = {0, 3, 5, 8, 10};
    for (int q = 0; q <= 4; q++)
        cr_assert_eq(got.cut[q], want[q]);
    cr_assert_float_eq(got.bottleneck, 18, 1e-12);
    weft_partition_free(&got);
    const int64_t block[10] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 3};
    cr_assert_eq(weft_partition_blockwise(&c, 3, block, &got), WEFT_OK);
    const int64_t blocks[] = {0, 3, 8, 10};
    for (int q = 0; q <= 3; q++)
        cr_assert_eq(got.cut[q], blocks[q]);
    weft_partition_free(&got);
    cr_assert_eq(weft_partition_blockwise(&c, 5, block, &got), WEFT_E_INFEASIBLE);
}
