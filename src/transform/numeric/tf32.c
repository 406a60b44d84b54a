#include "transform/numeric/tf32.h"

#include "graph/rewrite.h"

#include <string.h>

/* Inputs of an op that it multiplies: q, k and v of attention, and with a gradient also dout. */
static bool has_f32_operands(const weft_graph *g, const weft_node *node)
{
    const bool is_gradient =
                   node->op == WEFT_OP_ATTENTION_GRAD || node->op == WEFT_OP_BLOCK_ATTENTION_GRAD,
               attends = is_gradient || node->op == WEFT_OP_ATTENTION ||
                         node->op == WEFT_OP_BLOCK_ATTENTION;
    for (int i = 0; i < (attends ? 3 : 2); i++)
        if (weft_value_get(g, node->in[i])->dtype != WEFT_F32)
            return false;
    return !is_gradient || weft_value_get(g, node->in[5])->dtype == WEFT_F32;
}

static void copy_node(weft_rewrite *r, int32_t n)
{
    const weft_node *node = weft_graph_node(r->from, n);
    weft_any_attr attr;
    bool *tf32 = weft_op_tf32(node->op, &attr);
    if (!tf32 || !has_f32_operands(r->from, node)) {
        weft_rewrite_node(r, n, NULL);
        return;
    }
    memcpy(&attr, node->attr, (size_t)weft_op_get(node->op)->attr_bytes);
    *tf32 = true;
    weft_graph_copy_node_with(r->to, r->from, n, &attr, r->map);
}

weft_status weft_pass_tf32(const weft_graph *g, weft_graph **out)
{
    weft_rewrite r;
    WEFT_TRY(weft_rewrite_begin(g, &r));
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(r.to) == WEFT_OK; n++)
        copy_node(&r, n);
    return weft_rewrite_finish(&r, "tf32", out);
}
