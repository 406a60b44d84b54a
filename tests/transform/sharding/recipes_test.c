/* Recipes: lists per axis that are combined for the mesh. An axis that splits nothing is refused.
 * */

#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <string.h>

static const weft_recipe_row tp_rows[] = {{"net.w", "tp", {WEFT_S, 1}}};
static const weft_recipe_list tp = {"tp", "tensor parallel", tp_rows, 1};
static const weft_recipe_list *const lists[] = {&tp};

static weft_graph *net(void)
{
    const weft_init zero = {0};
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(4, 6));
    weft_graph_push(g, "net");
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(8, 6), zero);
    const weft_value table = weft_param(g, "table", WEFT_F32, WEFT_SHAPE(1, 3, 8), zero);
    const weft_value scale = weft_param(g, "scale", WEFT_F32, WEFT_SCALAR, zero);
    weft_graph_pop(g);
    const weft_value y = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w}, 2,
                                   &(weft_attr_linear){.act = WEFT_ACT_NONE});
    const weft_value sum = weft_add(g, weft_sum_all(g, y), weft_sum_all(g, table));
    weft_output(g, "loss", weft_mul(g, sum, scale));
    return g;
}

static weft_mesh mesh_of(const char *text)
{
    weft_mesh mesh;
    cr_assert_eq(weft_mesh_parse(text, &mesh), WEFT_OK);
    return mesh;
}

Test(recipes, are_put_together_from_the_mesh)
{
    static const struct {
        const char *mesh, *name;
        int rows;
    } cases[] = {
        {"", "one rank", 0}, {"dp=1", "one rank", 0},       {"dp=2", "dp", 1},
        {"tp=2", "tp", 1},   {"fsdp=2,dp=2", "dp+fsdp", 3}, {"fsdp=2,tp=2,dp=1", "tp+fsdp", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const weft_mesh mesh = mesh_of(cases[i].mesh);
        weft_recipe recipe;
        cr_assert_eq(weft_recipe_compose(lists, 1, &mesh, &recipe), WEFT_OK, "%s",
                     weft_error_message());
        cr_expect_str_eq(recipe.name, cases[i].name);
        cr_expect_eq(recipe.count, cases[i].rows);
        weft_recipe_free(&recipe);
    }
}

Test(recipes, axes_that_nothing_splits_are_refused)
{
    weft_recipe recipe;
    weft_graph *g = net(), *out;
    const weft_mesh typo = mesh_of("pd=2"), two = mesh_of("dp=2,tp=2"), sequence = mesh_of("sp=2");
    cr_expect_eq(weft_recipe_compose(lists, 1, &typo, &recipe), WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_MESH_INVALID &&
                  !strcmp(weft_error_fields()->key, "pd") && weft_error_fields()->number == 2 &&
                  strstr(weft_error_text(), " dp (") &&
                  strstr(weft_error_text(), ", tp (tensor parallel), fsdp ("),
              "%s", weft_error_message());
    /* configs have no key of that name */
    cr_expect_eq(weft_recipe_compose(lists, 1, &sequence, &recipe), WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_MESH_INVALID &&
                  !strcmp(weft_error_fields()->key, "sp") &&
                  strstr(weft_error_text(), "(tp with sequence: true)"),
              "%s", weft_error_message());
    cr_expect_eq(weft_recipe_compose(NULL, 0, &two, &recipe), WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_MESH_INVALID, "%s", weft_error_message());
    cr_expect_str_eq(weft_error_fields()->key, "tp");
    cr_expect_eq(weft_pass_shard(g, &two, 0, &weft_recipe_dp, &out), WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_PASS_INVALID &&
                  !strcmp(weft_error_fields()->key, "tp"),
              "%s", weft_error_message());
    weft_graph_free(g);
}

/* Every parameter is split under fsdp: along the first dim that the ranks divide, else the longest;
 * a scalar is not. A recipe of one's own that forgets one is refused, and may say R. */
Test(recipes, fsdp_leaves_no_parameter_whole)
{
    weft_graph *g = net(), *out;
    const weft_mesh mesh = mesh_of("fsdp=4");
    weft_recipe recipe;
    cr_assert_eq(weft_recipe_compose(NULL, 0, &mesh, &recipe), WEFT_OK);
    cr_assert_eq(weft_pass_shard(g, &mesh, 3, &recipe, &out), WEFT_OK, "%s", weft_error_message());
    const weft_shape *w = &weft_value_get(out, weft_graph_find(out, "net.w"))->shape;
    const weft_shape *table = &weft_value_get(out, weft_graph_find(out, "net.table"))->shape;
    cr_expect(w->dim[0] == 2 && w->dim[1] == 6);
    cr_expect(table->dim[0] == 1 && table->dim[1] == 3 && table->dim[2] == 2);
    cr_expect_eq(weft_value_get(out, weft_graph_find(out, "net.scale"))->shape.rank, 0);
    weft_graph_free(out);
    weft_recipe_free(&recipe);
    const weft_recipe_row rows[] = {{"batch.*", "fsdp", {WEFT_S, 0}},
                                    {"net.w", "fsdp", {WEFT_S, 0}, .gather = true},
                                    {"net.table", "fsdp", {WEFT_R, 0}}};
    cr_expect_eq(weft_pass_shard(g, &mesh, 0, &(weft_recipe){"mine", rows, 2}, &out), WEFT_E_ARG);
    cr_expect(weft_error_class() == WEFT_MSG_PASS_INVALID &&
                  !strcmp(weft_error_fields()->value, "net.table"),
              "%s", weft_error_message());
    cr_expect_eq(weft_pass_shard(g, &mesh, 0, &(weft_recipe){"mine", rows, 3}, &out), WEFT_OK, "%s",
                 weft_error_message());
    weft_graph_free(out);
    weft_graph_free(g);
}
