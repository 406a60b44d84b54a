/* Properties in addition to the values: bitwise repeatability, independence of threads, NaN that
 * stays visible, errors that name the value. */
#include "harness.h"

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"
#include "kernel/ref/table.h"
#include "kernel/registry/backend.h"
#include "kernel/view.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#define D(...) .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}
#define X(...)                                                                                     \
    {                                                                                              \
        D(__VA_ARGS__)                                                                             \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .rank = -1                                                                                 \
    }
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Tensors large enough to be split over threads, unlike those of cases_test.c: bitwise identical
 * with any number of threads. */
Test(kernel_rules, threads_do_not_change_bits)
{
    const weft_attr_conv conv = {
        .stride = {1, 1, 1}, .before = {2, 1, 1}, .after = {0, 1, 1}, .kernel = {3, 3, 3}};
    weft_attr_conv conv_x = conv;
    conv_x.x_shape = (weft_shape){5, {2, 4, 20, 20, 24}};
    const weft_attr_conv point = {.stride = {1, 1, 1}, .kernel = {1, 1, 1}},
                         deep = {.stride = {1, 1, 1}, .before = {2}, .kernel = {3, 1, 1}};
    const weft_attr_matmul nn = {false, false}, nt = {false, true}, tn = {true, false},
                           tt = {true, true};
    const weft_attr_linear plain = {WEFT_ACT_NONE}, gelu = {WEFT_ACT_GELU_TANH};
    static const int32_t packed[] = {0, 100, 0, 90, 100, 390, 90, 391, 395, 400, 391, 400};
    static const int32_t shared[] = {0, 100, 0, 390, 100, 390, 90, 391, 395, 400, 5, 400};
    const operand q = X(1, 400, 3, 24),
                  segments = {D(3, 4), .fill = LISTED, .dtype = WEFT_I32, .list = packed},
                  sharing = {D(3, 4), .fill = LISTED, .dtype = WEFT_I32, .list = shared};
    const weft_attr_attention attention = {0.2, false};
    const weft_attr_norm norm = {1e-6, false};
    const op_case cases[] = {
        {.label = "attention",
         .op = WEFT_OP_ATTENTION,
         .attr = &attention,
         .in = {q, q, q, segments},
         .count = 4},
        {.label = "attention_grad",
         .op = WEFT_OP_ATTENTION_GRAD,
         .attr = &attention,
         .in = {q, q, q, q, X(1, 3, 400), q, segments},
         .count = 7},
        {.label = "attention_grad of shared keys",
         .op = WEFT_OP_ATTENTION_GRAD,
         .attr = &attention,
         .in = {q, q, q, q, X(1, 3, 400), q, sharing},
         .count = 7},
        {.label = "layer_norm_grad",
         .op = WEFT_OP_LAYER_NORM_GRAD,
         .attr = &norm,
         .in = {X(1500, 70), X(1500, 70), X(70)}},
        {.label = "rms_norm_grad",
         .op = WEFT_OP_RMS_NORM_GRAD,
         .attr = &norm,
         .in = {X(1500, 70), X(1500, 70), X(70)}},
        {.label = "modulate_grad",
         .op = WEFT_OP_MODULATE_GRAD,
         .in = {X(2, 700, 70), X(2, 1, 70), X(2, 700, 70)}},
        {.label = "gated_add_grad",
         .op = WEFT_OP_GATED_ADD_GRAD,
         .in = {X(2, 700, 70), X(2, 1, 70), X(2, 700, 70)}},
        {.label = "sum rows", .op = WEFT_OP_SUM, .attr = &(weft_attr_sum){1}, .in = {X(3000, 70)}},
        {.label = "sum all", .op = WEFT_OP_SUM, .attr = &(weft_attr_sum){3}, .in = {X(3000, 70)}},
        {.label = "sum_squares", .op = WEFT_OP_SUM_SQUARES, .in = {X(300001)}},
        {.label = "embed_grad",
         .op = WEFT_OP_EMBED_GRAD,
         .attr = &(weft_attr_embed){9},
         .in = {{D(500), .fill = IDS, .value = 9, .dtype = WEFT_I32}, X(500, 130)}},
        {.label = "random_normal",
         .op = WEFT_OP_RANDOM_NORMAL,
         .attr = &(weft_attr_random){.purpose = WEFT_RNG_TEST,
                                     .shape = {2, {2, 30001}},
                                     .global = {2, {2, 30001}}},
         .in = {{D(2), .fill = KEYS, .dtype = WEFT_I64}}},
        {.label = "nn", .op = WEFT_OP_MATMUL, .attr = &nn, .in = {X(1000, 333), X(333, 271)}},
        {.label = "nt", .op = WEFT_OP_MATMUL, .attr = &nt, .in = {X(1000, 333), X(271, 333)}},
        {.label = "tn", .op = WEFT_OP_MATMUL, .attr = &tn, .in = {X(1111, 777), X(1111, 77)}},
        {.label = "tt", .op = WEFT_OP_MATMUL, .attr = &tt, .in = {X(500, 399), X(300, 500)}},
        {.label = "few rows", .op = WEFT_OP_MATMUL, .attr = &nt, .in = {X(5, 600), X(1500, 600)}},
        {.label = "long", .op = WEFT_OP_MATMUL, .attr = &tn, .in = {X(70000, 12), X(70000, 24)}},
        {.label = "batch", .op = WEFT_OP_MATMUL, .attr = &nn, .in = {X(4, 300, 65), X(4, 65, 200)}},
        {.label = "linear, few rows",
         .op = WEFT_OP_LINEAR,
         .attr = &gelu,
         .in = {X(16, 300), X(900, 300), X(900)}},
        {.label = "linear, some rows",
         .op = WEFT_OP_LINEAR,
         .attr = &gelu,
         .in = {X(3, 211, 192), X(333, 192), X(333)}},
        {.label = "linear, panels",
         .op = WEFT_OP_LINEAR,
         .attr = &plain,
         .in = {X(700, 2050), X(1030, 2050), NONE},
         .count = 3},
        {.label = "linear, bf16",
         .op = WEFT_OP_LINEAR,
         .attr = &gelu,
         .in = {X(700, 300), {D(500, 300), .dtype = WEFT_BF16}, {D(500), .dtype = WEFT_BF16}}},
        {.label = "conv3d",
         .op = WEFT_OP_CONV3D,
         .attr = &conv,
         .in = {X(1, 4, 20, 20, 32), X(32, 32, 3, 3, 3), X(32)}},
        {.label = "conv3d_dx",
         .op = WEFT_OP_CONV3D_DX,
         .attr = &conv_x,
         .in = {X(2, 4, 20, 20, 40), X(40, 24, 3, 3, 3)}},
        {.label = "conv3d_dw",
         .op = WEFT_OP_CONV3D_DW,
         .attr = &conv,
         .in = {X(1, 4, 20, 20, 32), X(1, 4, 20, 20, 32)}},
        {.label = "conv3d_dw, many channels",
         .op = WEFT_OP_CONV3D_DW,
         .attr = &conv,
         .in = {X(2, 3, 12, 12, 128), X(2, 3, 12, 12, 128)}},
        {.label = "conv3d_dw, runs",
         .op = WEFT_OP_CONV3D_DW,
         .attr = &deep,
         .in = {X(2, 5, 20, 50, 150), X(2, 5, 20, 50, 70)}},
        {.label = "conv3d 1x1x1",
         .op = WEFT_OP_CONV3D,
         .attr = &point,
         .in = {X(2, 5, 40, 40, 12), X(24, 12, 1, 1, 1), X(24)}},
        {.label = "conv3d_dw 1x1x1",
         .op = WEFT_OP_CONV3D_DW,
         .attr = &point,
         .in = {X(2, 5, 40, 40, 12), X(2, 5, 40, 40, 24)}},
        {.label = "gelu", .op = WEFT_OP_GELU, .attr = &(weft_attr_gelu){false}, .in = {X(70001)}},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_threads(&cases[i]);
}

/* A norm's result for a row is bitwise independent of the other rows: CFG branches on separate
 * ranks have the results of one rank with both. */
Test(kernel_rules, norms_of_a_row_do_not_hang_on_its_neighbours)
{
    enum { ROWS = 7, WIDEST = 200 };
    static float x[ROWS * WIDEST], gamma[WIDEST], whole[4][ROWS * WIDEST], alone[4][WIDEST];
    const cpu_isa *isa = cpu_isa_get();
    for (int64_t i = 0; i < ROWS * WIDEST; i++)
        x[i] = weft_random_normal(3, WEFT_RNG_TEST, (uint64_t)i);
    for (int64_t i = 0; i < WIDEST; i++)
        gamma[i] = weft_random_normal(4, WEFT_RNG_TEST, (uint64_t)i);
    for (int64_t C = 1; C <= WIDEST; C++)
        for (int64_t r = -1; r < ROWS; r++) { /* -1: all rows */
            float *y[4];
            const int64_t rows = r < 0 ? ROWS : 1, at = r < 0 ? 0 : r * C;
            for (int k = 0; k < 4; k++)
                y[k] = r < 0 ? whole[k] : alone[k];
            isa->f32->layer_norm(x + at, NULL, NULL, y[0], rows, C, 1e-6f);
            isa->f32->rms_norm(x + at, NULL, y[1], rows, C, 1e-6f, false);
            isa->f32->layer_norm(x + at, gamma, gamma, y[2], rows, C, 1e-6f);
            isa->f32->rms_norm(x + at, gamma, y[3], rows, C, 1e-6f, true);
            for (int k = 0; k < 4 && r >= 0; k++)
                cr_assert(!memcmp(whole[k] + at, alone[k], (size_t)C * sizeof(float)),
                          "norm %d of %" PRId64 " columns, row %" PRId64, k, C, r);
        }
}

/* random_normal is the scalar function of base/rng.h, at the global index, whatever the shard. */
Test(kernel_rules, random_is_keyed_by_global_index)
{
    const weft_attr_random attr = {.purpose = WEFT_RNG_NOISE,
                                   .shape = {3, {2, 3, 5}},
                                   .global = {3, {2, 7, 9}},
                                   .start = {0, 2, 4}};
    const op_case c = {.label = "random",
                       .op = WEFT_OP_RANDOM_NORMAL,
                       .attr = &attr,
                       .in = {{D(2), .fill = KEYS, .dtype = WEFT_I64}},
                       .seed = 7};
    double *out[WEFT_MAX_OUTPUTS];
    int64_t count[WEFT_MAX_OUTPUTS];
    run_case(&c, &weft_backend_cpu, out, count);
    cr_assert_eq(count[0], 30);
    for (int b = 0; b < 2; b++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 5; x++)
                cr_expect_eq((float)out[0][(b * 3 + y) * 5 + x],
                             weft_random_normal(weft_seed_mix(8, (uint64_t)b), WEFT_RNG_NOISE,
                                                (uint64_t)((y + 2) * 9 + x + 4)));
    weft_free(out[0]);
}

/* The outputs of op(x) that are not finite if one element of x is NaN or infinite. */
static float run_unary(weft_op op, const void *attr, float x)
{
    float in[19] = {0}, out[19];
    in[5] = x;
    const weft_view view = {.data = in, .dtype = WEFT_F32, .shape = {1, {19}}};
    weft_view result = {.data = out, .dtype = WEFT_F32, .shape = {1, {19}}};
    const weft_kernel_args args = {
        .op = op, .in = &view, .in_count = 1, .out = &result, .out_count = 1, .attr = attr};
    cr_assert_eq(weft_backend_cpu.kernel[op]->run(&args), WEFT_OK);
    return out[5];
}

Test(kernel_rules, nan_stays_and_limits_hold)
{
    const weft_attr_gelu tanh_form = {false};
    const weft_op ops[] = {WEFT_OP_EXP,  WEFT_OP_TANH, WEFT_OP_SIGMOID, WEFT_OP_SILU,
                           WEFT_OP_GELU, WEFT_OP_NEG,  WEFT_OP_SQRT};
    for (size_t i = 0; i < COUNT(ops); i++)
        cr_expect(isnan(run_unary(ops[i], &tanh_form, NAN)), "%s hides a NaN",
                  weft_op_get(ops[i])->name);
    cr_expect(run_unary(WEFT_OP_EXP, NULL, 1000) == INFINITY);
    cr_expect(run_unary(WEFT_OP_EXP, NULL, INFINITY) == INFINITY);
    cr_expect(run_unary(WEFT_OP_EXP, NULL, -INFINITY) == 0);
    cr_expect(run_unary(WEFT_OP_EXP, NULL, 88.7f) > 3e38f &&
              isfinite(run_unary(WEFT_OP_EXP, NULL, 88.7f)));
    cr_expect(run_unary(WEFT_OP_TANH, NULL, 1e30f) == 1);
    cr_expect(run_unary(WEFT_OP_TANH, NULL, -INFINITY) == -1);
    cr_expect(run_unary(WEFT_OP_SIGMOID, NULL, -1000) == 0);
    cr_expect(run_unary(WEFT_OP_SILU, NULL, 1e30f) == 1e30f);
    cr_expect(fabsf(run_unary(WEFT_OP_TANH, NULL, 1e-6f) / 1e-6f - 1) < 1e-6f,
              "small arguments keep relative precision");
}

/* A NaN in one key reaches every query of its segment, and no other. */
Test(kernel_rules, attention_shows_nan)
{
    enum { S = 8, H = 1, W = 16 };
    static const int32_t list[8] = {0, 4, 0, 4, 4, 8, 4, 8};
    float q[S * W], k[S * W], v[S * W], out[S * W], lse[S];
    for (int i = 0; i < S * W; i++)
        q[i] = k[i] = v[i] = 0.01f * (float)i;
    k[2 * W + 3] = NAN;
    const weft_shape shape = {4, {1, S, H, W}};
    const weft_view in[4] = {{q, WEFT_F32, shape},
                             {k, WEFT_F32, shape},
                             {v, WEFT_F32, shape},
                             {(void *)(uintptr_t)list, WEFT_I32, {2, {2, 4}}}};
    weft_view o[2] = {{out, WEFT_F32, shape}, {lse, WEFT_F32, {3, {1, H, S}}}};
    const weft_attr_attention attr = {0.25, false};
    weft_kernel_args args = {.op = WEFT_OP_ATTENTION,
                             .threads = 2,
                             .in = in,
                             .in_count = 4,
                             .out = o,
                             .out_count = 2,
                             .attr = &attr};
    const weft_kernel *kernel = weft_backend_cpu.kernel[WEFT_OP_ATTENTION];
    args.workspace = weft_alloc_aligned(kernel->workspace(&args));
    cr_assert_eq(kernel->run(&args), WEFT_OK);
    for (int s = 0; s < S; s++)
        cr_expect_eq(isnan(out[s * W]) != 0, s < 4, "query %d", s);
    weft_free(args.workspace);
}

/* One op of the cpu backend on given views. */
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
    args.workspace = weft_alloc_aligned((kernel->workspace ? kernel->workspace(&args) : 0) + 64);
    if (kernel->prepare)
        cr_assert_eq(kernel->prepare(&args, &args.cache), WEFT_OK);
    cr_assert_eq(kernel->run(&args), WEFT_OK, "%s", weft_error_message());
    if (kernel->release)
        kernel->release(args.cache);
    weft_free(args.workspace);
}

