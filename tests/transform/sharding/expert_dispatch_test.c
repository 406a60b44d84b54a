/* Experts over ranks: tokens reach their experts by two kinds of exchanges, and nothing is
 * gathered. */
#include "../../model_of.h"
#include "graph/builder_helpers.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>

#define MOE(more)                                                                                  \
    "{\"_class_name\":\"WeftMoeTransformer3DModel\",\"num_attention_heads\":2,"                    \
    "\"attention_head_dim\":6,\"in_channels\":3,\"out_channels\":3,\"text_dim\":6,\"freq_dim\":8," \
    "\"num_layers\":1,\"patch_size\":[1,1,1],\"num_routed_experts\":5,\"n_shared_experts\":1,"     \
    "\"num_activated_experts\":2,\"moe_intermediate_size\":9" more "}"

static weft_graph *whole_graph(const weft_model *model)
{
    weft_graph *g = weft_graph_create();
    const weft_value latents = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(3, 1, 2, 5, 3)),
                     time = weft_input(g, "batch.t", WEFT_F32, WEFT_SHAPE(3)),
                     text = weft_input(g, "batch.c", WEFT_F32, WEFT_SHAPE(3, 4, 6));
    weft_output(g, "loss", weft_mean_all(g, denoise(g, model, latents, time, text)));
    return g;
}

static int count_of(const weft_graph *g, weft_op op)
{
    int count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op;
    return count;
}

static weft_graph *part_of(const char *config, const char *axes, int rank)
{
    const weft_model model = model_of(config);
    weft_graph *whole = whole_graph(&model), *part = NULL;
    weft_mesh mesh;
    weft_recipe recipe;
    cr_assert_eq(weft_mesh_parse(axes, &mesh), WEFT_OK);
    cr_assert_eq(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_pass_shard(whole, &mesh, rank, &recipe, &part), WEFT_OK, "%s",
                 weft_error_message());
    weft_recipe_free(&recipe);
    weft_graph_free(whole);
    return part;
}

static const weft_shape *weights_of(const weft_graph *g)
{
    const weft_value w = weft_graph_find(g, "blocks.0.ff.experts.*.w1.weight");
    cr_assert(weft_value_ok(w));
    return &weft_value_get(g, w)->shape;
}

/* Rows, the mask of valid rows, and the way back. */
Test(experts, rows_go_there_and_back)
{
    static const char *const configs[] = {MOE(""), MOE(",\"capacity_factor\":0.5")};
    for (int c = 0; c < 2; c++)
        for (int rank = 0; rank < 2; rank++) {
            weft_graph *g = part_of(configs[c], "ep=2", rank);
            cr_expect_eq(count_of(g, WEFT_OP_ALL_TO_ALL), 3);
            cr_expect_eq(count_of(g, WEFT_OP_ALL_GATHER), 0);
            cr_expect_eq(count_of(g, WEFT_OP_DISPATCH), 1);
            cr_expect_eq(count_of(g, WEFT_OP_COLLECT), 1);
            cr_expect_eq(weights_of(g)->dim[0], rank ? 2 : 3);
            weft_graph_free(g);
        }
}

/* If no axis splits experts, nothing is exchanged: exactly the chosen rows are computed. */
Test(experts, others_take_rows_where_they_are)
{
    weft_graph *g = part_of(MOE(""), "dp=2", 0);
    cr_expect_eq(count_of(g, WEFT_OP_DISPATCH), 0);
    cr_expect_eq(count_of(g, WEFT_OP_ALL_TO_ALL), 0);
    cr_expect_eq(count_of(g, WEFT_OP_EXPERT_MATMUL), 3);
    weft_graph_free(g);
    g = part_of(MOE(""), "tp=2", 1);
    cr_expect_eq(count_of(g, WEFT_OP_DISPATCH), 0);
    cr_expect_eq(weights_of(g)->dim[1], 4);
    weft_graph_free(g);
}

/* An axis of experts splits nothing in a model without experts. */
Test(experts, a_model_without_any_is_refused)
{
    const weft_model model = model_of("{\"_class_name\":\"WanTransformer3DModel\"}");
    const weft_mesh mesh = {1, {{"ep", 2}}};
    weft_recipe recipe;
    cr_expect_eq(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe),
                 WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_MESH_INVALID, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->key, "ep");
}
