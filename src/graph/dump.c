/* Verification, the text form, the hash. */
#include "graph/dump.h"

#include "graph/conversion.h"
#include "graph/internal.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- verify -------------------------------------------------------------------------------- */

static weft_status node_error(const weft_graph *g, int64_t index, const char *why)
{
    const weft_node *n = g->node[index];
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = n->scope),
                      "node %" PRId64 " (%s) is illegal: %s", index,
                      n->op < WEFT_OP_COUNT ? weft_op_get(n->op)->name : "?", why);
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
    /* Infers the shapes again, on a scratch graph struct that shares the values: inference may only
     * report errors. */
    weft_graph scratch = *g;
    scratch.arena = weft_arena_create();
    scratch.scope = (weft_buf){0};
    WEFT_TRY(WEFT_ALLOCATED(scratch.arena, "verifying a graph"));
    weft_op_out out[WEFT_MAX_OUTPUTS] = {0};
    weft_inference inference = {.graph = &scratch,
                                .op = n->op,
                                .in = n->in,
                                .in_count = n->in_count,
                                .attr = n->attr,
                                .out = out,
                                .count = 1};
    const bool fits = info->infer(&inference) && scratch.error == WEFT_OK;
    weft_status_code status = WEFT_OK;
    if (!fits)
        status =
            node_error(g, index, scratch.error_text ? scratch.error_text : "inputs do not fit");
    weft_arena_free(scratch.arena);
    WEFT_TRY(status);
    if (inference.count != n->out_count)
        return node_error(g, index, "wrong number of outputs");
    for (int i = 0; i < inference.count; i++) {
        if (!weft_value_ok(n->out[i]) || n->out[i].id >= g->value_count)
            return node_error(g, index, "an output is not a value of the graph");
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
                                  "no row of its layout rule fits its operands: the layout of an "
                                  "output is unknown on some axis");
            if (l.kind < WEFT_R || l.kind > WEFT_P ||
                (l.kind == WEFT_S && (l.dim < 0 || l.dim >= g->value[i].shape.rank)) ||
                (a >= g->mesh.axis_count && l.kind != WEFT_R))
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                  "value %%%" PRId64 " has an illegal layout on axis %d", i, a);
        }
    return WEFT_OK;
}

/* Checks that a conversion's operand has the layout that the conversion expects. For example, an
 * all_reduce of a replicated value would count it several times. */
static weft_status verify_conversion(const weft_graph *g, int64_t index)
{
    const weft_node *n = g->node[index];
    if (!weft_op_has(n->op, WEFT_TRAIT_CONVERTS))
        return WEFT_OK;
    const weft_attr_comm *a = n->attr;
    const weft_layout l = g->value[n->in[0].id].layout[a->axis];
    if (weft_conversion_accepts(n, l))
        return WEFT_OK;
    const char kind = "RVSP?"[l.kind];
    char why[64];
    snprintf(why, sizeof why, "its operand is %c on axis %s", kind, g->mesh.axis[a->axis].name);
    return node_error(g, index, why);
}

/* ---- ring_shift: which block each rank holds ----------------------------------------------- */

/* After ring_shift, layout S does not mean that a rank holds its own block: rank r holds block r -
 * offset. Values that are gathered, exchanged or stored must have offset 0. Operands of one node
 * must have equal offsets. Only attention reads shifted blocks of keys with queries that are not
 * shifted. */
enum { ANY_BLOCK = -1 }; /* independent of the block */

/* Merges the offset of input i into *ring_offset; false: it differs. */
static bool merge_ring_offset(const weft_graph *g, const weft_node *n, int i, int axis,
                              const int32_t *held, int32_t *ring_offset)
{
    if (i >= n->in_count || !weft_value_ok(n->in[i]) ||
        g->value[n->in[i].id].layout[axis].kind != WEFT_S || held[n->in[i].id] == ANY_BLOCK)
        return true;
    const int32_t is = held[n->in[i].id];
    if (*ring_offset != ANY_BLOCK && *ring_offset != is)
        return false;
    *ring_offset = is;
    return true;
}

static int32_t modulo(int64_t a, int k)
{
    return (int32_t)((a % k + k) % k);
}

static bool shift_ring_offset(const weft_node *n, int ranks, int32_t *ring_offset)
{
    const weft_attr_comm *a = n->attr;
    if (n->op == WEFT_OP_RING_SHIFT) {
        const bool fits = *ring_offset == ANY_BLOCK || *ring_offset == modulo(a->held, ranks);
        *ring_offset = modulo((int64_t)a->held + a->shift, ranks);
        return fits;
    }
    const bool fits = *ring_offset == ANY_BLOCK || *ring_offset == 0;
    *ring_offset = 0;
    return fits;
}

