/* weft plan layout: plans the degrees of parallelism of a model, a batch and a cluster. */
#include "cli/plan_layout.h"

#include "cli/options/args.h"
#include "cli/plan.h"
#include "cli/plan_config.h"
#include "cli/plan_run_layout.h"
#include "estimate/plan_models.h"
#include "estimate/plan_target.h"
#include "plan/pipeline/bars_svg.h"
#include "plan/pipeline/degree_report.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pulse_report.h"
#include "plan/published/dit_list.h"

#include <stdio.h>
#include <string.h>

typedef struct layout_config {
    weft_plan_target target;
    int64_t batch, layers, hidden, heads, tokens, text_tokens, experts, top_k;
    int64_t most_tp, most_cp, most_pp, most_ep, least_zero, most_microbatch;
} layout_config;

static const weft_key keys[] = {
    WEFT_PLAN_TARGET_KEYS(
        "",
        "name of a model, such as wan-14b, dit-7b-74k or uvit-2.7b (an unknown name prints the "
        "list). Empty: a DiT of the sizes below",
        "h100:8"),
    {"batch", WEFT_KEY_I64, offsetof(layout_config, batch), "256", "samples",
     "samples per iteration", .min = 1, .max = 1000000},
    {"layers", WEFT_KEY_I64, offsetof(layout_config, layers), "28", "",
     "layers of the DiT if `model` is empty", .min = 1, .max = 10000},
    {"hidden", WEFT_KEY_I64, offsetof(layout_config, hidden), "4096", "", "width of a token",
     .min = 1, .max = 1000000},
    {"heads", WEFT_KEY_I64, offsetof(layout_config, heads), "32", "", "attention heads", .min = 1,
     .max = 10000},
    {"tokens", WEFT_KEY_I64, offsetof(layout_config, tokens), "8192", "",
     "latent tokens of a sample", .min = 1, .max = 100000000},
    {"text_tokens", WEFT_KEY_I64, offsetof(layout_config, text_tokens), "512", "",
     "text tokens of the cross-attention; use 0 for a DiT without cross-attention", .min = 0,
     .max = 1000000},
    {"experts", WEFT_KEY_I64, offsetof(layout_config, experts), "1", "",
     "experts per layer of a mixture of experts; 1 (default): dense", .min = 1, .max = 4096},
    {"top_k", WEFT_KEY_I64, offsetof(layout_config, top_k), "2", "", "experts per token", .min = 1,
     .max = 4096},
    {"most_tp", WEFT_KEY_I64, offsetof(layout_config, most_tp), "0", "",
     "limit of the tensor parallel degree; 0 (default): no limit", .min = 0, .max = 1000000},
    {"most_cp", WEFT_KEY_I64, offsetof(layout_config, most_cp), "0", "",
     "limit of the context parallel degree; 0 (default): no limit", .min = 0, .max = 1000000},
    {"most_pp", WEFT_KEY_I64, offsetof(layout_config, most_pp), "0", "",
     "limit of the pipeline parallel degree; 0 (default): no limit", .min = 0, .max = 1000000},
    {"most_ep", WEFT_KEY_I64, offsetof(layout_config, most_ep), "0", "",
     "limit of the expert parallel degree; 0 (default): no limit", .min = 0, .max = 1000000},
    {"least_zero", WEFT_KEY_I64, offsetof(layout_config, least_zero), "0", "",
     "smallest ZeRO stage to consider", .min = 0, .max = 3},
    {"most_microbatch", WEFT_KEY_I64, offsetof(layout_config, most_microbatch), "64", "",
     "largest microbatch; used for models with long skips only", .min = 1, .max = 4096},
};
const weft_section weft_plan_layout_section = {"layout", "how a model is split over a cluster",
                                               sizeof(layout_config), keys, WEFT_COUNT(keys)};

enum { OTHERS = 10 };

/* The planned model and cluster. */
typedef struct plan_input {
    layout_config config;
    weft_cluster cluster;
    weft_op_list model;
    const char *source; /* of the costs */
} plan_input;

/* Seals the plan, then calls weft_plan_finish. */
static weft_status finish(const weft_args *args, const char *format, const plan_input *in,
                          json_t *json, weft_buf *text, weft_buf *svg)
{
    const weft_status_code status =
        json ? weft_plan_target_seal(json, format, &in->config.target, &in->cluster, &in->model,
                                     in->source)
             : WEFT_OK; /* printed below */
    if (status != WEFT_OK) {
        json_decref(json);
        weft_buf_free(text);
        if (svg)
            weft_buf_free(svg);
        return status;
    }
    return weft_plan_finish(args, json, text, svg);
}

