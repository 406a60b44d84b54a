/* Creates the graph of one rank from the graph of complete tensors.
 *
 * One mesh axis is processed at a time. The result of one axis, collectives included, is the input
 * of the next. So no rule sees two axes, and nested splits of one dim need no special case. Per
 * axis, each node takes the cheapest choice of its layout rule. Its operands are converted to the
 * layouts of this choice, and the node is emitted with local shapes. A value keeps all its
 * conversions (`version`), so each is emitted once. One all_gather serves q, k and v. One `vary`
 * serves all nodes that read a parameter, whose gradient is then reduced once.
 *
 * Ranks must agree on every choice, or their collectives would not match. After the first axis
 * local shapes may differ between ranks. So choices are made on the graph of rank 0, which has the
 * largest shards, and applied to this rank's graph. The graph of the last rank, with the smallest
 * shards, shows which shards are uneven. */
#include "transform/sharding/shard.h"

#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "graph/graph.h"
#include "transform/sharding/expert_dispatch.h"
#include "transform/sharding/layer_slices.h"
#include "transform/sharding/pp_stages.h"
#include "transform/sharding/shard_axis.h"
#include "transform/sharding/shard_open.h"

#include <string.h>

/* The axis before which layers are sliced; -1: none, as with pipeline stages, which transfer one
 * value. */
static int recipe_cuts(const weft_recipe *recipe, const weft_mesh *mesh)
{
    const char *axis = recipe->overlap ? weft_comm_overlap_axis(recipe, mesh) : NULL;
    const int pp_axis = weft_mesh_axis(mesh, WEFT_PP_STAGES_AXIS);
    return axis && (pp_axis < 0 || mesh->axis[pp_axis].size == 1) ? weft_mesh_axis(mesh, axis) : -1;
}

/* Sets `order` to the axes of more than one rank in the order in which the recipe names them. The
 * axis of layer slices is last, so that slices cut local tensors. Axes without rows leave all
 * values R. */
static int axis_order(const weft_mesh *mesh, const weft_recipe *recipe, int order[WEFT_MAX_AXES])
{
    int count = 0;
    const int cut = recipe_cuts(recipe, mesh);
    for (int r = 0; r < recipe->count; r++) {
        const int axis = weft_mesh_axis(mesh, recipe->row[r].axis);
        bool known = axis < 0 || mesh->axis[axis].size == 1 || axis == cut;
        for (int i = 0; i < count; i++)
            known |= order[i] == axis;
        if (!known)
            order[count++] = axis;
    }
    if (cut >= 0)
        order[count++] = cut;
    return count;
}

/* Graphs of several ranks, sharded in parallel. Choices are made on the first. */
typedef struct team {
    int count;
    int rank[3];
    weft_graph *graph[3]; /* owned */
} team;

static void team_free(team *t)
{
    for (int i = 0; i < t->count; i++)
        weft_graph_free(t->graph[i]);
}

/* Returns true if the axis has a row for activations. */
static bool lays_out(const weft_recipe *recipe, const weft_mesh *mesh, int axis)
{
    for (int r = 0; r < recipe->count; r++)
        if (!strcmp(recipe->row[r].axis, mesh->axis[axis].name) &&
            strchr(recipe->row[r].pattern, ':'))
            return true;
    return false;
}

static weft_status create_graph(const weft_mesh *mesh, int rank, weft_graph **made)
{
    weft_graph_free(*made);
    *made = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(*made, "sharding a graph"));
    weft_graph_set_mesh(*made, mesh, rank);
    return WEFT_OK;
}

/* Shards the graph of member i over one axis. The first member makes the plan. */
static weft_status member_step(const team *t, int i, const weft_mesh *mesh, const weft_axis *axis,
                               const weft_comm_overlap *portions, weft_node_plan *plan,
                               weft_graph **made)
{
    bool changed = false;
    WEFT_TRY(create_graph(mesh, t->rank[i], made));
    if (i > 0)
        return weft_shard_axis_emit(axis, *made, plan);
    WEFT_TRY(weft_shard_axis_plan(axis, portions, *made, plan, &changed));
    if (!changed)
        return WEFT_OK;
    WEFT_TRY(create_graph(mesh, t->rank[i], made));
    return weft_shard_axis_emit(axis, *made, plan);
}