/* The scale of a step by its norm and loss, and the limits of both; NaN: the step is skipped. */
static double clip_scale(const weft_backend *backend, float norm, float loss, float loss_limit,
                         float norm_limit)
{
    float given[5] = {norm * norm, loss, 2, loss_limit, norm_limit}, out[2];
    weft_view in[5], made[2];
    for (int i = 0; i < 5; i++)
        in[i] = (weft_view){&given[i], WEFT_F32, {0, {0}}};
    for (int i = 0; i < 2; i++)
        made[i] = (weft_view){&out[i], WEFT_F32, {0, {0}}};
    const weft_kernel_args args = {.op = WEFT_OP_CLIP_SCALE,
                                   .threads = 1,
                                   .in = in,
                                   .in_count = 5,
                                   .out = made,
                                   .out_count = 2};
    cr_assert_eq(backend->kernel[WEFT_OP_CLIP_SCALE]->run(&args), WEFT_OK);
    cr_expect_float_eq(out[1], norm, 1e-6, "the norm is reported");
    return out[0];
}

/* A guard that exchanges the limits would skip normal steps and accept outliers. */
Test(kernel_rules, loss_and_norm_have_their_own_limits)
{
    const weft_backend *const backends[] = {&weft_backend_cpu, &weft_backend_ref};
    for (int b = 0; b < 2; b++) {
        cr_expect_float_eq(clip_scale(backends[b], 4, 50, 60, 5), 0.5, 1e-6, "both are in limits");
        cr_expect(isnan(clip_scale(backends[b], 4, 50, 60, 3)), "the norm exceeds its limit");
        cr_expect(isnan(clip_scale(backends[b], 4, 50, 40, 60)), "the loss exceeds its limit");
        cr_expect_float_eq(clip_scale(backends[b], 50, 4, 5, 60), 0.04, 1e-6, "a large norm");
    }
}

