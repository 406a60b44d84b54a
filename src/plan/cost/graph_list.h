/* Converts a training graph to the operator list of the planners. The planners read scopes, shapes
 * and cost rows, and no model.
 *
 * An operator is a run of forward nodes of one block, one module in the block and one kind of work.
 * Their backward nodes from autodiff belong to it:
 *
 *   scope  blocks.3            blocks.3.attn1                          blocks.3    blocks.3.ffn
 *          layer_norm modulate linear linear linear rms_norm rope ...  gated_add   linear gelu
 *          `----- "blocks pointwise" `- "blocks.attn1 product" ...
 *
 *   output_bytes      forward values that a cut after the run would have to send
 *   activation_bytes  forward values of the run that the backward reads
 *   update            all other nodes: gradient clipping, optimizer, EMA */
#ifndef WEFT_PLAN_GRAPH_LIST_H
#define WEFT_PLAN_GRAPH_LIST_H

#include "plan/cluster/cluster.h"
#include "plan/ops/rates.h"

/* Makes the list of `graph`, a complete training graph of one sample: forward, loss, gradients, and
 * optionally the update. With the device's rates every operator has measured seconds, otherwise
 * FLOPs and bytes at the device's figures. `float_bytes` is the size of a float in the planned run
 * (2: bf16); the graph itself is f32. The largest self-attention determines layers, heads, width
 * and tokens. */
weft_status weft_op_list_from_graph(weft_arena *arena, const weft_graph *graph,
                                    const weft_device_type *device, int64_t float_bytes,
                                    weft_op_list *out);

/* Part of a step to which a node belongs. Forward ends at autodiff's first node. Later nodes that
 * are not gradients are the update. */
typedef enum weft_graph_part {
    WEFT_GRAPH_SOURCE,
    WEFT_GRAPH_FORWARD,
    WEFT_GRAPH_BACKWARD,
    WEFT_GRAPH_UPDATE
} weft_graph_part;
/* Sets per node: seconds[] by the device's rates, or by its figures if no rate applies
 * (collectives: 0); part[]; exact[]: measured at exactly these shapes. `part` and `exact` NULL: not
 * computed. */
weft_status weft_graph_node_times(const weft_graph *graph, const weft_device_type *device,
                                  double *seconds, weft_graph_part *part, bool *exact);

#endif
