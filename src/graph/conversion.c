#include "graph/conversion.h"

#include <stddef.h>

/* The first row with a pair of layouts is the op that converts between them. */
static const weft_conversion table[] = {
    {WEFT_OP_VARY, WEFT_R, WEFT_V, false},       {WEFT_OP_ALL_REDUCE, WEFT_P, WEFT_R, false},
    {WEFT_OP_ALL_GATHER, WEFT_S, WEFT_V, false}, {WEFT_OP_REDUCE_SCATTER, WEFT_P, WEFT_S, false},
    {WEFT_OP_SLICE_OWN, WEFT_R, WEFT_S, false},  {WEFT_OP_ALL_TO_ALL, WEFT_S, WEFT_S, true},
    {WEFT_OP_RING_SHIFT, WEFT_S, WEFT_S, false}, {WEFT_OP_RELAY, WEFT_UNKNOWN, WEFT_V, false},
};

const weft_conversion *weft_conversion_get(weft_op op)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == op)
            return &table[i];
    return NULL;
}

weft_op weft_conversion_op(weft_layout_kind from, weft_layout_kind to)
{
    /* a gather to R is the same op with the attribute `invariant` */
    const weft_layout_kind result = from == WEFT_S && to == WEFT_R ? WEFT_V : to;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].from == from && table[i].to == result)
            return table[i].op;
    return WEFT_OP_COUNT;
}

bool weft_conversion_accepts(const weft_node *node, weft_layout operand)
{
    const weft_conversion *row = weft_conversion_get(node->op);
    const weft_attr_comm *attr = node->attr;
    return row->from == WEFT_UNKNOWN || (row->from == (weft_layout_kind)operand.kind &&
                                         (row->from != WEFT_S || operand.dim == attr->dim));
}

weft_layout weft_conversion_result(const weft_node *node)
{
    const weft_conversion *row = weft_conversion_get(node->op);
    const weft_attr_comm *attr = node->attr;
    if (row->to == WEFT_S)
        return (weft_layout){WEFT_S, (int8_t)(row->second ? attr->dim2 : attr->dim)};
    return (weft_layout){row->from == WEFT_S && attr->invariant ? WEFT_R : row->to, 0};
}

bool weft_conversion_moves_dim(const weft_node *node, int d)
{
    const weft_conversion *row = weft_conversion_get(node->op);
    const weft_attr_comm *attr = node->attr;
    return (row->from == WEFT_S || row->to == WEFT_S) &&
           (d == attr->dim || (row->second && d == attr->dim2));
}
