/* Regathering: a parameter that is split in memory and gathered where it is used is not kept whole
 * from its use in the forward to that in the backward, but gathered a second time; and one that is
 * used in bf16 is rounded a second time.
 *
 *   before   G1 u1   G2 u2   G3 u3   ...   u3'   u2'   u1'         all whole in the middle
 *   after    G1 u1   G2 u2   G3 u3   ...   G3 u3'   G2 u2'   G1 u1'
 *
 * With it go the nodes that only hand the gathered parameter on. It costs half as many bytes on the
 * wire again, and the peak has no longer the whole model. Bitwise the same results. */
#include "pass/rewrite.h"

/* Nodes that hand a parameter on, from the first copy of it. */
static void choose(const weft_graph *g, int32_t backward, bool *handed, bool *chosen)
{
    for (int32_t n = 0; n < backward; n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op == WEFT_OP_PARAM) {
            handed[n] = true;
            continue;
        }
        const bool copies = node->op == WEFT_OP_ALL_GATHER || node->op == WEFT_OP_CAST;
        if (node->in_count != 1 || !(copies || weft_op_is_alias(node->op)))
            continue;
        const int32_t made = weft_value_get(g, node->in[0])->node;
        handed[n] = handed[made];
        chosen[n] = handed[n] && (copies || chosen[made]);
    }
}

static void keep_outputs(const weft_graph *g, bool *chosen)
{
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        chosen[weft_value_get(g, output[i].value)->node] = false;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        chosen[weft_value_get(g, update[i].value)->node] = false;
}

weft_status weft_pass_regather(const weft_graph *g, weft_graph **out)
{
    const int64_t nodes = weft_graph_node_count(g);
    weft_status_code status = WEFT_OK;
    bool *handed = weft_alloc(nodes + 1), *chosen = weft_alloc(nodes + 1);
    if (!handed || !chosen) {
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass regather");
        goto out;
    }
    choose(g, weft_rewrite_backward(g), handed, chosen);
    keep_outputs(g, chosen);
    WEFT_GO(weft_rewrite_again(g, chosen, NULL, "regather", out));
out:
    weft_free(handed);
    weft_free(chosen);
    return status;
}
