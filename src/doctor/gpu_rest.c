#include "doctor/gpu_rest.h"

#include "graph/builder_helpers.h"

#include <math.h>
#include <stdio.h>

static weft_value param(weft_graph *g, const char *part, const char *name, weft_shape shape)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", part, name);
    return weft_param(g, full, WEFT_F32, shape, (weft_init){0});
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct heads {
    const char *name;
    int64_t batch, queries, keys, heads, columns;
    int64_t query_blocks, key_blocks;
} heads;

/* Sizes of most blocks divide by no tile. */
static const heads chosen_heads[] = {
    {"narrow", 2, 66, 70, 2, 12, 3, 5},
    {"flash_64", 1, 128, 192, 2, 64, 2, 3},
    {"flash_128", 1, 66, 140, 1, 128, 3, 4},
    {"wide", 1, 50, 35, 1, 144, 5, 7},
};

static weft_value chosen_by(weft_graph *g, const heads *h)
{
    const weft_value scores =
        param(g, h->name, "scores", WEFT_SHAPE(h->batch, h->heads, h->query_blocks, h->key_blocks));
    const weft_value share = weft_emit(g, WEFT_OP_SOFTMAX, &scores, 1, NULL);
    const weft_value by_mass =
        weft_emit(g, WEFT_OP_TOP_P, &share, 1, &(weft_attr_top_p){.mass = 0.4});
    const weft_value by_share =
        weft_emit(g, WEFT_OP_TOP_SHARE, &scores, 1, &(weft_attr_top_share){.share = 0.5});
    return weft_add(g, by_mass, by_share);
}

static void put_blocks(weft_graph *g, const heads *h)
{
    const weft_shape rows = WEFT_SHAPE(h->batch, h->keys, h->heads, h->columns);
    const weft_attr_attention attr = {.scale = 1 / sqrt((double)h->columns)};
    const weft_value in[] = {
        param(g, h->name, "q", WEFT_SHAPE(h->batch, h->queries, h->heads, h->columns)),
        param(g, h->name, "k", rows), param(g, h->name, "v", rows), chosen_by(g, h)};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_BLOCK_ATTENTION, in, 4, &attr, out);
    weft_output(g, h->name, out[0]);
}

