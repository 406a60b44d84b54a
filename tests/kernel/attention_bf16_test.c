/* Attention with operands in bf16: rounding points, agreement of the instruction sets, NaN, threads
 * and scratch. cases_test.c compares the same kernels with ref. */
#include "harness.h"

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define D(...) .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}
#define HALF(...)                                                                                  \
    {                                                                                              \
        D(__VA_ARGS__), .dtype = WEFT_BF16                                                         \
    }

static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
enum { SETS = 4 };

/* Runs one op of cpu. The outputs begin as zeros; the caller frees their data. */
static void run_op(weft_op op, const void *attr, const weft_view *in, int in_count, weft_view *out,
                   int out_count)
{
    const weft_kernel *kernel = weft_backend_cpu.kernel[op];
    weft_kernel_args args = {.op = op,
                             .threads = 2,
                             .in = in,
                             .in_count = in_count,
                             .out = out,
                             .out_count = out_count,
                             .attr = attr};
    for (int i = 0; i < out_count; i++) {
        const int64_t bytes = view_count(&out[i]) * weft_dtype_bytes(out[i].dtype);
        out[i].data = weft_alloc(bytes);
        memset(out[i].data, 0, (size_t)bytes);
    }
    args.workspace = weft_alloc_aligned(kernel->workspace(&args) + 64);
    cr_assert_eq(kernel->run(&args), WEFT_OK, "%s", weft_error_message());
    weft_free(args.workspace);
}

static weft_view half_view(uint64_t seed, weft_shape shape, double size)
{
    weft_view v = {.dtype = WEFT_BF16, .shape = shape};
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    v.data = weft_alloc(view_count(&v) * 2);
    for (int64_t i = 0; i < view_count(&v); i++)
        view_set(&v, i, size * weft_rng_normal(&rng));
    return v;
}

static void free_views(weft_view *v, int count)
{
    for (int i = 0; i < count; i++)
        weft_free(v[i].data);
}

/* Returns the norm of a - b, divided by the norm of b. */
static double distance(const weft_view *a, const weft_view *b)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < view_count(a); i++) {
        const double x = view_get(a, i), y = view_get(b, i);
        if (x == y && isinf(x))
            continue;
        error += (x - y) * (x - y);
        size += y * y;
    }
    return sqrt(error / size);
}

/* Multiplies keys [192, 384) of (1, Sk, H, D) by `factor`: the second block of keys. */
static void enlarge_block(weft_view *k, double factor)
{
    const int64_t row = k->shape.dim[2] * k->shape.dim[3];
    for (int64_t i = 192 * row; i < 384 * row && i < view_count(k); i++)
        view_set(k, i, factor * view_get(k, i));
}

/* Sets all rows of v to the first row, times `factor`. */
static void repeat_row(const weft_view *from, weft_view *v, double factor)
{
    for (int64_t i = 0; i < view_count(v); i++)
        view_set(v, i, factor * view_get(from, i % (v->shape.dim[2] * v->shape.dim[3])));
}

/* The instruction sets agree to the order of summation in f32. Close, because rounding P, dS and the
 * results to bf16 enlarges a difference: a value next to a tie is rounded to the other side, by 2^-8
 * of itself. Measured are 5e-5 of the norm, and 2.6e-3 if one set does not round P or dS. lse is f32
 * and has no such step: 2.4e-8. */
