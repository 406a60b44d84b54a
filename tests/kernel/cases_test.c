/* Every op on cpu is compared with ref, by declarative cases. Sizes are odd on purpose: one
 * element, one more and one less than vectors and tiles, empty tensors, broadcasts, narrow storage.
 * */
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#define D(...) .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}
#define X(...)                                                                                     \
    {                                                                                              \
        D(__VA_ARGS__)                                                                             \
    }
#define POS(...)                                                                                   \
    {                                                                                              \
        D(__VA_ARGS__), .fill = POSITIVE                                                           \
    }
#define BF(...)                                                                                    \
    {                                                                                              \
        D(__VA_ARGS__), .dtype = WEFT_BF16                                                         \
    }
#define F16(...)                                                                                   \
    {                                                                                              \
        D(__VA_ARGS__), .dtype = WEFT_F16                                                          \
    }
#define IDS(max, ...)                                                                              \
    {                                                                                              \
        D(__VA_ARGS__), .fill = IDS, .value = max, .dtype = WEFT_I32                               \
    }
#define NUM(x)                                                                                     \
    {                                                                                              \
        .rank = 0, .fill = VALUE, .value = x                                                       \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .rank = -1                                                                                 \
    }
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void check_all(const op_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        op_case c = cases[i];
        char label[128];
        snprintf(label, sizeof label, "%s %zu %s", weft_op_get(c.op)->name, i,
                 c.label ? c.label : "");
        c.label = label;
        c.seed = i;
        check_case(&c);
    }
}

Test(kernel, unary)
{
    const weft_op ops[] = {WEFT_OP_NEG,   WEFT_OP_EXP,     WEFT_OP_LOG, WEFT_OP_SQRT,
                           WEFT_OP_RSQRT, WEFT_OP_SQUARE,  WEFT_OP_SIN, WEFT_OP_COS,
                           WEFT_OP_TANH,  WEFT_OP_SIGMOID, WEFT_OP_SILU};
    const int64_t sizes[] = {0, 1, 7, 8, 15, 16, 17, 33, 1000, 70001};
    for (size_t i = 0; i < COUNT(ops); i++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            const bool positive =
                ops[i] == WEFT_OP_LOG || ops[i] == WEFT_OP_SQRT || ops[i] == WEFT_OP_RSQRT;
            op_case c = {.label = weft_op_get(ops[i])->name,
                         .op = ops[i],
                         .count = 1,
                         .seed = s,
                         .in = {{D(sizes[s]), .fill = positive ? POSITIVE : NORMAL, .value = 4}}};
            check_case(&c);
            c.in[0].dtype = WEFT_BF16;
            check_case(&c);
        }
}

Test(kernel, with_attributes)
{
    const op_case cases[] = {
        {.op = WEFT_OP_AFFINE, .attr = &(weft_attr_affine){2.5, -1}, .in = {X(3, 5, 7)}},
        {.op = WEFT_OP_GELU, .attr = &(weft_attr_gelu){false}, .in = {{D(1003), .value = 3}}},
        {.op = WEFT_OP_GELU, .attr = &(weft_attr_gelu){true}, .in = {{D(1003), .value = 3}}},
        {.op = WEFT_OP_GELU_GRAD,
         .attr = &(weft_attr_gelu){false},
         .in = {{D(1003), .value = 3}, X(1003)}},
        {.op = WEFT_OP_GELU_GRAD,
         .attr = &(weft_attr_gelu){true},
         .in = {{D(1003), .value = 3}, X(1003)}},
        {.op = WEFT_OP_SILU_GRAD, .in = {{D(1003), .value = 3}, X(1003)}},
        {.op = WEFT_OP_CLAMP, .attr = &(weft_attr_clamp){-0.5, 0.75}, .in = {X(101)}},
        {.op = WEFT_OP_CLAMP_GRAD, .attr = &(weft_attr_clamp){-0.5, 0.75}, .in = {X(101), X(101)}},
        {.op = WEFT_OP_CAST, .attr = &(weft_attr_cast){WEFT_BF16}, .in = {X(40001)}},
        {.op = WEFT_OP_CAST, .attr = &(weft_attr_cast){WEFT_F32}, .in = {BF(40001)}},
        {.op = WEFT_OP_CAST, .attr = &(weft_attr_cast){WEFT_F16}, .in = {X(301)}},
        {.op = WEFT_OP_CAST, .attr = &(weft_attr_cast){WEFT_F32}, .in = {IDS(1000, 301)}},
        {.op = WEFT_OP_SOFTMAX, .in = {X(3, 5, 7)}},
        {.op = WEFT_OP_SOFTMAX, .in = {{D(41, 1003), .value = 30}}},
        {.op = WEFT_OP_FILL, .attr = &(weft_attr_fill){1.5, WEFT_F32, {2, {7, 9}}}, .count = 0},
    };
    check_all(cases, COUNT(cases));
}

