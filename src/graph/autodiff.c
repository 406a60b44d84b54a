/* Reverse-mode differentiation: applies each node's rule from the loss back, and adds the
 * contributions in a fixed order. */
#include "graph/autodiff.h"

#include "graph/builder_helpers.h"
#include "graph/internal.h"

#include <stdio.h>

typedef struct tape {
    bool *needed;     /* by value: depends on a value of wrt */
    weft_value *grad; /* by forward value */
    weft_value *dx;   /* by input of the current node */
    bool *wanted;
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
        if (g->node[n]->op == WEFT_OP_STOP) /* gradients do not pass STOP */
            continue;
        for (int i = 0; i < g->node[n]->in_count; i++)
            any |= weft_value_ok(g->node[n]->in[i]) && needed[g->node[n]->in[i].id];
        for (int i = 0; any && i < g->node[n]->out_count; i++)
            needed[g->node[n]->out[i].id] = true;
    }
}

/* The layout of a gradient: the value's, with V and P exchanged. If every rank reads its own copy
 * of a value (V), each rank has a term of the gradient (P). The gradient of a pending sum (P) is
 * complete on every rank (V). */
static weft_layout dual(weft_layout l)
{
    static const int8_t kind[] = {[WEFT_R] = WEFT_R,
                                  [WEFT_V] = WEFT_P,
                                  [WEFT_S] = WEFT_S,
                                  [WEFT_P] = WEFT_V,
                                  [WEFT_UNKNOWN] = WEFT_UNKNOWN};
    return (weft_layout){kind[l.kind], l.dim};
}

void weft_grad_set_layout(weft_graph *g, weft_value grad, weft_value of)
{
    for (int a = 0; weft_value_ok(grad) && a < g->mesh.axis_count; a++)
        g->value[grad.id].layout[a] = dual(g->value[of.id].layout[a]);
}

static void describe(weft_layout l, char text[16])
{
    snprintf(text, 16, l.kind == WEFT_S ? "S(%d)" : "%.0d%c", l.dim, "RVSP?"[l.kind]);
}

/* Checks the shape, the type and the layout of the gradient of input `i`, so that a wrong rule is
 * an error. The layout must be the dual of the input's. If the operands of the rule's last node do
 * not determine the layout, sets it. */
static void check_gradient(weft_graph *g, const weft_node *node, int i, weft_value grad)
{
    const char *op = weft_op_get(node->op)->name;
    const weft_value of = node->in[i];
    const weft_value_info *is = &g->value[grad.id], *due = &g->value[of.id];
    if (is->dtype != due->dtype || !weft_shape_equal(&is->shape, &due->shape)) {
        char a[96], b[96];
        weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR,
                        "gradient rule of %s: the gradient of operand %d is %s, not %s", op, i,
                        weft_format_value(g, grad, a), weft_format_value(g, of, b));
        return;
    }
    for (int a = 0; a < g->mesh.axis_count; a++) {
        const weft_layout want = dual(due->layout[a]);
        if (!weft_layout_may_be(g, grad, a, want)) {
            char is_text[16], want_text[16];
            describe(is->layout[a], is_text);
            describe(want, want_text);
            weft_graph_fail(g, WEFT_MSG_INTERNAL_ERROR,
                            "gradient rule of %s: the gradient of operand %d has layout %s on axis "
                            "%s, not %s",
                            op, i, is_text, g->mesh.axis[a].name, want_text);
            return;
        }
    }
    weft_grad_set_layout(g, grad, of);
}