Test(attention_bf16, instruction_sets_agree)
{
    static const struct {
        int64_t sq, sk, H, D;
        bool causal;
    } shapes[] = {
        {70, 401, 2, 64, false},
        {230, 230, 1, 33, true},
        {230, 245, 1, 32, true}, /* the backward begins at query 177 of the second block */
        {230, 242, 1, 32, true},
        {560, 200, 1, 128, false}, /* packed queries exceed CPU_ATTENTION_PACKED */
        {50, 77, 2, 40, false}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const weft_shape q = WEFT_SHAPE(1, shapes[n].sq, shapes[n].H, shapes[n].D),
                         k = WEFT_SHAPE(1, shapes[n].sk, shapes[n].H, shapes[n].D),
                         rows = WEFT_SHAPE(1, shapes[n].H, shapes[n].sq);
        const weft_attr_attention attr = {1 / sqrt((double)shapes[n].D), shapes[n].causal};
        weft_view in[6] = {half_view(1, q, 1), half_view(2, k, 1), half_view(3, k, 1)};
        weft_view out[SETS][5];
        in[5] = half_view(4, q, 1);
        for (int s = SETS - 1; s >= 0; s--) {
            weft_view *o = out[s];
            cpu_isa_use(sets[s]);
            o[0] = (weft_view){.dtype = WEFT_BF16, .shape = q};
            o[1] = (weft_view){.dtype = WEFT_F32, .shape = rows};
            for (int i = 2; i < 5; i++)
                o[i] = (weft_view){.dtype = WEFT_BF16, .shape = i == 2 ? q : k};
            run_op(WEFT_OP_ATTENTION, &attr, in, 3, o, 2);
            in[3] = out[SETS - 1][0];
            in[4] = out[SETS - 1][1];
            run_op(WEFT_OP_ATTENTION_GRAD, &attr, in, 6, o + 2, 3);
            for (int i = 0; i < 5; i++) {
                const double d = distance(&o[i], &out[SETS - 1][i]);
                cr_expect(d <= (i == 1 ? 2e-7 : 1.5e-4), "shape %zu, %s, output %d: %g", n, sets[s],
                          i, d);
            }
        }
        cpu_isa_use(NULL);
        for (int s = 0; s < SETS; s++)
            free_views(out[s], 5);
        free_views(in, 3);
        weft_free(in[5].data);
    }
}

/* With units for bf16, the length of the longest key of a block bounds the maximum of the scores if
 * it is small (attention_bf16.inc). Blocks with and without such a bound are combined, and scores
 * are as far below the bound as possible: each key is opposite to each query. Close, as above; lse is
 * the sum of a larger maximum and a logarithm below 0. */
Test(attention_bf16, bounds_of_scores)
{
    static const double larger[] = {1, 9, 30}; /* all blocks bounded; some; the second not */
    const weft_shape q = WEFT_SHAPE(1, 48, 2, 64), k = WEFT_SHAPE(1, 600, 2, 64),
                     rows = WEFT_SHAPE(1, 2, 48);
    const weft_attr_attention attr = {0.125, false};
    for (int n = 0; n < 4; n++) {
        weft_view in[3] = {half_view(1, q, 1), half_view(2, k, 1), half_view(3, k, 1)}, out[2][2];
        if (n < 3)
            enlarge_block(&in[1], larger[n]);
        else {
            repeat_row(&in[0], &in[0], 1);
            repeat_row(&in[0], &in[1], -1.5);
        }
        for (int s = 0; s < 2; s++) {
            cpu_isa_use(s ? "avx512_bf16" : "avx2");
            out[s][0] = (weft_view){.dtype = WEFT_BF16, .shape = q};
            out[s][1] = (weft_view){.dtype = WEFT_F32, .shape = rows};
            run_op(WEFT_OP_ATTENTION, &attr, in, 3, out[s], 2);
        }
        cpu_isa_use(NULL);
        const double output = distance(&out[1][0], &out[0][0]),
                     lse = distance(&out[1][1], &out[0][1]);
        cr_expect(output <= 1.5e-4 && lse <= 4e-7, "case %d: %g, %g", n, output, lse);
        for (int s = 0; s < 2; s++)
            free_views(out[s], 2);
        free_views(in, 3);
    }
}

/* out is the weighted mean of v with P rounded to bf16, over the sum of P before rounding. Powers
 * of two do not change the rounding of P, so the reference needs no running maximum. Close, for the
 * reason above: measured is 1.3e-6, and 2.6e-3 if P is not rounded. */
