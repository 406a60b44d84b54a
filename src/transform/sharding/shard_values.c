#include "transform/sharding/shard_values.h"

#include "graph/builder_helpers.h"
#include "graph/conversion.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

/* ---- recipe -------------------------------------------------------------------------------- */

const weft_recipe_row *weft_axis_node_row(const weft_axis_shard *p, const weft_node *n)
{
    char name[512];
    snprintf(name, sizeof name, "%s:%s", n->scope, weft_op_get(n->op)->name);
    return weft_recipe_row_for(p->axis->recipe, p->axis->name, name, false);
}

bool weft_axis_check_row(weft_axis_shard *p, const weft_recipe_row *row, weft_layout l,
                         const char *name, int rank)
{
    if (l.kind == WEFT_S && (l.dim < 0 || l.dim >= rank))
        weft_graph_fail(p->to, WEFT_MSG_TENSOR_SHAPE,
                        "recipe %s: row \"%s\" splits dim %d on axis %s, but %s has rank %d",
                        p->axis->recipe->name, row->pattern, l.dim, row->axis, name, rank);
    else if (l.kind == WEFT_V || l.kind == WEFT_P)
        weft_graph_fail(p->to, WEFT_MSG_PASS_INVALID,
                        "recipe %s: row \"%s\": %s can only be whole or split on axis %s",
                        p->axis->recipe->name, row->pattern, name, row->axis);
    else
        return true;
    return false;
}

/* ---- emitting ------------------------------------------------------------------------------ */

void weft_axis_put(weft_axis_shard *p, weft_value of, weft_layout layout, weft_value made)
{
    if (!weft_value_ok(made))
        return;
    weft_layout all[WEFT_MAX_AXES];
    memcpy(all, weft_axis_info(p, of)->layout, sizeof all);
    all[p->axis->number] = layout;
    weft_graph_set_layout(p->to, made, all);
    p->version[of.id][weft_layout_slot(layout)] = made;
}

/* Emits the conversion of a value from its version in layout `from` to layout `to`. */
static weft_value emit_conversion(weft_axis_shard *p, weft_value of, weft_layout from,
                                  weft_attr_comm attr, weft_layout to)
{
    const weft_value in = p->version[of.id][weft_layout_slot(from)];
    attr.axis = p->axis->number;
    const weft_value made = weft_emit(p->to, weft_conversion_op(from.kind, to.kind), &in, 1, &attr);
    weft_axis_put(p, of, to, made);
    return made;
}

/* The node's attribute for an output that is split along out.dim; unchanged for most ops. */
static const void *localise(weft_axis_shard *p, const weft_node *n, weft_layout out,
                            weft_any_attr *own)
{
    const weft_op_info *info = weft_op_get(n->op);
    if (out.kind != WEFT_S)
        return n->attr;
    int64_t start, len;
    weft_part(weft_axis_info(p, n->out[0])->shape.dim[out.dim], p->axis->ranks, p->axis->coordinate,
              &start, &len);
    memcpy(own, n->attr, (size_t)info->attr_bytes);
    info->local(p->to, own, out.dim, start, len);
    return own;
}

void weft_axis_check_shape(weft_axis_shard *p, const weft_node *n, weft_value of,
                           weft_layout layout, weft_value made)
{
    if (!weft_value_ok(made))
        return;
    weft_shape expected = weft_axis_info(p, of)->shape;
    int64_t start;
    if (layout.kind == WEFT_S)
        weft_part(expected.dim[layout.dim], p->axis->ranks, p->axis->coordinate, &start,
                  &expected.dim[layout.dim]);
    if (!weft_shape_equal(&expected, &weft_value_get(p->to, made)->shape))
        weft_graph_fail(p->to, WEFT_MSG_INTERNAL_ERROR,
                        "layout rule of %s on axis %s: the local shape is not the part",
                        weft_op_get(n->op)->name, p->axis->name);
}

void weft_axis_emit_node(weft_axis_shard *p, const weft_node *n, const weft_value *in,
                         const weft_layout *out_layout)
{
    weft_any_attr own;
    weft_value made[WEFT_MAX_OUTPUTS];
    weft_emit_all(p->to, n->op, in, n->in_count, localise(p, n, out_layout[0], &own), made);
    for (int o = 0; o < n->out_count; o++) {
        weft_axis_put(p, n->out[o], out_layout[o], made[o]);
        weft_axis_check_shape(p, n, n->out[o], out_layout[o], made[o]);
    }
    if (weft_graph_check(p->to) == WEFT_OK)
        weft_graph_node_mut(p->to, weft_value_get(p->to, made[0])->node)->backward = n->backward;
}

/* ---- conversions --------------------------------------------------------------------------- */

