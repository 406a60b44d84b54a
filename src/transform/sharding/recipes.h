#ifndef WEFT_TRANSFORM_SHARDING_RECIPES_H
#define WEFT_TRANSFORM_SHARDING_RECIPES_H

#include "graph/mesh.h"
#include "graph/op.h"
#include "transform/sharding/slices.h"

/* A recipe is a list of rows "name pattern, mesh axis -> layout" ('*' is any text). Names are those
 * of inputs, params, states and outputs, and "scope:op" for the output of a node
 * ("blocks.0.attn1:attention"). Such an activation is converted to the layout where it is computed.
 * The first matching row per name and axis applies. Without a match, the layout is R (sources,
 * outputs) or follows from the layout rules (activations). Rows of axes that the mesh lacks have no
 * effect. If several axes split one dim, the axis that the recipe names first splits it first. A
 * row without effect on the graph is an error unless it is `optional`, because a misspelt name
 * would leave a parameter unsharded unnoticed. */
typedef struct weft_recipe_row {
    const char *pattern;
    const char *axis;
    /* R or S. For a parameter, S(WEFT_ANY_DIM) splits the first dim of the complete tensor that the
     * ranks divide, otherwise the longest; a scalar stays replicated */
    weft_layout layout;
    bool gather;   /* params: sharded in memory, gathered for use (FSDP) */
    bool optional; /* row for several models: the graph may lack the name */
    bool params;   /* matches params only */
    bool held;     /* exchange does not start before its position in the graph */
    bool piece;    /* consumers, too, stay after the work that hides the exchange */
    /* WEFT_CUT_* of a layer on (B,G,S,C) with G independent groups, which begins with this
     * "scope:layer_norm" with S(1) (transform/sharding/layer_slices.c) */
    int cut;
    /* Nodes: name of the expansion to use, one that the op's rule offers ("ring"); NULL: the
     * cheapest */
    const char *by;
} weft_recipe_row;
enum { WEFT_ANY_DIM = -1 };
/* Kind of a layer's groups: frames, spatial positions of a frame, or samples only. */
enum { WEFT_CUT_NONE, WEFT_CUT_TIME, WEFT_CUT_SPACE, WEFT_CUT_SAMPLES };
typedef struct weft_recipe {
    const char *name;
    const weft_recipe_row *row;
    int count;
    const weft_comm_overlap *overlap; /* borrowed; NULL: layers are not sliced */
    bool slice_slots; /* layer slices: slots of a feature cache are sliced with their layers */
} weft_recipe;
/* The rows of one axis, which define one parallelism. A model family has a list for each axis that
 * it supports (model/family.h). The lists that need no model are here. */
typedef struct weft_recipe_list {
    const char *axis;
    const char *what; /* "tensor parallel" */
    const weft_recipe_row *row;
    int count;
} weft_recipe_list;

/* dp: splits the inputs "batch.*" by samples. fsdp: also shards every parameter (ZeRO-3). */
extern const weft_recipe_list weft_recipe_list_dp, weft_recipe_list_fsdp;
/* Axis whose ranks run different pipeline stages (transform/sharding/pp_stages.h): splits
 * nothing. */
extern const weft_recipe_list weft_recipe_list_stages;
/* Recipe of dp alone. */
extern const weft_recipe weft_recipe_dp;
/* Composes the recipe of a mesh: dp, then the lists (of any families) whose axis has more than one
 * rank, then fsdp for the remaining parameters. Returns WEFT_E_ARG if no list splits an axis of
 * more than one rank; the message has the known axes. Free with weft_recipe_free. */
weft_status weft_recipe_compose(const weft_recipe_list *const *lists, int count,
                                const weft_mesh *mesh, weft_recipe *recipe);
void weft_recipe_free(weft_recipe *recipe);
/* The list of `axis` among `lists`, dp and fsdp; NULL: none. */
const weft_recipe_list *weft_recipe_list_find(const weft_recipe_list *const *lists, int count,
                                              const char *axis);
/* The first row for `name` on `axis`; NULL: none. "blocks.0.*" matches sources and outputs only,
 * "blocks.0.*:attention" matches outputs of nodes. */
const weft_recipe_row *weft_recipe_row_for(const weft_recipe *recipe, const char *axis,
                                           const char *name, bool is_param);
/* Returns WEFT_E_ARG, with the row or axis, in these cases:
 *   - a row of an axis with more than one rank has no effect in `g`: it matches no name, or earlier
 *     rows match all its names;
 *   - an axis with more than one rank has no row: its ranks would all compute the same;
 *   - an axis gathers parameters, and a parameter that is not a scalar has no row. */
weft_status weft_recipe_check(const weft_recipe *recipe, const weft_graph *g,
                              const weft_mesh *mesh);

#endif