Test(attention_bf16, weights_are_rounded)
{
    enum { SQ = 24, SK = 200, W = 32 };
    const weft_shape q = WEFT_SHAPE(1, SQ, 1, W), k = WEFT_SHAPE(1, SK, 1, W);
    const weft_attr_attention attr = {0.125, false};
    weft_view in[3] = {half_view(5, q, 2), half_view(6, k, 2), half_view(7, k, 1)};
    weft_view want = {.data = weft_alloc(SQ * W * 2), .dtype = WEFT_BF16, .shape = q};
    for (int i = 0; i < SQ; i++) {
        double sum = 0, o[W] = {0};
        for (int j = 0; j < SK; j++) {
            double score = 0;
            for (int d = 0; d < W; d++)
                score += view_get(&in[0], i * W + d) * view_get(&in[1], j * W + d);
            const double p = exp(score * attr.scale);
            sum += p;
            for (int d = 0; d < W; d++)
                o[d] += (double)weft_bf16_to_f32(weft_f32_to_bf16((float)p)) *
                        view_get(&in[2], j * W + d);
        }
        for (int d = 0; d < W; d++)
            view_set(&want, i * W + d, o[d] / sum);
    }
    for (int s = 0; s < SETS; s++) {
        weft_view out[2] = {{.dtype = WEFT_BF16, .shape = q},
                            {.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, 1, SQ)}};
        cpu_isa_use(sets[s]);
        run_op(WEFT_OP_ATTENTION, &attr, in, 3, out, 2);
        cr_expect(distance(&out[0], &want) <= 4e-4, "%s: %g", sets[s], distance(&out[0], &want));
        free_views(out, 2);
    }
    cpu_isa_use(NULL);
    free_views(in, 3);
    weft_free(want.data);
}

/* A NaN in one key reaches every query of its segment, and no other. */
Test(attention_bf16, shows_nan)
{
    enum { S = 8, W = 15 };
    static const int32_t list[8] = {0, 4, 0, 4, 4, 8, 4, 8};
    const weft_shape shape = WEFT_SHAPE(1, S, 1, W);
    const weft_attr_attention attr = {0.25, false};
    weft_view in[8] = {half_view(1, shape, 1), half_view(2, shape, 1), half_view(3, shape, 1)};
    const weft_view segments = {(void *)(uintptr_t)list, WEFT_I32, WEFT_SHAPE(2, 4)};
    view_set(&in[1], 2 * W + 3, NAN);
    for (int s = 0; s < SETS; s++) {
        weft_view out[5] = {{.dtype = WEFT_BF16, .shape = shape},
                            {.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, 1, S)}};
        cpu_isa_use(sets[s]);
        in[3] = segments;
        run_op(WEFT_OP_ATTENTION, &attr, in, 4, out, 2);
        for (int i = 2; i < 5; i++)
            out[i] = (weft_view){.dtype = WEFT_BF16, .shape = shape};
        in[3] = out[0];
        in[4] = out[1];
        in[5] = in[2];
        in[6] = segments;
        run_op(WEFT_OP_ATTENTION_GRAD, &attr, in, 7, out + 2, 3);
        for (int i = 0; i < S; i++)
            for (int o = 0; o < 5; o += o == 0 ? 2 : 1)
                cr_expect_eq(isnan(view_get(&out[o], i * W)) != 0, i < 4, "%s, output %d, row %d",
                             sets[s], o, i);
        free_views(out, 5);
    }
    cpu_isa_use(NULL);
    free_views(in, 3);
}

/* Equal keys whose values differ by one step of bf16: the gradient of the query is rounding only, in
 * proportion to the difference of the values (kernel_rules/attention_gradient_of_like_keys). With
 * the product of dO and the rounded output in place of the mean, the ratio is 0.7. */