/* Attention over two blocks of the keys, merged, in f32: attention over all keys, to 1e-6. */
Test(kernel_rules, attention_parts_merge)
{
    enum { SQ = 70, SK = 200, CUT = 77, H = 2, W = 32, N_OUT = SQ * H * W, N_LSE = H * SQ };
    static float q[N_OUT], k[SK * H * W], v[SK * H * W], out[4][N_OUT], lse[4][N_LSE];
    weft_rng rng = weft_rng_make(5, WEFT_RNG_TEST);
    for (int i = 0; i < N_OUT; i++)
        q[i] = (float)weft_rng_normal(&rng);
    for (int i = 0; i < SK * H * W; i++)
        k[i] = (float)weft_rng_normal(&rng), v[i] = (float)weft_rng_normal(&rng);
    const weft_shape shape = {4, {1, SQ, H, W}}, of_lse = {3, {1, H, SQ}};
    const weft_attr_attention attr = {0.2, false};
    weft_view o[4][2];
    for (int i = 0; i < 4; i++) {
        o[i][0] = (weft_view){out[i], WEFT_F32, shape};
        o[i][1] = (weft_view){lse[i], WEFT_F32, of_lse};
    }
    for (int i = 0; i < 3; i++) { /* all, the first part, the second */
        const int64_t from = i == 2 ? CUT : 0, to = i == 1 ? CUT : SK;
        const weft_shape keys = {4, {1, to - from, H, W}};
        const weft_view in[3] = {{q, WEFT_F32, shape},
                                 {k + from * H * W, WEFT_F32, keys},
                                 {v + from * H * W, WEFT_F32, keys}};
        run_op(WEFT_OP_ATTENTION, &attr, in, 3, o[i], 2);
    }
    run_op(WEFT_OP_ATTENTION_MERGE, NULL, (weft_view[]){o[1][0], o[1][1], o[2][0], o[2][1]}, 4,
           o[3], 2);
    double error = 0, size = 0, worst = 0;
    for (int i = 0; i < N_OUT; i++) {
        const double d = (double)out[3][i] - (double)out[0][i];
        error += d * d;
        size += (double)out[0][i] * (double)out[0][i];
    }
    for (int i = 0; i < N_LSE; i++)
        worst = fmax(worst, fabs((double)lse[3][i] / (double)lse[0][i] - 1));
    cr_expect(sqrt(error / size) <= 1e-6, "out: %g", sqrt(error / size));
    cr_expect(worst <= 1e-6, "lse: %g", worst);
}

