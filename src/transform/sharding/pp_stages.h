/* Stages of a pipeline: the forward graph of one place is cut at borders of blocks into the graphs
 * of stages, each of which is then differentiated by itself and split into programs.
 *
 *     graph of one place      chain of units (blocks)          stages
 *
 *     timestep, text ─┬──────┬──────┬──────┐                 0 [conditioning][embed, 0, 1] ─┐ act
 *     latents ─ embed ─ [0] ─ [1] ─ [2] ─ [3] ─ head, loss                                   v
 *                                                            1 [conditioning][2, 3, head, loss]
 *
 * What no block made (conditioning, gathered parameters, tables) is made again on each stage that
 * reads it; its parameters then belong to several stages. What a block made and a later stage reads
 * travels: to a stage of the same device it is handed over in memory, else from neighbour to
 * neighbour, and its gradient goes the same way back. All that passes between the programs of a
 * stage lies in a record, one for each microbatch under way: states that are no store's
 * (weft_attr_source.slot), named
 *
 *     slot.v12        value 12 of the graph that was cut
 *     slot.v12.to3    its gradient by stage 3
 *     slot.k7         what the backward reads of the forward (value 7 of the stage's own graph)
 *
 * Of the last kind those that memory.offload chooses lie in a second record, elsewhere. */
#ifndef WEFT_PASS_STAGE_H
#define WEFT_PASS_STAGE_H

#include "graph/graph.h"

/* ---- the chain ------------------------------------------------------------------------------ */

/* A block: what is not cut. Or what lies behind blocks, by name. */
typedef struct weft_chain_unit {
    const char *name;     /* "blocks.3"; owned by the chain */
    weft_cost cost;       /* of its forward, with what only it and units behind it read */
    int64_t output_bytes; /* of what the next unit reads of it */
} weft_chain_unit;

/* What a unit behind the next one reads. */
typedef struct weft_chain_skip {
    int32_t from, to;
    int64_t bytes;
} weft_chain_skip;

typedef struct weft_chain {
    weft_arena *arena;
    int32_t *unit_of; /* by node; -1: no block made it */
    weft_chain_unit *unit;
    weft_chain_skip *skip;
    int units, skips;
} weft_chain;

/* Blocks are the numbered scopes directly below `trunk` ("transformer": transformer.blocks.0,
 * transformer.in_blocks.3, ...), in the order of the graph. WEFT_E_UNSUPPORTED: there are none. */
weft_status weft_chain_make(const weft_graph *graph, const char *trunk, weft_chain *chain);
void weft_chain_free(weft_chain *chain);

/* ---- stages --------------------------------------------------------------------------------- */

/* A value that one stage hands to another. */
typedef struct weft_stage_link {
    int32_t value; /* of the graph that is cut */
    int32_t from, to;
    bool local; /* both are on one device */
} weft_stage_link;

typedef struct weft_stages {
    weft_arena *arena;
    const weft_graph *graph; /* borrowed */
    int count;
    int32_t *device_of;    /* by stage */
    int32_t *stage_of;     /* by node; -1: wherever it is read */
    weft_stage_link *link; /* by value, then by `to` */
    int links;
    int axis; /* of the mesh that devices are the ranks of; -1: none */
} weft_stages;

/* Stage q is the units [cut[q], cut[q + 1]). */
weft_status weft_stages_make(const weft_graph *graph, const weft_chain *chain, const int64_t *cut,
                             int count, const int32_t *device_of, int axis, weft_stages *stages);
void weft_stages_free(weft_stages *stages);
enum { WEFT_STAGE_NAME = 48 };
/* Of the state that holds the link's value, or its gradient. */
void weft_stage_name(const weft_stage_link *link, bool gradient, char name[WEFT_STAGE_NAME]);

/* The forward of a stage. */
typedef struct weft_stage_graph {
    weft_graph *graph; /* the caller's */
    /* By link from this stage: the value, and the state that its gradient comes in; by link to it:
     * the state that the value comes in, and the one that its gradient goes to. In the graph's
     * arena */
    weft_value *sent, *sent_grad, *received, *received_grad;
    int sends, receives;
    weft_value *shared; /* parameters that each device has, in the order of the whole graph */
    int shares;
} weft_stage_graph;
/* With `shares` its graph has all shared parameters, else those that it reads. */
weft_status weft_stage_cut(const weft_stages *stages, int stage, bool shares,
                           weft_stage_graph *out);

/* ---- programs ------------------------------------------------------------------------------- */

/* F: the forward. B: the backward; or, where W is apart, what leads to gradients for other stages,
 * and W is the rest: the gradients of parameters. */
typedef enum weft_stage_kind { WEFT_STAGE_F, WEFT_STAGE_B, WEFT_STAGE_W } weft_stage_kind;
/* Of a differentiated stage: the nodes of one kind, and what costs nothing to make again. With
 * `away` what nodes marked so make is handed over in slots elsewhere (weft_attr_source.away), for
 * the pass offload to copy there and back. */
weft_status weft_stage_split(const weft_graph *graph, bool apart, bool away, weft_stage_kind kind,
                             weft_graph **out);

#endif