Test(kernel, binary)
{
    const weft_op ops[] = {WEFT_OP_ADD, WEFT_OP_SUB, WEFT_OP_MUL, WEFT_OP_DIV};
    const operand shapes[][2] = {
        {X(5), POS(5)},
        {X(3, 4, 5), POS(3, 4, 5)},
        {X(3, 4, 5), POS(1, 1, 5)},
        {X(3, 4, 5), POS(3, 1, 5)},
        {X(3, 4, 5), POS(3, 4, 1)},
        {X(1, 4, 5), POS(3, 1, 1)},
        {X(2, 1, 3, 1, 5), POS(1, 4, 1, 2, 1)},
        {X(1), POS(1)},
        {X(0, 5), POS(1, 5)},
        {X(2, 9001), POS(1, 9001)},
        {X(2, 9001), POS(2, 1)},
        {{.rank = 0, .fill = VALUE, .value = 3}, NUM(2)},
        {X(17, 33), {D(17, 33), .fill = POSITIVE, .dtype = WEFT_BF16}},
    };
    for (size_t i = 0; i < COUNT(ops); i++)
        for (size_t s = 0; s < COUNT(shapes); s++) {
            const op_case c = {.label = weft_op_get(ops[i])->name,
                               .op = ops[i],
                               .count = 2,
                               .seed = s,
                               .in = {shapes[s][0], shapes[s][1]}};
            check_case(&c);
        }
}