/* Shards all graphs over one axis. `portions` NULL: exchanges are undivided. */
static weft_status team_step(team *t, const weft_mesh *mesh, int axis, const weft_recipe *recipe,
                             const weft_comm_overlap *portions)
{
    weft_status_code status = WEFT_OK;
    weft_graph *next[3] = {NULL};
    weft_node_plan *plan;
    WEFT_TRY(WEFT_NEW(plan, weft_graph_node_count(t->graph[0]) + 1, "sharding a graph"));
    for (int i = 0; i < t->count; i++) {
        int coordinate[WEFT_MAX_AXES];
        weft_mesh_coordinates(mesh, t->rank[i], coordinate);
        const weft_axis own = {.from = t->graph[i],
                               .smallest = t->graph[t->count > 1 ? 1 : 0],
                               .recipe = recipe,
                               .name = mesh->axis[axis].name,
                               .number = axis,
                               .ranks = mesh->axis[axis].size,
                               .coordinate = coordinate[axis]};
        WEFT_GO(member_step(t, i, mesh, &own, portions, plan, &next[i]));
    }
out:
    weft_free(plan);
    for (int i = 0; i < t->count; i++) {
        weft_graph_free(status == WEFT_OK ? t->graph[i] : next[i]);
        t->graph[i] = status == WEFT_OK ? next[i] : t->graph[i];
    }
    return status;
}

/* Slices the layers in all graphs, or in none if ranks have different numbers of samples. */
static weft_status team_slice_layers(team *t, const weft_recipe *recipe)
{
    weft_status_code status = WEFT_OK;
    weft_graph *sliced[3] = {NULL};
    bool alike = false;
    for (int i = 0; i < t->count; i++)
        WEFT_GO(weft_pass_layer_slices(t->graph[i], recipe, recipe->overlap, &sliced[i]));
    alike = true;
    for (int i = 0; i < t->count; i++)
        alike = alike && sliced[i] &&
                weft_graph_node_count(sliced[i]) == weft_graph_node_count(sliced[0]);
out:
    for (int i = 0; i < t->count; i++) {
        weft_graph_free(alike ? t->graph[i] : sliced[i]);
        t->graph[i] = alike ? sliced[i] : t->graph[i];
    }
    return status;
}

weft_status weft_pass_shard(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph **out)
{
    WEFT_TRY(weft_graph_check(g));
    const int ranks = weft_mesh_ranks(mesh);
    if (rank < 0 || rank >= ranks)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_RANK(rank)),
                          "rank %d is not in a mesh of %d ranks", rank, ranks);
    WEFT_TRY(weft_recipe_check(recipe, g, mesh));
    int order[WEFT_MAX_AXES];
    const int axes = axis_order(mesh, recipe, order);
    const weft_comm_overlap *portions =
        recipe->overlap && recipe->overlap->kind != WEFT_COMM_OVERLAP_OFF ? recipe->overlap : NULL;
    weft_graph *by_expert = NULL; /* owned */
    WEFT_TRY(weft_pass_experts(g, mesh, recipe, &by_expert));
    g = by_expert ? by_expert : g;
    team t = {.count = 1, .rank = {rank}};
    if (axes > 1) /* first rank, last rank, and this rank if it is neither */
        t = (team){.count = rank == 0 || rank == ranks - 1 ? 2 : 3, .rank = {0, ranks - 1, rank}};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < t.count; i++) {
        t.graph[i] = weft_graph_create();
        WEFT_GO(t.graph[i] ? weft_shard_open(g, mesh, t.rank[i], recipe, t.graph[i])
                           : weft_no_memory("sharding a graph"));
    }
    for (int i = 0; i < axes; i++) {
        if (order[i] == recipe_cuts(recipe, mesh))
            WEFT_GO(team_slice_layers(&t, recipe));
        bool last = true;
        for (int k = i + 1; k < axes; k++)
            last = last && !lays_out(recipe, mesh, order[k]);
        WEFT_GO(team_step(&t, mesh, order[i], recipe, last ? portions : NULL));
    }
    const int own = axes > 1 && rank > 0 ? t.count - 1 : 0;
    WEFT_GO(weft_graph_verify(t.graph[own]));
    *out = t.graph[own];
    t.graph[own] = NULL;
out:
    team_free(&t);
    weft_graph_free(by_expert);
    return status;
}
