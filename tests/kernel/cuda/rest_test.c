/* Ops and types that the cases of cpu do not have: random numbers, routing, rows of bf16. */
#include "../harness.h"

#include "base/rng.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define D(...) .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}
#define X(...)                                                                                     \
    {                                                                                              \
        D(__VA_ARGS__)                                                                             \
    }
#define BF(...)                                                                                    \
    {                                                                                              \
        D(__VA_ARGS__), .dtype = WEFT_BF16                                                         \
    }
#define IDS(max, ...)                                                                              \
    {                                                                                              \
        D(__VA_ARGS__), .fill = IDS, .value = max, .dtype = WEFT_I32                               \
    }
#define LIST(values, ...)                                                                          \
    {                                                                                              \
        D(__VA_ARGS__), .fill = LISTED, .list = values, .dtype = WEFT_I32                          \
    }
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void check_all(const op_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        op_case c = cases[i];
        char label[128];
        snprintf(label, sizeof label, "%s %zu", weft_op_get(c.op)->name, i);
        c.label = label;
        c.seed = i + 1;
        check_case(&c);
        check_threads(&c);
    }
}

/* A sample's values depend on its key and on the place in the whole sample. A value is that of ref
 * to the last bit, but for one in millions whose f64 is halfway between two values of f32. */
Test(rest, random)
{
    const operand keys = {D(3), .fill = KEYS, .dtype = WEFT_I64};
    const weft_attr_random whole = {WEFT_RNG_NOISE, {3, {3, 7, 9}}, {3, {0, 7, 9}}, {0}},
                           part = {WEFT_RNG_VAE, {3, {3, 2, 9}}, {3, {0, 7, 20}}, {0, 3, 5}};
    const op_case cases[] = {
        {.op = WEFT_OP_RANDOM_NORMAL, .attr = &whole, .in = {keys}, .tolerance = 1e-9},
        {.op = WEFT_OP_RANDOM_NORMAL, .attr = &part, .in = {keys}, .tolerance = 1e-9},
        {.op = WEFT_OP_RANDOM_UNIFORM, .attr = &whole, .in = {keys}, .tolerance = 1e-30},
        {.op = WEFT_OP_RANDOM_UNIFORM, .attr = &part, .in = {keys}, .tolerance = 1e-30},
    };
    check_all(cases, COUNT(cases));
}

