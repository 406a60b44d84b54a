#include "train/step/train_step.h"

#include "exec/execute.h"
#include "exec/store/tensor_copy.h"
#include "train/monitor/rank_telemetry.h"
#include "train/pipeline/pp_store.h"

#include <string.h>

/* The input with the samples of a batch, or with its packed rows; NULL: none. */
static const weft_node *batch_input(const weft_graph *g)
{
    const weft_node *first = NULL;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const char *name = weft_value_get(g, node->out[0])->name;
        if (node->op != WEFT_OP_INPUT || strncmp(name, "batch.", 6))
            continue;
        if (!strcmp(name, "batch.latents"))
            return node;
        first = first ? first : node;
    }
    return first;
}

/* Finds this rank's local batch from the layout that the sharding pass set. */
static void find_local_batch(weft_step *step, const weft_exec_config *exec)
{
    const weft_node *node = batch_input(step->graph);
    step->local_ranks = 1;
    if (!node)
        return;
    const weft_value_info *info = weft_value_get(step->graph, node->out[0]);
    const weft_attr_source *source = node->attr;
    step->local_first = source->start[0];
    step->local_count = info->shape.dim[0];
    for (int axis = 0; axis < exec->mesh.axis_count; axis++)
        if (info->layout[axis].kind == WEFT_S && info->layout[axis].dim == 0)
            step->local_ranks *= exec->mesh.axis[axis].size;
}

/* Elements of the largest input with at least 5 dims, which the loss compares element by
 * element. */
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

/* Adds the telemetry after all passes, so that no pass separates coalesced all-reduces. */
static weft_status add_telemetry(weft_step *step, const weft_exec_config *exec)
{
    weft_graph *made = NULL;
    if (weft_mesh_ranks(&exec->mesh) == 1 || exec->kind == WEFT_STEP_SHARE ||
        !exec->telemetry_floats)
        return WEFT_OK;
    WEFT_TRY(weft_rank_telemetry_add(step->graph, exec->telemetry_floats, exec->reduced_axes,
                                     exec->kind != WEFT_STEP_GRADIENTS, &step->reduced_axes,
                                     &made));
    if (made && step->graph != step->whole)
        weft_graph_free(step->graph);
    step->graph = made ? made : step->graph;
    return WEFT_OK;
}

/* Composes the models' recipes, and with a pipeline the stages' recipe. */
static weft_status compose(const weft_exec_config *exec, weft_recipe *recipe)
{
    const int count = exec->recipe_count;
    const weft_recipe_list **all;
    WEFT_TRY(WEFT_NEW(all, count + 1, "a recipe"));
    for (int i = 0; i < count; i++)
        all[i] = exec->recipes[i];
    all[count] = &weft_recipe_list_stages;
    const weft_status_code status =
        weft_recipe_compose(all, count + (exec->pp != NULL), &exec->mesh, recipe);
    weft_free(all);
    WEFT_TRY(status);
    recipe->overlap = exec->overlap;
    return WEFT_OK;
}

static const char *const offload_state_patterns[] = {"adamw.*", "ema.*"};

const char *const *weft_step_offloaded_states(int *count)
{
    *count = WEFT_COUNT(offload_state_patterns);
    return offload_state_patterns;
}

static weft_program_options options_of(const weft_exec_config *exec)
{
    return (weft_program_options){.backend = exec->backend,
                                  .mesh = &exec->mesh,
                                  .apart = exec->pp ? WEFT_PP_STAGES_AXIS : NULL,
                                  .offload_dir = exec->offload_dir,
                                  .no_views = exec->passes && !exec->passes->views,
                                  .profile = exec->profile,
                                  .no_overlap = exec->no_overlap};
}

static weft_pass_setup setup_of(const weft_optimizer_config *optimizer,
                                const weft_exec_config *exec, const weft_recipe *recipe)
{
    return (weft_pass_setup){.switches = exec->passes,
                             .mesh = &exec->mesh,
                             .rank = weft_allocation_rank(exec),
                             .recipe = recipe,
                             .bf16_compute = optimizer && exec->bf16_compute,
                             .bf16_reduce = exec->bf16_reduce,
                             .tf32_compute = exec->tf32_compute,
                             .recompute = exec->recompute,
                             .recompute_count = exec->recompute_count,
                             .activations = exec->activations,
                             .offload_states = exec->offload_states ? offload_state_patterns : NULL,
                             .offload_state_count =
                                 exec->offload_states ? WEFT_COUNT(offload_state_patterns) : 0,
                             .prefetch_bytes = exec->prefetch_bytes,
                             .pointwise = weft_backend_joins_pointwise(exec->backend),
                             .inspect = optimizer ? exec->inspect : NULL,
                             .inspect_user = exec->inspect_user};
}

