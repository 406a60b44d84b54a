/* Costs from graphs: a training graph as the operator list that the planners read. They see scopes,
 * shapes and cost rows, and no model.
 *
 * An operator is a run of forward nodes of one block, one part of it and one kind of work, with the
 * backward nodes that autodiff made of them:
 *
 *   scope  blocks.3            blocks.3.attn1                          blocks.3    blocks.3.ffn
 *          layer_norm modulate linear linear linear rms_norm rope ...  gated_add   linear gelu
 *          `----- "blocks pointwise" `- "blocks.attn1 product" ...
 *
 *   output_bytes      forward values that a cut behind the run would have to send
 *   activation_bytes  forward values made in it that the backward reads
 *   update            what neither is: clipping, optimizer, averages */
#ifndef WEFT_PLAN_GRAPH_LIST_H
#define WEFT_PLAN_GRAPH_LIST_H

#include "plan/cluster/cluster.h"
#include "plan/cost/rates.h"

/* `graph` is a whole training graph of one sample: forward, loss, gradients, and the update or not.
 * With the device's rates every operator has measured seconds, else its FLOPs and bytes count by
 * the device's figures. `float_bytes` is what a float takes where the plan runs (2: bf16; the graph
 * itself is f32). Layers, heads, width and tokens are read from its largest self-attention. */
weft_status weft_op_list_from_graph(weft_arena *arena, const weft_graph *graph,
                                    const weft_device_type *device, int64_t float_bytes,
                                    weft_op_list *out);

/* What of a step a node belongs to: forward until autodiff's first node; what comes after that and
 * is no gradient is the update. */
typedef enum weft_graph_part {
    WEFT_GRAPH_SOURCE,
    WEFT_GRAPH_FORWARD,
    WEFT_GRAPH_BACKWARD,
    WEFT_GRAPH_UPDATE
} weft_graph_part;
/* Of every node: seconds[] by the device's rates, and what has none by its figures (0 of
 * collectives); part[]; exact[]: it was measured at exactly these shapes. The latter two may be
 * NULL: nobody asks. */
weft_status weft_graph_node_times(const weft_graph *graph, const weft_device_type *device,
                                  double *seconds, weft_graph_part *part, bool *exact);

/* Seconds of one run of a compiled graph on one rank: every node by the device's rates, and what
 * has none by its figures; collectives by the link. */
typedef struct weft_graph_time {
    double seconds, forward, backward, update, collectives;
    double exact; /* share of the seconds that was measured at exactly these shapes */
} weft_graph_time;
weft_status weft_graph_time_of(const weft_graph *graph, const weft_cluster *cluster,
                               weft_graph_time *out);

#endif