Test(rest, routing)
{
    static const int32_t chosen[] = {2, 0, -1, 1, 3, 2, 2, 1, 0, 3, 1,  -1,
                                     2, 3, 3,  0, 1, 2, 0, 1, 2, 3, -1, -1};
    const weft_attr_experts all = {4, 0}, few = {4, 2};
    const op_case cases[] = {
        {.op = WEFT_OP_PICK, .in = {X(2, 6, 4), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_PICK_GRAD, .attr = &all, .in = {LIST(chosen, 2, 6, 2), X(2, 6, 2)}},
        {.op = WEFT_OP_EXPERT_SLOTS, .attr = &all, .in = {LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_EXPERT_SLOTS, .attr = &few, .in = {LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_DISPATCH, .attr = &all, .in = {X(2, 6, 1, 5), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_DISPATCH, .attr = &few, .in = {BF(2, 6, 2, 5), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_COLLECT, .attr = &all, .in = {X(4, 2, 6, 5), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_COLLECT, .attr = &few, .in = {X(4, 2, 2, 5), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_DISPATCH, .attr = &few, .in = {BF(2, 6, 1, 264), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_COLLECT, .attr = &all, .in = {X(4, 2, 6, 16), LIST(chosen, 2, 6, 2)}},
        {.op = WEFT_OP_EMBED, .in = {BF(9, 2056), IDS(9, 2, 5)}},
    };
    check_all(cases, COUNT(cases));
}

/* Every format of GGUF, to the last bit. Bytes are random; bytes of f16 scales are small. */
Test(rest, unpack)
{
    static const struct {
        int64_t type, elements, bytes;
        int d, m; /* high bytes of scales; -1: none */
    } formats[] = {{2, 32, 18, 1, -1},      {3, 32, 20, 1, 3},    {6, 32, 22, 1, -1},
                   {7, 32, 24, 1, 3},       {8, 32, 34, 1, -1},   {10, 256, 84, 81, 83},
                   {11, 256, 110, 109, -1}, {12, 256, 144, 1, 3}, {13, 256, 176, 1, 3},
                   {14, 256, 210, 209, -1}, {20, 32, 18, 1, -1},  {23, 256, 136, 1, -1},
                   {24, 1, 1, -1, -1},      {25, 1, 2, -1, -1}};
    static const int32_t rows[] = {2, 0, 1, 1, 0};
    static int32_t bytes[3 * 2 * 256];
    uint32_t random = 1;
    for (size_t i = 0; i < COUNT(formats); i++) {
        const int64_t each = formats[i].bytes;
        for (int64_t k = 0; k < 3 * 2 * each; k++) {
            const int at = (int)(k % each);
            random = random * 1664525 + 1013904223;
            bytes[k] = (int32_t)(random >> 24);
            if (at == formats[i].d || at == formats[i].m)
                bytes[k] = bytes[k] % 96 | (bytes[k] & 128); /* finite, of both signs */
        }
        const weft_attr_unpack attr = {formats[i].type, formats[i].elements, each};
        const op_case cases[] = {
            {.op = WEFT_OP_UNPACK,
             .attr = &attr,
             .in = {{D(3, 2, each), .fill = LISTED, .list = bytes, .dtype = WEFT_U8}}},
            {.op = WEFT_OP_UNPACK,
             .attr = &attr,
             .in = {{D(3, 2, each), .fill = LISTED, .list = bytes, .dtype = WEFT_U8},
                    LIST(rows, 5)}},
        };
        check_all(cases, COUNT(cases));
    }
}

/* Rows wide enough for a block, in accesses of 16 bytes; sums in two steps. */
Test(rest, rows_of_bf16)
{
    const weft_attr_norm layer = {1e-6, false}, l2 = {1e-12, true};
    const op_case cases[] = {
        {.op = WEFT_OP_LAYER_NORM, .attr = &layer, .in = {BF(5, 1536), X(1536), X(1536)}},
        {.op = WEFT_OP_RMS_NORM, .attr = &layer, .in = {BF(9, 128), X(128)}},
        {.op = WEFT_OP_RMS_NORM, .attr = &l2, .in = {BF(3, 1100), X(1100)}},
        {.op = WEFT_OP_LAYER_NORM_GRAD, .attr = &layer, .in = {BF(5, 1536), BF(5, 1536), X(1536)}},
        {.op = WEFT_OP_RMS_NORM_GRAD, .attr = &layer, .in = {BF(700, 128), BF(700, 128), X(128)}},
        {.op = WEFT_OP_SOFTMAX, .in = {BF(3, 2048)}},
        {.op = WEFT_OP_MODULATE, .in = {BF(2, 30, 64), X(2, 1, 64), X(2, 1, 64)}},
        {.op = WEFT_OP_MODULATE_GRAD, .in = {BF(2, 700, 64), X(2, 1, 64), BF(2, 700, 64)}},
        {.op = WEFT_OP_GATED_ADD, .in = {BF(2, 30, 64), BF(2, 30, 64), X(1, 30, 1)}},
        {.op = WEFT_OP_ROPE,
         .attr = &(weft_attr_rope){.rotate_half = true},
         .in = {BF(2, 9, 3, 32), X(9, 16), X(9, 16)}},
        {.op = WEFT_OP_SUM, .attr = &(weft_attr_sum){3}, .in = {BF(70, 100, 40)}},
    };
    check_all(cases, COUNT(cases));
}

/* Operands of bf16 in whole octets: the tensor cores' kernel, with tiles that the sizes do not fill,
 * and depths of less and more than its stages. */
Test(rest, products_of_bf16)
{
    const weft_attr_matmul nn = {false, false}, nt = {false, true}, tn = {true, false};
    const weft_attr_linear gelu = {WEFT_ACT_GELU_TANH, WEFT_BF16};
    const weft_attr_conv conv = {.stride = {1, 1, 1}, .before = {2, 1, 1}, .after = {0, 1, 1}},
                         dx = {.stride = {1, 1, 1},
                               .before = {2, 1, 1},
                               .after = {0, 1, 1},
                               .x_shape = {5, {1, 3, 6, 7, 16}}},
                         dw = {.stride = {1, 1, 1},
                               .before = {2, 1, 1},
                               .after = {0, 1, 1},
                               .kernel = {3, 3, 3}};
    const op_case cases[] = {
        {.op = WEFT_OP_MATMUL, .attr = &nn, .in = {BF(130, 72), BF(72, 136)}},
        {.op = WEFT_OP_MATMUL, .attr = &nt, .in = {BF(130, 200), BF(136, 200)}},
        {.op = WEFT_OP_MATMUL, .attr = &tn, .in = {BF(88, 136), BF(88, 24)}},
        {.op = WEFT_OP_MATMUL, .attr = &nn, .in = {BF(3, 40, 16), BF(3, 16, 24)}},
        {.op = WEFT_OP_LINEAR, .attr = &gelu, .in = {BF(2, 70, 104), BF(40, 104), X(40)}},
        {.op = WEFT_OP_CONV3D, .attr = &conv, .in = {BF(1, 3, 6, 7, 16), BF(24, 16, 3, 3, 3)}},
        {.op = WEFT_OP_CONV3D_DX, .attr = &dx, .in = {BF(1, 3, 6, 7, 24), BF(24, 16, 3, 3, 3)}},
        {.op = WEFT_OP_CONV3D_DW, .attr = &dw, .in = {BF(1, 3, 6, 7, 16), BF(1, 3, 6, 7, 24)}},
    };
    check_all(cases, COUNT(cases));
}

static void run_emulated(weft_op op, const void *attr, const weft_view *in, int count,
                         const weft_view *out, int outs)
{
    const weft_kernel *kernel = harness_subjects[0].backend->kernel[op];
    weft_view ins[WEFT_MAX_INPUTS], made[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < count; i++)
        ins[i] = in[i];
    for (int o = 0; o < outs; o++)
        made[o] = out[o];
    weft_kernel_args args = {
        .op = op, .attr = attr, .in = ins, .in_count = count, .out = made, .out_count = outs};
    const int64_t bytes = kernel->workspace ? kernel->workspace(&args) : 0;
    args.workspace = aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
    cr_assert_eq(kernel->run(&args), WEFT_OK);
    free(args.workspace);
}

/* Almost equal keys with almost equal values: the query's gradient is the rounding of a small
 * difference, not of the values (as on cpu, in rules_test.c). Rows of the second item see one key:
 * their gradient is 0. With lse of more keys than these, the rows keep the sum of dout out. */
Test(rest, attention_gradient_of_like_keys)
{
    enum { T = 2, W = 64, N = 2 * T * W };
    static float q[N], k[N], v[N], out[N], lse[2 * T], dout[N], d[3][N];
    weft_rng rng = weft_rng_make(6, WEFT_RNG_TEST);
    for (int i = 0; i < N; i++)
        q[i] = (float)weft_rng_normal(&rng), dout[i] = (float)weft_rng_normal(&rng);
    for (int b = 0; b < 2; b++)
        for (int i = b * T * W; i < b * T * W + W; i++) {
            k[i] = k[W + i] = (float)weft_rng_normal(&rng);
            v[i] = (float)weft_rng_normal(&rng);
            v[W + i] = v[i] + 1e-4f * (float)weft_rng_normal(&rng);
        }
    const weft_attr_attention attr = {0.125, true};
    const weft_shape shape = {4, {2, T, 1, W}}, of_lse = {3, {2, 1, T}};
    const weft_view in[6] = {{q, WEFT_F32, shape},    {k, WEFT_F32, shape},
                             {v, WEFT_F32, shape},    {out, WEFT_F32, shape},
                             {lse, WEFT_F32, of_lse}, {dout, WEFT_F32, shape}};
    const weft_view grad[3] = {
        {d[0], WEFT_F32, shape}, {d[1], WEFT_F32, shape}, {d[2], WEFT_F32, shape}};
    run_emulated(WEFT_OP_ATTENTION, &attr, in, 3, &in[3], 2);
    run_emulated(WEFT_OP_ATTENTION_GRAD, &attr, in, 6, grad, 3);
    double dq = 0, dk = 0;
    for (int i = 0; i < N; i++) {
        dq += (double)d[0][i] * (double)d[0][i];
        dk += (double)d[1][i] * (double)d[1][i];
    }
    cr_expect(dk > 0 && sqrt(dq / dk) <= 1e-5, "%g of %g", sqrt(dq), sqrt(dk));
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < W; i++)
            cr_expect_eq(d[0][b * T * W + i], 0, "a row with one key");
    for (int i = 0; i < 2 * T; i++)
        lse[i] += 0.5f; /* other keys have weight, too, and values of 0 */
    for (int i = 0; i < N; i++)
        out[i] *= 0.5f;
    run_emulated(WEFT_OP_ATTENTION_GRAD, &attr, in, 6, grad, 3);
    double all = 0;
    for (int i = 0; i < W; i++)
        all += fabs((double)d[0][i]);
    cr_expect_gt(all, 0.01, "delta is not the mean of the keys given here");
}
