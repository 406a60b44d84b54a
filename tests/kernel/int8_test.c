/* Linear layers with weights of int8. Backends round x alike and sum integers exactly, so that only
 * the sums over blocks differ from ref. */
#include "harness.h"

#include "base/memory.h"
#include "base/rng.h"
#include "format/tensors/quant_blocks.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const weft_attr_linear acts[] = {
    {WEFT_ACT_NONE}, {WEFT_ACT_GELU_TANH}, {WEFT_ACT_SILU, .round = WEFT_BF16}};

/* A layer of M rows, N columns and `blocks` blocks of `elements`; bias, activation and smoothing by
 * turns. */
static op_case layer(int64_t M, int64_t N, int64_t blocks, int64_t elements, weft_dtype type,
                     int variant)
{
    const bool biased = variant % 2 == 1;
    return (op_case){
        .op = WEFT_OP_LINEAR,
        .attr = &acts[variant % 3],
        .in = {{.rank = 2, .dim = {M, blocks * elements}, .dtype = type},
               {.rank = 3, .dim = {N, blocks, 2 + elements}, .dtype = WEFT_U8, .fill = BLOCKS},
               {.rank = biased ? 1 : -1, .dim = {N}, .dtype = WEFT_F32},
               {.rank = variant / 2 % 2 ? 1 : -1, .dim = {blocks * elements}, .dtype = WEFT_F32}},
        .count = 4,
        .seed = (uint64_t)(M + N + blocks),
        /* ref does not round the activation's operand */
        .tolerance = variant % 3 == 2 ? 1e-2 : 0};
}

/* Rows and columns around the sizes of tiles, and blocks shorter than a vector. */
Test(int8, every_tile_and_block)
{
    static const int64_t rows[] = {0, 1, 3, 4, 12, 17, 61}, columns[] = {1, 31, 33, 100},
                         elements[] = {4, 12, 32, 64, 128};
    int variant = 0;
    for (int m = 0; m < 7; m++)
        for (int n = 0; n < 4; n++)
            for (int e = 0; e < 5; e++, variant++) {
                char label[96];
                op_case c = layer(rows[m], columns[n], 1 + variant % 3, elements[e],
                                  variant % 2 ? WEFT_BF16 : WEFT_F32, variant);
                snprintf(label, sizeof label, "%d rows, %d columns, blocks of %d", (int)rows[m],
                         (int)columns[n], (int)elements[e]);
                c.label = label;
                check_case(&c);
            }
}

Test(int8, threads_give_the_same_bits)
{
    op_case c = layer(300, 700, 6, 128, WEFT_F32, 1);
    c.label = "threads";
    check_threads(&c);
    c = layer(300, 700, 24, 32, WEFT_BF16, 1);
    c.label = "threads, bf16";
    check_threads(&c);
}

/* The rounded layer is close to the layer: 1 / 254 of the largest value of a block, twice. */
Test(int8, rounding_is_small)
{
    enum { M = 24, N = 40, K = 512 };
    float x[M * K], w[N * K], y[M * N];
    unsigned char packed[N * K / 128 * 130];
    weft_rng rng = weft_rng_make(5, WEFT_RNG_TEST);
    for (int i = 0; i < M * K; i++)
        x[i] = (float)weft_rng_normal(&rng);
    for (int i = 0; i < N * K; i++)
        w[i] = (float)weft_rng_normal(&rng);
    for (int n = 0; n < N; n++)
        weft_int8_pack(w + n * K, K / 128, 128, packed + n * K / 128 * 130);
    weft_view in[2] = {{x, WEFT_F32, WEFT_SHAPE(M, K)},
                       {packed, WEFT_U8, WEFT_SHAPE(N, K / 128, 130)}},
              out = {y, WEFT_F32, WEFT_SHAPE(M, N)};
    weft_kernel_args args = {.op = WEFT_OP_LINEAR,
                             .in = in,
                             .in_count = 2,
                             .out = &out,
                             .out_count = 1,
                             .attr = &acts[0],
                             .threads = 1};
    const weft_kernel *k = weft_backend_cpu.kernel[WEFT_OP_LINEAR];
    args.workspace = weft_alloc(k->workspace(&args));
    cr_assert_eq(k->run(&args), WEFT_OK);
    double error = 0, size = 0;
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int i = 0; i < K; i++)
                sum += (double)x[m * K + i] * w[n * K + i];
            error += (sum - y[m * N + n]) * (sum - y[m * N + n]);
            size += sum * sum;
        }
    weft_free(args.workspace);
    cr_expect(sqrt(error / size) > 1e-4 && sqrt(error / size) < 1.2e-2, "%g", sqrt(error / size));
}

