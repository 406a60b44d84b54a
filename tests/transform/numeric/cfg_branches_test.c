/* Matrix products of CFG branches: each product has half of the rows, the same weights, and its
 * rows at their places in the batch. */
#include "../../model_of.h"
#include "transform/numeric/cfg_branches.h"
#include "transform/passes.h"

#include <criterion/criterion.h>

static int count_of(const weft_graph *g, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op;
    return count;
}

/* Every product has the rows of the batch, and no weight exists twice. */
Test(halves, of_a_transformer)
{
    const weft_model model =
        model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":4,"
                 "\"attention_head_dim\":16,\"in_channels\":4,\"text_dim\":64,\"freq_dim\":64,"
                 "\"ffn_dim\":128,\"num_layers\":2,\"rope_max_seq_len\":64}");
    weft_graph *both = weft_graph_create(), *cut;
    const weft_value x = weft_input(both, "batch.latents", WEFT_F32, WEFT_SHAPE(4, 1, 4, 4, 4));
    const weft_value time = weft_input(both, "batch.timestep", WEFT_F32, WEFT_SHAPE(4));
    const weft_value text = weft_input(both, "batch.text", WEFT_F32, WEFT_SHAPE(4, 8, 64));
    weft_output(both, "prediction", denoise(both, &model, x, time, text));
    cr_assert_eq(weft_pass_cfg_branches(both, NULL, &cut), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(count_of(cut, WEFT_OP_LINEAR), 2 * count_of(both, WEFT_OP_LINEAR));
    cr_expect_eq(count_of(cut, WEFT_OP_CONV3D), 2 * count_of(both, WEFT_OP_CONV3D));
    cr_expect_eq(count_of(cut, WEFT_OP_PARAM), count_of(both, WEFT_OP_PARAM));
    cr_expect_eq(count_of(cut, WEFT_OP_ATTENTION), count_of(both, WEFT_OP_ATTENTION));
    cr_expect_float_eq((double)weft_graph_cost(cut).flops, (double)weft_graph_cost(both).flops, 1);
    weft_memory_plan plan;
    cr_assert_eq(weft_pass_lifetime(cut, NULL, &plan), WEFT_OK);
    int copies = 0;
    for (int32_t n = 0; n < weft_graph_node_count(cut); n++)
        copies += weft_graph_node(cut, n)->op == WEFT_OP_CONCAT && !plan.view[n];
    cr_expect_lt(4 * copies, count_of(cut, WEFT_OP_CONCAT), "%d copy", copies);
    weft_memory_plan_free(&plan);
    weft_graph_free(cut);
    weft_graph_free(both);
}
