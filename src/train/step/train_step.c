#include "train/step.h"

#include "runtime/part.h"
#include "train/bulletin.h"

#include <string.h>

/* Which part of the batch dim this rank's input is: told by the layout that the shard pass gave it.
 */
static void find_slice(weft_step *step, const weft_place_of_run *place)
{
    step->slice_parts = 1;
    for (int32_t n = 0; n < weft_graph_node_count(step->graph); n++) {
        const weft_node *node = weft_graph_node(step->graph, n);
        const weft_value_info *info = weft_value_get(step->graph, node->out[0]);
        if (node->op != WEFT_OP_INPUT || strncmp(info->name, "batch.", 6))
            continue;
        const weft_attr_source *source = node->attr;
        step->slice_first = source->start[0];
        step->slice_count = info->shape.dim[0];
        for (int axis = 0; axis < place->mesh.axis_count; axis++)
            if (info->layout[axis].kind == WEFT_S && info->layout[axis].dim == 0)
                step->slice_parts *= place->mesh.axis[axis].size;
        return;
    }
}

/* The largest input of f32: what the loss compares with, element by element. */
static double elements(const weft_graph *whole)
{
    int64_t most = 0;
    for (int32_t n = 0; n < weft_graph_node_count(whole); n++) {
        const weft_node *node = weft_graph_node(whole, n);
        const weft_value_info *info = weft_value_get(whole, node->out[0]);
        if (node->op != WEFT_OP_INPUT || strncmp(info->name, "batch.", 6) || info->shape.rank < 5)
            continue;
        const int64_t count = weft_shape_count(&info->shape);
        most = count > most ? count : most;
    }
    return (double)most;
}

/* Last: no pass moves what goes together apart again. */
static weft_status add_bulletin(weft_step *step, const weft_place_of_run *place)
{
    weft_graph *made = NULL;
    if (weft_mesh_ranks(&place->mesh) == 1 || place->kind == WEFT_STEP_SHARE || !place->bulletin)
        return WEFT_OK;
    WEFT_TRY(weft_bulletin_add(step->graph, place->bulletin, place->told,
                               place->kind != WEFT_STEP_GRADIENTS, &step->told, &made));
    if (made && step->graph != step->whole)
        weft_graph_free(step->graph);
    step->graph = made ? made : step->graph;
    return WEFT_OK;
}

/* The models' lists, and that of stages where there are some. */
static weft_status compose(const weft_place_of_run *place, weft_recipe *recipe)
{
    const int count = place->recipe_count;
    const weft_recipe_list **all = weft_alloc((count + 1) * (int64_t)sizeof *all);
    if (!all)
        return weft_fail(WEFT_E_MEMORY, "no memory for a recipe");
    for (int i = 0; i < count; i++)
        all[i] = place->recipes[i];
    all[count] = &weft_recipe_list_stages;
    const weft_status_code status =
        weft_recipe_compose(all, count + (place->pipe != NULL), &place->mesh, recipe);
    weft_free(all);
    if (status == WEFT_OK)
        recipe->slices = place->slices;
    return status;
}

static const char *const away_states[] = {"adamw.*", "ema.*"};

const char *const *weft_step_away_states(int *count)
{
    *count = WEFT_COUNT(away_states);
    return away_states;
}

static weft_program_options options_of(const weft_place_of_run *place)
{
    return (weft_program_options){.backend = place->backend,
                                  .mesh = &place->mesh,
                                  .apart = place->pipe ? WEFT_STAGES_AXIS : NULL,
                                  .away = place->away,
                                  .no_views = place->passes && !place->passes->views,
                                  .profile = place->profile,
                                  .no_overlap = place->no_overlap};
}

static weft_pass_setup setup_of(const weft_optimizer_config *optimizer,
                                const weft_place_of_run *place, const weft_recipe *recipe)
{
    return (weft_pass_setup){.switches = place->passes,
                             .mesh = &place->mesh,
                             .rank = weft_place_rank(place),
                             .recipe = recipe,
                             .narrow = optimizer && place->narrow,
                             .narrow_sums = place->narrow_sums,
                             .recompute = place->recompute,
                             .recompute_count = place->recompute_count,
                             .fates = place->fates,
                             .away_states = place->away_states ? away_states : NULL,
                             .away_state_count = place->away_states ? WEFT_COUNT(away_states) : 0,
                             .room = place->room,
                             .look = optimizer ? place->look : NULL,
                             .look_user = place->look_user};
}

