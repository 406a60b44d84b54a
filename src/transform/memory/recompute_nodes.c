/* Making results of the forward again in the backward instead of keeping them: what recompute and
 * regather share. Just before the first node of the backward that reads such a result, its node is
 * emitted again, from the same operands: bitwise the same. */
#include "pass/rewrite.h"

typedef struct again {
    weft_rewrite r;
    const weft_graph *from;
    const bool *chosen; /* by node */
    const bool *away;   /* by node; NULL: none */
    weft_value *again;  /* by value: what the backward reads; WEFT_NONE: to be made again */
    int32_t *stack;
    int32_t backward; /* the first node of the backward */
} again;

int32_t weft_rewrite_backward(const weft_graph *g)
{
    int32_t n = 0;
    while (n < weft_graph_node_count(g) && !weft_graph_node(g, n)->backward)
        n++;
    return n;
}

/* Makes again what node n of the backward reads, operands first, without recursion (chains can be
 * long). */
static void make_again(again *c, int32_t n)
{
    int32_t depth = 0;
    c->stack[depth++] = n;
    while (depth) {
        const weft_node *node = weft_graph_node(c->from, c->stack[depth - 1]);
        int32_t missing = -1;
        for (int i = 0; i < node->in_count && missing < 0; i++)
            if (weft_value_ok(node->in[i]) && !weft_value_ok(c->again[node->in[i].id]))
                missing = weft_value_get(c->from, node->in[i])->node;
        if (missing >= 0) {
            c->stack[depth++] = missing;
            continue;
        }
        depth--;
        if (c->stack[depth] == n || weft_graph_check(c->r.to) != WEFT_OK)
            return;
        weft_rewrite_node(&c->r, c->stack[depth], c->again);
        const weft_value made = c->again[node->out[0].id];
        if (!weft_value_ok(made))
            return;
        weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, made)->node)->backward = true;
    }
}

static void copy_nodes(again *c)
{
    for (int32_t n = 0; n < weft_graph_node_count(c->from) && weft_graph_check(c->r.to) == WEFT_OK;
         n++) {
        const weft_node *node = weft_graph_node(c->from, n);
        if (n >= c->backward)
            make_again(c, n);
        weft_rewrite_node(&c->r, n, n >= c->backward ? c->again : NULL);
        const weft_value first = c->r.map[node->out[0].id];
        if (n < c->backward && c->away && c->away[n] && weft_value_ok(first))
            weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, first)->node)->away = true;
        for (int o = 0; o < node->out_count; o++) {
            if (!weft_value_ok(node->out[o]))
                continue;
            const int32_t v = node->out[o].id;
            if (n >= c->backward)
                c->r.map[v] = c->again[v];
            else if (!c->chosen[n])
                c->again[v] = c->r.map[v];
            else if (weft_value_ok(c->r.map[v]))
                weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, c->r.map[v])->node)
                    ->recompute = true;
        }
    }
}

weft_status weft_rewrite_again(const weft_graph *g, const bool *chosen, const bool *away,
                               const char *pass, weft_graph **out)
{
    again c = {.from = g, .chosen = chosen, .away = away, .backward = weft_rewrite_backward(g)};
    const int64_t nodes = weft_graph_node_count(g), values = weft_graph_value_count(g);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &c.r));
    c.again = weft_alloc((values + 1) * (int64_t)sizeof *c.again);
    c.stack = weft_alloc((nodes + 1) * (int64_t)sizeof *c.stack);
    if (!c.again || !c.stack) {
        weft_rewrite_abandon(&c.r);
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass %s", pass);
        goto out;
    }
    for (int64_t v = 0; v < values; v++)
        c.again[v] = WEFT_NONE;
    copy_nodes(&c);
    status = weft_rewrite_finish(&c.r, pass, out);
out:
    weft_free(c.again);
    weft_free(c.stack);
    return status;
}
