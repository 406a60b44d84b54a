/* weft plan layout: degrees of parallelism for a model, a batch and a cluster. */
#include "cli/plan.h"
#include "cli/published/dit_list.h"
#include "plan/pipeline/degrees_report.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pulse.h"

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
        "a model (wan-14b, dit-7b-74k, uvit-2.7b, ...; a wrong name lists them), or empty with the "
        "sizes below",
        "h100:8"),
    {"batch", WEFT_KEY_I64, offsetof(layout_config, batch), "256", "samples",
     "samples per iteration", .min = 1, .max = 1000000},
    {"layers", WEFT_KEY_I64, offsetof(layout_config, layers), "28", "", "of a DiT of your own",
     .min = 1, .max = 10000},
    {"hidden", WEFT_KEY_I64, offsetof(layout_config, hidden), "4096", "", "width", .min = 1,
     .max = 1000000},
    {"heads", WEFT_KEY_I64, offsetof(layout_config, heads), "32", "", "attention heads", .min = 1,
     .max = 10000},
    {"tokens", WEFT_KEY_I64, offsetof(layout_config, tokens), "8192", "",
     "sequence length of a sample", .min = 1, .max = 100000000},
    {"text_tokens", WEFT_KEY_I64, offsetof(layout_config, text_tokens), "512", "",
     "of the cross-attention; 0: none", .min = 0, .max = 1000000},
    {"experts", WEFT_KEY_I64, offsetof(layout_config, experts), "1", "", "of a mixture of experts",
     .min = 1, .max = 4096},
    {"top_k", WEFT_KEY_I64, offsetof(layout_config, top_k), "2", "", "experts per token", .min = 1,
     .max = 4096},
    {"most_tp", WEFT_KEY_I64, offsetof(layout_config, most_tp), "0", "",
     "limit of the tensor parallel degree; 0: none", .min = 0, .max = 1000000},
    {"most_cp", WEFT_KEY_I64, offsetof(layout_config, most_cp), "0", "",
     "of the context parallel degree", .min = 0, .max = 1000000},
    {"most_pp", WEFT_KEY_I64, offsetof(layout_config, most_pp), "0", "",
     "of the pipeline parallel degree", .min = 0, .max = 1000000},
    {"most_ep", WEFT_KEY_I64, offsetof(layout_config, most_ep), "0", "",
     "of the expert parallel degree", .min = 0, .max = 1000000},
    {"least_zero", WEFT_KEY_I64, offsetof(layout_config, least_zero), "0", "",
     "smallest ZeRO stage to consider", .min = 0, .max = 3},
    {"most_microbatch", WEFT_KEY_I64, offsetof(layout_config, most_microbatch), "64", "",
     "models with long skips: largest microbatch", .min = 1, .max = 4096},
};
const weft_section weft_plan_layout_section = {"layout", "how a model is split over a cluster",
                                               sizeof(layout_config), keys, WEFT_COUNT(keys)};

enum { OTHERS = 10, PULSE_ROOM = 512 };

/* Why a choice lost: the term of Eq. 15 that grew most per sample, or the memory. */
static void why_pulse_lost(const weft_pulse_choice *best, const weft_pulse_choice *c, double limit,
                           char text[120])
{
    static const char *const names[] = {"compute and bubble", "sends", "all-reduce"};
    const double per = (double)(c->b * c->p * c->g),
                 best_per = (double)(best->b * best->p * best->g);
    const double more[] = {c->compute / per - best->compute / best_per,
                           c->send / per - best->send / best_per,
                           c->all_reduce / per - best->all_reduce / best_per};
    char need[32], have[32];
    int most = 0;
    for (int k = 1; k < 3; k++)
        most = more[k] > more[most] ? k : most;
    if (c == best)
        text[0] = 0;
    else if (!c->fits)
        snprintf(text, 120, "needs %s per device, limit %s",
                 weft_format_bytes(c->memory < 9e18 ? (int64_t)c->memory : INT64_MAX, need),
                 weft_format_bytes((int64_t)limit, have));
    else
        snprintf(text, 120, "%.1f %% slower: more %s",
                 100 * (c->seconds_per_sample / best->seconds_per_sample - 1), names[most]);
}

/* Seals the plan, then as weft_plan_finish. */
static weft_status finish(const weft_args *args, const char *format, const layout_config *config,
                          const weft_op_list *model, const char *source,
                          const weft_cluster *cluster, json_t *json, weft_buf *text, weft_buf *svg)
{
    const weft_status_code status =
        json ? weft_plan_target_seal(json, format, &config->target, cluster, model, source)
             : WEFT_OK; /* told below */
    if (status == WEFT_OK)
        return weft_plan_finish(args, json, text, svg);
    json_decref(json);
    weft_buf_free(text);
    if (svg)
        weft_buf_free(svg);
    return status;
}

