/* Splits the products of a denoising batch into CFG branches: rows with text, then the same rows
 * without text.
 *
 *   before   x (2B,S,K) ── linear ── y
 *   after    x[:B] ── linear ── y[:B]        rows stay in place: slices and the concat
 *            x[B:] ── linear ── y[B:]        copy nothing
 *
 * Libraries sum in another order if a product has another number of rows. After the split, results
 * are bitwise those of ranks with one branch each. */
#include "transform/numeric/cfg_branches.h"

#include "graph/builder_helpers.h"
#include "graph/rewrite.h"

#include <string.h>

typedef struct branch_splitter {
    weft_rewrite r;
    const weft_graph *g;
    bool *batched; /* per value: depends on an input per row, or on a feature cache */
} branch_splitter;

static void find_batched(branch_splitter *h)
{
    for (int32_t n = 0; n < weft_graph_node_count(h->g); n++) {
        const weft_node *node = weft_graph_node(h->g, n);
        const char *name = node->op == WEFT_OP_INPUT || node->op == WEFT_OP_STATE
                               ? weft_value_get(h->g, node->out[0])->name
                               : NULL;
        bool any = name && (!strncmp(name, "batch.", 6) || !strncmp(name, "reuse.", 6));
        for (int i = 0; i < node->in_count; i++)
            any = any || (weft_value_ok(node->in[i]) && h->batched[node->in[i].id]);
        for (int k = 0; k < node->out_count; k++)
            if (weft_value_ok(node->out[k]))
                h->batched[node->out[k].id] = any;
    }
}

static bool can_split(const weft_graph *g, weft_value v)
{
    const weft_shape *s = &weft_value_get(g, v)->shape;
    return s->rank > 0 && s->dim[0] > 0 && s->dim[0] % 2 == 0;
}

/* Sets cut[] by input: true if the input is split. Returns false if the node stays unsplit. */
static bool cuts(const branch_splitter *h, const weft_node *node, bool cut[2])
{
    const weft_op_cfg cfg = weft_op_get(node->op)->cfg;
    const bool linear = cfg == WEFT_CFG_weights;
    if (cfg == WEFT_CFG_whole)
        return false;
    const weft_value a = node->in[0], b = node->in[1];
    const int rank = weft_value_get(h->g, b)->shape.rank;
    cut[0] = h->batched[a.id];
    cut[1] = !linear && h->batched[b.id];
    if (!linear && (weft_value_get(h->g, a)->shape.rank < 3 || (cut[1] && rank < 3) || !cut[0]))
        return false;
    return cut[0] && can_split(h->g, a) && (!cut[1] || can_split(h->g, b)) &&
           can_split(h->g, node->out[0]) && (!linear || !h->batched[b.id]);
}

static weft_value half_of(branch_splitter *h, weft_value v, int which)
{
    const weft_value own = h->r.map[v.id];
    const int64_t rows = weft_value_get(h->g, v)->shape.dim[0] / 2;
    const weft_value out = weft_slice(h->r.to, own, 0, which * rows, rows);
    if (weft_value_ok(out))
        weft_graph_set_layout(h->r.to, out, weft_value_get(h->g, v)->layout);
    return out;
}

static void emit_branches(branch_splitter *h, const weft_node *node, const bool cut[2])
{
    weft_graph *to = h->r.to;
    const weft_layout *layout = weft_value_get(h->g, node->out[0])->layout;
    weft_value made[2];
    weft_graph_push(to, "%s", node->scope);
    for (int k = 0; k < 2; k++) {
        weft_value in[WEFT_MAX_INPUTS];
        for (int i = 0; i < node->in_count; i++)
            in[i] = !weft_value_ok(node->in[i]) ? WEFT_NONE
                    : i < 2 && cut[i]           ? half_of(h, node->in[i], k)
                                                : h->r.map[node->in[i].id];
        made[k] = weft_emit(to, node->op, in, node->in_count, node->attr);
        if (weft_value_ok(made[k]))
            weft_graph_set_layout(to, made[k], layout);
    }
    const weft_value all = weft_concat(to, made, 2, 0);
    if (weft_value_ok(all))
        weft_graph_set_layout(to, all, layout);
    h->r.map[node->out[0].id] = all;
    weft_graph_pop(to);
}

weft_status weft_pass_cfg_branches(const weft_graph *g, weft_graph **out)
{
    branch_splitter h = {.g = g, .batched = weft_alloc(weft_graph_value_count(g) + 1)};
    weft_status_code status = WEFT_ALLOCATED(h.batched, "pass halves");
    WEFT_GO(status);
    WEFT_GO(weft_rewrite_begin(g, &h.r));
    find_batched(&h);
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(h.r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(g, n);
        bool cut[2];
        if (cuts(&h, node, cut))
            emit_branches(&h, node, cut);
        else
            weft_rewrite_node(&h.r, n, NULL);
    }
    status = weft_rewrite_finish(&h.r, "halves", out);
out:
    weft_free(h.batched);
    return status;
}
