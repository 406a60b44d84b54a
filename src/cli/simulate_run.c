#include "cli/simulate_run.h"

#include "cli/options/args.h"
#include "cli/replaced_verb.h"
#include "cli/text_output.h"
#include "estimate/training/resolve_layout.h"
#include "estimate/training/resolve_precision.h"
#include "estimate/training/run_simulation.h"

#include <stdio.h>

static weft_execute execute_of(const weft_args *args)
{
    return weft_args_flag(args, "--execute")      ? WEFT_EXECUTE_ALWAYS
           : weft_args_flag(args, "--no-execute") ? WEFT_EXECUTE_NEVER
                                                  : WEFT_EXECUTE_AUTO;
}

static weft_status refuse_for_run(const weft_args *args, const char *path)
{
    static const char *const of_plans[] = {"--chrome", "--svg", "--links", "--pass-splits"};
    for (int i = 0; i < WEFT_COUNT(of_plans); i++)
        if (weft_args_flag(args, of_plans[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = of_plans[i]),
                              "this option is for a plan (.json), and %s is a run; remove it",
                              path);
    return WEFT_OK;
}

/* Loads the run and resolves its layout. */
static weft_status load(const weft_args *args, weft_arena *arena, const char *path, weft_run *run,
                        weft_run_models *models)
{
    weft_buf message = {0};
    int sets;
    const char *const *set = weft_args_list(args, "--set", &sets);
    WEFT_TRY(weft_config_load(arena, path, set, sets, &weft_run_section, run));
    WEFT_TRY(weft_run_check(run, path));
    WEFT_TRY(weft_run_models_read(run, path, models));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_predict_precision(run, models, path, "local", arena, &message));
    if (message.len)
        printf("%s\n", message.data);
    weft_buf_free(&message);
    message = (weft_buf){0};
    WEFT_GO(weft_run_resolve_layout(run, models, path, NULL, 0, NULL, arena, &message));
    if (message.len)
        printf("%s\n", message.data);
out:
    weft_buf_free(&message);
    return status;
}

static weft_status save(const char *path, const weft_run_simulation *simulation)
{
    json_t *json = weft_run_simulation_json(simulation);
    WEFT_TRY(WEFT_ALLOCATED(json, "the simulation"));
    const weft_status_code status = weft_json_save(path, json);
    json_decref(json);
    return status;
}

static weft_status print(const weft_args *args, const weft_run_simulation *simulation,
                         const weft_cluster *cluster, const char *spec)
{
    const char *out = weft_args_string(args, "--out"), *costs = weft_args_string(args, "--costs");
    weft_buf text = {0};
    weft_run_simulation_print(simulation, spec, &text);
    WEFT_TRY(weft_text_output(&text));
    if (out)
        WEFT_TRY(save(out, simulation));
    return costs ? weft_run_simulation_save_costs(costs, simulation, cluster) : WEFT_OK;
}

static weft_status simulate(const weft_args *args, weft_arena *arena, const char *path)
{
    const char *given = weft_args_string(args, "--on"), *spec = given ? given : "h100";
    weft_run run;
    weft_run_models models;
    weft_cluster cluster;
    weft_run_simulation simulation;
    WEFT_TRY(load(args, arena, path, &run, &models));
    WEFT_TRY(weft_cluster_load(arena, spec, &cluster));
    if (weft_args_flag(args, "--costs") && run.parallel.pp < 2)
        return weft_error(WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = path, .key = "parallel.pp"),
                          "--costs writes the seconds of pipeline stages, and the layout has "
                          "none; set parallel.pp");
    const weft_run_simulation_setup setup = {.run = &run,
                                             .path = path,
                                             .models = &models,
                                             .train_stage = run.train_stages.item,
                                             .cluster = &cluster,
                                             .execute = execute_of(args),
                                             .arena = arena};
    WEFT_TRY(weft_run_simulate(&setup, &simulation));
    const weft_status_code status = print(args, &simulation, &cluster, spec);
    weft_run_simulation_free(&simulation);
    return status;
}

weft_status weft_simulate_run(const weft_args *args, const char *path)
{
    weft_print_replaced("weft simulate RUN.yaml", "weft estimate RUN.yaml --execute");
    WEFT_TRY(refuse_for_run(args, path));
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the simulation"));
    const weft_status_code status = simulate(args, arena, path);
    weft_arena_free(arena);
    return status;
}
