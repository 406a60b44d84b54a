/* The norm of gradients with different layouts: one all-reduce along each axis that splits any
 * gradient, for any sets of axes. Its value on two axes: tests/train/mesh_test.sh. */
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "graph/graph.h"

#include <criterion/criterion.h>
#include <stdio.h>

static int sums_of_norm(const char *mesh_text, const uint32_t *split, int count)
{
    weft_mesh mesh;
    weft_value value[8];
    int sums = 0;
    weft_graph *g = weft_graph_create();
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    weft_graph_set_mesh(g, &mesh, 0);
    for (int i = 0; i < count; i++) {
        weft_layout layout[WEFT_MAX_AXES] = {0};
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        value[i] = weft_input(g, name, WEFT_F32, WEFT_SHAPE(4, 4, 4));
        for (int a = 0; a < mesh.axis_count; a++)
            layout[a] =
                split[i] >> a & 1 ? (weft_layout){WEFT_S, (int8_t)a} : (weft_layout){WEFT_R, 0};
        weft_graph_set_layout(g, value[i], layout);
    }
    const weft_value norm = weft_sum_squares_all(g, value, count);
    weft_output(g, "norm", norm);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_graph_verify(g), WEFT_OK, "%s", weft_error_message());
    for (int a = 0; a < mesh.axis_count; a++)
        cr_expect_eq(weft_value_get(g, norm)->layout[a].kind, WEFT_R);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        sums += weft_graph_node(g, n)->op == WEFT_OP_ALL_REDUCE;
    weft_graph_free(g);
    return sums;
}

Test(norm, one_sum_along_each_axis)
{
    cr_expect_eq(sums_of_norm("dp=2", (uint32_t[]){0, 0}, 2), 0);
    cr_expect_eq(sums_of_norm("fsdp=2", (uint32_t[]){0, 1, 1}, 3), 1);
    cr_expect_eq(sums_of_norm("dp=2,tp=2", (uint32_t[]){0, 2}, 2), 1);
    cr_expect_eq(sums_of_norm("fsdp=2,tp=2", (uint32_t[]){0, 1, 2, 3}, 4), 2);
    cr_expect_eq(sums_of_norm("fsdp=2,tp=2", (uint32_t[]){3, 1}, 2), 2);
    cr_expect_eq(sums_of_norm("a=2,b=2,c=2", (uint32_t[]){1, 2, 3, 4, 5, 6, 7, 0}, 8), 3);
}
