/* Values during the sharding of one mesh axis: the versions of a value in several layouts, and the
 * conversions between them. */
#ifndef WEFT_TRANSFORM_SHARDING_SHARD_VALUES_H
#define WEFT_TRANSFORM_SHARDING_SHARD_VALUES_H

#include "graph/graph.h"
#include "transform/sharding/recipes.h"

/* Index of a layout among the versions of a value. */
enum {
    WEFT_SLOT_R,
    WEFT_SLOT_V,
    WEFT_SLOT_P,
    WEFT_SLOT_S,
    WEFT_SLOTS = WEFT_SLOT_S + WEFT_MAX_RANK
};

/* Dims of tokens (B,S,H,D). */
enum { WEFT_SAMPLES_DIM = 0, WEFT_TOKENS_DIM = 1, WEFT_HEADS_DIM = 2 };

static const weft_layout weft_whole = {WEFT_R, 0};

/* Consumers of a value: 1 per node, 2 per output or update, whose consumer is outside the graph. */
typedef struct weft_value_consumers {
    int32_t all;
    int32_t others; /* all except queries, keys and values of an attention */
} weft_value_consumers;

/* One axis as one rank sees it. */
typedef struct weft_axis {
    const weft_graph *from;     /* result of the previous axis */
    const weft_graph *smallest; /* `from` of the last rank */
    const weft_recipe *recipe;
    const char *name;
    int number, ranks, coordinate; /* number: of the axis in the mesh; coordinate: of this rank */
} weft_axis;

/* How a node of `from` is sharded. Equal on all ranks of the mesh. */
typedef struct weft_node_plan {
    weft_layout_choice choice;
    int32_t portions; /* portions of its exchange; 1: undivided */
} weft_node_plan;
/* `portions` of a concat that is emitted in the head groups of a later attention. */
enum { WEFT_PORTIONS_DEFERRED = -1 };

typedef struct weft_head_groups weft_head_groups;

/* Sharding of one axis on one rank, from the first node to the last. */
typedef struct weft_axis_shard {
    const weft_axis *axis;
    weft_graph *to;
    weft_node_plan *plan;              /* one per node of `from`; borrowed */
    weft_value (*version)[WEFT_SLOTS]; /* per value of `from`: values of `to` */
    weft_layout *home;                 /* per value of `from`: layout in which it is computed */
    weft_value *in;                    /* inputs of the current node, in `to` */
    bool *gather;                      /* per value of `from`: a param sharded in memory only */
    weft_value_consumers *consumers;   /* one per value of `from` */
    bool *done;                        /* per node of `from`: emitted with an earlier node */
    weft_head_groups *heads;
} weft_axis_shard;

/* Position of an exchange in the order of nodes: members of weft_attr_comm. */
typedef struct weft_comm_position {
    bool late, piece;
} weft_comm_position;

static inline int weft_layout_slot(weft_layout l)
{
    static const int slot[] = {[WEFT_R] = WEFT_SLOT_R,
                               [WEFT_V] = WEFT_SLOT_V,
                               [WEFT_P] = WEFT_SLOT_P,
                               [WEFT_S] = WEFT_SLOT_S};
    return slot[l.kind] + (l.kind == WEFT_S ? l.dim : 0);
}

static inline const weft_value_info *weft_axis_info(const weft_axis_shard *p, weft_value v)
{
    return weft_value_get(p->axis->from, v);
}

/* The first row for the output of a node; NULL: none. */
const weft_recipe_row *weft_axis_node_row(const weft_axis_shard *p, const weft_node *n);
/* Reports a layout that `name`, of rank `rank`, cannot have, and returns false. */
bool weft_axis_check_row(weft_axis_shard *p, const weft_recipe_row *row, weft_layout l,
                         const char *name, int rank);
/* Stores `made` as the version of `of` in `layout`. Copies the layouts of earlier axes. */
void weft_axis_put(weft_axis_shard *p, weft_value of, weft_layout layout, weft_value made);
/* Verifies each layout rule: the local output must have exactly the shape of this rank's shard. */
void weft_axis_check_shape(weft_axis_shard *p, const weft_node *n, weft_value of,
                           weft_layout layout, weft_value made);
/* Emits the node with the operands `in` and local shapes. */
void weft_axis_emit_node(weft_axis_shard *p, const weft_node *n, const weft_value *in,
                         const weft_layout *out_layout);
/* Converts the value from the layout in which it is computed to `to`. Emits each conversion
 * once. */
weft_value weft_axis_convert(weft_axis_shard *p, weft_value v, weft_layout to);
/* Converts like weft_axis_convert, with exchanges in the given order. */
weft_value weft_axis_convert_in_order(weft_axis_shard *p, weft_value v, weft_layout to,
                                      weft_comm_position order);
/* Operand i of the node in the layout of the choice; WEFT_NONE: absent. */
weft_value weft_axis_operand(weft_axis_shard *p, const weft_node *n,
                             const weft_layout_choice *choice, int i);
/* Sets `consumers`. */
void weft_axis_count_consumers(weft_axis_shard *p);

#endif
