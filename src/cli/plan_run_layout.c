/* weft plan layout --run-config: searches the layouts of a run, with the run's graphs. */
#include "cli/plan_run_layout.h"

#include "cli/options/args.h"
#include "cli/plan.h"
#include "estimate/training/layout_file.h"
#include "estimate/training/resolve_layout.h"
#include "estimate/training/resolve_precision.h"
#include "plan/ops/rates.h"
#include "train/estimate/process_memory.h"
#include "train/pipeline/pp_layout.h"

#include <string.h>

/* Returns the number of ranks of the profile, or of devices of the cluster. */
static int64_t all_of(const weft_cluster *c)
{
    const weft_rates *rates = c->device.rates;
    return rates && rates->ranks > 1 ? rates->ranks : weft_cluster_devices(c);
}

static weft_status plan(const weft_args *args, weft_arena *arena, const char *path)
{
    weft_run run;
    weft_run_models models;
    weft_cluster cluster;
    weft_layout_estimator p = {.run = &run, .path = path, .models = &models, .cluster = &cluster};
    weft_process_memory process;
    weft_layout_list layouts;
    weft_buf text = {0};
    json_t *json = NULL;
    char spec[512];
    int64_t memory;
    int count;
    const char *const *set = weft_args_list(args, "--set", &count);
    WEFT_TRY(weft_args_i64(args, "--memory-limit", 0, INT64_MAX, &memory));
    WEFT_TRY(weft_config_load(arena, path, set, count, &weft_run_section, &run));
    WEFT_TRY(weft_run_check(&run, path));
    WEFT_TRY(weft_pp_layout_check_used(&run.parallel, path));
    WEFT_TRY(weft_run_models_read(&run, path, &models));
    WEFT_TRY(weft_run_cluster(arena, &run, weft_args_string(args, "--on"), &cluster, spec));
    WEFT_TRY(weft_run_predict_precision(&run, &models, path, weft_args_string(args, "--on"), arena,
                                        &text));
    if (text.len)
        weft_buf_printf(&text, "\n");
    WEFT_TRY(weft_plan_ranks(args, all_of(&cluster), 1 << 16, &p.ranks));
    WEFT_TRY(weft_process_memory_measure(&run, NULL, p.ranks, &process));
    p.process_bytes = weft_process_memory_sum(process);
    p.limit = memory ? memory : weft_cluster_rank_memory(&cluster, p.ranks);
    p.arena = arena;
    WEFT_TRY(weft_layouts_search(&p, &layouts));
    if (layouts.fitting == 0)
        return weft_layout_list_infeasible(&layouts, p.ranks, WEFT_AT(.file = path));
    weft_layouts_print(&p, &layouts, weft_args_flag(args, "--explain"), &text);
    const weft_status_code status = weft_layout_to_json(&p, &layouts, spec, &json);
    if (status != WEFT_OK) {
        weft_buf_free(&text);
        return status;
    }
    return weft_plan_finish(args, json, &text, NULL);
}

weft_status weft_plan_run_layout_run(const weft_args *args)
{
    int count;
    weft_args_positional(args, &count);
    if (count > 1)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--run-config"),
                          "--run-config has the config of the run, so weft plan layout accepts no "
                          "other config; remove the option or the config");
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the layouts"));
    const weft_status_code status = plan(args, arena, weft_args_string(args, "--run-config"));
    weft_arena_free(arena);
    return status;
}