Test(attention_bf16, gradient_of_like_keys)
{
    enum { T = 2, W = 64 };
    const weft_shape shape = WEFT_SHAPE(1, T, 1, W);
    const weft_attr_attention attr = {0.125, true};
    weft_view in[6] = {half_view(1, shape, 1), half_view(2, shape, 1), half_view(3, shape, 1)};
    in[5] = half_view(4, shape, 1);
    for (int i = 0; i < W; i++) {
        uint16_t *k = in[1].data, *v = in[2].data;
        k[W + i] = k[i];
        v[W + i] = (uint16_t)(v[i] + 1);
    }
    for (int s = 0; s < SETS; s++) {
        weft_view out[2] = {{.dtype = WEFT_BF16, .shape = shape},
                            {.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, 1, T)}},
                  grad[3];
        for (int i = 0; i < 3; i++)
            grad[i] = (weft_view){.dtype = WEFT_BF16, .shape = shape};
        cpu_isa_use(sets[s]);
        run_op(WEFT_OP_ATTENTION, &attr, in, 3, out, 2);
        in[3] = out[0];
        in[4] = out[1];
        run_op(WEFT_OP_ATTENTION_GRAD, &attr, in, 6, grad, 3);
        double dq = 0, dk = 0;
        for (int i = 0; i < T * W; i++) {
            dq += pow(view_get(&grad[0], i), 2);
            dk += pow(view_get(&grad[1], i), 2);
        }
        cr_expect(dk > 0 && sqrt(dq / dk) <= 1e-3, "%s: %g of %g", sets[s], sqrt(dq), sqrt(dk));
        free_views(out, 2);
        free_views(grad, 3);
    }
    cpu_isa_use(NULL);
    free_views(in, 3);
    weft_free(in[5].data);
}

/* Bitwise: tasks do not depend on the number of threads. */
Test(attention_bf16, threads_do_not_change_bits)
{
    static const int32_t packed[] = {0, 100, 0, 90, 100, 390, 90, 391, 395, 400, 391, 400};
    static const int32_t shared[] = {0, 100, 0, 390, 100, 390, 90, 391, 395, 400, 5, 400};
    const operand q = HALF(1, 400, 3, 24),
                  segments = {D(3, 4), .fill = LISTED, .dtype = WEFT_I32, .list = packed},
                  sharing = {D(3, 4), .fill = LISTED, .dtype = WEFT_I32, .list = shared};
    const weft_attr_attention attr = {0.2, false};
    check_threads(&(op_case){.label = "attention",
                             .op = WEFT_OP_ATTENTION,
                             .attr = &attr,
                             .in = {q, q, q, segments},
                             .count = 4});
    check_threads(&(op_case){.label = "attention_grad",
                             .op = WEFT_OP_ATTENTION_GRAD,
                             .attr = &attr,
                             .in = {q, q, q, q, {D(1, 3, 400)}, q, segments},
                             .count = 7});
    check_threads(&(op_case){.label = "attention_grad of shared keys",
                             .op = WEFT_OP_ATTENTION_GRAD,
                             .attr = &attr,
                             .in = {q, q, q, q, {D(1, 3, 400)}, q, sharing},
                             .count = 7});
}

/* No operand is widened as a whole: the scratch does not depend on the keys, and in the forward not
 * on the queries either. */
Test(attention_bf16, scratch_has_no_whole_operands)
{
    const weft_op ops[] = {WEFT_OP_ATTENTION, WEFT_OP_ATTENTION_GRAD};
    const weft_attr_attention attr = {0.2, false};
    int64_t bytes[2][2];
    for (int o = 0; o < 2; o++)
        for (int n = 0; n < 2; n++) {
            const int64_t keys = n ? 100000 : 1000, queries = n && o == 0 ? 100000 : 1000;
            const weft_view q = {.dtype = WEFT_BF16, .shape = WEFT_SHAPE(1, queries, 4, 64)},
                            k = {.dtype = WEFT_BF16, .shape = WEFT_SHAPE(1, keys, 4, 64)},
                            lse = {.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, 4, queries)};
            const weft_view in[6] = {q, k, k, q, lse, q};
            weft_view out[3] = {q, o ? k : lse, k};
            bytes[o][n] = weft_backend_cpu.kernel[ops[o]]->workspace(
                &(weft_kernel_args){.op = ops[o],
                                    .threads = 2,
                                    .in = in,
                                    .in_count = o ? 6 : 3,
                                    .out = out,
                                    .out_count = o ? 3 : 2,
                                    .attr = &attr});
        }
    for (int o = 0; o < 2; o++)
        cr_expect_eq(bytes[o][0], bytes[o][1], "%s: %" PRId64 " and %" PRId64 " bytes",
                     weft_op_get(ops[o])->name, bytes[o][0], bytes[o][1]);
}

