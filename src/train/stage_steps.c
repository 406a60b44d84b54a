#include "train/stage_steps.h"

#include "base/json.h"

static weft_status plan_bucket(weft_step_cache *cache, const weft_run *run,
                               const weft_run_models *models, const weft_bucket *size,
                               const weft_place_of_run *place, weft_step **step)
{
    weft_graph *g = weft_graph_create();
    if (g)
        weft_objective_build(g, run, models, size);
    return weft_step_cache_get(cache, g, &run->optimizer, place, step);
}

static weft_status plan_update(weft_step_cache *cache, const weft_run *run,
                               const weft_place_of_run *place, weft_stage_steps *s)
{
    const weft_graph **gradients = weft_alloc(s->buckets * (int64_t)sizeof *gradients);
    if (!gradients)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d graphs", s->buckets);
    for (int i = 0; i < s->buckets; i++)
        gradients[i] = s->bucket[i]->graph;
    const weft_optimizer_config optimizer = weft_step_optimizer(&run->optimizer, place);
    weft_graph *g = weft_optimizer_update(gradients, s->buckets, &optimizer);
    weft_free(gradients);
    weft_place_of_run own = *place;
    own.kind = WEFT_STEP_UPDATE;
    own.flagged = s->bucket[0]->flagged;
    for (int i = 1; i < s->buckets; i++)
        own.flagged &= s->bucket[i]->flagged;
    WEFT_TRY(weft_step_cache_get(cache, g, &run->optimizer, &own, &s->update));
    s->bucket[s->count++] = s->update;
    return WEFT_OK;
}

int weft_stage_steps_count(const weft_stage *stage)
{
    return weft_stage_bucket_count(stage) + (stage->accumulate > 1);
}

weft_status weft_stage_steps_next(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *s)
{
    weft_place_of_run own = *place;
    own.kind = stage->accumulate > 1 ? WEFT_STEP_GRADIENTS : WEFT_STEP_WHOLE;
    if (!s->bucket) {
        s->buckets = weft_stage_bucket_count(stage);
        s->bucket = weft_alloc((s->buckets + 1) * (int64_t)sizeof *s->bucket);
    }
    if (!s->bucket)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d buckets", s->buckets);
    if (s->count == s->buckets)
        return plan_update(cache, run, place, s);
    WEFT_TRY(plan_bucket(cache, run, models, weft_stage_bucket(stage, s->count), &own,
                         &s->bucket[s->count]));
    s->count++;
    return WEFT_OK;
}

weft_status weft_stage_steps_plan(weft_step_cache *cache, const weft_run *run,
                                  const weft_run_models *models, const weft_stage *stage,
                                  const weft_place_of_run *place, weft_stage_steps *steps)
{
    weft_stage_steps s = {0};
    weft_status_code status = WEFT_OK;
    while (s.count < weft_stage_steps_count(stage) && status == WEFT_OK)
        status = weft_stage_steps_next(cache, run, models, stage, place, &s);
    if (status == WEFT_OK)
        *steps = s;
    else
        weft_stage_steps_free(&s);
    return status;
}

weft_status weft_stage_steps_bytes(const weft_stage_steps *steps, int64_t *bytes)
{
    weft_program **program = weft_alloc(steps->count * (int64_t)sizeof *program);
    if (!program)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d programs", steps->count);
    for (int i = 0; i < steps->count; i++)
        program[i] = steps->bucket[i]->program;
    *bytes = weft_programs_bytes(program, steps->count);
    weft_free(program);
    return WEFT_OK;
}

weft_status weft_stage_steps_weights(const weft_stage_steps *steps, int64_t *bytes)
{
    json_t *seen = json_object();
    weft_status_code status = seen ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    *bytes = 0;
    for (int i = 0; i < steps->count && status == WEFT_OK; i++) {
        const weft_graph *g = steps->bucket[i]->graph;
        for (int32_t n = 0; n < weft_graph_node_count(g) && status == WEFT_OK; n++) {
            const weft_node *node = weft_graph_node(g, n);
            if (!weft_op_has(node->op, WEFT_TRAIT_PERSISTENT))
                continue;
            const weft_value_info *info = weft_value_get(g, node->out[0]);
            if (json_object_get(seen, info->name))
                continue;
            *bytes += weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
            if (json_object_set_new(seen, info->name, json_true()) != 0)
                status = weft_fail(WEFT_E_MEMORY, "out of memory");
        }
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
    const weft_parallel_part part[2] = {{largest->graph, steps->update ? stage->accumulate : 1},
                                        {steps->update ? steps->update->graph : NULL, 1}};
    weft_parallel_print(&place->mesh, place->recipes, place->recipe_count, place->zero, part,
                        steps->update ? 2 : 1, out);
}

void weft_stage_steps_free(weft_stage_steps *steps)
{
    weft_free(steps->bucket);
    *steps = (weft_stage_steps){0};
}
