/* Verification, the text form, the hash. */
#include "graph/internal.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- verify -------------------------------------------------------------------------------- */

static weft_status node_error(const weft_graph *g, int64_t index, const char *why)
{
    const weft_node *n = g->node[index];
    return weft_fail(WEFT_E_INTERNAL, "illegal graph: node %lld (%s%s%s): %s", (long long)index,
                     n->op < WEFT_OP_COUNT ? weft_op_get(n->op)->name : "?",
                     *n->scope ? " in " : "", n->scope, why);
}

static weft_status verify_node(const weft_graph *g, int64_t index)
{
    const weft_node *n = g->node[index];
    if ((unsigned)n->op >= WEFT_OP_COUNT)
        return node_error(g, index, "no such op");
    const weft_op_info *info = weft_op_get(n->op);
    if (n->in_count < info->min_inputs || n->in_count > info->max_inputs)
        return node_error(g, index, "wrong number of inputs");
    for (int i = 0; i < n->in_count; i++) {
        if (!weft_value_ok(n->in[i])) {
            if (i < info->min_inputs)
                return node_error(g, index, "a needed input is absent");
            continue;
        }
        if (n->in[i].id >= g->value_count || g->value[n->in[i].id].node >= index)
            return node_error(g, index, "an input is made later or nowhere");
    }
    /* Shapes again, on a scratch graph head that shares our values: inference may only report
     * errors. */
    weft_graph scratch = *g;
    scratch.arena = weft_arena_create();
    scratch.scope = (weft_buf){0};
    if (!scratch.arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory verifying a graph");
    weft_op_out out[WEFT_MAX_OUTPUTS] = {0};
    int count = 1;
    const bool fits = info->infer(&scratch, n->op, n->in, n->in_count, n->attr, out, &count) &&
                      scratch.error == WEFT_OK;
    weft_status_code status = WEFT_OK;
    if (!fits)
        status =
            node_error(g, index, scratch.error_text ? scratch.error_text : "inputs do not fit");
    weft_arena_free(scratch.arena);
    WEFT_TRY(status);
    if (count != n->out_count)
        return node_error(g, index, "wrong number of outputs");
    for (int i = 0; i < count; i++) {
        if (!weft_value_ok(n->out[i]) || n->out[i].id >= g->value_count)
            return node_error(g, index, "an output is no value of the graph");
        const weft_value_info *v = &g->value[n->out[i].id];
        if (v->node != index || v->output != i)
            return node_error(g, index, "an output names another producer");
        if (v->dtype != out[i].dtype || !weft_shape_equal(&v->shape, &out[i].shape))
            return node_error(g, index, "an output has another shape or type than inference gives");
    }
    return WEFT_OK;
}

static weft_status verify_layouts(const weft_graph *g)
{
    for (int64_t i = 0; i < g->value_count; i++)
        for (int a = 0; a < WEFT_MAX_AXES; a++) {
            const weft_layout l = g->value[i].layout[a];
            if (l.kind == WEFT_UNKNOWN)
                return node_error(g, g->value[i].node,
                                  "no row of its layout rule fits its operands: what it makes is "
                                  "unknown on some axis");
            if (l.kind < WEFT_R || l.kind > WEFT_P ||
                (l.kind == WEFT_S && (l.dim < 0 || l.dim >= g->value[i].shape.rank)) ||
                (a >= g->mesh.axis_count && l.kind != WEFT_R))
                return weft_fail(WEFT_E_INTERNAL,
                                 "illegal graph: value %%%lld has an illegal layout on axis %d",
                                 (long long)i, a);
        }
    return WEFT_OK;
}

/* A conversion from what the operand is not: an all_reduce of what every rank has already counts it
 * several times. */
static weft_status verify_conversion(const weft_graph *g, int64_t index)
{
    const weft_node *n = g->node[index];
    if (!weft_op_has(n->op, WEFT_TRAIT_CONVERTS))
        return WEFT_OK;
    const weft_attr_comm *a = n->attr;
    const weft_layout l = g->value[n->in[0].id].layout[a->axis];
    bool fits = true;
    switch (n->op) {
    case WEFT_OP_VARY:
    case WEFT_OP_SLICE_OWN: fits = l.kind == WEFT_R; break;
    case WEFT_OP_ALL_REDUCE:
    case WEFT_OP_REDUCE_SCATTER: fits = l.kind == WEFT_P; break;
    case WEFT_OP_ALL_GATHER:
    case WEFT_OP_ALL_TO_ALL:
    case WEFT_OP_RING_SHIFT: fits = l.kind == WEFT_S && l.dim == a->dim; break;
    default: break;
    }
    if (fits)
        return WEFT_OK;
    char why[64];
    snprintf(why, sizeof why, "its operand is %c on axis %s", "RVSP?"[l.kind],
             g -> mesh.axis[a->axis].name);
    return node_error(g, index, why);
}

/* ---- blocks that go round: which one each rank holds --------------------------------------- */

/* Behind ring_shift a layout S says no longer that a rank holds its own block: rank r holds block
 * r - turn. What is gathered, exchanged or kept must have turn 0, and operands that meet must have
 * turned alike. Only attention reads blocks of keys that turned beside queries that did not. */
enum { ANY_BLOCK = -1 }; /* the same whatever block it is */

/* Joins the turn of input i into *turn; false: another one is there. */
static bool join_turn(const weft_graph *g, const weft_node *n, int i, int axis, const int32_t *held,
                      int32_t *turn)
{
    if (i >= n->in_count || !weft_value_ok(n->in[i]) ||
        g->value[n->in[i].id].layout[axis].kind != WEFT_S || held[n->in[i].id] == ANY_BLOCK)
        return true;
    const int32_t is = held[n->in[i].id];
    if (*turn != ANY_BLOCK && *turn != is)
        return false;
    *turn = is;
    return true;
}

static int32_t modulo(int64_t a, int k)
{
    return (int32_t)((a % k + k) % k);
}

static bool turn_converted(const weft_node *n, int ranks, int32_t *turn)
{
    const weft_attr_comm *a = n->attr;
    if (n->op == WEFT_OP_RING_SHIFT) {
        const bool fits = *turn == ANY_BLOCK || *turn == modulo(a->held, ranks);
        *turn = modulo((int64_t)a->held + a->shift, ranks);
        return fits;
    }
    const bool fits = *turn == ANY_BLOCK || *turn == 0;
    *turn = 0;
    return fits;
}

static bool is_slot(const weft_node *n)
{
    return n->op == WEFT_OP_STATE && ((const weft_attr_source *)n->attr)->slot;
}

static weft_status verify_turn(const weft_graph *g, int64_t index, int axis, int32_t *held)
{
    const weft_node *n = g->node[index];
    const int ranks = g->mesh.axis[axis].size;
    const bool attends = (n->op == WEFT_OP_ATTENTION || n->op == WEFT_OP_ATTENTION_GRAD) &&
                         g->value[n->in[1].id].layout[axis].dim == 1;
    /* it is made as its part; a record has whatever the program before put there */
    const bool addressed = n->in_count == 0 && n->op != WEFT_OP_FILL && !is_slot(n);
    int32_t own = addressed ? 0 : ANY_BLOCK, keys = ANY_BLOCK;
    bool fits = true;
    const int bias = n->op == WEFT_OP_ATTENTION ? 4 : 8; /* of the keys, as they are */
    for (int i = 0; i < n->in_count; i++) {
        const bool of_keys = attends && (i == 1 || i == 2 || i == bias);
        fits = join_turn(g, n, i, axis, held, of_keys ? &keys : &own) && fits;
    }
    if (weft_op_has(n->op, WEFT_TRAIT_CONVERTS) && ((const weft_attr_comm *)n->attr)->axis == axis)
        fits = turn_converted(n, ranks, &own) && fits;
    for (int o = 0; o < n->out_count; o++)
        held[n->out[o].id] = attends && o > 0 && n->op == WEFT_OP_ATTENTION_GRAD ? keys : own;
    if (fits)
        return WEFT_OK;
    char why[96];
    snprintf(why, sizeof why, "a block that went round axis %s is taken for another",
             g->mesh.axis[axis].name);
    return node_error(g, index, why);
}

static bool goes_round(const weft_graph *g, int axis)
{
    for (int64_t i = 0; i < g->node_count; i++)
        if (g->node[i]->op == WEFT_OP_RING_SHIFT &&
            ((const weft_attr_comm *)g->node[i]->attr)->axis == axis)
            return true;
    return false;
}

static weft_status verify_turns(const weft_graph *g)
{
    weft_status_code status = WEFT_OK;
    int32_t *held = weft_alloc((g->value_count + 1) * (int64_t)sizeof *held);
    if (!held)
        return weft_fail(WEFT_E_MEMORY, "out of memory verifying a graph");
    for (int axis = 0; axis < g->mesh.axis_count && status == WEFT_OK; axis++) {
        if (!goes_round(g, axis))
            continue;
        for (int64_t i = 0; i < g->node_count && status == WEFT_OK; i++)
            status = verify_turn(g, i, axis, held);
        for (int64_t i = 0; i < g->update_count && status == WEFT_OK; i++) {
            const weft_value v = g->update[i].value;
            if (g->value[v.id].layout[axis].kind == WEFT_S && held[v.id] > 0 &&
                !is_slot(g->node[g->value[g->update[i].source.id].node]))
                status = node_error(g, g->value[v.id].node,
                                    "a state would keep a block that went round as its own");
        }
    }
    weft_free(held);
    return status;
}

weft_status weft_graph_verify(const weft_graph *g)
{
    WEFT_TRY(weft_graph_check(g));
    for (int64_t i = 0; i < g->node_count; i++)
        WEFT_TRY(verify_node(g, i));
    for (int64_t i = 0; i < g->node_count; i++)
        WEFT_TRY(verify_conversion(g, i));
    WEFT_TRY(verify_layouts(g));
    WEFT_TRY(verify_turns(g));
    for (int64_t i = 0; i < g->output_count; i++)
        if (g->output[i].value.id < 0 || g->output[i].value.id >= g->value_count)
            return weft_fail(WEFT_E_INTERNAL, "illegal graph: output \"%s\" is no value",
                             g->output[i].name);
    for (int64_t i = 0; i < g->update_count; i++) {
        const weft_value_info *to = &g->value[g->update[i].source.id],
                              *from = &g->value[g->update[i].value.id];
        if (!weft_op_has(g->node[to->node]->op, WEFT_TRAIT_PERSISTENT) ||
            to->dtype != from->dtype || !weft_shape_equal(&to->shape, &from->shape))
            return weft_fail(WEFT_E_INTERNAL, "illegal graph: update %lld does not fit its source",
                             (long long)i);
        for (int64_t j = 0; j < i; j++)
            if (g->update[j].source.id == g->update[i].source.id)
                return weft_fail(WEFT_E_INTERNAL, "illegal graph: \"%s\" is updated twice",
                                 to->name);
    }
    return WEFT_OK;
}

/* ---- print --------------------------------------------------------------------------------- */

static void print_layout(const weft_graph *g, weft_value v, weft_buf *out)
{
    for (int a = 0; a < g->mesh.axis_count; a++) {
        const weft_layout l = g->value[v.id].layout[a];
        weft_buf_printf(out, l.kind == WEFT_S ? "%c%s:S(%d)" : "%c%s:%c", a ? ' ' : '<',
                        g->mesh.axis[a].name, l.kind == WEFT_S ? l.dim : "RVSP?"[l.kind]);
    }
    if (g->mesh.axis_count)
        weft_buf_printf(out, ">");
}

void weft_graph_print_node(const weft_graph *g, int32_t index, weft_buf *out)
{
    const weft_node *n = g->node[index];
    char text[96];
    for (int i = 0; i < n->out_count; i++) {
        weft_buf_printf(out, "%s%%%d %s", i ? ", " : "", n->out[i].id,
                        weft_format_value(g, n->out[i], text));
        print_layout(g, n->out[i], out);
    }
    weft_buf_printf(out, " = %s", weft_op_get(n->op)->name);
    if (weft_op_has(n->op, WEFT_TRAIT_NAMED))
        weft_buf_printf(out, " %s",
                        g->value[n->out[0].id].name ? g->value[n->out[0].id].name : "?");
    if (n->in_count) {
        weft_buf_printf(out, "(");
        for (int i = 0; i < n->in_count; i++)
            weft_buf_printf(out, weft_value_ok(n->in[i]) ? "%s%%%d" : "%snone", i ? ", " : "",
                            n->in[i].id);
        weft_buf_printf(out, ")");
    }
    weft_op_get(n->op)->print(g, n, out);
    if (*n->scope)
        weft_buf_printf(out, " @%s", n->scope);
    weft_buf_printf(out, "%s%s\n", n->backward ? " backward" : "",
                    n->recompute ? " recompute" : "");
}

void weft_graph_print(const weft_graph *g, weft_buf *out)
{
    if (g->error != WEFT_OK)
        weft_buf_printf(out, "# error: %s\n", g->error_text ? g->error_text : "out of memory");
    for (int32_t i = 0; i < g->node_count; i++)
        weft_graph_print_node(g, i, out);
    weft_graph_print_ends(g, out);
}

void weft_graph_print_ends(const weft_graph *g, weft_buf *out)
{
    for (int64_t i = 0; i < g->output_count; i++)
        weft_buf_printf(out, "output %s = %%%d\n", g->output[i].name, g->output[i].value.id);
    for (int64_t i = 0; i < g->update_count; i++)
        weft_buf_printf(out, "update %s = %%%d\n", g->value[g->update[i].source.id].name,
                        g->update[i].value.id);
}

uint64_t weft_graph_hash(const weft_graph *g)
{
    weft_buf text = {0};
    weft_graph_print(g, &text);
    weft_buf_printf(&text, "rank %d\n", g->rank);
    uint64_t hash = text.data ? XXH3_64bits(text.data, (size_t)text.len) : 0;
    weft_buf_free(&text);
    for (int64_t i = 0; i < g->node_count; i++) {
        const weft_node *n = g->node[i];
        if (n->op == WEFT_OP_CONSTANT) {
            const weft_attr_constant *a = n->attr;
            hash = XXH3_64bits_withSeed(
                a->data, (size_t)(weft_shape_count(&a->shape) * weft_dtype_bytes(a->dtype)), hash);
        }
    }
    return hash;
}