static weft_status apply_passes(weft_step *step, const weft_optimizer_config *optimizer,
                                const weft_place_of_run *place)
{
    weft_recipe recipe;
    WEFT_TRY(compose(place, &recipe));
    const weft_pass_setup setup = setup_of(optimizer, place, &recipe);
    weft_status_code status = WEFT_OK;
    if (place->kind == WEFT_STEP_WHOLE || place->kind == WEFT_STEP_GRADIENTS) {
        WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, true, &step->graph, place->log));
        find_slice(step, place);
        if (place->slices && weft_slices_asked(place->slices) && weft_mesh_ranks(&place->mesh) > 1)
            weft_slices_count(step->whole, step->graph, &recipe, step->made);
    }
    const weft_value objective = weft_graph_find(step->graph, "objective");
    const weft_optimizer_config own =
        optimizer ? weft_step_optimizer(optimizer, place) : (weft_optimizer_config){0};
    if (optimizer && place->kind == WEFT_STEP_GRADIENTS && place->pipe) {
        const weft_program_options options = options_of(place);
        status = weft_pipe_step_plan(place->pipe, step->whole, step->graph, place->trunk, &setup,
                                     &options, &own, &step->pipe);
        goto out;
    }
    if (optimizer && place->kind == WEFT_STEP_WHOLE)
        weft_optimizer_build(step->graph, objective, &own);
    if (optimizer && place->kind == WEFT_STEP_GRADIENTS)
        weft_optimizer_accumulate(step->graph, objective, &own);
    WEFT_GO(weft_graph_check(step->graph));
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &setup, step->graph == step->whole, &step->graph,
                            place->log));
    if (optimizer)
        WEFT_GO(add_bulletin(step, place));
out:
    weft_recipe_free(&recipe);
    return status;
}

void weft_step_begin_averages(weft_store *store)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *average = weft_store_at(store, i);
        const weft_tensor *param =
            strncmp(average->name, "ema.", 4) ? NULL : weft_store_find(store, average->name + 4);
        if (!param)
            continue;
        const weft_box all = weft_box_of(param), part = weft_box_of(average);
        weft_box_copy(&part, average->data, average->dtype, &all, param->data, param->dtype);
        weft_tensor_drop(average);
    }
}

weft_status weft_step_end_averages(const weft_step *step, const weft_place_of_run *place,
                                   weft_store *store)
{
    weft_step end;
    weft_place_of_run own = *place;
    own.kind = WEFT_STEP_UPDATE;
    WEFT_TRY(weft_step_make(weft_optimizer_averages(step->graph), NULL, &own, store, 0, &end));
    const weft_status_code status = weft_program_run(end.program);
    weft_step_free(&end);
    return status;
}

weft_optimizer_config weft_step_optimizer(const weft_optimizer_config *config,
                                          const weft_place_of_run *place)
{
    weft_optimizer_config own = *config;
    const int axis = weft_mesh_axis(&place->mesh, "dp");
    if (axis >= 0 && place->mesh.axis[axis].size > 1)
        own.zero = (weft_zero){place->zero, axis};
    own.narrow_sums = place->narrow_sums;
    own.own = place->own;
    return own;
}

weft_status weft_step_plan(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_place_of_run *place, weft_step *out)
{
    weft_step step = {.whole = whole, .graph = whole};
    weft_status_code status =
        whole ? weft_graph_check(whole) : weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    if (status == WEFT_OK)
        status = apply_passes(&step, optimizer, place);
    const weft_program_options options = options_of(place);
    if (status == WEFT_OK && !step.pipe)
        status = weft_program_compile(step.graph, &options, &step.program);
    if (status != WEFT_OK) {
        weft_step_free(&step);
        return status;
    }
    step.cost = step.pipe ? step.pipe->cost : weft_graph_cost(step.graph);
    step.weight = elements(step.whole);
    *out = step;
    return WEFT_OK;
}

weft_status weft_step_forward(const weft_place_of_run *place, weft_graph **graph)
{
    weft_recipe recipe;
    WEFT_TRY(compose(place, &recipe));
    const weft_pass_setup setup = setup_of(NULL, place, &recipe);
    const weft_status_code status = weft_passes_run(WEFT_PASS_WHOLE, &setup, false, graph, NULL);
    weft_recipe_free(&recipe);
    return status;
}

