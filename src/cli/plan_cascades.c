/* weft plan cascades: plans from bare numbers, or an iteration of a model on a cluster. */
#include "cli/plan_cascades.h"

#include "cli/options/args.h"
#include "cli/plan.h"
#include "cli/plan_config.h"
#include "estimate/plan_models.h"
#include "plan/cascade/cascade_print.h"
#include "plan/cascade/genetic.h"
#include "plan/cascade/iteration.h"
#include "plan/cascade/plan_file.h"
#include "plan/plan_checksum.h"

#include <stdio.h>
#include <string.h>

static weft_status read_search(const weft_args *args, weft_cascade_search *search)
{
    int64_t seed, threads;
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    WEFT_TRY(weft_args_i64(args, "--threads", 0, 4096, &threads));
    WEFT_TRY(weft_args_f64(args, "--seconds", 0, 1e6, &search->seconds));
    search->seed = (uint64_t)seed;
    search->threads = (int)threads;
    return WEFT_OK;
}

typedef struct outcome {
    const weft_cascade_solution *plan;
    const weft_plan_setup *setup; /* NULL: bare numbers */
    const weft_workload *samples;
} outcome;

static weft_status output(const weft_args *args, const outcome *o, weft_arena *arena)
{
    json_t *json;
    WEFT_TRY(weft_cascade_plan_to_json(o->plan, &json));
    weft_status_code status = WEFT_OK;
    if (o->setup)
        WEFT_GO(weft_plan_file_describe(json, o->setup->config.cluster_spec, &o->setup->costs,
                                        o->samples));
    const char *path = weft_args_string(args, "--out"), *svg = weft_args_string(args, "--svg");
    WEFT_GO(weft_plan_add_checksum(json, WEFT_CASCADE_FORMAT));
    if (path)
        WEFT_GO(weft_json_save(path, json));
    if (svg)
        WEFT_GO(weft_cascade_draw(
            svg, o->setup ? o->setup->model.name : weft_args_string(args, "--costs"), o->plan,
            o->setup ? o->setup->cluster.devices : 0, arena));
    if (weft_args_flag(args, "--json")) {
        WEFT_GO(weft_plan_print_json(json));
    } else {
        weft_cascade_print_table(o->plan);
        if (weft_args_flag(args, "--explain"))
            weft_cascade_explain(o->plan);
    }
out:
    json_decref(json);
    return status;
}

static weft_status run_bare(const weft_args *args, weft_arena *arena)
{
    int64_t devices, memory;
    weft_cascade_search search = {0};
    WEFT_TRY(weft_args_i64(args, "--devices", INT64_MIN, INT64_MAX, &devices));
    WEFT_TRY(weft_args_i64(args, "--memory-limit", 0, INT64_MAX, &memory));
    WEFT_TRY(read_search(args, &search));
    weft_cascade_solution plan = {0};
    const char *path = weft_args_string(args, "--costs");
    WEFT_TRY(weft_cascade_list_load(path, arena, &plan.list));
    weft_status_code status =
        weft_cascade_problem_create(&plan.list, devices, (double)memory, &plan.problem);
    if (status != WEFT_OK)
        return weft_error_at(status, WEFT_AT(.file = path));
    const outcome o = {.plan = &plan};
    WEFT_GO(weft_cascade_solve(&plan.problem, &search, arena, &plan.result));
    WEFT_GO(weft_cascade_devices(&plan.problem, &plan.result.schedule, arena, &plan.first,
                                 &plan.devices));
    WEFT_GO(output(args, &o, arena));
out:
    weft_cascade_problem_free(&plan.problem);
    return status;
}

static weft_status run_config(const weft_args *args, const char *path, weft_arena *arena)
{
    weft_plan_setup s = {0};
    weft_workload samples;
    weft_iteration it;
    WEFT_TRY(weft_plan_setup_load(args, path, arena, &s));
    WEFT_TRY(weft_workload_draw(arena, &s.buckets, s.samples, s.search.seed, &samples));
    WEFT_TRY(
        weft_plan_model_work(arena, s.config.model_name, &samples, &s.cluster.device, &s.model));
    const weft_assign_options assign = {.inner = s.config.inner, .inter = s.config.inter};
    WEFT_TRY(weft_iteration_plan(&s.costs, &samples, &s.search, assign, arena, &it));
    const outcome o = {.plan = &it.best, .setup = &s, .samples = &samples};
    weft_status_code status = WEFT_OK;
    WEFT_GO(output(args, &o, arena));
    if (!weft_args_flag(args, "--json"))
        weft_cascade_print_simulated(&s.model, &it, weft_args_flag(args, "--explain"));
out:
    weft_iteration_free(&it);
    return status;
}

weft_status weft_plan_cascades_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (weft_args_string(args, "--costs") && count > 1)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--costs"),
                          "this option replaces a config; remove it or %s", words[1]);
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the cascades"));
    const weft_status_code status = weft_args_string(args, "--costs")
                                        ? run_bare(args, arena)
                                        : run_config(args, count > 1 ? words[1] : NULL, arena);
    weft_arena_free(arena);
    return status;
}