/* Almost equal keys with almost equal values: a change that raises the score of one key lowers the
 * other by the same amount. The query's gradient is rounding only, in proportion to the small
 * difference and not to the values. */
Test(kernel_rules, attention_gradient_of_like_keys)
{
    enum { T = 2, W = 64 };
    static float q[T * W], k[T * W], v[T * W], out[T * W], lse[T], dout[T * W], d[3][T * W];
    weft_rng rng = weft_rng_make(6, WEFT_RNG_TEST);
    for (int i = 0; i < T * W; i++)
        q[i] = (float)weft_rng_normal(&rng), dout[i] = (float)weft_rng_normal(&rng);
    for (int i = 0; i < W; i++) {
        k[i] = k[W + i] = (float)weft_rng_normal(&rng);
        v[i] = (float)weft_rng_normal(&rng);
        v[W + i] = v[i] + 1e-4f * (float)weft_rng_normal(&rng);
    }
    const weft_attr_attention attr = {0.125, true};
    const weft_view in[6] = {{q, WEFT_F32, {4, {1, T, 1, W}}}, {k, WEFT_F32, {4, {1, T, 1, W}}},
                             {v, WEFT_F32, {4, {1, T, 1, W}}}, {out, WEFT_F32, {4, {1, T, 1, W}}},
                             {lse, WEFT_F32, {3, {1, 1, T}}},  {dout, WEFT_F32, {4, {1, T, 1, W}}}};
    weft_view o[2] = {in[3], in[4]}, grad[3] = {{d[0], WEFT_F32, in[0].shape},
                                                {d[1], WEFT_F32, in[0].shape},
                                                {d[2], WEFT_F32, in[0].shape}};
    run_op(WEFT_OP_ATTENTION, &attr, in, 3, o, 2);
    run_op(WEFT_OP_ATTENTION_GRAD, &attr, in, 6, grad, 3);
    double dq = 0, dk = 0;
    for (int i = 0; i < T * W; i++) {
        dq += (double)d[0][i] * (double)d[0][i];
        dk += (double)d[1][i] * (double)d[1][i];
    }
    cr_expect(dk > 0 && sqrt(dq / dk) <= 1e-5, "%g of %g", sqrt(dq), sqrt(dk));
}

