#include "train/stage_steps.h"

#include "base/json.h"

weft_place_of_run weft_place_by(const weft_run *run, const weft_run_models *models)
{
    bool chosen;
    const weft_string_list *recompute = weft_run_recomputes(run, &chosen);
    weft_place_of_run place = {.backend = weft_backend_find(run->backend),
                               .recompute = recompute->item,
                               .recompute_count = (int)recompute->count,
                               .room = run->memory.ahead,
                               .passes = &run->passes,
                               .narrow = run->precision == WEFT_PRECISION_BF16,
                               .narrow_sums = run->gradient_sums == WEFT_PRECISION_BF16,
                               .slices = &run->parallel.slices,
                               .zero = (int)run->parallel.zero};
    if (!models)
        return place;
    place.recipes = models->recipe;
    place.recipe_count = models->recipes;
    place.trunk = weft_run_denoises(models) ? models->denoiser.family->scope : "";
    return place;
}

static weft_status plan_bucket(weft_step_cache *cache, const weft_run *run,
                               const weft_run_models *models, const weft_stage *stage, int bucket,
                               int64_t parts, const weft_place_of_run *place, weft_step **step)
{
    weft_bucket part = *weft_stage_bucket(stage, bucket);
    const weft_run own = weft_stage_run(run, stage);
    weft_graph *g;
    part.batch /= parts;
    WEFT_TRY(weft_objective_make(&own, models, &part, &g));
    return weft_step_cache_get(cache, g, &run->optimizer, place, step);
}

static weft_status no_memory(int count)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for %d programs", count);
}

/* Of the gradients of all buckets: the update, or what comes before it. */
static weft_status plan_behind(weft_step_cache *cache, const weft_run *run,
                               const weft_place_of_run *place, weft_step_kind kind,
                               weft_stage_steps *s, weft_step **step)
{
    int count = 0;
    for (int i = 0; i < s->buckets; i++)
        count += weft_step_graphs(s->bucket[i], NULL);
    const weft_graph **gradients = weft_alloc((count + 1) * (int64_t)sizeof *gradients);
    if (!gradients)
        return no_memory(count);
    for (int i = 0, at = 0; i < s->buckets; i++)
        at += weft_step_graphs(s->bucket[i], gradients + at);
    const weft_optimizer_config optimizer = weft_step_optimizer(&run->optimizer, place);
    weft_graph *g = kind == WEFT_STEP_SHARE ? weft_optimizer_share(gradients, count)
                                            : weft_optimizer_update(gradients, count, &optimizer);
    weft_free(gradients);
    weft_place_of_run own = *place;
    own.kind = kind;
    own.told = s->told = s->bucket[0]->told;
    for (int i = 1; i < s->buckets; i++)
        if (s->bucket[i]->told != s->told)
            own.told = s->told = 0;
    WEFT_TRY(weft_step_cache_get(cache, g, &run->optimizer, &own, step));
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

static bool updates_apart(const weft_stage_steps *s)
{
    return s->runs > 1 || s->pipe;
}

/* Places of the mesh that have samples of their own. */
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

weft_status weft_stage_steps_begin(const weft_run *run, const weft_stage *stage,
                                   const weft_place_of_run *place, weft_stage_steps *steps)
{
    weft_stage_steps s = {.buckets = weft_stage_bucket_count(stage), .pipe = place->pipe};
    int64_t batch = 0;
    for (int i = 0; i < s.buckets; i++)
        batch = common_divisor(weft_stage_bucket(stage, i)->batch, batch);
    WEFT_TRY(weft_pipe_microbatches(&run->parallel, place->pipe, batch, stage->accumulate,
                                    shares_of(&place->mesh), &s.parts));
    s.runs = s.parts * stage->accumulate;
    s.bucket = weft_alloc((s.buckets + 2) * (int64_t)sizeof *s.bucket);
    if (!s.bucket)
        return no_memory(s.buckets);
    *steps = s;
    return WEFT_OK;
}

bool weft_stage_steps_left(const weft_stage_steps *s)
{
    return s->count < s->buckets + updates_apart(s) + (s->pipe != NULL);
}

weft_status weft_stage_steps_next(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *s)
{
    weft_place_of_run own = *place;
    if (place->stage_fates)
        own.fates = &place->stage_fates[stage - (const weft_stage *)run->stages.item];
    own.kind = updates_apart(s) ? WEFT_STEP_GRADIENTS : WEFT_STEP_WHOLE;
    if (s->count >= s->buckets && s->pipe && !s->share)
        return plan_behind(cache, run, place, WEFT_STEP_SHARE, s, &s->share);
    if (s->count >= s->buckets)
        return plan_behind(cache, run, place, WEFT_STEP_UPDATE, s, &s->update);
    WEFT_TRY(
        plan_bucket(cache, run, models, stage, s->count, s->parts, &own, &s->bucket[s->count]));
    s->count++;
    return WEFT_OK;
}

weft_status weft_stage_steps_plan(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *steps)
{
    weft_stage_steps s;
    WEFT_TRY(weft_stage_steps_begin(run, stage, place, &s));
    weft_status_code status = WEFT_OK;
    while (weft_stage_steps_left(&s) && status == WEFT_OK)
        status = weft_stage_steps_next(cache, run, models, stage, place, &s);
    if (status == WEFT_OK)
        *steps = s;
    else
        weft_stage_steps_free(&s);
    return status;
}

weft_status weft_stage_steps_pipe(const weft_stage_steps *s, weft_pipe_run **run)
{
    weft_pipe_step **step = weft_alloc((s->buckets + 1) * (int64_t)sizeof *step);
    if (!step)
        return no_memory(s->buckets);
    for (int i = 0; i < s->buckets; i++)
        step[i] = s->bucket[i]->pipe;
    const weft_status_code status = weft_pipe_run_plan(s->pipe, step, s->buckets, s->runs, run);
    weft_free(step);
    return status;
}

static weft_status list_programs(const weft_stage_steps *steps, weft_program ***list, int *count)
{
    *count = 0;
    for (int i = 0; i < steps->count; i++)
        *count += weft_step_programs(steps->bucket[i], NULL);
    *list = weft_alloc((*count + 1) * (int64_t)sizeof **list);
    if (!*list)
        return no_memory(*count);
    for (int i = 0, at = 0; i < steps->count; i++)
        at += weft_step_programs(steps->bucket[i], *list + at);
    return WEFT_OK;
}

/* Of all programs bound together, and of the records of a pipeline. */
static weft_status sum_bytes(const weft_stage_steps *steps,
                             int64_t (*of_programs)(weft_program *const *, int),
                             int64_t (*of_pipe)(const weft_pipe_run *), int64_t *bytes)
{
    weft_program **program;
    weft_pipe_run *run;
    int count;
    WEFT_TRY(list_programs(steps, &program, &count));
    *bytes = of_programs(program, count);
    weft_free(program);
    if (!steps->pipe)
        return WEFT_OK;
    WEFT_TRY(weft_stage_steps_pipe(steps, &run));
    *bytes += of_pipe(run);
    weft_pipe_run_free(run);
    return WEFT_OK;
}

weft_status weft_stage_steps_away_bytes(const weft_stage_steps *steps, int64_t *bytes)
{
    return sum_bytes(steps, weft_programs_away_bytes, weft_pipe_run_away_bytes, bytes);
}

weft_status weft_stage_steps_bytes(const weft_stage_steps *steps, int64_t *bytes)
{
    return sum_bytes(steps, weft_programs_bytes, weft_pipe_run_bytes, bytes);
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
            return weft_fail(WEFT_E_MEMORY, "out of memory");
    }
    return WEFT_OK;
}

