/* weft plan pipeline: plans from bare numbers with --costs, or a model on a cluster from a
 * config. */
#include "cli/plan_pipeline.h"

#include "cli/options/args.h"
#include "cli/plan.h"
#include "estimate/plan_models.h"
#include "estimate/plan_target.h"
#include "plan/cluster/fabric.h"
#include "plan/pipeline/pipeline_json.h"
#include "plan/pipeline/pipeline_print.h"
#include "plan/pipeline/pipeline_report.h"
#include "plan/pipeline/pipeline_svg.h"
#include "plan/plan_checksum.h"

#include <stdio.h>
#include <string.h>

typedef struct pipeline_config {
    weft_plan_target target;
    int64_t pp_stages, devices, microbatch, microbatches;
    double lambda;
} pipeline_config;

static const weft_key keys[] = {
    WEFT_PLAN_TARGET_KEYS(NULL,
                          "wan-14b, hunyuanvideo-13b, ...; uvit-2.7b, sdv2-1.7b, hunyuan-dit-3b, "
                          "...; dit-7b-74k, ... "
                          "(an unknown name lists them)",
                          "v100:2"),
    {"stages", WEFT_KEY_I64, offsetof(pipeline_config, pp_stages), "0", "",
     "pipeline stages; 0: two per device for skips, otherwise one", .min = 0, .max = 4096},
    {"devices", WEFT_KEY_I64, offsetof(pipeline_config, devices), "8", "",
     "devices of one pipeline", .min = 1, .max = 4096},
    {"microbatch", WEFT_KEY_I64, offsetof(pipeline_config, microbatch), "1", "samples",
     "samples per microbatch", .min = 1, .max = 65536},
    {"microbatches", WEFT_KEY_I64, offsetof(pipeline_config, microbatches), "0", "",
     "microbatches per iteration. 0: as many as devices", .min = 0, .max = 65536},
    {"lambda", WEFT_KEY_F64, offsetof(pipeline_config, lambda), "1", "",
     "weight of communication in the partition (Eq. 1)", .min = 0, .max = 1e6},
};
const weft_section weft_plan_pipeline_section = {"pipeline", "a model cut into pipeline stages",
                                                 sizeof(pipeline_config), keys, WEFT_COUNT(keys)};

static weft_status choose(const weft_args *args, const char *option, const char *const *names,
                          int count, int *out)
{
    const char *word = weft_args_string(args, option);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) {
            *out = i;
            return WEFT_OK;
        }
    weft_buf list = {0};
    for (int i = 0; i < count; i++)
        weft_buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const weft_status_code status =
        weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = option, .value = word),
                   "'%.80s' is unknown; use one of %s", word, list.data ? list.data : "?");
    weft_buf_free(&list);
    return status;
}

static weft_status read_options(const weft_args *args, weft_pipeline_options *o)
{
    static const char *const skips[] = {"auto", "collocate", "price", "ignore"};
    const char *schedules[WEFT_PP_SCHEDULE_KIND_COUNT + 1] = {"auto"};
    for (int k = 0; k < WEFT_PP_SCHEDULE_KIND_COUNT; k++)
        schedules[k + 1] = weft_pp_schedule_kind_name((weft_pp_schedule_kind)k);
    int mode, schedule;
    int64_t memory;
    WEFT_TRY(weft_args_i64(args, "--stages", 0, INT64_MAX, &o->pp_stages));
    WEFT_TRY(weft_args_i64(args, "--devices", 0, INT64_MAX, &o->devices));
    WEFT_TRY(weft_args_i64(args, "--microbatches", 0, INT64_MAX, &o->microbatches));
    WEFT_TRY(weft_args_i64(args, "--memory-limit", 0, INT64_MAX, &memory));
    WEFT_TRY(choose(args, "--skips", skips, 4, &mode));
    WEFT_TRY(choose(args, "--schedule", schedules, WEFT_PP_SCHEDULE_KIND_COUNT + 1, &schedule));
    o->memory = (double)memory;
    o->skips = (weft_collocation)mode;
    o->schedule = schedule - 1;
    o->blocking = weft_args_flag(args, "--blocking-sends");
    return WEFT_OK;
}

/* Inputs of a plan, written into its file. */
typedef struct made_for {
    weft_plan_target target; /* cluster NULL: bare costs */
    weft_cluster cluster;
    weft_op_list model;
    const char *source; /* source of the model's costs */
} made_for;