/* Models with collocated skips: (P, G, b) by PULSE's equations. */
static weft_status search_pulse(const weft_args *args, weft_arena *arena, const plan_input *in)
{
    const weft_op_list *model = &in->model;
    const weft_cluster *cluster = &in->cluster;
    weft_pp_costs costs;
    WEFT_TRY(weft_pp_costs_from_list(arena, model, &cluster->device, 1, &costs));
    const weft_fabric f = weft_fabric_from_cluster(cluster);
    costs.bandwidth = f.inter > 0 ? f.inter * (double)cluster->devices : f.intra;
    costs.latency = f.inter > 0 ? f.inter_latency : f.intra_latency;
    costs.lambda = 1;
    /* Eq. 15 uses the whole link of the node for the one boundary that leaves the node */
    weft_fabric wide = f;
    wide.inter = costs.bandwidth;
    weft_layout_list list;
    const weft_pulse_space space = {.devices = weft_cluster_devices(cluster),
                                    .most_b = in->config.most_microbatch};
    WEFT_TRY(weft_pulse_search(arena, &costs, &wide, &space, &list));
    const weft_pulse_choice *best = list.item[0].estimate;
    char a[32], b[32];
    if (!best->fits)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_NOWHERE,
                          "%s needs %s per device at P %" PRId64
                          ", but the limit is %s; use more devices",
                          model->name, weft_format_bytes((int64_t)best->memory, a), best->p,
                          weft_format_bytes((int64_t)weft_fabric_usable(&f), b));
    weft_buf text = {0};
    weft_buf_printf(&text,
                    "%s on %" PRId64 " %s: P %" PRId64 ", G %" PRId64 ", b %" PRId64
                    ", %.2f samples/s\n\n",
                    model->name, weft_cluster_devices(cluster), cluster->device.type, best->p,
                    best->g, best->b, 1 / best->seconds_per_sample);
    weft_pulse_print(&list, OTHERS, &text);
    return finish(args, WEFT_PULSE_FORMAT, in, weft_pulse_json(&list), &text, NULL);
}

static weft_status read_input(const weft_args *args, weft_arena *arena, const char *path,
                              plan_input *in)
{
    int count;
    const char *const *set = weft_args_list(args, "--set", &count);
    layout_config *c = &in->config;
    const weft_status_code loaded =
        weft_config_load(arena, path, set, count, &weft_plan_layout_section, c);
    if (loaded != WEFT_OK)
        return weft_plan_not_of_run(arena, path, loaded);
    WEFT_TRY(weft_cluster_load(arena, c->target.cluster, &in->cluster));
    in->source = "hand-made list";
    if (c->target.model[0])
        return weft_plan_model_list(arena, c->target.model, c->target.frames, c->target.height,
                                    c->target.width, &in->cluster.device, &in->model, &in->source);
    const weft_dit_shape shape = {.name = "DiT",
                                  .layers = c->layers,
                                  .hidden = c->hidden,
                                  .heads = c->heads,
                                  .tokens = c->tokens,
                                  .text_tokens = c->text_tokens,
                                  .text_width = 1024,
                                  .adaln_rank = 256,
                                  .experts = c->experts,
                                  .top_k = c->top_k};
    return weft_dit_costs(arena, &shape, &in->model);
}

static weft_status plan(const weft_args *args, weft_arena *arena, const char *path)
{
    plan_input in;
    WEFT_TRY(read_input(args, arena, path, &in));
    const layout_config *c = &in.config;
    if (in.model.skip_count > 0)
        return search_pulse(args, arena, &in);
    const weft_fabric f = weft_fabric_from_cluster(&in.cluster);
    const weft_degrees_job job = {.model = &in.model,
                                  .experts = c->target.model[0] ? 1 : c->experts,
                                  .fabric = &f,
                                  .batch = c->batch};
    const weft_degrees_limits limits = {.tp = c->most_tp,
                                        .cp = c->most_cp,
                                        .ep = c->most_ep,
                                        .pp = c->most_pp,
                                        .zero_min = c->least_zero};
    weft_degrees_plan made;
    WEFT_TRY(weft_degrees_search(arena, &job, &limits, &made));
    weft_buf text = {0}, svg = {0};
    weft_buf_printf(&text, "%s (costs: %s), batch %" PRId64 ", on %" PRId64 " %s\n", in.model.name,
                    in.source, c->batch, weft_cluster_devices(&in.cluster), in.cluster.device.type);
    weft_degrees_plan_print(&made, weft_args_flag(args, "--explain") ? made.count : OTHERS, &text);
    if (weft_args_string(args, "--svg"))
        weft_degrees_plan_draw(&made, OTHERS, &svg);
    return finish(args, WEFT_LAYOUT_FORMAT, &in, weft_degrees_plan_json(&made, OTHERS), &text,
                  &svg);
}

weft_status weft_plan_layout_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (weft_args_string(args, "--run-config"))
        return weft_plan_run_layout_run(args);
    if (count < 2)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_NOWHERE,
                          "give a config (examples/plan-layout.yaml is one), or --run-config "
                          "RUN.yaml for the layout of a run");
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the layouts"));
    const weft_status_code status = plan(args, arena, words[1]);
    weft_arena_free(arena);
    return status;
}
