/* Reshard after forward: a sharded parameter that is gathered for its use is not kept from the
 * forward to the backward, but gathered a second time. A parameter used in bf16 is rounded a second
 * time.
 *
 *   before   G1 u1   G2 u2   G3 u3   ...   u3'   u2'   u1'         all gathered in the middle
 *   after    G1 u1   G2 u2   G3 u3   ...   G3 u3'   G2 u2'   G1 u1'
 *
 * Nodes that only pass the gathered parameter on are repeated, too. Communication grows by half,
 * and the peak no longer contains the complete model. Results are bitwise identical. */
#include "transform/memory/reshard.h"

#include "graph/rewrite.h"
#include "transform/memory/recompute_nodes.h"

/* Chooses the nodes that pass a parameter on, from its first copy. */
static void choose(const weft_graph *g, int32_t backward, bool *forwards_param, bool *chosen)
{
    for (int32_t n = 0; n < backward; n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op == WEFT_OP_PARAM) {
            forwards_param[n] = true;
            continue;
        }
        const bool copies = !weft_op_is_alias(node->op);
        if (!weft_op_has(node->op, WEFT_TRAIT_FORWARDS))
            continue;
        const int32_t made = weft_value_get(g, node->in[0])->node;
        forwards_param[n] = forwards_param[made];
        chosen[n] = forwards_param[n] && (copies || chosen[made]);
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

weft_status weft_pass_reshard(const weft_graph *g, weft_graph **out)
{
    const int64_t nodes = weft_graph_node_count(g);
    weft_status_code status = WEFT_OK;
    bool *forwards_param = weft_alloc(nodes + 1), *chosen = weft_alloc(nodes + 1);
    WEFT_GO(WEFT_ALLOCATED(forwards_param && chosen, "pass regather"));
    choose(g, weft_rewrite_backward(g), forwards_param, chosen);
    keep_outputs(g, chosen);
    WEFT_GO(weft_rewrite_recompute(g, chosen, NULL, "regather", out));
out:
    weft_free(forwards_param);
    weft_free(chosen);
    return status;
}