static weft_status load_config(const weft_args *args, weft_arena *arena, const char *path,
                               weft_pipeline_options *o, weft_pp_costs *costs, made_for *where)
{
    int count;
    const char *const *set = weft_args_list(args, "--set", &count);
    pipeline_config config;
    WEFT_TRY(weft_config_load(arena, path, set, count, &weft_plan_pipeline_section, &config));
    weft_cluster *cluster = &where->cluster;
    weft_op_list *model = &where->model;
    WEFT_TRY(weft_cluster_load(arena, config.target.cluster, cluster));
    WEFT_TRY(weft_plan_model_list(arena, config.target.model, config.target.frames,
                                  config.target.height, config.target.width, &cluster->device,
                                  model, &where->source));
    where->target = config.target;
    if (config.devices > weft_cluster_devices(cluster))
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                          WEFT_AT(.file = path, .key = "devices", WEFT_NUMBER(config.devices)),
                          "a pipeline of %" PRId64
                          " devices does not fit the cluster, which has %" PRId64,
                          config.devices, weft_cluster_devices(cluster));
    WEFT_TRY(
        weft_pp_costs_from_list(arena, model, &cluster->device, (double)config.microbatch, costs));
    const weft_fabric f = weft_fabric_from_cluster(cluster);
    const bool inside = config.devices <= cluster->devices;
    costs->bandwidth = inside ? f.intra : f.inter * (double)cluster->devices;
    costs->latency = inside ? f.intra_latency : f.inter_latency;
    costs->lambda = config.lambda;
    o->devices = o->devices > 0 ? o->devices : config.devices;
    o->microbatches = o->microbatches > 0 ? o->microbatches : config.microbatches;
    if (o->pp_stages == 0)
        o->pp_stages = config.pp_stages > 0    ? config.pp_stages
                       : costs->skip_count > 0 ? 2 * o->devices
                                               : o->devices;
    if (o->memory <= 0)
        o->memory = weft_fabric_usable(&f);
    const weft_state_bytes states = weft_state_bytes_of(model->dtype_bytes);
    for (int64_t i = 0; i < costs->op_count; i++)
        costs->op[i].parameter_bytes *= weft_state_bytes_on(states, 0, 1) / states.weight;
    return WEFT_OK;
}

static weft_status output(const weft_args *args, const weft_pp_costs *costs,
                          const weft_pipeline_plan *plan, const made_for *where)
{
    json_t *json = weft_pipeline_plan_json(costs, plan);
    weft_buf text = {0}, svg = {0};
    if (json) {
        const weft_status_code status =
            where->target.cluster
                ? weft_plan_target_seal(json, WEFT_PIPELINE_FORMAT, &where->target, &where->cluster,
                                        &where->model, where->source)
                : weft_plan_add_checksum(json, WEFT_PIPELINE_FORMAT);
        if (status != WEFT_OK) {
            json_decref(json);
            return status;
        }
    }
    if (where->source)
        weft_buf_printf(&text, "costs           %s\n", where->source);
    weft_pipeline_plan_print(costs, plan, weft_args_flag(args, "--explain"), &text);
    if (weft_args_string(args, "--svg"))
        weft_pipeline_plan_draw(plan, &svg);
    return weft_plan_finish(args, json, &text, &svg);
}

weft_status weft_plan_pipeline_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    const char *bare = weft_args_string(args, "--costs");
    weft_pipeline_options options = {0};
    made_for where = {0};
    weft_pp_costs costs;
    weft_pipeline_plan plan = {0};
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(arena, "the pipeline plan"));
    WEFT_GO(read_options(args, &options));
    if (bare && count > 1)
        WEFT_GO(weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--costs"),
                           "this option replaces a config; remove it or %s", words[1]));
    if (!bare && count < 2)
        WEFT_GO(weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_NOWHERE,
                           "give a config, or --costs FILE.json with --stages P"));
    if (bare) {
        if (options.pp_stages < 1)
            WEFT_GO(weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--stages"),
                               "--costs needs --stages P, at least 1"));
        WEFT_GO(weft_pp_costs_load(arena, bare, &costs));
    } else {
        WEFT_GO(load_config(args, arena, words[1], &options, &costs, &where));
    }
    WEFT_GO(weft_pipeline_plan_make(&costs, &options, &plan));
    WEFT_GO(output(args, &costs, &plan, &where));
out:
    weft_pipeline_plan_free(&plan);
    weft_arena_free(arena);
    return status;
}