/* ---- scores in int8 ------------------------------------------------------------------------- */

/* Runs attention; `out`: out and lse. */
static void attend(const weft_attr_attention *attr, const weft_view *in, int count,
                   weft_view out[2])
{
    const weft_shape *q = &in[0].shape;
    out[0] = (weft_view){.dtype = WEFT_BF16, .shape = *q};
    out[1] = (weft_view){.dtype = WEFT_F32, .shape = WEFT_SHAPE(q->dim[0], q->dim[2], q->dim[1])};
    run_op(WEFT_OP_ATTENTION, attr, in, count, out, 2);
}

/* Adds `size` to channel d of all keys. */
static void add_to_channel(weft_view *k, int64_t d, double size)
{
    for (int64_t i = d; i < view_count(k); i += k->shape.dim[3])
        view_set(k, i, view_get(k, i) + size);
}

/* Close to scores in bf16: rounding q and k to 127 steps changes a score of deviation 1 by 0.011, and
 * out by this share of its norm. The instruction sets agree up to sums in another order. base does
 * not fuse products and sums, and rounds a few values to the other neighbour: measured are
 * 1.1e-3. */
Test(attention_int8, scores_are_close)
{
    static const struct {
        int64_t sq, sk, H, D;
        bool causal;
        double channel; /* added to a channel of all keys */
    } shapes[] = {{70, 401, 2, 64, false, 0},
                  {70, 401, 2, 64, false, 20},
                  {230, 230, 1, 33, true, 3},
                  {50, 77, 2, 128, false, 3},
                  {13, 500, 1, 6, false, 3}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const int64_t width = shapes[n].D;
        const weft_shape q = WEFT_SHAPE(1, shapes[n].sq, shapes[n].H, width),
                         k = WEFT_SHAPE(1, shapes[n].sk, shapes[n].H, width);
        weft_attr_attention attr = {1 / sqrt((double)width), shapes[n].causal, false};
        weft_view in[3] = {half_view(1, q, 1), half_view(2, k, 1), half_view(3, k, 1)};
        weft_view plain[2], out[SETS][2];
        add_to_channel(&in[1], 1, shapes[n].channel);
        cpu_isa_use("avx2");
        attend(&attr, in, 3, plain);
        attr.int8 = true;
        for (int s = SETS - 1; s >= 0; s--) {
            cpu_isa_use(sets[s]);
            attend(&attr, in, 3, out[s]);
            const double d = distance(&out[s][0], &plain[0]), l = distance(&out[s][1], &plain[1]);
            cr_expect(d > 3e-3 && d < 2e-2 && l > 1e-5 && l < 2e-2, "%zu, %s: %g, %g", n, sets[s],
                      d, l);
            for (int i = 0; i < 2; i++)
                cr_expect(distance(&out[s][i], &out[SETS - 1][i]) <=
                              (s == 0 ? (i ? 1e-4 : 2e-3) : (i ? 2e-6 : 3e-4)),
                          "%zu, %s, output %d: %g", n, sets[s], i,
                          distance(&out[s][i], &out[SETS - 1][i]));
        }
        cpu_isa_use(NULL);
        for (int s = 0; s < SETS; s++)
            free_views(out[s], 2);
        free_views(plain, 2);
        free_views(in, 3);
    }
}

/* A bias hides keys as if they were absent. A query of zeros has the mean of v, and a NaN in a query
 * stays in its row. */
