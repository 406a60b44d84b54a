/* Reverse mode over the graph: from the loss back, each row's rule, contributions added in a fixed
 * order. */
#include "graph/internal.h"

typedef struct tape {
    bool *needed;     /* by value: a gradient of it is wanted or leads to one */
    weft_value *grad; /* by value of the forward */
} tape;

/* Marks values that depend on one of wrt[]. */
static void mark_needed(const weft_graph *g, int64_t nodes, const weft_value *wrt, int count,
                        bool *needed)
{
    for (int i = 0; i < count; i++)
        if (weft_value_ok(wrt[i]))
            needed[wrt[i].id] = true;
    for (int64_t n = 0; n < nodes; n++) {
        bool any = false;
        for (int i = 0; i < g->node[n]->in_count; i++)
            any |= weft_value_ok(g->node[n]->in[i]) && needed[g->node[n]->in[i].id];
        for (int i = 0; any && i < g->node[n]->out_count; i++)
            needed[g->node[n]->out[i].id] = true;
    }
}

/* A gradient lies as its value does, with V and P exchanged: of a value that every rank reads for
 * itself each rank has a term, and the gradient of a pending sum is whole on every rank. */
void weft_grad_set_layout(weft_graph *g, weft_value grad, weft_value of)
{
    if (!weft_value_ok(grad))
        return;
    for (int a = 0; a < g->mesh.axis_count; a++) {
        const weft_layout l = g->value[of.id].layout[a];
        const weft_layout dual = {l.kind == WEFT_P   ? WEFT_V
                                  : l.kind == WEFT_V ? WEFT_P
                                                     : l.kind,
                                  l.dim};
        g->value[grad.id].layout[a] = dual;
    }
}

static void step_back(weft_graph *g, const weft_node *node, tape *t)
{
    weft_value dy[WEFT_MAX_OUTPUTS], dx[WEFT_MAX_INPUTS];
    bool wanted[WEFT_MAX_INPUTS] = {false}, any_dy = false, any_wanted = false;
    for (int i = 0; i < WEFT_MAX_OUTPUTS; i++) {
        dy[i] = i < node->out_count ? t->grad[node->out[i].id] : WEFT_NONE;
        any_dy |= weft_value_ok(dy[i]);
    }
    for (int i = 0; i < WEFT_MAX_INPUTS; i++) {
        dx[i] = WEFT_NONE;
        wanted[i] = i < node->in_count && weft_value_ok(node->in[i]) && t->needed[node->in[i].id];
        any_wanted |= wanted[i];
    }
    if (!any_dy || !any_wanted)
        return;
    weft_graph_push(g, "%s", node->scope);
    const int64_t before = g->value_count;
    weft_op_get(node->op)->vjp(g, node, dy, wanted, dx);
    for (int i = 0; i < node->in_count; i++) {
        if (!wanted[i] || !weft_value_ok(dx[i]))
            continue;
        if (dx[i].id >= before)
            weft_grad_set_layout(g, dx[i], node->in[i]);
        weft_value *sum = &t->grad[node->in[i].id];
        if (weft_value_ok(*sum))
            weft_grad_set_layout(g, *sum = weft_add(g, *sum, dx[i]), node->in[i]);
        else
            *sum = dx[i];
    }
    weft_graph_pop(g);
}

void weft_autodiff(weft_graph *g, weft_value loss, const weft_value *wrt, int count,
                   weft_value *grad)
{
    for (int i = 0; i < count; i++)
        grad[i] = WEFT_NONE;
    if (g->error != WEFT_OK || !weft_value_ok(loss))
        return;
    const weft_shape *shape = &g->value[loss.id].shape;
    if (weft_shape_count(shape) != 1) {
        char text[96];
        weft_graph_fail(g, WEFT_E_SHAPE, "the loss must be a scalar, not %s",
                        weft_format_shape(shape, text));
        return;
    }
    const int64_t values = g->value_count, last = g->value[loss.id].node;
    tape t = {.needed = weft_alloc(values), .grad = weft_alloc(values * (int64_t)sizeof *t.grad)};
    if (!t.needed || !t.grad) {
        weft_graph_fail(g, WEFT_E_MEMORY, "out of memory for the gradients of %lld values",
                        (long long)values);
        goto out;
    }
    for (int64_t i = 0; i < values; i++)
        t.grad[i] = WEFT_NONE;
    mark_needed(g, last + 1, wrt, count, t.needed);
    const bool was_backward = g->building_backward;
    g->building_backward = true;
    t.grad[loss.id] = weft_fill(g, g->value[loss.id].dtype, *shape, 1);
    for (int64_t n = last; n >= 0 && g->error == WEFT_OK; n--)
        step_back(g, g->node[n], &t);
    g->building_backward = was_backward;
    for (int i = 0; i < count && g->error == WEFT_OK; i++)
        grad[i] = weft_value_ok(wrt[i]) && wrt[i].id < values ? t.grad[wrt[i].id] : WEFT_NONE;
out:
    weft_free(t.needed);
    weft_free(t.grad);
}