static void step_back(weft_graph *g, const weft_node *node, tape *t)
{
    weft_value dy[WEFT_MAX_OUTPUTS], *dx = t->dx;
    bool *wanted = t->wanted, any_dy = false, any_wanted = false;
    const int slots = node->in_count > WEFT_MAX_INPUTS ? node->in_count : WEFT_MAX_INPUTS;
    for (int i = 0; i < WEFT_MAX_OUTPUTS; i++) {
        dy[i] = i < node->out_count ? t->grad[node->out[i].id] : WEFT_NONE;
        any_dy |= weft_value_ok(dy[i]);
    }
    for (int i = 0; i < slots; i++) {
        dx[i] = WEFT_NONE;
        wanted[i] = i < node->in_count && weft_value_ok(node->in[i]) && t->needed[node->in[i].id];
        any_wanted |= wanted[i];
    }
    if (!any_dy || !any_wanted)
        return;
    weft_graph_push(g, "%s", node->scope);
    weft_op_get(node->op)->vjp(g, node, dy, wanted, dx);
    for (int i = 0; i < node->in_count && g->error == WEFT_OK; i++) {
        if (!wanted[i] || !weft_value_ok(dx[i]))
            continue;
        check_gradient(g, node, i, dx[i]);
        weft_value *sum = &t->grad[node->in[i].id];
        *sum = weft_value_ok(*sum) ? weft_add(g, *sum, dx[i]) : dx[i];
    }
    weft_graph_pop(g);
}

void weft_autodiff_from(weft_graph *g, const weft_value *from, const weft_value *seed, int seeds,
                        const weft_value *wrt, int count, weft_value *grad)
{
    for (int i = 0; i < count; i++)
        grad[i] = WEFT_NONE;
    if (g->error != WEFT_OK)
        return;
    int64_t last = -1;
    for (int i = 0; i < seeds; i++)
        last = g->value[from[i].id].node > last ? g->value[from[i].id].node : last;
    const int64_t values = g->value_count, slots = weft_graph_most_inputs(g);
    tape t = {.needed = weft_alloc(values + 1),
              .grad = weft_calloc(values + 1, sizeof *t.grad),
              .dx = weft_calloc(slots, sizeof *t.dx),
              .wanted = weft_alloc(slots)};
    if (!t.needed || !t.grad || !t.dx || !t.wanted) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY,
                        "out of memory for the gradients of %" PRId64 " values", values);
        goto out;
    }
    for (int64_t i = 0; i < values; i++)
        t.grad[i] = WEFT_NONE;
    mark_needed(g, last + 1, wrt, count, t.needed);
    const bool was_backward = g->building_backward;
    g->building_backward = true;
    for (int i = 0; i < seeds && g->error == WEFT_OK; i++) {
        weft_value *sum = &t.grad[from[i].id];
        weft_grad_set_layout(g, seed[i], from[i]);
        *sum = weft_value_ok(*sum) ? weft_add(g, *sum, seed[i]) : seed[i];
        weft_grad_set_layout(g, *sum, from[i]);
    }
    for (int64_t n = last; n >= 0 && g->error == WEFT_OK; n--)
        step_back(g, g->node[n], &t);
    g->building_backward = was_backward;
    for (int i = 0; i < count && g->error == WEFT_OK; i++)
        grad[i] = weft_value_ok(wrt[i]) && wrt[i].id < values ? t.grad[wrt[i].id] : WEFT_NONE;
out:
    weft_free(t.needed);
    weft_free(t.grad);
    weft_free(t.dx);
    weft_free(t.wanted);
}

void weft_autodiff(weft_graph *g, weft_value loss, const weft_value *wrt, int count,
                   weft_value *grad)
{
    for (int i = 0; i < count; i++)
        grad[i] = WEFT_NONE;
    if (g->error != WEFT_OK || !weft_value_ok(loss))
        return;
    const weft_value_info *info = &g->value[loss.id];
    if (weft_shape_count(&info->shape) != 1) {
        char text[96];
        weft_graph_fail(g, WEFT_MSG_TENSOR_SHAPE, "the loss must be a scalar, not %s",
                        weft_format_shape(&info->shape, text));
        return;
    }
    const bool was_backward = g->building_backward;
    g->building_backward = true;
    const weft_value one = weft_fill(g, info->dtype, info->shape, 1);
    g->building_backward = was_backward;
    weft_autodiff_from(g, &loss, &one, weft_value_ok(one), wrt, count, grad);
}