#define SUM(...)                                                                                   \
    .op = WEFT_OP_SUM, .attr = &(weft_attr_sum)                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define PERM(...)                                                                                  \
    .op = WEFT_OP_PERMUTE, .attr = &(weft_attr_permute)                                            \
    {                                                                                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

Test(kernel, shapes)
{
    const op_case cases[] = {
        {SUM(1), .in = {POS(7, 5)}},
        {SUM(2), .in = {POS(7, 5)}},
        {SUM(3), .in = {POS(7, 5)}},
        {SUM(3), .in = {POS(5, 600, 33)}},
        {SUM(2), .in = {POS(5, 600, 33)}},
        {SUM(5), .in = {POS(3, 4, 5)}},
        {SUM(0), .in = {POS(3, 4, 5)}},
        {SUM(1), .in = {POS(200001)}},
        {SUM(1), .in = {X(0, 4)}},
        {SUM(2), .in = {BF(7, 50)}},
        {.op = WEFT_OP_BROADCAST, .attr = &(weft_attr_shape){{3, {4, 5, 6}}}, .in = {X(1, 5, 1)}},
        {.op = WEFT_OP_BROADCAST, .attr = &(weft_attr_shape){{3, {4, 5, 6}}}, .in = {X(4, 1, 6)}},
        {.op = WEFT_OP_BROADCAST, .attr = &(weft_attr_shape){{2, {0, 6}}}, .in = {X(1, 6)}},
        {.op = WEFT_OP_BROADCAST, .attr = &(weft_attr_shape){{2, {3, 7}}}, .in = {BF(3, 1)}},
        {PERM(1, 0), .in = {X(37, 41)}},
        {PERM(0, 2, 1), .in = {X(3, 17, 50)}},
        {PERM(0, 2, 1, 3), .in = {X(2, 5, 7, 3)}},
        {PERM(3, 1, 0, 2), .in = {X(4, 5, 6, 7)}},
        {PERM(5, 4, 3, 2, 1, 0), .in = {X(2, 3, 2, 3, 2, 3)}},
        {PERM(0, 3, 5, 1, 2, 4), .in = {X(2, 3, 4, 5, 2, 2)}},
        {PERM(1, 0), .in = {BF(13, 7)}},
        {PERM(1, 0), .in = {X(0, 7)}},
        {.op = WEFT_OP_SLICE, .attr = &(weft_attr_slice){1, 2, 3}, .in = {X(3, 7, 5)}},
        {.op = WEFT_OP_SLICE, .attr = &(weft_attr_slice){0, 1, 0}, .in = {X(3, 7)}},
        {.op = WEFT_OP_SLICE, .attr = &(weft_attr_slice){1, 6, 1}, .in = {BF(3, 7)}},
        {.op = WEFT_OP_PAD, .attr = &(weft_attr_pad){1, 2, 3}, .in = {X(3, 7, 5)}},
        {.op = WEFT_OP_PAD, .attr = &(weft_attr_pad){0, 0, 1}, .in = {X(0, 7)}},
        {.op = WEFT_OP_CONCAT,
         .attr = &(weft_attr_concat){1},
         .in = {X(3, 7, 5), X(3, 1, 5), X(3, 0, 5)},
         .count = 3},
        {.op = WEFT_OP_CONCAT, .attr = &(weft_attr_concat){0}, .in = {X(3), X(2)}},
        {.op = WEFT_OP_EMBED, .in = {X(11, 7), IDS(11, 3, 5)}},
        {.op = WEFT_OP_EMBED, .in = {BF(11, 7), IDS(11, 3, 5)}},
        {.op = WEFT_OP_EMBED_GRAD,
         .attr = &(weft_attr_embed){11},
         .in = {IDS(11, 3, 50), X(3, 50, 67)}},
    };
    check_all(cases, COUNT(cases));
}

/* More rows than are gathered at a time, one expert with none, weights in narrow storage. */
Test(kernel, experts)
{
    const weft_attr_expert_matmul forward = {.trans_b = true}, back = {.trans_b = false},
                                  dw = {.experts = 4};
    const op_case cases[] = {
        {.op = WEFT_OP_EXPERT_MATMUL,
         .attr = &forward,
         .in = {X(2, 900, 1, 19), X(4, 21, 19), IDS(3, 2, 900, 2)}},
        {.op = WEFT_OP_EXPERT_MATMUL,
         .attr = &forward,
         .in = {X(2, 9, 1, 7), BF(4, 5, 7), IDS(3, 2, 9, 2)}},
        {.op = WEFT_OP_EXPERT_MATMUL,
         .attr = &back,
         .in = {X(2, 9, 2, 5), BF(4, 5, 7), IDS(4, 2, 9, 2)}},
        {.op = WEFT_OP_EXPERT_MATMUL,
         .attr = &forward,
         .in = {X(1, 0, 1, 7), X(4, 5, 7), IDS(3, 1, 0, 2)}},
        {.op = WEFT_OP_EXPERT_MATMUL_DW,
         .attr = &dw,
         .in = {X(2, 900, 2, 21), X(2, 900, 1, 19), IDS(3, 2, 900, 2)}},
        {.op = WEFT_OP_TOP_K, .attr = &(weft_attr_top_k){.count = 8}, .in = {X(50, 64)}},
        {.op = WEFT_OP_TOP_K,
         .attr = &(weft_attr_top_k){.count = 8, .groups = 4, .top_groups = 2},
         .in = {X(50, 128), X(128)}},
        {.op = WEFT_OP_DISPATCH,
         .attr = &(weft_attr_experts){.experts = 64, .slots = 40},
         .in = {X(2, 500, 1, 33), IDS(64, 2, 500, 1)}},
    };
    check_all(cases, COUNT(cases));
}

#define MM(a, b)                                                                                   \
    .op = WEFT_OP_MATMUL, .attr = &(weft_attr_matmul)                                              \
    {                                                                                              \
        a, b                                                                                       \
    }
#define LIN(act)                                                                                   \
    .op = WEFT_OP_LINEAR, .attr = &(weft_attr_linear)                                              \
    {                                                                                              \
        act                                                                                        \
    }

Test(kernel, products)
{
    const op_case cases[] = {
        {MM(false, false), .in = {X(5, 7), X(7, 3)}},
        {MM(false, true), .in = {X(5, 7), X(3, 7)}},
        {MM(true, false), .in = {X(7, 5), X(7, 3)}},
        {MM(true, true), .in = {X(7, 5), X(3, 7)}},
        {MM(false, false), .in = {X(2, 3, 17, 33), X(2, 3, 33, 9)}},
        {MM(true, false), .in = {X(2, 3, 33, 17), X(2, 3, 33, 9)}},
        {MM(true, true), .in = {X(40, 33, 17), X(40, 9, 33)}},
        {MM(false, false), .in = {X(3, 4, 5), X(5, 6)}},
        {MM(true, false), .in = {X(3, 5, 4), X(5, 6)}},
        {MM(false, true), .in = {X(300, 70), X(130, 70)}},
        {MM(false, false), .in = {X(0, 7), X(7, 3)}},
        {MM(false, false), .in = {X(3, 0), X(0, 4)}},
        {MM(true, false), .in = {X(400, 65), BF(400, 31)}, .tolerance = 2e-6},
        {LIN(WEFT_ACT_NONE), .in = {X(5, 7), X(3, 7)}},
        {LIN(WEFT_ACT_NONE), .in = {X(2, 5, 7), X(3, 7), X(3)}},
        {LIN(WEFT_ACT_NONE), .in = {X(5, 7), X(3, 7), NONE}},
        {LIN(WEFT_ACT_SILU), .in = {X(101, 48), X(33, 48), X(33)}},
        {LIN(WEFT_ACT_GELU_TANH), .in = {X(901, 48), X(65, 48), X(65)}},
        {LIN(WEFT_ACT_NONE), .in = {X(901, 48), X(65, 48), X(65)}},
        {LIN(WEFT_ACT_GELU_TANH), .in = {X(31, 48), X(65, 48)}},
        {LIN(WEFT_ACT_NONE), .in = {X(33, 48), BF(65, 48), BF(65)}},
        {LIN(WEFT_ACT_NONE), .in = {X(33, 48), F16(65, 48), X(65)}},
        {LIN(WEFT_ACT_NONE), .in = {X(3, 70000), BF(33, 70000), X(33)}},
        {LIN(WEFT_ACT_NONE), .in = {X(0, 48), X(65, 48), X(65)}},
        {LIN(WEFT_ACT_NONE), .in = {X(7), X(5, 7), X(5)}},
    };
    check_all(cases, COUNT(cases));
}

#define CONV(st, sy, sx, bt, by, bx, at, ay, ax)                                                   \
    .op = WEFT_OP_CONV3D, .attr = &(weft_attr_conv)                                                \
    {                                                                                              \
        .stride = {st, sy, sx}, .before = {bt, by, bx}, .after = { at, ay, ax }                    \
    }

Test(kernel, conv3d)
{
    const op_case cases[] = {
        {"causal", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(1, 3, 6, 5, 16), X(16, 16, 3, 3, 3), X(16)}},
        {"rgb", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(2, 2, 7, 9, 3), X(20, 3, 3, 3, 3), X(20)}},
        {"to rgb", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(1, 3, 6, 17, 32), X(3, 32, 3, 3, 3), X(3)}},
        {"odd", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(1, 2, 5, 6, 13), X(11, 13, 3, 3, 3), X(11)}},
        {"down", CONV(1, 2, 2, 0, 0, 0, 0, 1, 1),
         .in = {X(1, 2, 8, 10, 16), X(8, 16, 1, 3, 3), X(8)}},
        {"down odd", CONV(1, 2, 2, 0, 0, 0, 0, 1, 1), .in = {X(1, 2, 7, 9, 16), X(8, 16, 1, 3, 3)}},
        {"time down", CONV(2, 1, 1, 0, 0, 0, 0, 0, 0),
         .in = {X(1, 5, 4, 4, 16), X(16, 16, 3, 1, 1), X(16)}},
        {"patch", CONV(1, 2, 2, 0, 0, 0, 0, 0, 0),
         .in = {X(2, 3, 6, 8, 16), X(24, 16, 1, 2, 2), X(24)}},
        {"point", CONV(1, 1, 1, 0, 0, 0, 0, 0, 0),
         .in = {X(2, 3, 6, 8, 5), X(7, 5, 1, 1, 1), X(7)}},
        {"image", CONV(1, 1, 1, 0, 1, 1, 0, 1, 1),
         .in = {X(1, 1, 9, 9, 24), X(48, 24, 1, 3, 3), X(48)}},
        {"to two, wide", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(1, 2, 9, 150, 8), X(2, 8, 3, 3, 3)}},
        {"to one, apart", CONV(2, 2, 1, 1, 1, 2, 0, 1, 0),
         .in = {X(1, 5, 8, 20, 9), X(1, 9, 2, 3, 3), X(1)}},
        {"wide", CONV(1, 1, 1, 0, 1, 1, 0, 1, 1),
         .in = {X(1, 3, 10, 40, 100), X(100, 100, 1, 3, 3)}},
        /* More channels than the own weight gradient takes: several runs of frames and a rest, a
         * batch of which only the last frame of the kernel sees all, frames that see padding
         * alone. */
        {"runs", CONV(1, 1, 1, 2, 0, 0, 0, 0, 0),
         .in = {X(1, 5, 20, 50, 200), X(50, 200, 3, 1, 1)}},
        {"batch of runs", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(2, 3, 5, 4, 100), X(100, 100, 3, 3, 3)}},
        {"causal image", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(2, 1, 5, 4, 100), X(100, 100, 3, 3, 3)}},
        {"time down, wide", CONV(2, 1, 1, 1, 0, 0, 1, 0, 0),
         .in = {X(2, 6, 4, 4, 100), X(100, 100, 3, 1, 1)}},
        {"time down, one frame", CONV(2, 1, 1, 0, 0, 0, 0, 0, 0),
         .in = {X(2, 3, 8, 8, 48), X(48, 48, 3, 1, 1)}},
        {"bf16", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(1, 2, 6, 5, 16), BF(16, 16, 3, 3, 3), BF(16)}},
        {"empty", CONV(1, 1, 1, 2, 1, 1, 0, 1, 1),
         .in = {X(0, 3, 6, 5, 16), X(16, 16, 3, 3, 3), X(16)}},
    };
    check_all(cases, COUNT(cases));
    /* The two gradients of each. */
    for (size_t i = 0; i < COUNT(cases); i++) {
        check_threads(&cases[i]);
        weft_attr_conv a = *(const weft_attr_conv *)cases[i].attr;
        const operand *x = &cases[i].in[0], *w = &cases[i].in[1];
        operand dy = *x;
        dy.dim[4] = w->dim[0];
        a.x_shape = (weft_shape){5, {x->dim[0], x->dim[1], x->dim[2], x->dim[3], x->dim[4]}};
        for (int d = 0; d < 3; d++) {
            a.kernel[d] = w->dim[2 + d];
            dy.dim[1 + d] =
                (x->dim[1 + d] + a.before[d] + a.after[d] - w->dim[2 + d]) / a.stride[d] + 1;
        }
        char label[64];
        snprintf(label, sizeof label, "dx %s", cases[i].label);
        const op_case dx = {
            .label = label, .op = WEFT_OP_CONV3D_DX, .attr = &a, .in = {dy, *w}, .count = 2};
        check_case(&dx);
        check_threads(&dx);
        snprintf(label, sizeof label, "dw %s", cases[i].label);
        const op_case dw = {
            .label = label, .op = WEFT_OP_CONV3D_DW, .attr = &a, .in = {*x, dy}, .count = 2};
        check_case(&dw);
        check_threads(&dw);
    }
}

