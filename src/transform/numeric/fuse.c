/* Fusion: linear, then gelu (tanh form) or silu, become one linear with that activation, where
 * nothing else reads the value between. A graph with a backward reads the value there (gelu_grad
 * needs it) unless the linear layer is recomputed. The fused layer rounds the value to the type
 * that it had, so that results are bitwise identical with and without fusion. */
#include "transform/numeric/fuse.h"

#include "graph/rewrite.h"

/* Counts the reads of each value by nodes, outputs and updates. */
static void count_reads(const weft_graph *g, int32_t *reads)
{
    int count;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                reads[node->in[i].id]++;
    }
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        reads[output[i].value.id]++;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        reads[update[i].value.id]++;
}

/* The linear node whose only consumer is activation node n; -1: none. */
static int32_t fusible(const weft_graph *g, int32_t n, const int32_t *reads)
{
    const weft_node *node = weft_graph_node(g, n);
    if (node->op != WEFT_OP_SILU &&
        (node->op != WEFT_OP_GELU || ((const weft_attr_gelu *)node->attr)->exact))
        return -1;
    const int32_t producer = weft_value_get(g, node->in[0])->node;
    const weft_node *linear = weft_graph_node(g, producer);
    if (linear->op != WEFT_OP_LINEAR ||
        ((const weft_attr_linear *)linear->attr)->act != WEFT_ACT_NONE)
        return -1;
    return reads[node->in[0].id] == 1 ? producer : -1;
}

weft_status weft_pass_fuse(const weft_graph *g, weft_graph **out)
{
    weft_rewrite r;
    WEFT_TRY(weft_rewrite_begin(g, &r));
    const int32_t nodes = weft_graph_node_count(g);
    int32_t *reads = weft_calloc(weft_graph_value_count(g) + 1, sizeof *reads);
    int32_t *with = weft_calloc(nodes + 1, sizeof *with); /* activation + 1, per linear node */
    weft_status_code status = WEFT_OK;
    if (!reads || !with) {
        weft_rewrite_abandon(&r);
        WEFT_GO(weft_no_memory("pass fuse"));
    }
    count_reads(g, reads);
    for (int32_t n = 0; n < nodes; n++) {
        const int32_t linear = fusible(g, n, reads);
        if (linear >= 0)
            with[linear] = n + 1;
    }
    for (int32_t n = 0; n < nodes && weft_graph_check(r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_LINEAR || !with[n]) {
            if (fusible(g, n, reads) < 0)
                weft_rewrite_node(&r, n, NULL);
            continue;
        }
        const weft_node *act = weft_graph_node(g, with[n] - 1);
        weft_value in[WEFT_MAX_INPUTS];
        for (int i = 0; i < node->in_count; i++)
            in[i] = weft_value_ok(node->in[i]) ? r.map[node->in[i].id] : WEFT_NONE;
        const weft_attr_linear attr = {.act = act->op == WEFT_OP_SILU ? WEFT_ACT_SILU
                                                                      : WEFT_ACT_GELU_TANH,
                                       .round = weft_value_get(g, node->out[0])->dtype,
                                       .tf32 = weft_op_is_tf32(node->op, node->attr)};
        weft_graph_push(r.to, "%s", node->scope);
        const weft_value made = weft_emit(r.to, WEFT_OP_LINEAR, in, node->in_count, &attr);
        weft_graph_pop(r.to);
        if (!weft_value_ok(made))
            break;
        weft_graph_set_layout(r.to, made, weft_value_get(g, act->out[0])->layout);
        r.map[act->out[0].id] = made;
    }
    status = weft_rewrite_finish(&r, "fuse", out);
out:
    weft_free(reads);
    weft_free(with);
    return status;
}