static bool is_slot(const weft_node *n)
{
    return n->op == WEFT_OP_STATE && ((const weft_attr_source *)n->attr)->slot;
}

static weft_status verify_ring_offset(const weft_graph *g, int64_t index, int axis, int32_t *held)
{
    const weft_node *n = g->node[index];
    const int ranks = g->mesh.axis[axis].size;
    const bool attends = (n->op == WEFT_OP_ATTENTION || n->op == WEFT_OP_ATTENTION_GRAD) &&
                         g->value[n->in[1].id].layout[axis].dim == 1;
    /* sources hold their own block; slots hold what an earlier program wrote */
    const bool addressed = n->in_count == 0 && n->op != WEFT_OP_FILL && !is_slot(n);
    int32_t own = addressed ? 0 : ANY_BLOCK, keys = ANY_BLOCK;
    bool fits = true;
    const int bias = n->op == WEFT_OP_ATTENTION ? 4 : 8; /* input of the keys, with their offset */
    for (int i = 0; i < n->in_count; i++) {
        const bool of_keys = attends && (i == 1 || i == 2 || i == bias);
        fits = merge_ring_offset(g, n, i, axis, held, of_keys ? &keys : &own) && fits;
    }
    if (weft_op_has(n->op, WEFT_TRAIT_CONVERTS) && ((const weft_attr_comm *)n->attr)->axis == axis)
        fits = shift_ring_offset(n, ranks, &own) && fits;
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

static weft_status verify_ring_offsets(const weft_graph *g)
{
    weft_status_code status = WEFT_OK;
    int32_t *held;
    WEFT_TRY(WEFT_NEW(held, g->value_count + 1, "verifying a graph"));
    for (int axis = 0; axis < g->mesh.axis_count; axis++) {
        if (!goes_round(g, axis))
            continue;
        for (int64_t i = 0; i < g->node_count; i++)
            WEFT_GO(verify_ring_offset(g, i, axis, held));
        for (int64_t i = 0; i < g->update_count; i++) {
            const weft_value v = g->update[i].value;
            if (g->value[v.id].layout[axis].kind == WEFT_S && held[v.id] > 0 &&
                !is_slot(g->node[g->value[g->update[i].source.id].node]))
                WEFT_GO(node_error(g, g->value[v.id].node,
                                   "a state would store a block of another rank as its own"));
        }
    }
out:
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
    WEFT_TRY(verify_ring_offsets(g));
    for (int64_t i = 0; i < g->output_count; i++)
        if (g->output[i].value.id < 0 || g->output[i].value.id >= g->value_count)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = g->output[i].name),
                              "the output is not a value of the graph");
    for (int64_t i = 0; i < g->update_count; i++) {
        const weft_value_info *to = &g->value[g->update[i].source.id],
                              *from = &g->value[g->update[i].value.id];
        if (!weft_op_has(g->node[to->node]->op, WEFT_TRAIT_PERSISTENT) ||
            to->dtype != from->dtype || !weft_shape_equal(&to->shape, &from->shape))
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = to->name),
                              "update %" PRId64 " does not fit its source", i);
        for (int64_t j = 0; j < i; j++)
            if (g->update[j].source.id == g->update[i].source.id)
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = to->name),
                                  "the source is updated twice");
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
        weft_buf_printf(out, "# error: %s%s%s\n", g->error_scope ? g->error_scope : "",
                        g->error_scope ? ": " : "",
                        g->error_text ? g->error_text : "out of memory");
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

/* Removes " at=N,N..." from a text in place. */
static void remove_starts(weft_buf *text)
{
    static const char mark[] = " at=";
    char *to = text->data, *from = text->data;
    for (char *at; (at = strstr(from, mark)); from = at) {
        memmove(to, from, (size_t)(at - from));
        to += at - from;
        at += sizeof mark - 1;
        at += strspn(at, "-0123456789,");
    }
    memmove(to, from, strlen(from) + 1);
    text->len = (int64_t)strlen(text->data);
}

uint64_t weft_graph_shard_hash(const weft_graph *g)
{
    weft_buf text = {0};
    weft_graph_print(g, &text);
    if (text.data)
        remove_starts(&text);
    const uint64_t hash = text.data ? XXH3_64bits(text.data, (size_t)text.len) : 0;
    weft_buf_free(&text);
    return hash;
}
