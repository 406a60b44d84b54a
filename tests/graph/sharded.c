#include "sharded.h"
#include "graph/autodiff.h"
#include "graph/dump.h"
#include "transform/sharding/shard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wants_gradient(const weft_graph *g, const weft_node *n)
{
    return (n->op == WEFT_OP_INPUT || n->op == WEFT_OP_PARAM) &&
           !((const weft_attr_source *)n->attr)->frozen &&
           weft_dtype_is_float(weft_value_get(g, n->out[0])->dtype);
}

void sharded_gradients(weft_graph *g)
{
    if (!weft_value_ok(weft_graph_find(g, "loss")))
        return;
    const int32_t nodes = weft_graph_node_count(g);
    weft_value *wrt = calloc((size_t)nodes, sizeof *wrt),
               *grad = calloc((size_t)nodes, sizeof *grad);
    int count = 0;
    for (int32_t i = 0; i < nodes; i++)
        if (wants_gradient(g, weft_graph_node(g, i)))
            wrt[count++] = weft_graph_node(g, i)->out[0];
    weft_autodiff(g, weft_graph_find(g, "loss"), wrt, count, grad);
    for (int i = 0; i < count; i++) {
        char name[512];
        snprintf(name, sizeof name, "part.%s", weft_value_get(g, wrt[i])->name);
        weft_output(g, name, grad[i]);
    }
    free(wrt);
    free(grad);
}

/* Offset of the local tensor of `output` in the complete one; 0 if it is not sharded. */
static const int64_t *start_of(const weft_graph *g, const char *output)
{
    static const int64_t zero[WEFT_MAX_RANK] = {0};
    if (strncmp(output, "part.", 5) != 0)
        return zero;
    const weft_value source = weft_graph_find(g, output + 5);
    return ((const weft_attr_source *)weft_graph_node(g, weft_value_get(g, source)->node)->attr)
        ->start;
}

static double largest_of(const weft_view *v)
{
    double largest = 1e-6;
    for (int64_t i = 0; i < view_count(v); i++)
        largest = fmax(largest, isinf(view_get(v, i)) ? 0 : fabs(view_get(v, i)));
    return largest;
}

/* The largest error over the largest finite element, or over `least`; equal infinities are no
 * error, NaN stays NaN. */
static double error_of(const weft_view *part, const int64_t *start, const weft_view *all,
                       double least)
{
    int64_t index[WEFT_MAX_RANK] = {0};
    const double largest = fmax(largest_of(all), least);
    double worst = 0;
    for (int64_t i = 0; i < view_count(part); i++, shape_next(&part->shape, index)) {
        int64_t at = 0;
        for (int d = 0; d < part->shape.rank; d++)
            at = at * all->shape.dim[d] + index[d] + start[d];
        const double got = view_get(part, i), want = view_get(all, at);
        const double error = got == want ? 0 : fabs(got - want) / largest;
        if (!(error <= worst))
            worst = error;
    }
    return worst;
}

static void compare(const lockstep *one, const lockstep *many, double tolerance, char why[300])
{
    int count;
    const weft_named *outputs = weft_graph_outputs(one->graph[0], &count);
    /* A value that is zero except for rounding, such as the gradient of a bias of all keys, has the
     * rounding of the other values. */
    double least = 0;
    for (int o = 0; o < count; o++)
        least = fmax(least, 1e-5 * largest_of(&one->value[0][outputs[o].value.id]));
    for (int o = 0; o < count; o++)
        for (int r = 0; r < many->ranks && !why[0]; r++) {
            const weft_value v = weft_graph_find(many->graph[r], outputs[o].name);
            if (!weft_value_ok(v)) {
                snprintf(why, 300, "%s is missing on rank %d", outputs[o].name, r);
                return;
            }
            const double error =
                error_of(&many->value[r][v.id], start_of(many->graph[r], outputs[o].name),
                         &one->value[0][outputs[o].value.id], least);
            if (!(error <= tolerance))
                snprintf(why, 300, "%s of rank %d is off by %g", outputs[o].name, r, error);
        }
}

