/* Activations in bf16 and f16: every op that dominates the time of transformers, cpu compared with
 * ref, which starts from the same narrow values. Close, with the op row's tolerance for narrow
 * results. */
#include "harness.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define T(type, ...)                                                                               \
    {                                                                                              \
        .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), .dim = {__VA_ARGS__}, .dtype = type   \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .rank = -1                                                                                 \
    }

static const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
enum { TYPES = 3 };

static void check(op_case c, const char *what, int x, int y)
{
    char label[128];
    snprintf(label, sizeof label, "%s %s %s/%s", weft_op_get(c.op)->name, what,
             weft_dtype_name(types[x]), weft_dtype_name(types[y]));
    c.label = label;
    c.seed = (uint64_t)(7 + x + 3 * y);
    check_case(&c);
}

/* Few rows and many, less and more than a panel of weights, with and without bias, activations. */
Test(narrow, linear)
{
    static const weft_attr_linear acts[] = {{WEFT_ACT_NONE}, {WEFT_ACT_GELU_TANH}, {WEFT_ACT_SILU}};
    for (int x = 0; x < TYPES; x++)
        for (int w = 0; w < TYPES; w++) {
            check((op_case){.op = WEFT_OP_LINEAR,
                            .attr = &acts[0],
                            .in = {T(types[x], 3, 17), T(types[w], 5, 17), NONE},
                            .count = 3},
                  "small", x, w);
            check((op_case){.op = WEFT_OP_LINEAR,
                            .attr = &acts[1],
                            .in = {T(types[x], 2, 401, 33), T(types[w], 31, 33),
                                   T(types[(x + w) % TYPES], 31)},
                            .count = 3},
                  "bias and gelu", x, w);
            check((op_case){.op = WEFT_OP_LINEAR,
                            .attr = &acts[2],
                            .in = {T(types[x], 1, 2049), T(types[w], 600, 2049),
                                   T(types[(x + 2 * w) % TYPES], 600)},
                            .count = 3},
                  "several panels", x, w);
        }
}

Test(narrow, attention)
{
    const weft_attr_attention plain = {0.25, false}, causal = {0.3, true};
    for (int q = 0; q < TYPES; q++)
        for (int k = 0; k < TYPES; k++) {
            check((op_case){.op = WEFT_OP_ATTENTION,
                            .attr = &plain,
                            .in = {T(types[q], 2, 19, 3, 16), T(types[k], 2, 33, 3, 16),
                                   T(types[k], 2, 33, 3, 16)},
                            .count = 3},
                  "cross", q, k);
            check((op_case){.op = WEFT_OP_ATTENTION,
                            .attr = &causal,
                            .in = {T(types[q], 1, 65, 2, 24), T(types[q], 1, 65, 2, 24),
                                   T(types[k], 1, 65, 2, 24)},
                            .count = 3},
                  "causal", q, k);
        }
}

Test(narrow, rope)
{
    const weft_attr_rope forward = {false}, inverse = {true};
    for (int x = 0; x < TYPES; x++)
        for (int t = 0; t < TYPES; t++) {
            check((op_case){.op = WEFT_OP_ROPE,
                            .attr = &forward,
                            .in = {T(types[x], 2, 7, 3, 10), T(types[t], 7, 5), T(types[t], 7, 5)},
                            .count = 3},
                  "forward", x, t);
            check(
                (op_case){.op = WEFT_OP_ROPE,
                          .attr = &inverse,
                          .in = {T(types[x], 1, 33, 4, 16), T(types[t], 33, 8), T(types[t], 33, 8)},
                          .count = 3},
                "inverse", x, t);
        }
}

Test(narrow, modulate_and_gated_add)
{
    for (int x = 0; x < TYPES; x++)
        for (int m = 0; m < TYPES; m++) {
            check((op_case){.op = WEFT_OP_MODULATE,
                            .in = {T(types[x], 2, 9, 21), T(types[m], 2, 1, 21),
                                   T(types[m], 2, 1, 21)},
                            .count = 3},
                  "", x, m);
            check((op_case){.op = WEFT_OP_GATED_ADD,
                            .in = {T(types[x], 2, 9, 21), T(types[m], 2, 9, 21),
                                   T(types[m], 2, 1, 21)},
                            .count = 3},
                  "", x, m);
        }
}