/* B, Sq, Sk, H, D, causal, segments */
typedef struct attention_case {
    int64_t B, sq, sk, H, D;
    bool causal;
    int segments;
    const int32_t *list;
    double size; /* of q and k */
} attention_case;

static void check_attention(weft_dtype dtype)
{
    static const int32_t packed[] = {0, 5, 0, 7, 5, 105, 7, 8, 110, 300, 20, 290};
    static const int32_t shared[] = {0, 60, 0, 130, 60, 64, 10, 12, 64, 200, 5, 300};
    static const int32_t crossing[] = {3, 60, 0, 130, 60, 64, 10, 10};
    const attention_case cases[] = {
        {1, 1, 1, 1, 8, false, 0, NULL, 0},        {2, 3, 5, 2, 8, false, 0, NULL, 0},
        {1, 17, 33, 3, 16, false, 0, NULL, 0},     {2, 100, 97, 2, 32, false, 0, NULL, 0},
        {1, 96, 96, 2, 64, false, 0, NULL, 0},     {1, 193, 64, 2, 128, false, 0, NULL, 0},
        {1, 50, 70, 1, 256, false, 0, NULL, 0},    {1, 65, 130, 2, 40, false, 0, NULL, 0},
        {1, 30, 40, 2, 10, false, 0, NULL, 0},     {1, 100, 100, 2, 32, true, 0, NULL, 0},
        {1, 30, 200, 2, 32, true, 0, NULL, 0},     {1, 200, 30, 2, 32, true, 0, NULL, 0},
        {1, 300, 300, 2, 32, false, 3, packed, 0}, {1, 300, 300, 2, 24, true, 3, packed, 0},
        {2, 64, 65, 2, 16, false, 2, crossing, 0}, {1, 300, 300, 2, 24, false, 3, shared, 0},
        {1, 300, 300, 3, 32, true, 3, shared, 0},  {1, 400, 200, 1, 48, false, 0, NULL, 2},
        {1, 5, 0, 2, 16, false, 0, NULL, 0},       {1, 0, 5, 2, 16, false, 0, NULL, 0},
        {2, 20, 31, 1, 7, false, 0, NULL, 0},      {1, 40, 420, 1, 33, true, 0, NULL, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const attention_case *a = &cases[i];
        const weft_attr_attention attr = {1 / 5.0, a->causal};
        const operand q = {D(a->B, a->sq, a->H, a->D), .value = a->size, .dtype = dtype},
                      k = {D(a->B, a->sk, a->H, a->D), .value = a->size, .dtype = dtype};
        const operand segments = {D(a->segments, 4), .fill = LISTED, .dtype = WEFT_I32,
                                  .list = a->list};
        char label[64];
        snprintf(label, sizeof label, "attention %zu", i);
        op_case c = {.label = label,
                     .op = WEFT_OP_ATTENTION,
                     .attr = &attr,
                     .in = {q, k, k, segments},
                     .count = a->segments ? 4 : 3,
                     .seed = i};
        check_case(&c);
        c = (op_case){.label = label,
                      .op = WEFT_OP_ATTENTION_GRAD,
                      .attr = &attr,
                      .count = a->segments ? 7 : 6,
                      .seed = i,
                      .in = {q, k, k, q, {D(a->B, a->H, a->sq)}, q, segments}};
        check_case(&c);
        c.in[6].rank = a->segments ? c.in[6].rank : -1;
        c.in[7] = (operand){D(a->B, a->H, a->sq)}; /* a gradient of the log-sum-exp */
        c.count = 8;
        check_case(&c);
        if (a->segments)
            continue;
        c.in[8] = (operand){D(a->B, a->sk), .value = 3}; /* a bias of the keys */
        c.count = 9;
        check_case(&c);
        c = (op_case){.label = label,
                      .op = WEFT_OP_ATTENTION,
                      .attr = &attr,
                      .in = {q, k, k, {.rank = -1}, c.in[8]},
                      .count = 5,
                      .seed = i};
        check_case(&c);
    }
}

Test(kernel, attention)
{
    check_attention(WEFT_F32);
}

Test(kernel, attention_of_bf16)
{
    if (harness_bf16_attention)
        check_attention(WEFT_BF16);
}

Test(kernel, rope_table)
{
    const weft_attr_rope_table attrs[] = {
        {.theta = {10000, 10000, 10000},
         .step = {1, 1, 1},
         .grid = {3, 5, 7},
         .pairs = {22, 21, 21},
         .len = 105},
        {.theta = {256, 3, 20},
         .origin = {1, 0, -3.5},
         .step = {0.8, 1, 3},
         .grid = {3, 5, 7},
         .pairs = {2, 0, 5},
         .before = 40,
         .after = 9,
         .start = 33,
         .len = 121},
        {.theta = {10000, 1, 1}, .grid = {3, 5, 7}, .pairs = {2, 1, 1}, .start = 105, .len = 0},
    };
    for (size_t i = 0; i < COUNT(attrs); i++)
        check_case(&(op_case){.label = "rope_table", .op = WEFT_OP_ROPE_TABLE, .attr = &attrs[i]});
}

/* Blocks that no query sees have -inf, which is exact as first, as second and as both operands. */
Test(kernel, attention_merge)
{
    const operand out = {D(2, 37, 3, 20)}, lse = {D(2, 3, 37), .value = 3},
                  nothing = {D(2, 3, 37), .fill = VALUE, .value = -INFINITY};
    const op_case cases[] = {
        {.label = "both", .in = {out, lse, out, lse}},
        {.label = "left only", .in = {out, lse, out, nothing}},
        {.label = "right only", .in = {out, nothing, out, lse}},
        {.label = "neither", .in = {out, nothing, out, nothing}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        op_case c = cases[i];
        c.op = WEFT_OP_ATTENTION_MERGE;
        check_case(&c);
        c = (op_case){.label = cases[i].label,
                      .op = WEFT_OP_ATTENTION_MERGE_GRAD,
                      .in = {out, c.in[1], out, c.in[3], out, lse}};
        c.in[3] = c.in[1].fill == VALUE ? c.in[3] : lse; /* a whole holds what its parts do */
        check_case(&c);
        c.count = 5;
        check_case(&c);
    }
}

#define NORM(OP, e, l)                                                                             \
    .op = WEFT_OP_##OP, .attr = &(weft_attr_norm)                                                  \
    {                                                                                              \
        e, l                                                                                       \
    }

Test(kernel, norms)
{
    static const int32_t far[] = {20000, 20001, 20003, 19998, 20000, 20002, 19999, 20001,
                                  20000, 19997, 20004, 20000, 20001, 19999, 20002, 20000,
                                  19998, 20001, 20003, 20000, 25000, 20001, 20003, 19998,
                                  20000, 20002, 19999, 20001, 20000, 19997, 20004, 20000,
                                  20001, 19999, 20002, 20000, 19998, 20001, 20003, 20000};
    const op_case cases[] = {
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(3, 5, 33)}},
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(300, 384), X(384), X(384)}},
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(7, 10), X(10), NONE}},
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(7, 10), NONE, X(10)}},
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(0, 10), X(10), X(10)}},
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(7, 10), BF(10), BF(10)}},
        {NORM(LAYER_NORM_GRAD, 1e-6, false), .in = {X(3, 5, 33), X(3, 5, 33)}},
        {NORM(LAYER_NORM_GRAD, 1e-6, false), .in = {X(300, 384), X(300, 384), X(384)}},
        {NORM(LAYER_NORM_GRAD, 1e-6, false), .in = {X(0, 10), X(0, 10), X(10)}},
        /* A mean 10,000 times the deviation, and one element far from the others: sums of squares
         * around anything else than about the mean would cancel. */
        {NORM(LAYER_NORM_GRAD, 1e-6, false),
         .in = {{D(2, 20), .fill = LISTED, .list = far}, X(2, 20), X(20)}},
        /* Rows as of a group of channels over all frames: sums in f32 alone are too inaccurate. */
        {NORM(LAYER_NORM, 1e-6, false), .in = {X(1, 2000003)}, .tolerance = 1e-6},
        {NORM(LAYER_NORM_GRAD, 1e-6, false), .in = {X(1, 2000003), X(1, 2000003)},
         .tolerance = 1e-6},
        {NORM(RMS_NORM, 1e-6, false), .in = {X(3, 5, 33)}},
        {NORM(RMS_NORM, 1e-6, false), .in = {X(300, 384), X(384)}},
        {NORM(RMS_NORM, 1e-12, true), .in = {X(300, 100), X(100)}},
        {NORM(RMS_NORM, 5, true), .in = {X(30, 20), X(20)}},
        {NORM(RMS_NORM_GRAD, 1e-6, false), .in = {X(3, 5, 33), X(3, 5, 33)}},
        {NORM(RMS_NORM_GRAD, 1e-6, false), .in = {X(300, 384), X(300, 384), X(384)}},
        {NORM(RMS_NORM_GRAD, 1e-12, true), .in = {X(300, 100), X(300, 100), X(100)}},
        {NORM(RMS_NORM_GRAD, 4.4, true), .in = {X(30, 20), X(30, 20), X(20)}},
    };
    check_all(cases, COUNT(cases));
}