/* Computes the value directly in layout `to` if each rank can do so from replicated operands:
 * constants, fills, tables, random numbers of complete keys. Returns false otherwise. */
static bool remake(weft_axis_shard *p, weft_value v, weft_layout to)
{
    const weft_node *n = weft_graph_node(p->axis->from, weft_axis_info(p, v)->node);
    if (!weft_op_has(n->op, WEFT_TRAIT_ANYWHERE))
        return false;
    weft_layout_choice row[WEFT_MAX_CHOICES];
    const int rows = weft_op_get(n->op)->layout(p->axis->from, n, p->axis->ranks, row);
    for (int r = 0; r < rows; r++) {
        bool fits = weft_layout_same(row[r].out[weft_axis_info(p, v)->output], to);
        weft_value in[WEFT_MAX_INPUTS];
        for (int i = 0; i < n->in_count; i++) {
            in[i] = p->version[n->in[i].id][WEFT_SLOT_R];
            fits = fits && row[r].need[i].kind == WEFT_R;
        }
        if (fits) {
            weft_axis_emit_node(p, n, in, row[r].out);
            return true;
        }
    }
    return false;
}

static bool needs_no_vary(const weft_axis_shard *p, weft_value v)
{
    const weft_node *n = weft_graph_node(p->axis->from, weft_axis_info(p, v)->node);
    return (weft_op_has(n->op, WEFT_TRAIT_ANYWHERE) && n->in_count == 0) ||
           !weft_dtype_is_float(weft_axis_info(p, v)->dtype);
}

static weft_value split_version(weft_axis_shard *p, weft_value v, weft_layout to,
                                weft_comm_position order)
{
    const weft_layout home = p->home[v.id];
    const weft_shape *shape = &weft_axis_info(p, v)->shape;
    weft_attr_comm attr = {.dim = to.dim, .global = shape->dim[to.dim], .late = order.late};
    if (home.kind == WEFT_R && remake(p, v, to))
        return p->version[v.id][weft_layout_slot(to)];
    if (home.kind == WEFT_S)
        attr = (weft_attr_comm){.dim = home.dim,
                                .global = shape->dim[home.dim],
                                .dim2 = to.dim,
                                .global2 = shape->dim[to.dim],
                                .late = order.late,
                                .piece = order.piece};
    return emit_conversion(p, v, home, attr, to);
}

weft_value weft_axis_convert_in_order(weft_axis_shard *p, weft_value v, weft_layout to,
                                      weft_comm_position order)
{
    const weft_value done = p->version[v.id][weft_layout_slot(to)];
    if (weft_value_ok(done) || weft_graph_check(p->to) != WEFT_OK)
        return done;
    const weft_layout home = p->home[v.id];
    if (to.kind == WEFT_S)
        return split_version(p, v, to, order);
    weft_attr_comm attr = {.late = order.late};
    if (home.kind == WEFT_S) {
        attr.dim = home.dim;
        attr.global = weft_axis_info(p, v)->shape.dim[home.dim];
        attr.invariant = to.kind == WEFT_R;
    }
    if (home.kind == WEFT_S || to.kind == WEFT_R)
        return emit_conversion(p, v, home, attr, to);
    const weft_value invariant = weft_axis_convert_in_order(p, v, weft_whole, order);
    if (needs_no_vary(p, v)) {
        p->version[v.id][WEFT_SLOT_V] = invariant;
        return invariant;
    }
    return emit_conversion(p, v, weft_whole, attr, to);
}

weft_value weft_axis_convert(weft_axis_shard *p, weft_value v, weft_layout to)
{
    return weft_axis_convert_in_order(p, v, to, (weft_comm_position){0});
}

weft_value weft_axis_operand(weft_axis_shard *p, const weft_node *n,
                             const weft_layout_choice *choice, int i)
{
    return weft_value_ok(n->in[i]) ? weft_axis_convert(p, n->in[i], weft_layout_need(choice, i))
                                   : WEFT_NONE;
}

void weft_axis_count_consumers(weft_axis_shard *p)
{
    int count;
    const weft_named *output = weft_graph_outputs(p->axis->from, &count);
    for (int i = 0; i < count; i++) {
        p->consumers[output[i].value.id].all += 2;
        p->consumers[output[i].value.id].others += 2;
    }
    const weft_pair *update = weft_graph_updates(p->axis->from, &count);
    for (int i = 0; i < count; i++) {
        p->consumers[update[i].value.id].all += 2;
        p->consumers[update[i].value.id].others += 2;
    }
    for (int32_t n = 0; n < weft_graph_node_count(p->axis->from); n++) {
        const weft_node *node = weft_graph_node(p->axis->from, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            p->consumers[node->in[i].id].all++;
            p->consumers[node->in[i].id].others += node->op != WEFT_OP_ATTENTION || i >= 3;
        }
    }
}