static weft_status apply_passes(weft_step *step, const weft_optimizer_config *optimizer,
                                const weft_exec_config *exec)
{
    weft_recipe recipe;
    WEFT_TRY(compose(exec, &recipe));
    const weft_pass_setup setup = setup_of(optimizer, exec, &recipe);
    weft_status_code status = WEFT_OK;
    if (exec->kind == WEFT_STEP_WHOLE || exec->kind == WEFT_STEP_GRADIENTS) {
        WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, true, &step->graph, exec->log));
        find_local_batch(step, exec);
        if (exec->overlap && weft_comm_overlap_explicit_keys(exec->overlap) &&
            weft_mesh_ranks(&exec->mesh) > 1)
            weft_comm_overlap_count(step->whole, step->graph, &recipe, step->made);
    }
    const weft_value objective = weft_graph_find(step->graph, "objective");
    const weft_optimizer_config own =
        optimizer ? weft_step_optimizer(optimizer, exec) : (weft_optimizer_config){0};
    if (optimizer && exec->kind == WEFT_STEP_GRADIENTS && exec->pp) {
        const weft_program_options options = options_of(exec);
        status = weft_pp_step_plan(exec->pp, step->whole, step->graph, exec->trunk, &setup,
                                   &options, &own, &step->pp_step);
        goto out;
    }
    if (optimizer && exec->kind == WEFT_STEP_WHOLE)
        weft_optimizer_build(step->graph, objective, &own);
    if (optimizer && exec->kind == WEFT_STEP_GRADIENTS)
        weft_optimizer_accumulate(step->graph, objective, step->graph, &own);
    WEFT_GO(weft_graph_check(step->graph));
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &setup, step->graph == step->whole, &step->graph,
                            exec->log));
    if (optimizer)
        WEFT_GO(add_telemetry(step, exec));
out:
    weft_recipe_free(&recipe);
    return status;
}

weft_status weft_step_begin_averages(weft_store *store)
{
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        weft_tensor *average = weft_store_at(store, i);
        const weft_tensor *param =
            strncmp(average->name, "ema.", 4) ? NULL : weft_store_find(store, average->name + 4);
        if (!param)
            continue;
        WEFT_TRY(weft_tensor_copy(average, param));
        weft_tensor_evict(average);
    }
    return WEFT_OK;
}

weft_status weft_step_end_averages(const weft_step *step, const weft_exec_config *exec,
                                   weft_store *store)
{
    weft_step end;
    weft_exec_config own = *exec;
    own.kind = WEFT_STEP_UPDATE;
    WEFT_TRY(weft_step_make(weft_optimizer_averages(step->graph), NULL, &own, store, 0, &end));
    const weft_status_code status = weft_program_run(end.program);
    weft_step_free(&end);
    return status;
}

weft_optimizer_config weft_step_optimizer(const weft_optimizer_config *config,
                                          const weft_exec_config *exec)
{
    weft_optimizer_config own = *config;
    const int axis = weft_mesh_axis(&exec->mesh, "dp");
    if (axis >= 0 && exec->mesh.axis[axis].size > 1)
        own.zero = (weft_zero){exec->zero, axis};
    own.bf16_reduce = exec->bf16_reduce;
    own.own = exec->own;
    return own;
}

weft_status weft_step_plan(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_exec_config *exec, weft_step *out)
{
    weft_step step = {.whole = whole, .graph = whole};
    const weft_program_options options = options_of(exec);
    weft_status_code status = WEFT_OK;
    WEFT_GO(whole ? weft_graph_check(whole) : weft_no_memory("a graph"));
    WEFT_GO(apply_passes(&step, optimizer, exec));
    if (!step.pp_step)
        WEFT_GO(weft_program_compile(step.graph, &options, &step.program));
    step.cost = step.pp_step ? step.pp_step->cost : weft_graph_cost(step.graph);
    step.weight = elements(step.whole);
    *out = step;
    return WEFT_OK;
out:
    weft_step_free(&step);
    return status;
}