/* Models with collocated skips: (P, G, b) by PULSE's equations. */
static weft_status tune_pulse(const weft_args *args, weft_arena *arena, const layout_config *config,
                              const weft_op_list *model, const char *source,
                              const weft_cluster *cluster)
{
    weft_pipe_costs costs;
    WEFT_TRY(weft_pipe_costs_from_list(arena, model, &cluster->device, 1, &costs));
    const weft_fabric f = weft_fabric_from_cluster(cluster);
    costs.bandwidth = f.inter > 0 ? f.inter * (double)cluster->devices : f.intra;
    costs.latency = f.inter > 0 ? f.inter_latency : f.intra_latency;
    costs.lambda = 1;
    weft_fabric wide =
        f; /* Eq. 15 takes the node's whole link for the one boundary that leaves it */
    wide.inter = costs.bandwidth;
    weft_pulse_choice *choice = weft_arena_alloc(arena, PULSE_ROOM * (int64_t)sizeof *choice);
    if (!choice)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    int64_t count;
    WEFT_TRY(weft_tune_pulse(&costs, &wide, weft_cluster_devices(cluster), config->most_microbatch,
                             0, choice, PULSE_ROOM, &count));
    char a[32], b[32];
    if (!choice[0].fits)
        return weft_fail(
            WEFT_E_INFEASIBLE, "%s needs %s per device at P %lld, limit %s; use more devices",
            model->name, weft_format_bytes((int64_t)choice[0].memory, a), (long long)choice[0].p,
            weft_format_bytes((int64_t)weft_fabric_usable(&f), b));
    weft_buf text = {0};
    json_t *list = json_array();
    weft_buf_printf(&text,
                    "%s on %lld %s: P %lld, G %lld, b %lld, %.2f samples/s\n\n     P     G     b  "
                    "samples/s    compute       send  all-reduce     memory\n",
                    model->name, (long long)weft_cluster_devices(cluster), cluster->device.type,
                    (long long)choice[0].p, (long long)choice[0].g, (long long)choice[0].b,
                    1 / choice[0].seconds_per_sample);
    for (int64_t i = 0; i < count; i++) {
        const weft_pulse_choice *c = &choice[i];
        char why[120];
        why_pulse_lost(&choice[0], c, weft_fabric_usable(&f), why);
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:b, s:s}", "P",
                            (json_int_t)c->p, "G", (json_int_t)c->g, "b", (json_int_t)c->b,
                            "samples_per_second", 1 / c->seconds_per_sample, "compute", c->compute,
                            "send", c->send, "all_reduce", c->all_reduce, "memory_bytes", c->memory,
                            "fits", c->fits, "lost_because", why));
        if (i > OTHERS)
            continue;
        char times[3][32];
        weft_buf_printf(&text, "  %4lld  %4lld  %4lld  %9.2f %10s %10s  %10s %10s  %s\n",
                        (long long)c->p, (long long)c->g, (long long)c->b,
                        1 / c->seconds_per_sample, weft_format_seconds(c->compute, times[0]),
                        weft_format_seconds(c->send, times[1]),
                        weft_format_seconds(c->all_reduce, times[2]),
                        weft_format_bytes((int64_t)c->memory, a), why);
    }
    json_t *json = json_pack("{s:o}", "candidates", list);
    return finish(args, WEFT_PULSE_FORMAT, config, model, source, cluster, json, &text, NULL);
}

static weft_status plan(const weft_args *args, weft_arena *arena, const char *path)
{
    int count;
    const char *const *set = weft_args_list(args, "--set", &count);
    layout_config c;
    weft_op_list model;
    weft_cluster cluster;
    const char *source = "hand-made list";
    const weft_status_code loaded =
        weft_config_load(arena, path, set, count, &weft_plan_layout_section, &c);
    if (loaded != WEFT_OK)
        return weft_plan_not_of_run(arena, path, loaded);
    WEFT_TRY(weft_cluster_load(arena, c.target.cluster, &cluster));
    if (c.target.model[0]) {
        WEFT_TRY(weft_plan_model_list(arena, c.target.model, c.target.frames, c.target.height,
                                      c.target.width, &cluster.device, &model, &source));
    } else {
        const weft_dit_shape shape = {.name = "DiT",
                                      .layers = c.layers,
                                      .hidden = c.hidden,
                                      .heads = c.heads,
                                      .tokens = c.tokens,
                                      .text_tokens = c.text_tokens,
                                      .text_width = 1024,
                                      .adaln_rank = 256,
                                      .experts = c.experts,
                                      .top_k = c.top_k};
        WEFT_TRY(weft_dit_costs(arena, &shape, &model));
    }
    if (model.skip_count > 0)
        return tune_pulse(args, arena, &c, &model, source, &cluster);
    const weft_fabric f = weft_fabric_from_cluster(&cluster);
    const weft_degrees_limits limits = {.tp = c.most_tp,
                                        .cp = c.most_cp,
                                        .ep = c.most_ep,
                                        .pp = c.most_pp,
                                        .zero_min = c.least_zero};
    weft_degrees_plan made;
    WEFT_TRY(weft_degrees_tune(arena, &model, c.target.model[0] ? 1 : c.experts, &f, c.batch,
                               &limits, &made));
    weft_buf text = {0};
    weft_buf_printf(&text, "%s (costs: %s), batch %lld, on %lld %s\n", model.name, source,
                    (long long)c.batch, (long long)weft_cluster_devices(&cluster),
                    cluster.device.type);
    weft_degrees_plan_print(&made, weft_args_flag(args, "--explain") ? made.count : OTHERS, &text);
    weft_buf svg = {0};
    if (weft_args_string(args, "--svg"))
        weft_degrees_plan_draw(&made, OTHERS, &svg);
    return finish(args, WEFT_LAYOUT_FORMAT, &c, &model, source, &cluster,
                  weft_degrees_plan_json(&made, OTHERS), &text, &svg);
}

weft_status weft_plan_layout_run(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (weft_args_string(args, "--for"))
        return weft_plan_run_layout_run(args);
    if (count < 2)
        return weft_fail(WEFT_E_ARG, "give a config (examples/plan-layout.yaml is one), or --for "
                                     "RUN.yaml for the layout of a run");
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code status = plan(args, arena, words[1]);
    weft_arena_free(arena);
    return status;
}