weft_status weft_stage_steps_weights(const weft_stage_steps *steps, int64_t *bytes)
{
    json_t *seen = json_object();
    weft_status_code status = seen ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    *bytes = 0;
    for (int i = 0; i < steps->count && status == WEFT_OK; i++) {
        const int count = weft_step_graphs(steps->bucket[i], NULL);
        const weft_graph **graph = weft_alloc((count + 1) * (int64_t)sizeof *graph);
        status = graph ? WEFT_OK : no_memory(count);
        if (graph)
            weft_step_graphs(steps->bucket[i], graph);
        for (int k = 0; k < count && status == WEFT_OK; k++)
            status = add_weights(graph[k], seen, bytes);
        weft_free(graph);
    }
    json_decref(seen);
    return status;
}

void weft_stage_steps_layout(const weft_stage_steps *steps, const weft_stage *stage,
                             const weft_place_of_run *place, weft_buf *out)
{
    if (weft_mesh_ranks(&place->mesh) == 1)
        return;
    const weft_step *largest = steps->bucket[weft_stage_largest(stage)];
    const int count = weft_step_graphs(largest, NULL);
    const weft_graph **graph = weft_alloc((count + 1) * (int64_t)sizeof *graph);
    weft_parallel_part *part = weft_alloc((count + 2) * (int64_t)sizeof *part);
    int parts = 0;
    if (graph && part) {
        weft_step_graphs(largest, graph);
        for (int i = 0; i < count; i++)
            part[parts++] = (weft_parallel_part){graph[i], steps->runs};
        for (int i = steps->buckets; i < steps->count; i++)
            part[parts++] = (weft_parallel_part){steps->bucket[i]->graph, 1};
        weft_parallel_print(&place->mesh, place->recipes, place->recipe_count, place->zero, part,
                            parts, out);
    }
    if (steps->pipe) {
        int64_t forward, backward;
        char text[2][32];
        weft_pipe_print(steps->pipe, steps->runs, out);
        weft_pipe_step_sends(steps->pipe, largest->pipe, &forward, &backward);
        weft_buf_printf(out,
                        "  this rank sends %s of activations and %s of gradients for each "
                        "microbatch\n",
                        weft_format_bytes(forward, text[0]), weft_format_bytes(backward, text[1]));
    }
    weft_free(graph);
    weft_free(part);
}

void weft_stage_steps_free(weft_stage_steps *steps)
{
    weft_free(steps->bucket);
    *steps = (weft_stage_steps){0};
}
