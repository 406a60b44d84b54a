/* A node with 200 inputs: concat takes any number. Forward, gradient, split along the joined dim
 * and along another, through passes, and as programs by copy and by placement. */
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "kernel/cpu/table.h"
#include "kernel/ref/table.h"
#include "ranks.h"
#include "sharded.h"
#include "transform/memory/comm_order.h"
#include "transform/memory/recompute.h"
#include "transform/numeric/fuse.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INPUTS = 200, W = 16 };

typedef struct joined {
    int dim;
    bool square; /* inputs are computed and have later readers: they can be written in place */
    bool hidden; /* the joined value is not an output */
} joined;

/* Part i has i % 3 + 1 rows (dim 0) or columns (dim 1); the loss weighs every element. */
static weft_graph *build(void *user)
{
    const joined *j = user;
    weft_graph *g = weft_graph_create();
    weft_value in[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        const int64_t n = i % 3 + 1;
        in[i] = weft_input(g, name, WEFT_F32, j->dim ? WEFT_SHAPE(W, n) : WEFT_SHAPE(n, W));
        if (j->square)
            in[i] = weft_unary(g, WEFT_OP_SQUARE, in[i]);
    }
    const weft_value all = weft_concat(g, in, INPUTS, j->dim);
    if (!j->hidden)
        weft_output(g, "all", all);
    if (j->square)
        weft_output(g, "later", weft_sum_squares_all(g, in, INPUTS));
    const weft_value w = weft_input(g, "w", WEFT_F32, weft_value_get(g, all)->shape);
    weft_output(g, "loss", weft_sum_all(g, weft_mul(g, weft_unary(g, WEFT_OP_SQUARE, all), w)));
    return g;
}

static double fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    (void)user, (void)dtype;
    uint64_t seed = 3;
    for (const char *c = name; *c; c++)
        seed = weft_seed_mix(seed, (uint64_t)*c);
    return 1 + (double)weft_random_uniform(seed, WEFT_RNG_TEST, (uint64_t)index);
}

/* Split along another dim, along the joined dim (the inputs are gathered first), and pending. */
Test(many, sharded)
{
    static const joined cases[] = {{0}, {1}, {0, .square = true}};
    for (int c = 0; c < 3; c++)
        for (int8_t dim = 0; dim < 2; dim++) {
            const weft_recipe_row rows[] = {{"in*", "t", {WEFT_S, dim}}, {"w", "t", {WEFT_S, dim}}};
            const weft_recipe recipe = {"many", rows, 2};
            const weft_mesh mesh = {1, {{"t", 3}}};
            cr_expect(sharded_agrees(build, sharded_gradients, fill, (void *)(uintptr_t)&cases[c],
                                     &mesh, &recipe, 1e-12),
                      "case %d, S(%d)", c, dim);
        }
}

static void check_outputs(const ranks_result *r, const joined *j)
{
    const ranks_output *all = ranks_find(r, "all");
    int64_t start = 0;
    for (int i = 0; i < INPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        const int64_t n = i % 3 + 1;
        for (int64_t e = 0; e < n * W; e++) {
            const double x = (double)(float)fill(NULL, name, WEFT_F32, e);
            const double want = j->square ? (double)((float)x * (float)x) : x;
            const int64_t at = j->dim ? e / n * all->shape.dim[1] + start + e % n : start * W + e;
            cr_assert_eq(all->data[at], want, "%s[%" PRId64 "]", name, e);
        }
        start += n;
    }
}

/* Bitwise, also if inputs are computed in place, which the guard's checker verifies. */
Test(many, as_a_program)
{
    static const joined cases[] = {{0}, {1}, {0, .square = true}};
    for (int c = 0; c < 3; c++)
        for (int backend = 0; backend < 2; backend++) {
            weft_graph *g = build((void *)(uintptr_t)&cases[c]);
            ranks_result result;
            ranks_run(1, &g, backend ? &weft_backend_cpu : &weft_backend_ref, fill, NULL, &result);
            if (backend)
                check_outputs(&result, &cases[c]);
            cr_expect_eq(result.views, c == 2 ? 2 : 1, "case %d: %" PRId64 " views", c,
                         result.views);
            ranks_free(1, &result);
            weft_graph_free(g);
        }
}

static int64_t nodes_of(const weft_graph *g, weft_op op, int inputs)
{
    int64_t count = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        count += weft_graph_node(g, n)->op == op && weft_graph_node(g, n)->in_count == inputs;
    return count;
}

/* Passes keep all inputs. */
Test(many, passes)
{
    joined j = {0, .hidden = true};
    weft_graph *g = build(&j), *ordered, *fused, *recomputed;
    sharded_gradients(g);
    cr_assert_eq(weft_pass_fuse(g, &fused), WEFT_OK);
    cr_assert_eq(weft_pass_recompute(fused, (const char *[]){"concat"}, 1, NULL, &recomputed),
                 WEFT_OK);
    cr_assert_eq(weft_pass_order(recomputed, 0, &ordered), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_graph_verify(ordered), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(nodes_of(g, WEFT_OP_CONCAT, INPUTS), 1);
    cr_expect_eq(nodes_of(ordered, WEFT_OP_CONCAT, INPUTS), 2, "forward and backward");
    cr_expect_eq(nodes_of(ordered, WEFT_OP_SLICE, 1), INPUTS, "a gradient each");
    weft_graph_free(ordered);
    weft_graph_free(recomputed);
    weft_graph_free(fused);
    weft_graph_free(g);
}

/* Other ops still refuse additional inputs. */
Test(many, only_concat)
{
    weft_graph *g = weft_graph_create();
    weft_value in[9];
    for (int i = 0; i < 9; i++)
        in[i] = weft_fill(g, WEFT_F32, WEFT_SHAPE(2), i);
    weft_emit(g, WEFT_OP_ADD, in, 9, NULL);
    cr_expect_neq(weft_graph_check(g), WEFT_OK);
    weft_graph_free(g);
}
