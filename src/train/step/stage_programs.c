#include "train/step/stage_programs.h"

#include "base/json.h"
#include "kernel/registry/backend.h"
#include "train/config/packing_config.h"

weft_exec_config weft_exec_config_of(const weft_run *run, const weft_run_models *models)
{
    bool is_auto;
    const weft_string_list recompute = weft_run_recomputes(run, &is_auto);
    weft_exec_config exec = {.backend = weft_backend_find(run->backend),
                             .recompute = recompute.item,
                             .recompute_count = (int)recompute.count,
                             .prefetch_bytes = run->memory.prefetch_bytes,
                             .passes = &run->passes,
                             .bf16_compute = run->precision == WEFT_PRECISION_BF16,
                             .bf16_reduce = run->grad_reduce_dtype == WEFT_PRECISION_BF16,
                             .tf32_compute = run->precision == WEFT_PRECISION_TF32,
                             .overlap = &run->parallel.overlap,
                             .zero = (int)run->parallel.zero};
    if (!models)
        return exec;
    exec.recipes = models->recipe;
    exec.recipe_count = models->recipes;
    exec.trunk = weft_run_trains_denoiser(models) ? models->denoiser.family->scope : "";
    return exec;
}

static weft_status plan_bucket(weft_compiled_steps *cache, const weft_run *run,
                               const weft_run_models *models, const weft_train_stage *train_stage,
                               int bucket, int64_t parts, const weft_exec_config *exec,
                               weft_step **step)
{
    weft_bucket part = *weft_train_stage_bucket(train_stage, bucket);
    const weft_run own = weft_train_stage_run(run, train_stage);
    const int64_t index = train_stage - (const weft_train_stage *)run->train_stages.item;
    char key[64];
    weft_graph *g;
    part.batch /= parts;
    weft_train_stage_bucket_key(train_stage, index, bucket, key);
    const weft_status_code status = weft_objective_make(&own, models, &part, &g);
    if (status != WEFT_OK && weft_error_class() == WEFT_MSG_MODEL_SHAPE)
        return weft_error_add(status, "The clips have the size of %s in the config", key);
    WEFT_TRY(status);
    return weft_compiled_steps_get(cache, g, &run->optimizer, exec, step);
}

static weft_status no_memory(int count)
{
    return weft_no_memory("%d programs", count);
}

/* Plans the program after the buckets' programs: the update, or the reduction before it. */
static weft_status plan_update(weft_compiled_steps *cache, const weft_run *run,
                               const weft_exec_config *exec, weft_step_kind kind,
                               weft_stage_programs *s, weft_step **step)
{
    int count = 0;
    for (int i = 0; i < s->buckets; i++)
        count += weft_step_graphs(s->bucket[i], NULL);
    const weft_graph **gradients;
    WEFT_TRY(WEFT_NEW(gradients, count + 1, "%d programs", count));
    for (int i = 0, at = 0; i < s->buckets; i++)
        at += weft_step_graphs(s->bucket[i], gradients + at);
    const weft_optimizer_config optimizer = weft_step_optimizer(&run->optimizer, exec);
    weft_graph *g = kind == WEFT_STEP_SHARE ? weft_optimizer_share(gradients, count)
                                            : weft_optimizer_update(gradients, count, &optimizer);
    weft_free(gradients);
    weft_exec_config own = *exec;
    own.kind = kind;
    own.reduced_axes = s->reduced_axes = s->bucket[0]->reduced_axes;
    for (int i = 1; i < s->buckets; i++)
        if (s->bucket[i]->reduced_axes != s->reduced_axes)
            own.reduced_axes = s->reduced_axes = 0;
    WEFT_TRY(weft_compiled_steps_get(cache, g, &run->optimizer, &own, step));
    s->bucket[s->count++] = *step;
    return WEFT_OK;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool updates_apart(const weft_stage_programs *s)
{
    return s->runs > 1 || s->pp;
}

/* Number of mesh positions that have different samples. */
static int64_t shares_of(const weft_mesh *mesh)
{
    static const char *const axes[] = {"dp", "fsdp", "ep"};
    int64_t shares = 1;
    for (int i = 0; i < WEFT_COUNT(axes); i++) {
        const int axis = weft_mesh_axis(mesh, axes[i]);
        shares *= axis >= 0 ? mesh->axis[axis].size : 1;
    }
    return shares;
}

/* Sets the batch of packed rows. Every rank has the same number of rows, with all of their text. */
static weft_status check_rows(const weft_run *run, const weft_exec_config *exec, int64_t *rows)
{
    const int64_t shares = shares_of(&exec->mesh);
    const int ring = weft_mesh_axis(&exec->mesh, "ring");
    *rows = run->data.packing.rows;
    if (ring >= 0 && exec->mesh.axis[ring].size > 1)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = "data.packing"),
                          "a ring passes blocks of keys, and the samples of a packed row cross the "
                          "blocks. Use parallel.context: ulysses, which splits heads.");
    if (run->parallel.microbatches > 1)
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT,
            WEFT_AT(.key = "parallel.microbatches", WEFT_NUMBER(run->parallel.microbatches)),
            "with data.packing, a microbatch has all rows of a batch. Use "
            "gradient_accumulation_steps: %" PRId64 " instead.",
            run->parallel.microbatches);
    if (*rows % shares)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = "data.packing.rows", WEFT_NUMBER(*rows)),
                          "%" PRId64 " rows do not divide over %" PRId64
                          " ranks with different samples. Use a multiple of %" PRId64 ".",
                          *rows, shares, shares);
    return WEFT_OK;
}