Test(kernel, modulation)
{
    const operand small[][2] = {
        {X(2, 100, 33), X(2, 1, 33)},   {X(2, 100, 33), X(1, 1, 33)},
        {X(2, 100, 33), X(2, 100, 33)}, {X(2, 100, 33), X(1, 100, 33)},
        {X(2, 10, 33), X(2, 10, 1)},    {X(2, 0, 33), X(2, 1, 33)},
    };
    for (size_t i = 0; i < COUNT(small); i++) {
        const operand x = small[i][0], s = small[i][1];
        const op_case cases[] = {
            {.op = WEFT_OP_MODULATE, .in = {x, s, s}, .count = 3},
            {.op = WEFT_OP_MODULATE_GRAD, .in = {x, s, x}, .count = 3},
            {.op = WEFT_OP_GATED_ADD, .in = {x, x, s}, .count = 3},
            {.op = WEFT_OP_GATED_ADD_GRAD, .in = {x, s, x}, .count = 3},
        };
        check_all(cases, COUNT(cases));
    }
    const op_case rope[] = {
        {.op = WEFT_OP_ROPE,
         .attr = &(weft_attr_rope){false},
         .in = {X(2, 7, 3, 10), X(7, 5), X(7, 5)}},
        {.op = WEFT_OP_ROPE,
         .attr = &(weft_attr_rope){true},
         .in = {X(2, 70, 4, 32), X(70, 16), X(70, 16)}},
        {.op = WEFT_OP_ROPE,
         .attr = &(weft_attr_rope){.rotate_half = true},
         .in = {X(2, 7, 3, 10), X(7, 5), X(7, 5)}},
        {.op = WEFT_OP_ROPE,
         .attr = &(weft_attr_rope){.inverse = true, .rotate_half = true},
         .in = {X(2, 33, 4, 64), X(1, 33, 4, 32), X(1, 33, 4, 32)}},
        {.op = WEFT_OP_ROPE,
         .attr = &(weft_attr_rope){false},
         .in = {X(2, 33, 4, 64), X(2, 33, 1, 32), X(2, 33, 1, 32)}},
        {.op = WEFT_OP_ROPE, /* a rank that has no head */
         .attr = &(weft_attr_rope){false},
         .in = {X(2, 7, 0, 10), X(7, 5), X(7, 5)}},
    };
    check_all(rope, COUNT(rope));
}