static weft_status_code embed_one(int32_t id)
{
    float table[6] = {0}, out[2];
    weft_view in[2] = {{table, WEFT_F32, {2, {3, 2}}}, {&id, WEFT_I32, {1, {1}}}};
    weft_view o = {out, WEFT_F32, {2, {1, 2}}};
    return weft_backend_cpu.kernel[WEFT_OP_EMBED]->run(&(weft_kernel_args){
        .op = WEFT_OP_EMBED, .in = in, .in_count = 2, .out = &o, .out_count = 1});
}

Test(kernel_rules, bad_data_is_an_error)
{
    cr_expect_eq(embed_one(2), WEFT_OK);
    cr_expect_eq(embed_one(3), WEFT_E_ARG);
    cr_expect_eq(weft_error_class(), WEFT_MSG_ARGUMENT_INVALID);
    cr_expect_eq(weft_error_fields()->number, 3);
    cr_expect_eq(embed_one(-1), WEFT_E_ARG);
    cr_expect_null(weft_backend_find("gpu"));
    cr_expect_eq(weft_backend_find("cpu"), &weft_backend_cpu);
    cr_expect_eq(weft_backend_find("ref"), &weft_backend_ref);
}

/* Every op but the runtime's own has a kernel in both backends. */
Test(kernel_rules, tables_are_whole)
{
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        const bool runtime = weft_op_has((weft_op)op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS |
                                                          WEFT_TRAIT_CONVERTS | WEFT_TRAIT_MOVES);
        cr_expect_eq(weft_backend_cpu.kernel[op] == NULL, runtime, "%s",
                     weft_op_get((weft_op)op)->name);
        cr_expect_eq(weft_backend_ref.kernel[op] == NULL, runtime, "%s",
                     weft_op_get((weft_op)op)->name);
    }
}