weft_status weft_step_forward(const weft_exec_config *exec, weft_graph **graph)
{
    weft_recipe recipe;
    WEFT_TRY(compose(exec, &recipe));
    const weft_pass_setup setup = setup_of(NULL, exec, &recipe);
    const weft_status_code status = weft_passes_run(WEFT_PASS_WHOLE, &setup, false, graph, NULL);
    weft_recipe_free(&recipe);
    return status;
}

weft_status weft_step_make(weft_graph *whole, const weft_optimizer_config *optimizer,
                           const weft_exec_config *exec, weft_store *store, uint64_t seed,
                           weft_step *out)
{
    weft_step step;
    WEFT_TRY(weft_step_plan(whole, optimizer, exec, &step));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_store_init(store, step.graph, seed));
    weft_group *group = NULL;
    if (exec->comm)
        WEFT_GO(weft_comm_world(exec->comm, &group));
    WEFT_GO(weft_program_bind(step.program, store, group));
    *out = step;
    return WEFT_OK;
out:
    weft_step_free(&step);
    return status;
}

void weft_step_free(weft_step *step)
{
    weft_program_free(step->program);
    weft_pp_step_free(step->pp_step);
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
    if (!step->pp_step)
        return step->program != NULL;
    for (int i = 0; i < step->pp_step->owns; i++)
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++) {
            weft_program *program = step->pp_step->own[i].program[k];
            if (program && list)
                list[count] = program;
            count += program != NULL;
        }
    return count;
}

int weft_step_graphs(const weft_step *step, const weft_graph **list)
{
    const int count = step->pp_step ? step->pp_step->owns : 1;
    for (int i = 0; i < count && list; i++)
        list[i] = step->pp_step ? step->pp_step->own[i].whole : step->graph;
    return count;
}

static weft_status graphs_of(weft_step *const *steps, int count, const weft_graph ***graph,
                             int *graphs)
{
    *graphs = 0;
    for (int i = 0; i < count; i++)
        *graphs += weft_step_graphs(steps[i], NULL);
    *graph = weft_calloc(*graphs + 1, sizeof **graph);
    for (int i = 0, at = 0; i < count && *graph; i++)
        at += weft_step_graphs(steps[i], *graph + at);
    return WEFT_ALLOCATED(*graph, "%d graphs", *graphs);
}

weft_status weft_steps_fill(weft_step *const *steps, int count, const weft_exec_config *exec,
                            weft_store *store, uint64_t seed)
{
    const weft_graph **graph;
    int graphs;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(graphs_of(steps, count, &graph, &graphs));
    if (exec->pp)
        WEFT_GO(weft_pp_store_fill(exec->pp, graph, graphs, exec->comm, store, seed));
    for (int i = 0; i < graphs && !exec->pp; i++)
        WEFT_GO(weft_store_init(store, graph[i], seed));
out:
    weft_free(graph);
    return status;
}

weft_status weft_steps_list(weft_step *const *steps, int count, weft_buf *list)
{
    const weft_graph **graph;
    int graphs;
    WEFT_TRY(graphs_of(steps, count, &graph, &graphs));
    const weft_status_code status = weft_pp_params_list(graph, graphs, list);
    weft_free(graph);
    return status;
}

weft_status weft_steps_fill_listed(weft_step *const *steps, int count, const weft_exec_config *exec,
                                   const weft_buf *lists, weft_store *store, uint64_t seed)
{
    const weft_graph **graph;
    int graphs;
    WEFT_TRY(graphs_of(steps, count, &graph, &graphs));
    const weft_status_code status =
        weft_pp_store_fill_listed(exec->pp, graph, graphs, lists, store, seed);
    weft_free(graph);
    return status;
}

double weft_step_scalar(const weft_step *step, const char *name)
{
    const weft_tensor *tensor = weft_program_output(step->program, name);
    return tensor ? (double)*(const float *)tensor->data : 0;
}

bool weft_step_set_telemetry(const weft_step *step, const float *telemetry)
{
    const weft_tensor *to = weft_program_input(step->program, "bulletin");
    if (to)
        memcpy(to->data, telemetry, (size_t)weft_shape_count(&to->shape) * sizeof *telemetry);
    return to != NULL;
}

void weft_step_get_telemetry(const weft_step *step, float *telemetry)
{
    const weft_tensor *from = weft_program_output(step->program, "bulletin.all");
    memcpy(telemetry, from->data, (size_t)weft_shape_count(&from->shape) * sizeof *telemetry);
}