/* Every element of a source is on some rank, and on equally many: the parts of all ranks add up to
 * the whole tensor, once per replica. */
static void check_sources(weft_graph *const *part, int ranks, char why[300])
{
    for (int32_t i = 0; i < weft_graph_node_count(part[0]) && !why[0]; i++) {
        const weft_node *first = weft_graph_node(part[0], i);
        if (!weft_op_has(first->op, WEFT_TRAIT_NAMED))
            continue;
        const char *name = weft_value_get(part[0], first->out[0])->name;
        const weft_shape *global = &((const weft_attr_source *)first->attr)->global;
        const int64_t count = weft_shape_count(global);
        int *seen = weft_alloc((count + 1) * (int64_t)sizeof *seen);
        for (int r = 0; seen && r < ranks && !why[0]; r++) {
            const weft_attr_source *a =
                weft_graph_node(part[r],
                                weft_value_get(part[r], weft_graph_find(part[r], name))->node)
                    ->attr;
            int64_t index[WEFT_MAX_RANK] = {0};
            for (int64_t n = weft_shape_count(&a->shape); n > 0;
                 n--, shape_next(&a->shape, index)) {
                int64_t at = 0;
                bool inside = true;
                for (int d = 0; d < global->rank; d++) {
                    const int64_t place = a->start[d] + index[d];
                    inside &= place >= 0 && place < global->dim[d];
                    at = at * global->dim[d] + place;
                }
                if (inside)
                    seen[at]++;
                else
                    snprintf(why, 300, "a part of %s is outside", name);
            }
        }
        for (int64_t e = 0; seen && e < count && !why[0]; e++)
            if (seen[e] == 0 || seen[e] != seen[0])
                snprintf(why, 300, "element %" PRId64 " of %s is on %d ranks, the first on %d", e,
                         name, seen[e], seen[0]);
        weft_free(seen);
    }
}

static void print_graph(const weft_graph *g)
{
    weft_buf text = {0};
    weft_graph_print(g, &text);
    fprintf(stderr, "%s\n", text.data);
    weft_buf_free(&text);
}

bool sharded_agrees(weft_graph *(*build)(void *user), void (*finish)(weft_graph *g),
                    lockstep_fill *fill, void *user, const weft_mesh *mesh,
                    const weft_recipe *recipe, double tolerance)
{
    const int ranks = weft_mesh_ranks(mesh);
    weft_graph *whole = build(user), *part[SHARDED_MAX_RANKS] = {NULL};
    char why[300] = "";
    for (int r = 0; r < ranks && !why[0]; r++) {
        if (weft_pass_shard(whole, mesh, r, recipe, &part[r]) != WEFT_OK) {
            snprintf(why, sizeof why, "%s", weft_error_message());
            break;
        }
        finish(part[r]);
        if (weft_graph_verify(part[r]) != WEFT_OK)
            snprintf(why, sizeof why, "%s", weft_error_message());
    }
    finish(whole);
    if (!why[0]) {
        lockstep *one = lockstep_run(1, &whole, fill, user),
                 *many = lockstep_run(ranks, part, fill, user);
        snprintf(why, sizeof why, "%s", one->error[0] ? one->error : many->error);
        if (!why[0])
            check_sources(part, ranks, why);
        if (!why[0])
            compare(one, many, tolerance, why);
        lockstep_free(one);
        lockstep_free(many);
    }
    if (why[0]) {
        fprintf(stderr, "recipe %s on %d ranks: %s\n", recipe->name, ranks, why);
        if (part[0])
            print_graph(part[0]);
    }
    weft_graph_free(whole);
    for (int r = 0; r < ranks; r++)
        weft_graph_free(part[r]);
    return !why[0];
}
