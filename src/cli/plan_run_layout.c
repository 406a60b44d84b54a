/* weft plan layout --for: the layouts of a run by its own graphs. */
#include "cli/plan.h"
#include "plan/cost/rates.h"
#include "train/layout_file.h"
#include "train/settle.h"

#include <string.h>

/* Memory of a rank where the run says none: what its device has, shared where several ranks are on
 * one. */
static int64_t memory_of(const weft_cluster *c, int ranks)
{
    const int64_t devices = weft_cluster_devices(c),
                  each = (ranks + devices - 1) / (devices > 0 ? devices : 1);
    return c->device.memory / (each > 1 ? each : 1);
}

/* As many as the profile was measured with, or as the cluster has. */
static int64_t all_of(const weft_cluster *c)
{
    const weft_rates *rates = c->device.rates;
    return rates && rates->ranks > 1 ? rates->ranks : weft_cluster_devices(c);
}

static weft_status none_fits(const weft_pricer *p, const weft_layouts *l)
{
    const weft_layout_price *nearest = &l->item[0];
    weft_buf name = {0};
    weft_parallel_name(&nearest->parallel, &name);
    const weft_status_code status =
        weft_fail(WEFT_E_INFEASIBLE, "%s: no layout of %d ranks %s; the nearest, %s: %s", p->path,
                  p->ranks, l->legal ? "fits" : "can be", name.data ? name.data : "?",
                  nearest->why ? nearest->why : "?");
    weft_buf_free(&name);
    return status;
}

static weft_status plan(const weft_args *args, weft_arena *arena, const char *path)
{
    weft_run run;
    weft_run_models models;
    weft_cluster cluster;
    weft_pricer p = {.run = &run, .path = path, .models = &models, .cluster = &cluster};
    weft_layouts layouts;
    weft_buf text = {0};
    json_t *json = NULL;
    char spec[512];
    int64_t memory;
    int count;
    const char *const *set = weft_args_list(args, "--set", &count);
    WEFT_TRY(weft_args_i64(args, "--memory", 0, INT64_MAX, &memory));
    WEFT_TRY(weft_config_load(arena, path, set, count, &weft_run_section, &run));
    WEFT_TRY(weft_run_check(&run, path));
    WEFT_TRY(weft_run_models_read(&run, path, &models));
    WEFT_TRY(weft_run_cluster(arena, &run, weft_args_string(args, "--cluster"), &cluster, spec));
    WEFT_TRY(weft_plan_ranks(args, all_of(&cluster), 1 << 16, &p.ranks));
    WEFT_TRY(weft_run_process_bytes(weft_backend_find(run.backend), &p.process));
    p.limit = memory ? memory : memory_of(&cluster, p.ranks);
    p.arena = arena;
    WEFT_TRY(weft_layouts_search(&p, &layouts));
    if (layouts.fitting == 0)
        return none_fits(&p, &layouts);
    weft_layouts_print(&p, &layouts, weft_args_flag(args, "--explain"), &text);
    const weft_status_code status = weft_layout_to_json(&p, &layouts, spec, &json);
    if (status == WEFT_OK)
        return weft_plan_finish(args, json, &text, NULL);
    weft_buf_free(&text);
    return status;
}

weft_status weft_plan_run_layout_run(const weft_args *args)
{
    int count;
    weft_args_positional(args, &count);
    if (count > 1)
        return weft_fail(WEFT_E_ARG, "weft plan layout: give a config or --for RUN.yaml, not both");
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status = plan(args, arena, weft_args_string(args, "--for"));
    weft_arena_free(arena);
    return status;
}
