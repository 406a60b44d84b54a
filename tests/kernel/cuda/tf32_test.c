/* Products and attention in TF32. `ref` rounds operands as the kernels do. Where tensor cores multiply,
 * results of products are therefore as close as in f32: unrounded operands differ by 3e-4. Close,
 * because the order of sums differs. */
#include "../harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#define D(...) .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}
#define X(...)                                                                                     \
    {                                                                                              \
        D(__VA_ARGS__)                                                                             \
    }
#define IDS(max, ...)                                                                              \
    {                                                                                              \
        D(__VA_ARGS__), .fill = IDS, .value = max, .dtype = WEFT_I32                               \
    }
#define COUNT(a) (sizeof(a) / sizeof *(a))
/* Of sums in f32 of equal operands. */
#define SAME 2e-6

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

#define MM(a, b)                                                                                   \
    .op = WEFT_OP_MATMUL, .attr = &(weft_attr_matmul)                                              \
    {                                                                                              \
        a, b, .tf32 = true                                                                         \
    }
#define LIN(a)                                                                                     \
    .op = WEFT_OP_LINEAR, .attr = &(weft_attr_linear)                                              \
    {                                                                                              \
        .act = a, .tf32 = true                                                                     \
    }

/* Both orders of both operands, rests of tiles, a batch, parts of the depth; sizes that no vectors
 * divide are computed in f32, which is closer than TF32. */
Test(tf32, products)
{
    const op_case cases[] = {
        {MM(false, false), .in = {X(136, 48), X(48, 40)}, .tolerance = SAME},
        {MM(false, true), .in = {X(136, 40), X(136, 40)}, .tolerance = SAME},
        {MM(true, false), .in = {X(24, 200), X(24, 16)}, .tolerance = SAME},
        {MM(true, true), .in = {X(40, 16), X(264, 40)}, .tolerance = SAME},
        {MM(false, false), .in = {X(3, 24, 8), X(3, 8, 24)}, .tolerance = SAME},
        {MM(true, false), .in = {X(2, 16, 32), X(16, 24)}, .tolerance = SAME},
        {MM(true, false), .in = {X(2056, 8), X(2056, 16)}, .tolerance = SAME},
        {LIN(WEFT_ACT_GELU_TANH), .in = {X(2, 65, 32), X(24, 32), X(24)}, .tolerance = SAME},
        {LIN(WEFT_ACT_NONE), .in = {X(130, 8), X(136, 8)}, .tolerance = SAME},
        {MM(false, false), .in = {X(5, 7), X(7, 3)}},
        {LIN(WEFT_ACT_SILU), .in = {X(33, 13), X(9, 13), X(9)}},
        {LIN(WEFT_ACT_NONE), .in = {X(0, 8), X(8, 8)}},
    };
    check_all(cases, COUNT(cases));
}

Test(tf32, experts)
{
    const weft_attr_expert_matmul forward = {.trans_b = true, .tf32 = true}, back = {.tf32 = true},
                                  weights = {.experts = 3, .tf32 = true};
    const op_case cases[] = {
        {.op = WEFT_OP_EXPERT_MATMUL,
         .attr = &forward,
         .in = {X(2, 90, 1, 24), X(3, 16, 24), IDS(3, 2, 90, 2)},
         .tolerance = SAME},
        {.op = WEFT_OP_EXPERT_MATMUL,
         .attr = &back,
         .in = {X(2, 40, 2, 16), X(3, 16, 24), IDS(3, 2, 40, 2)},
         .tolerance = SAME},
        {.op = WEFT_OP_EXPERT_MATMUL_DW,
         .attr = &weights,
         .in = {X(2, 90, 2, 16), X(2, 90, 1, 24), IDS(3, 2, 90, 2)},
         .tolerance = SAME},
    };
    check_all(cases, COUNT(cases));
}

