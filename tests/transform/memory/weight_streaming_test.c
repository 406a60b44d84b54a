/* Weights that are fetched for each use: the bytes in memory at a time, and the nodes that fetch.
 * */
#include "../../model_of.h"
#include "graph/builder_helpers.h"
#include "graph/rewrite.h"
#include "transform/memory/lifetime_check.h"
#include "transform/memory/weight_streaming.h"
#include "transform/passes.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WIDE = 256 }; /* a matrix of this is large enough */

static const weft_init zero = {.kind = WEFT_INIT_ZERO};

static weft_value matrix(weft_graph *g, const char *name)
{
    return weft_param(g, name, WEFT_F32, WEFT_SHAPE(WIDE, WIDE), zero);
}

static weft_value linear(weft_graph *g, weft_value x, weft_value w, weft_value bias)
{
    return weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w, bias}, 3, &(weft_attr_linear){0});
}

static weft_graph *streamed(const weft_graph *g, int64_t room)
{
    weft_graph *out;
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_stream(g, room, &out), WEFT_OK, "%s", weft_error_message());
    return out;
}

static int count_of(const weft_graph *g, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op;
    return count;
}

static bool is_away(const weft_graph *g, const char *name)
{
    const weft_value v = weft_graph_find(g, name);
    cr_assert(weft_value_ok(v), "%s does not exist", name);
    return ((const weft_attr_source *)weft_graph_node(g, weft_value_get(g, v)->node)->attr)
        ->offloaded;
}

static weft_memory_plan plan_of(const weft_graph *g)
{
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(g, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_memory_plan_check(g, NULL, &plan), WEFT_OK, "%s", weft_error_message());
    return plan;
}

/* One matrix that two blocks read, once under another name, a table, what is small or given out. */
Test(stream, what_lies_elsewhere)
{
    weft_graph *g = weft_graph_create();
    const weft_value ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(4));
    const weft_value table = matrix(g, "table"), both = matrix(g, "both"),
                     given = matrix(g, "given");
    const weft_value small = weft_param(g, "small", WEFT_F32, WEFT_SHAPE(WIDE), zero);
    weft_value x = weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, ids}, 2, NULL);
    weft_graph_push(g, "blocks.0");
    x = linear(g, x, both, small);
    x = linear(g, x, both, WEFT_NONE);
    weft_graph_pop(g);
    weft_graph_push(g, "blocks.1");
    x = linear(g, x, weft_reshape(g, both, WEFT_SHAPE(WIDE, WIDE)), WEFT_NONE);
    weft_graph_pop(g);
    weft_output(g, "y", linear(g, x, given, WEFT_NONE));
    weft_output(g, "given out", given);
    weft_graph *s = streamed(g, 0);
    cr_expect_eq(count_of(s, WEFT_OP_FETCH), 2, "once for each block that reads it");
    cr_expect(is_away(s, "both") && is_away(s, "table"));
    cr_expect(!is_away(s, "small") && !is_away(s, "given"));
    for (int32_t n = 0; n < weft_graph_node_count(s); n++) {
        const weft_node *node = weft_graph_node(s, n);
        for (int i = 0; i < node->in_count; i++) {
            const weft_node *from = weft_value_ok(node->in[i])
                                        ? weft_graph_node(s, weft_value_get(s, node->in[i])->node)
                                        : NULL;
            const bool direct = from && from->op == WEFT_OP_PARAM &&
                                ((const weft_attr_source *)from->attr)->offloaded;
            cr_expect(!direct || node->op == WEFT_OP_FETCH || node->op == WEFT_OP_EMBED,
                      "node %d reads an offloaded value directly", (int)n);
        }
    }
    weft_memory_plan before = plan_of(g), after = plan_of(s);
    cr_expect_eq(after.streamed_bytes, 2 * WIDE * WIDE * 4);
    cr_expect_eq(after.source_bytes + after.streamed_bytes, before.source_bytes);
    weft_memory_plan_free(&before);
    weft_memory_plan_free(&after);
    weft_graph_free(s);
    weft_graph_free(g);
}

/* Twelve blocks in the memory of two, or of less with less room. */
Test(stream, two_blocks)
{
    const weft_model model =
        model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":4,"
                 "\"attention_head_dim\":64,\"in_channels\":4,\"text_dim\":64,\"freq_dim\":64,"
                 "\"ffn_dim\":1024,\"num_layers\":12,\"rope_max_seq_len\":64}");
    const int64_t block = 4 * (8 * 256 * 256 + 2 * 256 * 1024);
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "batch.latents", WEFT_F32, WEFT_SHAPE(1, 1, 4, 4, 4));
    const weft_value time = weft_input(g, "batch.timestep", WEFT_F32, WEFT_SHAPE(1));
    const weft_value text = weft_input(g, "batch.text", WEFT_F32, WEFT_SHAPE(1, 8, 64));
    weft_output(g, "prediction", denoise(g, &model, x, time, text));
    weft_memory_plan whole = plan_of(g);
    const int64_t room[] = {0, 1 << 20};
    for (int i = 0; i < 2; i++) {
        weft_graph *s = streamed(g, room[i]);
        weft_memory_plan plan = plan_of(s);
        const int64_t more = plan.arena_bytes - whole.arena_bytes,
                      most = room[i] ? 3 * room[i] : 2 * block; /* and the weights in use */
        cr_expect_leq(more, most, "%" PRId64 " bytes of weights at a time", more);
        cr_expect_gt(plan.streamed_bytes, 12 * block - 1);
        cr_expect_lt(plan.source_bytes, block / 2);
        weft_memory_plan_free(&plan);
        weft_graph_free(s);
    }
    weft_memory_plan_free(&whole);
    weft_graph_free(g);
}
