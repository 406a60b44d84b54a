#include "transform/sharding/token_chunks.h"

#include "graph/builder_helpers.h"
#include "graph/graph.h"

int64_t weft_token_chunks_most(const weft_axis_shard *p, const weft_node *n,
                               const weft_recipe_row *row, const weft_layout_choice *choice)
{
    const weft_shape *out = &weft_value_get(p->axis->smallest, n->out[0])->shape,
                     *largest = &weft_axis_info(p, n->out[0])->shape;
    if (choice->out[0].kind != WEFT_P || out->rank < 3 || !out->dim[WEFT_TOKENS_DIM])
        return 1;
    if (row->layout.kind == WEFT_R)
        return out->dim[WEFT_TOKENS_DIM];
    const bool even = out->dim[WEFT_TOKENS_DIM] % p->axis->ranks == 0 &&
                      largest->dim[WEFT_TOKENS_DIM] % p->axis->ranks == 0;
    return row->layout.kind == WEFT_S && row->layout.dim == WEFT_TOKENS_DIM && even
               ? out->dim[WEFT_TOKENS_DIM] / p->axis->ranks
               : 1;
}

/* Emits chunk c of the operand. */
static weft_value take_chunk(weft_axis_shard *p, weft_value x, bool scatters, int32_t c,
                             int32_t count)
{
    const int64_t tokens = weft_value_get(p->to, x)->shape.dim[WEFT_TOKENS_DIM],
                  each = scatters ? tokens / p->axis->ranks : tokens, start = c * each / count,
                  len = (c + 1) * each / count - start;
    if (!scatters)
        return weft_slice(p->to, x, WEFT_TOKENS_DIM, start, len);
    weft_value *part = weft_calloc(p->axis->ranks, sizeof *part), made = WEFT_NONE;
    if (!part) {
        weft_graph_fail(p->to, WEFT_MSG_OUT_OF_MEMORY, "out of memory sharding a graph");
        return made;
    }
    for (int r = 0; r < p->axis->ranks; r++)
        part[r] = weft_slice(p->to, x, WEFT_TOKENS_DIM, r * each + start, len);
    made = weft_concat(p->to, part, p->axis->ranks, WEFT_TOKENS_DIM);
    weft_free(part);
    return made;
}

enum { CHAIN_MOST = 8 };
/* Nodes of `to` that lead to a product, from the product backward, and the operand of the first. */
typedef struct chain {
    const weft_node *node[CHAIN_MOST];
    int count;
    weft_value begin;
} chain;

/* Returns true if each token of the result depends on the same token of the first operand only. */
static bool keeps_tokens(const weft_graph *g, const weft_node *n)
{
    const bool attends = n->op == WEFT_OP_ATTENTION;
    if (weft_op_get(n->op)->chunk != WEFT_CHUNK_leads)
        return false;
    const weft_shape *in = &weft_value_get(g, n->in[0])->shape,
                     *out = &weft_value_get(g, n->out[0])->shape;
    if (attends && (((const weft_attr_attention *)n->attr)->causal ||
                    (n->in_count > 3 && weft_value_ok(n->in[3]))))
        return false;
    return in->rank >= 3 && out->rank >= 3 && in->dim[0] == out->dim[0] &&
           in->dim[WEFT_TOKENS_DIM] == out->dim[WEFT_TOKENS_DIM];
}

/* Finds the chain that leads to a product, as far as no exchange is in between and the nodes are
 * unchanged. The undivided nodes of the chain become dead and are removed by the pass
 * comm_order. */
static void find_chain(const weft_axis_shard *p, const weft_node *n, weft_value x, chain *c)
{
    weft_value v = n->in[0];
    *c = (chain){.begin = x};
    while (c->count < CHAIN_MOST) {
        const weft_node *was = weft_graph_node(p->axis->from, weft_axis_info(p, v)->node),
                        *is = weft_graph_node(p->to, weft_value_get(p->to, c->begin)->node);
        const bool attends = is->op == WEFT_OP_ATTENTION;
        if (was->op != is->op || !keeps_tokens(p->to, is) || p->consumers[v.id].all != 1 ||
            (attends && p->consumers[was->out[1].id].all))
            return;
        c->node[c->count++] = is;
        c->begin = is->in[0];
        v = was->in[0];
        if (attends)
            return;
    }
}

/* Emits the chain for a chunk `x` of its first operand. Returns the product's operand. */
static weft_value follow_chain(weft_axis_shard *p, const chain *c, const char *scope, weft_value x)
{
    for (int k = c->count - 1; k >= 0 && weft_graph_check(p->to) == WEFT_OK; k--) {
        const weft_node *n = c->node[k];
        weft_value in[WEFT_MAX_INPUTS], made[WEFT_MAX_OUTPUTS];
        weft_shape shape = weft_value_get(p->to, n->out[0])->shape;
        shape.dim[WEFT_TOKENS_DIM] = weft_value_get(p->to, x)->shape.dim[WEFT_TOKENS_DIM];
        for (int i = 0; i < n->in_count; i++)
            in[i] = i ? n->in[i] : x;
        weft_graph_pop(p->to);
        weft_graph_push(p->to, "%s", n->scope);
        if (n->op == WEFT_OP_RESHAPE)
            made[0] = weft_reshape(p->to, x, shape);
        else
            weft_emit_all(p->to, n->op, in, n->in_count, n->attr, made);
        weft_graph_pop(p->to);
        weft_graph_push(p->to, "%s", scope);
        x = made[0];
        if (weft_value_ok(x)) /* a reshape's layout does not follow from its operand */
            weft_graph_set_layout(p->to, x, weft_value_get(p->to, n->out[0])->layout);
    }
    return x;
}

void weft_token_chunks_emit(weft_axis_shard *p, const weft_node *n, const weft_recipe_row *row,
                            const weft_layout_choice *choice, int32_t count)
{
    const bool scatters = row->layout.kind == WEFT_S;
    const weft_value out = n->out[0];
    weft_value *part = weft_calloc(count, sizeof *part);
    if (!part) {
        weft_graph_fail(p->to, WEFT_MSG_OUT_OF_MEMORY, "out of memory sharding a graph");
        return;
    }
    for (int i = 0; i < n->in_count; i++)
        p->in[i] = weft_axis_operand(p, n, choice, i);
    chain lead;
    find_chain(p, n, p->in[0], &lead);
    for (int32_t c = 0; c < count && weft_graph_check(p->to) == WEFT_OK; c++) {
        p->in[0] = follow_chain(p, &lead, n->scope, take_chunk(p, lead.begin, scatters, c, count));
        part[c] = weft_emit(p->to, n->op, p->in, n->in_count, n->attr);
        if (weft_graph_check(p->to) != WEFT_OK)
            break;
        weft_attr_comm attr = {.axis = p->axis->number};
        if (scatters) {
            attr.dim = WEFT_TOKENS_DIM;
            attr.global = weft_value_get(p->to, part[c])->shape.dim[WEFT_TOKENS_DIM];
        }
        part[c] = weft_emit(p->to, scatters ? WEFT_OP_REDUCE_SCATTER : WEFT_OP_ALL_REDUCE, &part[c],
                            1, &attr);
    }
    if (weft_graph_check(p->to) == WEFT_OK) {
        p->home[out.id] = row->layout;
        weft_axis_put(p, out, row->layout, weft_concat(p->to, part, count, WEFT_TOKENS_DIM));
        weft_axis_check_shape(p, n, out, row->layout,
                              p->version[out.id][weft_layout_slot(row->layout)]);
    }
    weft_free(part);
}