/* A convolution and its gradients, with padding, strides, and rests of tiles. */
Test(tf32, conv3d)
{
    static const struct {
        int64_t stride[3], before[3], after[3];
        operand x, w;
        bool odd;
    } list[] = {
        {{1, 1, 1}, {2, 1, 1}, {0, 1, 1}, X(1, 3, 6, 5, 16), X(24, 16, 3, 3, 3), false},
        {{1, 2, 2}, {0, 0, 0}, {0, 1, 1}, X(2, 2, 9, 9, 8), X(16, 8, 1, 3, 3), false},
        {{1, 1, 1}, {0, 1, 1}, {0, 1, 1}, X(1, 2, 5, 6, 3), X(7, 3, 1, 3, 3), true},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        const operand *x = &list[i].x, *w = &list[i].w;
        const double tolerance = list[i].odd ? 0 : SAME;
        operand y = *x;
        weft_attr_conv a = {.tf32 = true};
        y.dim[4] = w->dim[0];
        a.x_shape = (weft_shape){5, {x->dim[0], x->dim[1], x->dim[2], x->dim[3], x->dim[4]}};
        for (int d = 0; d < 3; d++) {
            a.stride[d] = list[i].stride[d];
            a.before[d] = list[i].before[d];
            a.after[d] = list[i].after[d];
            a.kernel[d] = w->dim[2 + d];
            y.dim[1 + d] =
                (x->dim[1 + d] + a.before[d] + a.after[d] - w->dim[2 + d]) / a.stride[d] + 1;
        }
        const op_case cases[] = {
            {.op = WEFT_OP_CONV3D, .attr = &a, .in = {*x, *w}, .count = 2, .tolerance = tolerance},
            {.op = WEFT_OP_CONV3D_DX,
             .attr = &a,
             .in = {y, *w},
             .count = 2,
             .tolerance = tolerance},
            {.op = WEFT_OP_CONV3D_DW,
             .attr = &a,
             .in = {*x, y},
             .count = 2,
             .tolerance = tolerance},
        };
        check_all(cases, COUNT(cases));
    }
}

/* Heads of both widths of the kernels, rests of tiles, a mask, segments, columns that vectors do not
 * divide, a bias. Weights are rounded after another scale than in ref, so that results differ by
 * roundings of TF32. */
Test(tf32, attention)
{
    static const int32_t packed[] = {0, 70, 0, 90, 70, 140, 90, 150};
    static const struct {
        int64_t B, sq, sk, H, D;
        bool causal, is_packed, biased;
    } list[] = {
        {1, 40, 50, 2, 64, false, false, false},  {2, 33, 33, 1, 128, true, false, false},
        {1, 140, 150, 1, 24, false, true, false}, {1, 20, 37, 3, 13, false, false, true},
        {1, 130, 18, 1, 100, true, false, false},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        const int64_t B = list[i].B, sq = list[i].sq, sk = list[i].sk, H = list[i].H, W = list[i].D;
        const operand q = X(B, sq, H, W), k = X(B, sk, H, W), none = {.rank = -1}, bias = X(B, sk),
                      segments = {D(2, 4), .fill = LISTED, .dtype = WEFT_I32, .list = packed};
        const weft_attr_attention a = {1 / sqrt((double)W), list[i].causal, .tf32 = true};
        const op_case forward = {.op = WEFT_OP_ATTENTION,
                                 .attr = &a,
                                 .in = {q, k, k, list[i].is_packed ? segments : none,
                                        list[i].biased ? bias : none},
                                 .count = 5,
                                 .tolerance = 3e-4},
                      grad = {.op = WEFT_OP_ATTENTION_GRAD,
                              .attr = &a,
                              .in = {q,
                                     k,
                                     k,
                                     {D(B, sq, H, W), .fill = OUT},
                                     {D(B, H, sq), .fill = LSE},
                                     q,
                                     list[i].is_packed ? segments : none},
                              .count = 7,
                              .tolerance = 3e-4};
        check_all(&forward, 1);
        if (!list[i].biased)
            check_all(&grad, 1);
    }
}