weft_status weft_stage_programs_begin(const weft_run *run, const weft_train_stage *train_stage,
                                      const weft_exec_config *exec, weft_stage_programs *steps)
{
    weft_stage_programs s = {.buckets = weft_run_stage_programs(run, train_stage), .pp = exec->pp};
    int64_t batch = 0;
    for (int i = 0; i < s.buckets; i++)
        batch = common_divisor(weft_train_stage_bucket(train_stage, i)->batch, batch);
    if (weft_run_packs(run))
        WEFT_TRY(check_rows(run, exec, &batch));
    if (weft_run_packs(run) && exec->pp) /* a microbatch has all rows */
        batch = shares_of(&exec->mesh);
    WEFT_TRY(weft_pp_layout_microbatches(&run->parallel, exec->pp, batch, train_stage->accumulate,
                                         shares_of(&exec->mesh), &s.parts));
    s.runs = s.parts * train_stage->accumulate;
    WEFT_TRY(WEFT_NEW(s.bucket, s.buckets + 2, "%d programs", s.buckets));
    *steps = s;
    return WEFT_OK;
}

bool weft_stage_programs_has_next(const weft_stage_programs *s)
{
    return s->count < s->buckets + updates_apart(s) + (s->pp != NULL);
}

weft_status weft_stage_programs_next(weft_compiled_steps *cache, const weft_run *run,
                                     const weft_run_models *models,
                                     const weft_train_stage *train_stage,
                                     const weft_exec_config *exec, weft_stage_programs *s)
{
    weft_exec_config own = *exec;
    if (exec->stage_activations)
        own.activations =
            &exec->stage_activations[train_stage -
                                     (const weft_train_stage *)run->train_stages.item];
    own.kind = updates_apart(s) ? WEFT_STEP_GRADIENTS : WEFT_STEP_WHOLE;
    if (s->count >= s->buckets && s->pp && !s->share)
        return plan_update(cache, run, exec, WEFT_STEP_SHARE, s, &s->share);
    if (s->count >= s->buckets)
        return plan_update(cache, run, exec, WEFT_STEP_UPDATE, s, &s->update);
    WEFT_TRY(plan_bucket(cache, run, models, train_stage, s->count, s->parts, &own,
                         &s->bucket[s->count]));
    s->count++;
    return WEFT_OK;
}

weft_status weft_stage_programs_plan(weft_compiled_steps *cache, const weft_run *run,
                                     const weft_run_models *models,
                                     const weft_train_stage *train_stage,
                                     const weft_exec_config *exec, weft_stage_programs *steps)
{
    weft_stage_programs s;
    WEFT_TRY(weft_stage_programs_begin(run, train_stage, exec, &s));
    weft_status_code status = WEFT_OK;
    while (weft_stage_programs_has_next(&s))
        WEFT_GO(weft_stage_programs_next(cache, run, models, train_stage, exec, &s));
    *steps = s;
    return WEFT_OK;
out:
    weft_stage_programs_free(&s);
    return status;
}

weft_status weft_stage_programs_pipe(const weft_stage_programs *s, weft_pp_executor **run)
{
    weft_pp_step **step;
    WEFT_TRY(WEFT_NEW(step, s->buckets + 1, "%d programs", s->buckets));
    for (int i = 0; i < s->buckets; i++)
        step[i] = s->bucket[i]->pp_step;
    const weft_status_code status = weft_pp_executor_plan(s->pp, step, s->buckets, s->runs, run);
    weft_free(step);
    return status;
}

