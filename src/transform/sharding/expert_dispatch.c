/* Expert parallelism for mixtures without dropped tokens: the first step of the shard pass.
 *
 * A model computes its experts' products by token, (B,S,k,C), with one row per choice and no
 * movement of tokens. Ranks that hold complete experts need rows by expert, (E,B,S,C). Then a split
 * of E is a split of experts, a split of B is a split of samples, and an all-to-all converts
 * between both:
 *
 *   x (B,S,1,C) --dispatch--> (E,B,S,C) --w1, w3, silu, mul, w2--> (E,B,S,C) --collect--> (B,S,k,C)
 *                                    all_to_all               all_to_all
 *
 * Row s of expert e is used only if token s chose e. Shapes must be known in advance and all tokens
 * may choose experts of one rank, so every expert has a row for every token. */

#include "transform/sharding/expert_dispatch.h"

#include "graph/graph.h"
#include "transform/sharding/shard_open.h"

typedef struct spread {
    const weft_graph *from;
    weft_graph *to;
    weft_value *tokens; /* per value of `from`: by token; WEFT_NONE: not emitted, see `rows` */
    weft_value *rows;   /* per value of `from`: by expert; WEFT_NONE: not emitted */
    weft_value *used;   /* per ids of `from`: which rows are used */
    int32_t *ids;       /* ids (of `from`) of the dispatch, per value with rows */
} spread;

/* Returns true for a product by token with a stack whose experts the recipe places on ranks. */
static bool goes_to_experts(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                            const weft_node *n)
{
    return n->op == WEFT_OP_EXPERT_MATMUL &&
           !((const weft_attr_expert_matmul *)n->attr)->by_expert &&
           weft_recipe_keeps_split(g, mesh, recipe, n->in[1], 0);
}

static weft_value as_tokens(spread *s, weft_value v)
{
    weft_value *made = &s->tokens[v.id];
    if (weft_value_ok(*made) || !weft_value_ok(s->rows[v.id]))
        return *made;
    const weft_value rows = s->rows[v.id];
    const weft_attr_experts attr = {.experts = weft_value_get(s->to, rows)->shape.dim[0]};
    *made =
        weft_emit(s->to, WEFT_OP_COLLECT, (weft_value[]){rows, s->tokens[s->ids[v.id]]}, 2, &attr);
    return *made;
}

static weft_value as_rows(spread *s, weft_value v, weft_value ids, int64_t experts)
{
    const weft_attr_experts attr = {.experts = experts};
    weft_value *made = &s->rows[v.id];
    if (weft_value_ok(*made) && s->ids[v.id] == ids.id)
        return *made;
    *made = weft_emit(s->to, WEFT_OP_DISPATCH, (weft_value[]){as_tokens(s, v), s->tokens[ids.id]},
                      2, &attr);
    s->ids[v.id] = ids.id;
    return *made;
}

static void multiply(spread *s, const weft_node *n)
{
    weft_attr_expert_matmul attr = *(const weft_attr_expert_matmul *)n->attr;
    const weft_value ids = n->in[2], w = s->tokens[n->in[1].id];
    const weft_attr_experts all = {.experts = weft_value_get(s->from, n->in[1])->shape.dim[0]};
    if (!weft_value_ok(s->used[ids.id]))
        s->used[ids.id] = weft_emit(s->to, WEFT_OP_EXPERT_SLOTS, &s->tokens[ids.id], 1, &all);
    const weft_value x = as_rows(s, n->in[0], ids, all.experts);
    attr.by_expert = true;
    s->rows[n->out[0].id] =
        weft_emit(s->to, WEFT_OP_EXPERT_MATMUL, (weft_value[]){x, w, s->used[ids.id]}, 3, &attr);
    s->ids[n->out[0].id] = ids.id;
}

/* Returns true for an elementwise op whose operands all exist by expert only, with the same ids. */
static bool stays_with_experts(const spread *s, const weft_node *n)
{
    bool stays = weft_op_get(n->op)->position != WEFT_POSITION_mixed;
    for (int i = 0; stays && i < n->in_count; i++)
        stays = weft_value_ok(s->rows[n->in[i].id]) && !weft_value_ok(s->tokens[n->in[i].id]) &&
                s->ids[n->in[i].id] == s->ids[n->in[0].id];
    return stays;
}

static void take_node(spread *s, int32_t index, bool goes)
{
    const weft_node *n = weft_graph_node(s->from, index);
    weft_graph_push(s->to, "%s", n->scope);
    if (goes) {
        multiply(s, n);
    } else if (stays_with_experts(s, n)) {
        weft_value in[2];
        for (int i = 0; i < n->in_count; i++)
            in[i] = s->rows[n->in[i].id];
        s->rows[n->out[0].id] = weft_emit(s->to, n->op, in, n->in_count, n->attr);
        s->ids[n->out[0].id] = s->ids[n->in[0].id];
    } else {
        for (int i = 0; i < n->in_count; i++)
            if (weft_value_ok(n->in[i]))
                as_tokens(s, n->in[i]);
    }
    weft_graph_pop(s->to);
    if (!weft_value_ok(s->rows[n->out[0].id]))
        weft_graph_copy_node(s->to, s->from, index, s->tokens);
}

static void take_ends(spread *s)
{
    int count;
    const weft_named *outputs = weft_graph_outputs(s->from, &count);
    for (int i = 0; i < count; i++)
        weft_output(s->to, outputs[i].name, as_tokens(s, outputs[i].value));
    const weft_pair *updates = weft_graph_updates(s->from, &count);
    for (int i = 0; i < count; i++)
        weft_update(s->to, s->tokens[updates[i].source.id], as_tokens(s, updates[i].value));
}

weft_status weft_pass_experts(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                              weft_graph **out)
{
    const int32_t nodes = weft_graph_node_count(g);
    const int64_t values = weft_graph_value_count(g), bytes = values * (int64_t)sizeof(weft_value);
    bool any = false;
    *out = NULL;
    for (int32_t i = 0; i < nodes && !any; i++)
        any = goes_to_experts(g, mesh, recipe, weft_graph_node(g, i));
    if (!any)
        return WEFT_OK;
    spread s = {.from = g,
                .to = weft_graph_create(),
                .tokens = weft_alloc(bytes),
                .rows = weft_alloc(bytes),
                .used = weft_alloc(bytes),
                .ids = weft_alloc(bytes)};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(s.to && s.tokens && s.rows && s.used && s.ids, "experts"));
    for (int64_t v = 0; v < values; v++)
        s.tokens[v] = s.rows[v] = s.used[v] = WEFT_NONE;
    for (int32_t i = 0; i < nodes; i++) {
        take_node(&s, i, goes_to_experts(g, mesh, recipe, weft_graph_node(g, i)));
        WEFT_GO(weft_graph_check(s.to));
    }
    take_ends(&s);
    WEFT_GO(weft_graph_check(s.to));
    *out = s.to;
    s.to = NULL;
out:
    weft_graph_free(s.to);
    weft_free(s.tokens);
    weft_free(s.rows);
    weft_free(s.used);
    weft_free(s.ids);
    return status;
}