/* A value that is not finite makes its row NaN and no other. */
Test(int8, nan_and_infinity_stay_in_their_row)
{
    enum { M = 14, N = 33, K = 64 };
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    float x[M * K], w[K], y[M * N];
    unsigned char packed[N * 2 * 34];
    for (int i = 0; i < K; i++)
        w[i] = (float)(i - 20);
    for (int n = 0; n < N; n++)
        weft_int8_pack(w, 2, 32, packed + n * 68);
    for (int i = 0; i < M * K; i++)
        x[i] = i / K == 3 ? 1e-38f : (float)(i % 5);
    for (int i = 0; i < 3; i++)
        x[(4 + i) * K + 40 + i] = odd[i];
    weft_view in[2] = {{x, WEFT_F32, WEFT_SHAPE(M, K)}, {packed, WEFT_U8, WEFT_SHAPE(N, 2, 34)}},
              out = {y, WEFT_F32, WEFT_SHAPE(M, N)};
    weft_kernel_args args = {.op = WEFT_OP_LINEAR,
                             .in = in,
                             .in_count = 2,
                             .out = &out,
                             .out_count = 1,
                             .attr = &acts[0],
                             .threads = 1};
    static const char *const sets[] = {"base", "avx2", "avx512", "avx512_bf16"};
    const weft_kernel *k = weft_backend_cpu.kernel[WEFT_OP_LINEAR];
    for (int i = 0; i < 4; i++) {
        cpu_isa_use(sets[i]);
        args.workspace = weft_alloc(k->workspace(&args));
        cr_assert_eq(k->run(&args), WEFT_OK);
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++)
                cr_expect_eq(!!isnan(y[m * N + n]), m >= 4 && m <= 6, "%s: row %d", sets[i], m);
        cr_expect_eq(y[3 * N], 0, "%s: a row of tiny values", sets[i]);
        weft_free(args.workspace);
    }
    cpu_isa_use(NULL);
}

/* Runs a kernel of cpu on one thread. */
static void run_op(weft_op op, const void *attr, const weft_view *in, int in_count, weft_view *out)
{
    const weft_kernel *k = weft_backend_cpu.kernel[op];
    weft_kernel_args args = {.op = op,
                             .in = in,
                             .in_count = in_count,
                             .out = out,
                             .out_count = 1,
                             .attr = attr,
                             .threads = 1};
    args.workspace = k->workspace ? weft_alloc(k->workspace(&args) + 64) : NULL;
    cr_assert_eq(k->run(&args), WEFT_OK);
    weft_free(args.workspace);
}

/* An activation whose operand is rounded to bf16 has the bits of its op on the layer in bf16. */
Test(int8, activation_is_that_of_its_op)
{
    enum { M = 61, N = 70, K = 64 };
    static const weft_attr_linear with[] = {{WEFT_ACT_GELU_TANH, .round = WEFT_BF16},
                                            {WEFT_ACT_SILU, .round = WEFT_BF16}};
    static const weft_op op[] = {WEFT_OP_GELU, WEFT_OP_SILU};
    float x[M * K], w[N * K], bias[N];
    uint16_t fused[M * N], plain[M * N];
    unsigned char packed[N * 2 * 34];
    weft_rng rng = weft_rng_make(6, WEFT_RNG_TEST);
    for (int i = 0; i < M * K; i++)
        x[i] = (float)weft_rng_normal(&rng);
    for (int i = 0; i < N * K; i++)
        w[i] = (float)weft_rng_normal(&rng) / 4;
    for (int n = 0; n < N; n++) {
        bias[n] = (float)weft_rng_normal(&rng);
        weft_int8_pack(w + n * K, 2, 32, packed + n * 68);
    }
    const weft_view in[3] = {{x, WEFT_F32, WEFT_SHAPE(M, K)},
                             {packed, WEFT_U8, WEFT_SHAPE(N, 2, 34)},
                             {bias, WEFT_F32, WEFT_SHAPE(N)}};
    weft_view own = {fused, WEFT_BF16, WEFT_SHAPE(M, N)}, two = {plain, WEFT_BF16, own.shape};
    for (int i = 0; i < 2; i++) {
        run_op(WEFT_OP_LINEAR, &with[i], in, 3, &own);
        run_op(WEFT_OP_LINEAR, &acts[0], in, 3, &two);
        run_op(op[i], &(weft_attr_gelu){false}, &two, 1, &two);
        cr_expect_arr_eq(fused, plain, sizeof fused);
    }
}
