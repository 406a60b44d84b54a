/* The pass that computes in bf16: which layers stay in f32. */
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "transform/numeric/mixed_precision.h"

#include <criterion/criterion.h>
#include <string.h>

static weft_value linear(weft_graph *g, weft_value x, const char *scope)
{
    weft_graph_push(g, "%s", scope);
    x = weft_emit(
        g, WEFT_OP_LINEAR,
        (weft_value[]){x, weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(8, 8), (weft_init){0})}, 2,
        &(weft_attr_linear){0});
    weft_graph_pop(g);
    return x;
}

/* Returns the types of the linear layers of a graph, "f" or "b" each. `blocks`: two layers are in
 * blocks. */
static void types_of(bool blocks, int how, char text[8])
{
    weft_graph *g = weft_graph_create(), *narrow;
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 8));
    weft_graph_push(g, "transformer");
    x = linear(g, x, "embed");
    x = linear(g, x, blocks ? "blocks.0.to_q" : "first");
    x = linear(g, x, blocks ? "blocks.1.to_q" : "second");
    x = linear(g, x, "out");
    weft_graph_pop(g);
    weft_output(g, "prediction", x);
    cr_assert_eq(weft_pass_mixed_precision(g, how, &narrow), WEFT_OK, "%s", weft_error_message());
    text[0] = '\0';
    for (int32_t n = 0; n < weft_graph_node_count(narrow); n++) {
        const weft_node *node = weft_graph_node(narrow, n);
        if (node->op == WEFT_OP_LINEAR)
            strcat(text, weft_value_get(narrow, node->out[0])->dtype == WEFT_BF16 ? "b" : "f");
    }
    weft_graph_free(narrow);
    weft_graph_free(g);
}

Test(mixed_precision, ends_may_stay_f32)
{
    char text[8];
    types_of(true, 0, text);
    cr_expect_str_eq(text, "bbbb");
    types_of(true, WEFT_MIXED_ENDS_F32, text);
    cr_expect_str_eq(text, "fbbf");
    types_of(false, WEFT_MIXED_ENDS_F32, text);
    cr_expect_str_eq(text, "bbbb", "a model without blocks has no ends");
}