static weft_status list_programs(const weft_stage_programs *steps, weft_program ***list, int *count)
{
    *count = 0;
    for (int i = 0; i < steps->count; i++)
        *count += weft_step_programs(steps->bucket[i], NULL);
    *list = weft_calloc(*count + 1, sizeof **list);
    if (!*list)
        return no_memory(*count);
    for (int i = 0, at = 0; i < steps->count; i++)
        at += weft_step_programs(steps->bucket[i], *list + at);
    return WEFT_OK;
}

/* Bytes of all programs bound together and of a pipeline's microbatch buffers. */
static weft_status sum_bytes(const weft_stage_programs *steps,
                             int64_t (*of_programs)(weft_program *const *, int),
                             int64_t (*of_executor)(const weft_pp_executor *), int64_t *bytes)
{
    weft_program **program;
    weft_pp_executor *run;
    int count;
    WEFT_TRY(list_programs(steps, &program, &count));
    *bytes = of_programs(program, count);
    weft_free(program);
    if (!steps->pp)
        return WEFT_OK;
    WEFT_TRY(weft_stage_programs_pipe(steps, &run));
    *bytes += of_executor(run);
    weft_pp_executor_free(run);
    return WEFT_OK;
}

weft_status weft_stage_programs_offloaded_bytes(const weft_stage_programs *steps, int64_t *bytes)
{
    return sum_bytes(steps, weft_programs_offloaded_bytes, weft_pp_executor_offloaded_bytes, bytes);
}

weft_status weft_stage_programs_bytes(const weft_stage_programs *steps, int64_t *bytes)
{
    return sum_bytes(steps, weft_programs_bytes, weft_pp_executor_bytes, bytes);
}

static weft_status add_weights(const weft_graph *g, json_t *seen, int64_t *bytes)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_value_info *info = weft_value_get(g, node->out[0]);
        if (!weft_store_keeps(node) || json_object_get(seen, info->name))
            continue;
        *bytes += weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
        if (json_object_set_new(seen, info->name, json_true()) != 0)
            return weft_no_memory("the programs of a training stage");
    }
    return WEFT_OK;
}

static weft_status add_step_weights(const weft_step *step, json_t *seen, int64_t *bytes)
{
    const int count = weft_step_graphs(step, NULL);
    const weft_graph **graph;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(graph, count + 1, "%d programs", count));
    weft_step_graphs(step, graph);
    for (int k = 0; k < count; k++)
        WEFT_GO(add_weights(graph[k], seen, bytes));
out:
    weft_free(graph);
    return status;
}

weft_status weft_stage_programs_weights(const weft_stage_programs *steps, int64_t *bytes)
{
    json_t *seen = json_object();
    weft_status_code status = WEFT_OK;
    *bytes = 0;
    WEFT_GO(WEFT_ALLOCATED(seen, "the programs of a training stage"));
    for (int i = 0; i < steps->count; i++)
        WEFT_GO(add_step_weights(steps->bucket[i], seen, bytes));
out:
    json_decref(seen);
    return status;
}

void weft_stage_programs_layout(const weft_stage_programs *steps,
                                const weft_train_stage *train_stage, const weft_exec_config *exec,
                                weft_buf *out)
{
    if (weft_mesh_ranks(&exec->mesh) == 1)
        return;
    const int bucket = weft_train_stage_largest(train_stage);
    const weft_step *largest = steps->bucket[bucket < steps->buckets ? bucket : 0];
    const int count = weft_step_graphs(largest, NULL);
    const weft_graph **graph = weft_calloc(count + 1, sizeof *graph);
    weft_parallel_part *part = weft_calloc(count + 2, sizeof *part);
    int parts = 0;
    if (graph && part) {
        weft_step_graphs(largest, graph);
        for (int i = 0; i < count; i++)
            part[parts++] = (weft_parallel_part){graph[i], steps->runs};
        for (int i = steps->buckets; i < steps->count; i++)
            part[parts++] = (weft_parallel_part){steps->bucket[i]->graph, 1};
        weft_parallel_print(&exec->mesh, exec->recipes, exec->recipe_count, exec->zero, part, parts,
                            out);
    }
    if (steps->pp) {
        int64_t forward, backward;
        char text[2][32];
        weft_pp_layout_print(steps->pp, steps->runs, out);
        weft_pp_step_sends(steps->pp, largest->pp_step, &forward, &backward);
        weft_buf_printf(out,
                        "  this rank sends %s of activations and %s of gradients for each "
                        "microbatch\n",
                        weft_format_bytes(forward, text[0]), weft_format_bytes(backward, text[1]));
    }
    weft_free(graph);
    weft_free(part);
}

void weft_stage_programs_free(weft_stage_programs *steps)
{
    weft_free(steps->bucket);
    *steps = (weft_stage_programs){0};
}