/* Attention over two parts of the keys. */
static void put_merge(weft_graph *g)
{
    const weft_attr_attention attr = {.scale = 0.3};
    const weft_shape rows = WEFT_SHAPE(2, 13, 3, 12);
    const weft_value q = param(g, "merge", "q", rows), k = param(g, "merge", "k", rows),
                     v = param(g, "merge", "v", rows);
    weft_value of[2][WEFT_MAX_OUTPUTS], out[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < 2; i++) {
        const int64_t start = i ? 5 : 0, len = i ? 8 : 5;
        const weft_value in[] = {q, weft_slice(g, k, 1, start, len),
                                 weft_slice(g, v, 1, start, len)};
        weft_emit_all(g, WEFT_OP_ATTENTION, in, 3, &attr, of[i]);
    }
    const weft_value part[] = {of[0][0], of[0][1], of[1][0], of[1][1]};
    weft_emit_all(g, WEFT_OP_ATTENTION_MERGE, part, 4, NULL, out);
    weft_output(g, "merge", out[0]);
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Tokens in the slots of their experts: one more than some experts have is dropped. */
static void put_dispatch(weft_graph *g)
{
    enum { BATCH = 2, TOKENS = 9, EXPERTS = 5, CHOSEN = 2, SLOTS = 4, IN = 7, OUT = 6 };
    const weft_attr_experts attr = {.experts = EXPERTS, .slots = SLOTS};
    const weft_value scores = param(g, "dispatch", "scores", WEFT_SHAPE(BATCH, TOKENS, EXPERTS));
    const weft_value ids =
        weft_emit(g, WEFT_OP_TOP_K, &scores, 1, &(weft_attr_top_k){.count = CHOSEN});
    const weft_value tokens[] = {param(g, "dispatch", "x", WEFT_SHAPE(BATCH, TOKENS, 1, IN)), ids};
    const weft_value products[] = {weft_emit(g, WEFT_OP_DISPATCH, tokens, 2, &attr),
                                   param(g, "dispatch", "weight", WEFT_SHAPE(EXPERTS, OUT, IN)),
                                   weft_emit(g, WEFT_OP_EXPERT_SLOTS, &ids, 1, &attr)};
    const weft_value rows[] = {
        weft_emit(g, WEFT_OP_EXPERT_MATMUL, products, 3,
                  &(weft_attr_expert_matmul){.by_expert = true, .trans_b = true}),
        ids};
    weft_output(g, "dispatch", weft_emit(g, WEFT_OP_COLLECT, rows, 2, &attr));
}

/* ---- elements -------------------------------------------------------------------------------- */

static void put_functions(weft_graph *g)
{
    static const weft_op any[] = {WEFT_OP_NEG, WEFT_OP_TANH, WEFT_OP_SIGMOID, WEFT_OP_STOP},
                         positive[] = {WEFT_OP_LOG, WEFT_OP_SQRT, WEFT_OP_RSQRT};
    const weft_value x = param(g, "functions", "x", WEFT_SHAPE(5, 131));
    const weft_value above_0 = weft_affine(g, weft_unary(g, WEFT_OP_SQUARE, x), 1, 0.5);
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        weft_output(g, weft_op_get(any[i])->name, weft_unary(g, any[i], x));
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        weft_output(g, weft_op_get(positive[i])->name, weft_unary(g, positive[i], above_0));
    weft_output(g, "cast", weft_cast(g, weft_cast(g, x, WEFT_BF16), WEFT_F32));
}

static void put_random(weft_graph *g)
{
    const weft_value key = weft_input(g, "key", WEFT_I64, WEFT_SHAPE(5));
    for (int i = 0; i < 2; i++) {
        const weft_op op = i ? WEFT_OP_RANDOM_UNIFORM : WEFT_OP_RANDOM_NORMAL;
        weft_output(g, weft_op_get(op)->name,
                    weft_random_like(g, op, key, WEFT_RNG_TEST, WEFT_SHAPE(5, 7, 19)));
    }
}

/* Rows of a table, and of packed weights (Q4_0), by ids. */
static void put_tables(weft_graph *g)
{
    enum { ROWS = 3, BLOCKS = 2, BYTES = 18, PACKED = ROWS * BLOCKS * BYTES };
    const weft_attr_unpack attr = {.type = 2, .elements = 32, .bytes = BYTES};
    const weft_value ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(2, 5));
    const weft_value table[] = {param(g, "embed", "table", WEFT_SHAPE(ROWS, 11)), ids};
    uint8_t *data = weft_arena_calloc(weft_graph_arena(g), PACKED, 1);
    if (!data) {
        (void)weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "packed weights of the check");
        return;
    }
    for (int i = 0; i < PACKED; i++)
        data[i] = (uint8_t)(i * 7919 % 59); /* so that scales of f16 are finite */
    const weft_value packed[] = {weft_constant(g, WEFT_U8, WEFT_SHAPE(ROWS, BLOCKS, BYTES), data),
                                 ids};
    weft_output(g, "embed", weft_emit(g, WEFT_OP_EMBED, table, 2, NULL));
    weft_output(g, "unpack", weft_emit(g, WEFT_OP_UNPACK, packed, 2, &attr));
}

void weft_gpu_rest_build(weft_graph *g)
{
    for (size_t i = 0; i < sizeof chosen_heads / sizeof *chosen_heads; i++)
        put_blocks(g, &chosen_heads[i]);
    put_merge(g);
    put_dispatch(g);
    put_functions(g);
    put_random(g);
    put_tables(g);
}
