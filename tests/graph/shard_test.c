/* Ops with every layout of their inputs, on meshes of several ranks, compared with one rank:
 * outputs and gradients. */
#include "cases.h"
#include "sharded.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { MAX_SOURCES = WEFT_MAX_INPUTS + 1 };

typedef struct variant {
    const op_case *c;
    unsigned pending;
} variant;

static weft_graph *build(void *user)
{
    const variant *v = user;
    return case_graph(v->c, v->pending);
}

static double fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    return case_fill((void *)(uintptr_t)((const variant *)user)->c, name, dtype, index);
}

static bool try_recipe(const op_case *c, unsigned pending, const weft_mesh *mesh,
                       const weft_recipe *recipe)
{
    variant v = {c, pending};
    return sharded_agrees(build, sharded_gradients, fill, &v, mesh, recipe, 1e-9);
}

/* Layout number `n` of a source of `rank`: R, S(0), S(1), ..., and last a pending sum. */
static int layouts_of(const op_case *c, int i)
{
    const int rank = c->in[i].shape.rank;
    return 1 + rank +
           (weft_dtype_is_float(c->in[i].dtype) && rank < WEFT_MAX_RANK && !c->in[i].fixed ? 1 : 0);
}

/* The weights of the loss after the op have layouts, too: R, S(0), S(1), ... */
static int weight_layouts(const op_case *c)
{
    weft_graph *g = case_graph(c, 0);
    const weft_value w = weft_graph_find(g, "w");
    const int layouts = weft_value_ok(w) ? 1 + weft_value_get(g, w)->shape.rank : 1;
    weft_graph_free(g);
    return layouts;
}

/* Unsharded inputs: a recipe without any entry for an axis would be refused. */
static weft_recipe_row everything_else(const char *axis)
{
    return (weft_recipe_row){.pattern = "*", .axis = axis, .layout = {WEFT_R, 0}, .optional = true};
}

static int64_t sweep_case(const op_case *c, int ranks)
{
    weft_mesh mesh = {.axis_count = 1, .axis = {{"t", ranks}}};
    static const char *const names[] = {"in0", "in1", "in2", "in3", "in4",
                                        "in5", "in6", "in7", "in8"};
    const int weights = weight_layouts(c);
    int64_t total = weights, tried = 0;
    for (int i = 0; i < c->in_count; i++)
        total *= layouts_of(c, i);
    const int64_t stride =
        total > 1500 ? total / 1201 * 2 + 1 : 1; /* the largest products are sampled */
    for (int64_t n = 0; n < total; n += stride) {
        weft_recipe_row row[MAX_SOURCES + 1];
        int rows = 0;
        unsigned pending = 0;
        int64_t rest = n;
        for (int i = 0; i < c->in_count; i++) {
            const int layout = (int)(rest % layouts_of(c, i));
            rest /= layouts_of(c, i);
            if (layout == 0)
                continue;
            if (layout == c->in[i].shape.rank + 1)
                pending |= 1u << i;
            const int dim = layout == c->in[i].shape.rank + 1 ? 0 : layout - 1;
            row[rows++] = (weft_recipe_row){names[i], "t", {WEFT_S, (int8_t)dim}};
        }
        const int w = (int)(rest % weights);
        if (w > 0)
            row[rows++] = (weft_recipe_row){"w", "t", {WEFT_S, (int8_t)(w - 1)}};
        row[rows++] = everything_else("t");
        const weft_recipe recipe = {"sweep", row, rows};
        if (!try_recipe(c, pending, &mesh, &recipe)) {
            for (int i = 0; i < rows; i++)
                fprintf(stderr, "  %s: S(%d)\n", row[i].pattern, row[i].layout.dim);
            cr_assert_fail("%s: layouts %" PRId64 " on %d ranks", weft_op_get(c->op)->name, n,
                           ranks);
        }
        tried++;
    }
    return tried;
}

static void sweep(int ranks)
{
    int count;
    const op_case *c = op_cases(&count);
    int64_t tried = 0;
    for (int i = 0; i < count; i++)
        tried += sweep_case(&c[i], ranks);
    cr_log_info("%" PRId64 " layouts on %d ranks", tried, ranks);
}

Test(shard, every_op_under_every_layout_on_2_ranks)
{
    sweep(2);
}

Test(shard, every_op_under_every_layout_on_3_ranks)
{
    sweep(3);
}

/* ---- two axes: nested splits of one dim, mixed ones, other axes' collectives under this axis  */

static void sweep_two(const op_case *c, const weft_mesh *mesh, weft_rng *rng, int tries)
{
    static const char *const names[] = {"in0", "in1", "in2", "in3", "in4",
                                        "in5", "in6", "in7", "in8"};
    const int weights = weight_layouts(c);
    for (int t = 0; t < tries; t++) {
        weft_recipe_row row[2 * MAX_SOURCES + 2];
        int rows = 0;
        const bool swapped = weft_rng_below(rng, 2); /* which axis splits first */
        for (int i = 0; i <= c->in_count; i++)
            for (int a = 0; a < 2; a++) {
                const int layouts = i == c->in_count          ? weights
                                    : c->in[i].shape.rank < 0 ? 1
                                                              : c->in[i].shape.rank + 1;
                const int layout = (int)weft_rng_below(rng, (uint64_t)layouts);
                if (layout)
                    row[rows++] = (weft_recipe_row){i < c->in_count ? names[i] : "w",
                                                    (a ^ swapped) ? "b" : "a",
                                                    {WEFT_S, (int8_t)(layout - 1)}};
            }
        row[rows++] = everything_else("a");
        row[rows++] = everything_else("b");
        const weft_recipe recipe = {"two axes", row, rows};
        if (!try_recipe(c, 0, mesh, &recipe)) {
            for (int i = 0; i < rows; i++)
                fprintf(stderr, "  %s: %s S(%d)\n", row[i].pattern, row[i].axis, row[i].layout.dim);
            cr_assert_fail("%s on two axes", weft_op_get(c->op)->name);
        }
    }
}

static void sweep_mesh(const char *text, uint64_t seed)
{
    weft_mesh mesh;
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    cr_assert_eq(weft_mesh_parse(text, &mesh), WEFT_OK);
    int count;
    const op_case *c = op_cases(&count);
    for (int i = 0; i < count; i++)
        sweep_two(&c[i], &mesh, &rng, 40);
}

Test(shard, two_axes_2x2)
{
    sweep_mesh("a=2,b=2", 1);
}

Test(shard, two_axes_2x3)
{
    sweep_mesh("a=2,b=3", 2);
}

Test(shard, two_axes_3x2)
{
    sweep_mesh("a=3,b=2", 3);
}