/* The weight gradient of a causal convolution needs, in addition to its operands, a part of the
 * gradient per thread, for any number of frames. (oneDNN alone needs 1 GB here for a frame with
 * only padding before it.) */
Test(kernel_rules, weight_gradients_need_little_scratch)
{
    const weft_attr_conv causal = {
        .stride = {1, 1, 1}, .before = {2, 1, 1}, .after = {0, 1, 1}, .kernel = {3, 3, 3}};
    const weft_kernel *k = weft_backend_cpu.kernel[WEFT_OP_CONV3D_DW];
    if (!cpu_isa_get()->wide)
        return; /* weft's kernel is used, with 48 MiB of parts in total */
    for (int64_t frames = 1; frames <= 9; frames += 4) {
        weft_view in[2] = {{.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, frames, 64, 64, 192)},
                           {.dtype = WEFT_F32, .shape = WEFT_SHAPE(1, frames, 64, 64, 192)}},
                  out = {.dtype = WEFT_F32, .shape = WEFT_SHAPE(192, 192, 3, 3, 3)};
        for (int threads = 1; threads <= 4; threads++) {
            const weft_kernel_args args = {.op = WEFT_OP_CONV3D_DW,
                                           .in = in,
                                           .in_count = 2,
                                           .out = &out,
                                           .out_count = 1,
                                           .attr = &causal,
                                           .threads = threads};
            const int64_t bytes = k->workspace(&args);
            cr_assert(bytes > 0 && bytes <= threads * view_count(&out),
                      "%" PRId64 " frames, %d threads: %" PRId64 " bytes", frames, threads, bytes);
        }
    }
}