weft_status weft_step_make(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_place_of_run *place, weft_store *store, uint64_t seed,
                           weft_step *out)
{
    weft_step step;
    WEFT_TRY(weft_step_plan(whole, optimizer, place, &step));
    weft_status_code status = weft_store_init(store, step.graph, seed);
    weft_group *group = NULL;
    if (status == WEFT_OK && place->comm)
        status = weft_comm_world(place->comm, &group);
    if (status == WEFT_OK)
        status = weft_program_bind(step.program, store, group);
    if (status == WEFT_OK)
        *out = step;
    else
        weft_step_free(&step);
    return status;
}

void weft_step_free(weft_step *step)
{
    weft_program_free(step->program);
    weft_pipe_step_free(step->pipe);
    if (step->graph != step->whole)
        weft_graph_free(step->graph);
    weft_graph_free(step->whole);
    *step = (weft_step){0};
}

int weft_step_programs(const weft_step *step, weft_program **list)
{
    int count = 0;
    if (step->program && list)
        list[0] = step->program;
    if (!step->pipe)
        return step->program != NULL;
    for (int i = 0; i < step->pipe->owns; i++)
        for (int k = 0; k < WEFT_PIPE_KINDS; k++) {
            weft_program *program = step->pipe->own[i].program[k];
            if (program && list)
                list[count] = program;
            count += program != NULL;
        }
    return count;
}

int weft_step_graphs(const weft_step *step, const weft_graph **list)
{
    const int count = step->pipe ? step->pipe->owns : 1;
    for (int i = 0; i < count && list; i++)
        list[i] = step->pipe ? step->pipe->own[i].whole : step->graph;
    return count;
}

static weft_status graphs_of(weft_step *const *steps, int count, const weft_graph ***graph,
                             int *graphs)
{
    *graphs = 0;
    for (int i = 0; i < count; i++)
        *graphs += weft_step_graphs(steps[i], NULL);
    *graph = weft_alloc((*graphs + 1) * (int64_t)sizeof **graph);
    for (int i = 0, at = 0; i < count && *graph; i++)
        at += weft_step_graphs(steps[i], *graph + at);
    return *graph ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for %d graphs", *graphs);
}

weft_status weft_steps_fill(weft_step *const *steps, int count, const weft_place_of_run *place,
                            weft_store *store, uint64_t seed)
{
    const weft_graph **graph;
    int graphs;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(graphs_of(steps, count, &graph, &graphs));
    if (place->pipe)
        status = weft_pipe_fill(place->pipe, graph, graphs, place->comm, store, seed);
    for (int i = 0; i < graphs && status == WEFT_OK && !place->pipe; i++)
        status = weft_store_init(store, graph[i], seed);
    weft_free(graph);
    return status;
}

weft_status weft_steps_list(weft_step *const *steps, int count, weft_buf *list)
{
    const weft_graph **graph;
    int graphs;
    WEFT_TRY(graphs_of(steps, count, &graph, &graphs));
    const weft_status_code status = weft_pipe_list(graph, graphs, list);
    weft_free(graph);
    return status;
}

weft_status weft_steps_fill_listed(weft_step *const *steps, int count,
                                   const weft_place_of_run *place, const weft_buf *lists,
                                   weft_store *store, uint64_t seed)
{
    const weft_graph **graph;
    int graphs;
    WEFT_TRY(graphs_of(steps, count, &graph, &graphs));
    const weft_status_code status =
        weft_pipe_fill_listed(place->pipe, graph, graphs, lists, store, seed);
    weft_free(graph);
    return status;
}

double weft_step_scalar(const weft_step *step, const char *name)
{
    const weft_tensor *tensor = weft_program_output(step->program, name);
    return tensor ? (double)*(const float *)tensor->data : 0;
}

bool weft_step_tell(const weft_step *step, const float *bulletin)
{
    const weft_tensor *to = weft_program_input(step->program, "bulletin");
    if (to)
        memcpy(to->data, bulletin, (size_t)weft_shape_count(&to->shape) * sizeof *bulletin);
    return to != NULL;
}

void weft_step_hear(const weft_step *step, float *bulletin)
{
    const weft_tensor *from = weft_program_output(step->program, "bulletin.all");
    memcpy(bulletin, from->data, (size_t)weft_shape_count(&from->shape) * sizeof *bulletin);
}
