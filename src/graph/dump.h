#ifndef WEFT_GRAPH_DUMP_H
#define WEFT_GRAPH_DUMP_H

#include "base/memory.h"
#include "graph/op.h"

/* Checks order, arity, shapes (inferred again), layouts, unique names and types of updates. The
 * message names the node. */
weft_status weft_graph_verify(const weft_graph *g);
/* Prints one node per line, diffable: "%12 f32[2,64,128] = linear(%10, %11) {act=none}
 * @blocks.0.ffn". */
void weft_graph_print(const weft_graph *g, weft_buf *out);
/* Print the line of one node; print outputs and updates. */
void weft_graph_print_node(const weft_graph *g, int32_t node, weft_buf *out);
void weft_graph_print_ends(const weft_graph *g, weft_buf *out);
uint64_t weft_graph_hash(const weft_graph *g); /* hash of the printed form and the constants */
/* Hash of the printed form without the rank, the constants and the starts of shards. Equal hashes:
 * the graphs of two ranks have the same nodes and shapes. */
uint64_t weft_graph_shard_hash(const weft_graph *g);

#endif