#define ADAM                                                                                       \
    .op = WEFT_OP_ADAMW, .attr = &(weft_attr_adamw)                                                \
    {                                                                                              \
        0.9, 0.95, 1e-8, 0.01                                                                      \
    }

Test(kernel, optimizer)
{
    const op_case cases[] = {
        {.op = WEFT_OP_SUM_SQUARES, .in = {X(1003)}},
        {.op = WEFT_OP_SUM_SQUARES, .in = {X(200001)}},
        {.op = WEFT_OP_SUM_SQUARES, .in = {X(0)}, .count = 1},
        {.op = WEFT_OP_CLIP_SCALE, .in = {NUM(16), NUM(1.5), NUM(1), NUM(10), NUM(100)}},
        {.op = WEFT_OP_CLIP_SCALE, .in = {NUM(0.25), NUM(1.5), NUM(1), NUM(10), NUM(100)}},
        {ADAM, .in = {X(1003), X(1003), X(1003), POS(1003), NUM(1e-3), NUM(3), NUM(0.5)}},
        {ADAM,
         .in = {X(70, 1003), X(70, 1003), X(70, 1003), POS(70, 1003), NUM(1e-3), NUM(1), NUM(1)}},
        {ADAM, .in = {X(103), X(103), X(103), POS(103), NUM(1e-3), NUM(3), NUM(NAN)}},
        {.op = WEFT_OP_EMA, .in = {X(1003), X(1003), NUM(0.99), NUM(1)}},
        {.op = WEFT_OP_EMA, .in = {X(1003), X(1003), NUM(0.99), NUM(NAN)}},
    };
    check_all(cases, COUNT(cases));
}
