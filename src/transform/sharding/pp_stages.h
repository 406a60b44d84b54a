/* Pipeline stages: the forward graph of one mesh rank is cut between blocks into one graph per
 * stage. Each stage is then differentiated separately and split into programs.
 *
 *     graph of one mesh rank  chain of units (blocks)          stages
 *
 *     timestep, text ─┬──────┬──────┬──────┐                 0 [conditioning][embed, 0, 1] ─┐ act
 *     latents ─ embed ─ [0] ─ [1] ─ [2] ─ [3] ─ head, loss                                   v
 *                                                            1 [conditioning][2, 3, head, loss]
 *
 * Values that no block computes (conditioning, gathered parameters, tables) are recomputed on each
 * stage that reads the value. The parameters of such a value then belong to several stages. A value
 * of a block that a later stage reads is transferred: in memory to a stage of the same device,
 * otherwise from neighbour to neighbour. The gradient returns on the same path. The programs of a
 * stage share data in a microbatch buffer, one per microbatch in flight. Its entries are states
 * outside the store (weft_attr_source.slot), with these names:
 *
 *     slot.v12        value 12 of the graph that was cut
 *     slot.v12.to3    gradient of the value, from stage 3
 *     slot.k7         activation saved for the backward (value 7 of the stage's graph)
 *
 * Saved activations that memory.offload chooses are in a second, offloaded buffer. */
#ifndef WEFT_TRANSFORM_SHARDING_PP_STAGES_H
#define WEFT_TRANSFORM_SHARDING_PP_STAGES_H

#include "graph/graph.h"

/* ---- the chain of blocks ------------------------------------------------------------------- */

/* A unit: a block, which is never cut, or named layers after the blocks. */
typedef struct weft_layer_chain_block {
    const char *name;     /* "blocks.3"; owned by the chain */
    weft_cost cost;       /* forward, with unassigned nodes that it reads first */
    int64_t output_bytes; /* bytes that the next unit reads */
} weft_layer_chain_block;

/* A value that a unit after the next one reads. */
typedef struct weft_layer_chain_skip {
    int32_t from, to;
    int64_t bytes;
} weft_layer_chain_skip;

typedef struct weft_layer_chain {
    weft_arena *arena;
    int32_t *unit_of; /* per node; -1: not computed by a block */
    weft_layer_chain_block *unit;
    weft_layer_chain_skip *skip;
    int units, skips;
} weft_layer_chain;

/* ---- stages --------------------------------------------------------------------------------- */

/* A value that one stage transfers to another. */
typedef struct weft_pp_edge {
    int32_t value; /* value id in the graph that is cut */
    int32_t from, to;
    bool local; /* both stages are on one device */
} weft_pp_edge;

typedef struct weft_pp_stages {
    weft_arena *arena;
    const weft_graph *graph; /* borrowed */
    int count;
    int32_t *device_of;   /* one per stage */
    int32_t *pp_stage_of; /* per node; -1: on every stage that reads it */
    weft_pp_edge *link;   /* sorted by value, then `to` */
    int links;
    int axis; /* mesh axis whose ranks are the devices; -1: none */
} weft_pp_stages;

/* Assigns nodes to stages. Stage q has the units [cut[q], cut[q + 1]). */
weft_status weft_pp_stages_make(const weft_graph *graph, const weft_layer_chain *chain,
                                const int64_t *cut, int count, const int32_t *device_of, int axis,
                                weft_pp_stages *pp_stages);
void weft_pp_stages_free(weft_pp_stages *pp_stages);
enum { WEFT_TRAIN_STAGE_NAME = 48 };
/* Name of the state that stores the edge's value or gradient. */
void weft_train_stage_name(const weft_pp_edge *link, bool gradient,
                           char name[WEFT_TRAIN_STAGE_NAME]);

/* Forward graph of a stage. */
typedef struct weft_pp_stage_graph {
    weft_graph *graph; /* owned by the caller */
    /* Values and states of edges. Edges from this stage: the value, and the state with its incoming
     * gradient. Edges to this stage: the state with the incoming value, and the state for its
     * gradient. In the graph's arena */
    weft_value *sent, *sent_grad, *received, *received_grad;
    int sends, receives;
    weft_value *shared; /* parameters that every device has, in the order of the uncut graph */
    int shares;
} weft_pp_stage_graph;
/* Extracts the forward graph of a stage. With `shares` it contains all shared parameters, otherwise
 * only the ones that it reads. */
weft_status weft_pp_stage_extract(const weft_pp_stages *pp_stages, int pp_stage, bool shares,
                                  weft_pp_stage_graph *out);

/* ---- programs ------------------------------------------------------------------------------- */

/* F: forward. B: backward; with a separate W only nodes that lead to gradients of other stages. W:
 * the other backward nodes, which compute parameter gradients. */
typedef enum weft_pp_task_kind { WEFT_PP_TASK_F, WEFT_PP_TASK_B, WEFT_PP_TASK_W } weft_pp_task_kind;
/* Extracts the program of one kind from a differentiated stage: its nodes, and free nodes that it
 * repeats. `apart`: W is a separate program. With `offload`, outputs of marked nodes are passed on
 * in offloaded slots (weft_attr_source.offloaded), which the pass offload copies. */
weft_status weft_pp_stage_split(const weft_graph *graph, bool apart, bool offload,
                                weft_pp_task_kind kind, weft_graph **out);

#endif