Test(attention_int8, bias_zeros_and_nan)
{
    enum { SQ = 20, SK = 150, KEPT = 128, W = 16 };
    const weft_shape q = WEFT_SHAPE(1, SQ, 1, W), k = WEFT_SHAPE(1, SK, 1, W);
    const weft_attr_attention attr = {.scale = 0.25, .int8 = true};
    float bias[SK];
    weft_view in[5] = {half_view(1, q, 1), half_view(2, k, 1), half_view(3, k, 1)};
    in[3] = (weft_view){.shape = {.rank = -1}};
    in[4] = (weft_view){bias, WEFT_F32, WEFT_SHAPE(1, SK)};
    for (int j = 0; j < SK; j++)
        bias[j] = j < KEPT ? 0 : -1e30f;
    for (int d = 0; d < W; d++)
        view_set(&in[0], 3 * W + d, 0);
    view_set(&in[0], 5 * W + 2, NAN);
    for (int s = 0; s < SETS; s++) {
        weft_view out[2];
        cpu_isa_use(sets[s]);
        attend(&attr, in, 5, out);
        for (int i = 0; i < SQ * W; i++)
            cr_expect_eq(!!isnan(view_get(&out[0], i)), i / W == 5, "%s: %d", sets[s], i);
        double mean = 0;
        for (int j = 0; j < KEPT; j++)
            mean += view_get(&in[2], j * W) / KEPT;
        cr_expect(fabs(view_get(&out[0], 3 * W) - mean) < 2e-3, "%s", sets[s]);
        cr_expect(fabs(view_get(&out[1], 3) - log(KEPT)) < 1e-5, "%s", sets[s]);
        free_views(out, 2);
    }
    cpu_isa_use(NULL);
    free_views(in, 3);
}

/* Merged blocks of a ring are close to attention over all keys, because lse contains the block's
 * mean key. Close, because blocks of keys and means differ. */
Test(attention_int8, merged_blocks_are_close)
{
    enum { SQ = 40, SK = 300, HALF_SK = 150, W = 64 };
    const weft_shape q = WEFT_SHAPE(1, SQ, 1, W), k = WEFT_SHAPE(1, SK, 1, W);
    const weft_attr_attention attr = {.scale = 0.125, .int8 = true};
    weft_view in[3] = {half_view(1, q, 1), half_view(2, k, 1), half_view(3, k, 1)};
    weft_view whole[2], part[4], merged[2];
    add_to_channel(&in[1], 7, 20);
    attend(&attr, in, 3, whole);
    for (int half = 0; half < 2; half++) {
        weft_view block[3] = {in[0], in[1], in[2]};
        for (int i = 1; i < 3; i++) {
            block[i].shape.dim[1] = HALF_SK;
            block[i].data = (uint16_t *)in[i].data + half * HALF_SK * W;
        }
        attend(&attr, block, 3, part + 2 * half);
    }
    merged[0] = (weft_view){.dtype = WEFT_BF16, .shape = q};
    merged[1] = (weft_view){.dtype = WEFT_F32, .shape = whole[1].shape};
    run_op(WEFT_OP_ATTENTION_MERGE, NULL, part, 4, merged, 2);
    cr_expect(distance(&merged[0], &whole[0]) < 2e-2, "%g", distance(&merged[0], &whole[0]));
    for (int i = 0; i < SQ; i++)
        cr_expect(fabs(view_get(&merged[1], i) - view_get(&whole[1], i)) < 1e-2);
    free_views(part, 4);
    free_views(merged, 2);
    free_views(whole, 2);
    free_views(in, 3);
}

/* Bitwise: tasks do not depend on the number of threads. */
Test(attention_int8, threads_do_not_change_bits)
{
    static const int32_t packed[] = {0, 100, 0, 90, 100, 390, 90, 391, 395, 400, 391, 400};
    const operand q = HALF(1, 400, 3, 24),
                  segments = {D(3, 4), .fill = LISTED, .dtype = WEFT_I32, .list = packed};
    const weft_attr_attention attr = {.scale = 0.2, .int8 = true};
    check_threads(&(op_case){.label = "attention",
                             .op = WEFT_OP_ATTENTION,
                             .attr = &attr,
                             .in = {q, q, q, segments},
                             .count = 4});
}
