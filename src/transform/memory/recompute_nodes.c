/* Recomputes forward results in the backward instead of saving them, for the passes recompute and
 * reshard_after_forward. The node of such a result is emitted again just before the first backward
 * node that reads the result, with the same operands. Results are bitwise identical. */
#include "transform/memory/recompute_nodes.h"

#include "graph/rewrite.h"

typedef struct recomputer {
    weft_rewrite r;
    const weft_graph *from;
    const bool *recompute;  /* one per node */
    const bool *offload;    /* per node; NULL: none */
    weft_value *recomputed; /* per value: operand of the backward; WEFT_NONE: not emitted yet */
    int32_t *stack;
    int32_t backward; /* the first node of the backward */
} recomputer;

int32_t weft_rewrite_backward(const weft_graph *g)
{
    int32_t n = 0;
    while (n < weft_graph_node_count(g) && !weft_graph_node(g, n)->backward)
        n++;
    return n;
}

/* Emits the recomputed operands of backward node n, operands first. Not recursive, because chains
 * can be long. */
static void emit_recomputed(recomputer *c, int32_t n)
{
    int32_t depth = 0;
    c->stack[depth++] = n;
    while (depth) {
        const weft_node *node = weft_graph_node(c->from, c->stack[depth - 1]);
        int32_t missing = -1;
        for (int i = 0; i < node->in_count && missing < 0; i++)
            if (weft_value_ok(node->in[i]) && !weft_value_ok(c->recomputed[node->in[i].id]))
                missing = weft_value_get(c->from, node->in[i])->node;
        if (missing >= 0) {
            c->stack[depth++] = missing;
            continue;
        }
        depth--;
        if (c->stack[depth] == n || weft_graph_check(c->r.to) != WEFT_OK)
            return;
        weft_rewrite_node(&c->r, c->stack[depth], c->recomputed);
        const weft_value made = c->recomputed[node->out[0].id];
        if (!weft_value_ok(made))
            return;
        weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, made)->node)->backward = true;
    }
}

static void copy_nodes(recomputer *c)
{
    for (int32_t n = 0; n < weft_graph_node_count(c->from) && weft_graph_check(c->r.to) == WEFT_OK;
         n++) {
        const weft_node *node = weft_graph_node(c->from, n);
        if (n >= c->backward)
            emit_recomputed(c, n);
        weft_rewrite_node(&c->r, n, n >= c->backward ? c->recomputed : NULL);
        const weft_value first = c->r.map[node->out[0].id];
        if (n < c->backward && c->offload && c->offload[n] && weft_value_ok(first))
            weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, first)->node)->offload = true;
        for (int o = 0; o < node->out_count; o++) {
            if (!weft_value_ok(node->out[o]))
                continue;
            const int32_t v = node->out[o].id;
            if (n >= c->backward)
                c->r.map[v] = c->recomputed[v];
            else if (!c->recompute[n])
                c->recomputed[v] = c->r.map[v];
            else if (weft_value_ok(c->r.map[v]))
                weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, c->r.map[v])->node)
                    ->recompute = true;
        }
    }
}

weft_status weft_rewrite_recompute(const weft_graph *g, const bool *recompute, const bool *offload,
                                   const char *pass, weft_graph **out)
{
    recomputer c = {.from = g,
                    .recompute = recompute,
                    .offload = offload,
                    .backward = weft_rewrite_backward(g)};
    const int64_t nodes = weft_graph_node_count(g), values = weft_graph_value_count(g);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &c.r));
    c.recomputed = weft_calloc(values + 1, sizeof *c.recomputed);
    c.stack = weft_calloc(nodes + 1, sizeof *c.stack);
    if (!c.recomputed || !c.stack) {
        weft_rewrite_abandon(&c.r);
        WEFT_GO(weft_no_memory("pass %s", pass));
    }
    for (int64_t v = 0; v < values; v++)
        c.recomputed[v] = WEFT_NONE;
    copy_nodes(&c);
    status = weft_rewrite_finish(&c.r, pass, out);
out:
    weft_free(c.recomputed);
    weft_free(c.stack);
    return status;
}
