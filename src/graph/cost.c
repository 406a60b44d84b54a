/* Cost of a node on this rank: FLOPs (a multiply-add is two), bytes read and written once, bytes
 * sent. */
#include "graph/internal.h"

static int64_t bytes_of(const weft_graph *g, weft_value v)
{
    if (!weft_value_ok(v))
        return 0;
    const weft_value_info *info = &g->value[v.id];
    return weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
}

static int64_t traffic(const weft_graph *g, const weft_node *node)
{
    int64_t bytes = 0;
    for (int i = 0; i < node->in_count; i++)
        bytes += bytes_of(g, node->in[i]);
    for (int i = 0; i < node->out_count; i++)
        bytes += bytes_of(g, node->out[i]);
    return bytes;
}

static int64_t count_of(const weft_graph *g, weft_value v)
{
    return weft_shape_count(&g->value[v.id].shape);
}

weft_cost weft_cost_free(const weft_graph *g, const weft_node *node)
{
    (void)g, (void)node;
    return (weft_cost){0};
}

weft_cost weft_cost_move(const weft_graph *g, const weft_node *node)
{
    return (weft_cost){.bytes = traffic(g, node)};
}

/* Ten Philox rounds and a Box-Muller transform for each pair. */
weft_cost weft_cost_random(const weft_graph *g, const weft_node *node)
{
    return (weft_cost){.flops = 40 * count_of(g, node->out[0]), .bytes = traffic(g, node)};
}

/* One operation per element of the largest operand: these nodes are bound by memory, not by
 * arithmetic. */
weft_cost weft_cost_elementwise(const weft_graph *g, const weft_node *node)
{
    int64_t largest = 0;
    for (int i = 0; i < node->in_count; i++)
        if (weft_value_ok(node->in[i]) && count_of(g, node->in[i]) > largest)
            largest = count_of(g, node->in[i]);
    return (weft_cost){.flops = largest, .bytes = traffic(g, node)};
}

weft_cost weft_cost_pointwise(const weft_graph *g, const weft_node *node)
{
    const weft_attr_pointwise *attr = node->attr;
    return (weft_cost){.flops = attr->count * count_of(g, node->out[0]), .bytes = traffic(g, node)};
}

weft_cost weft_cost_matmul(const weft_graph *g, const weft_node *node)
{
    const weft_shape *a = &g->value[node->in[0].id].shape;
    const bool trans_a =
        node->op == WEFT_OP_MATMUL && ((const weft_attr_matmul *)node->attr)->trans_a;
    const int64_t k = a->dim[a->rank - (trans_a ? 2 : 1)];
    return (weft_cost){.flops = 2 * k * count_of(g, node->out[0]), .bytes = traffic(g, node)};
}

/* Rows by expert are all counted, since the number of used rows is known only when the node
 * runs. */
weft_cost weft_cost_expert_matmul(const weft_graph *g, const weft_node *node)
{
    const weft_value w = node->op == WEFT_OP_EXPERT_MATMUL ? node->in[1] : node->out[0];
    const weft_shape *s = &g->value[w.id].shape;
    return (weft_cost){.flops = 2 * s->dim[1] * s->dim[2] * count_of(g, node->in[2]),
                       .bytes = traffic(g, node)};
}

/* 2 x kernel x channels per element of the convolution's output, whichever of its three operands is
 * computed. */
weft_cost weft_cost_conv(const weft_graph *g, const weft_node *node)
{
    const weft_value y = node->op == WEFT_OP_CONV3D      ? node->out[0]
                         : node->op == WEFT_OP_CONV3D_DX ? node->in[0]
                                                         : node->in[1];
    const weft_value w = node->op == WEFT_OP_CONV3D_DW ? node->out[0] : node->in[1];
    const weft_shape *ws = &g->value[w.id].shape;
    const int64_t per_output = ws->dim[0] ? weft_shape_count(ws) / ws->dim[0] : 0;
    return (weft_cost){.flops = 2 * per_output * count_of(g, y), .bytes = traffic(g, node)};
}

/* The op that made `v`, past ops that forward, convert or slice values. */
static const weft_node *maker_of(const weft_graph *g, weft_value v)
{
    const weft_node *node = g->node[g->value[v.id].node];
    while (node->in_count > 0 && (node->op == WEFT_OP_SLICE || node->op == WEFT_OP_STOP ||
                                  weft_op_has(node->op, WEFT_TRAIT_FORWARDS) ||
                                  weft_op_has(node->op, WEFT_TRAIT_CONVERTS)))
        node = g->node[g->value[node->in[0].id].node];
    return node;
}

/* Keys that a query attends to: of blocks that top_share chose, its share. top_p and other ops
 * choose a number that depends on values: all blocks are counted. */
static int64_t keys_of(const weft_graph *g, const weft_node *node)
{
    const int64_t keys = g->value[node->in[1].id].shape.dim[1];
    const bool is_gradient = node->op == WEFT_OP_BLOCK_ATTENTION_GRAD;
    if (node->op != WEFT_OP_BLOCK_ATTENTION && !is_gradient)
        return keys;
    const weft_value chosen = node->in[is_gradient ? 6 : 3];
    const weft_node *made = maker_of(g, chosen);
    if (made->op != WEFT_OP_TOP_SHARE)
        return keys;
    const int64_t blocks = g->value[chosen.id].shape.dim[3];
    const double share = ((const weft_attr_top_share *)made->attr)->share;
    const int64_t count = (int64_t)(share * (double)blocks);
    return (count > 0 ? count : 1) * (keys / blocks);
}

/* Forward: QK^T and PV. Backward: dV, dP, dQ, dK, and QK^T recomputed. Segments are counted as if
 * full. */
weft_cost weft_cost_attention(const weft_graph *g, const weft_node *node)
{
    const int64_t pair = 2 * count_of(g, node->in[0]) * keys_of(g, node);
    const bool backward =
        node->op == WEFT_OP_ATTENTION_GRAD || node->op == WEFT_OP_BLOCK_ATTENTION_GRAD;
    return (weft_cost){.flops = pair * (backward ? 5 : 2), .bytes = traffic(g, node)};
}

/* Ring algorithms over k ranks: all_reduce sends 2 (k-1)/k of the tensor, all_gather and
 * reduce_scatter (k-1)/k of the unsharded tensor, all_to_all (k-1)/k of the shard. */
weft_cost weft_cost_comm(const weft_graph *g, const weft_node *node)
{
    const weft_attr_comm *a = node->attr;
    const int64_t k = a->axis < g->mesh.axis_count ? g->mesh.axis[a->axis].size : 1;
    int64_t bytes = bytes_of(g, node->in[0]);
    if (node->op == WEFT_OP_ALL_GATHER)
        bytes = bytes_of(g, node->out[0]);
    int64_t wire = bytes * (k - 1) / k;
    if (node->op == WEFT_OP_ALL_REDUCE)
        wire *= 2;
    if (node->op == WEFT_OP_RING_SHIFT || node->op == WEFT_OP_RELAY)
        wire = k > 1 ? bytes : 0;
    return (weft_cost){.bytes = traffic(g, node), .wire_bytes = wire};
}
