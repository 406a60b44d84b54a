#include "cli/plan_config.h"

#include "cli/options/args.h"
#include "cli/plan.h"
#include "train/config/train_config.h"

#include <string.h>

#define AT(member) offsetof(weft_plan_config, member)

static const weft_key keys[] = {
    {"cluster", WEFT_KEY_STRING, AT(cluster_spec), "h100:2", "",
     "preset (h100, h200, a100, rtx4090, v100, ascend910a, local; \"h100:4\" has 4 nodes) or a "
     "YAML file; "
     "`weft topology` shows it"},
    {"model", WEFT_KEY_STRING, AT(model_name), "hunyuanvideo-13b", "",
     "wan-1.3b, wan-14b, cogvideox-2b, cogvideox-5b, hunyuanvideo-13b, st-dit-7b, st-dit-12b, or "
     "the folder or config.json of a model that weft has"},
    {"stage", WEFT_KEY_STRING, AT(train_stage), "720p", "",
     "buckets of a training stage: 360p, 720p, 1080p; unused with `buckets`"},
    {"max_frames", WEFT_KEY_I64, AT(max_frames), "0", "",
     "longest clips of `stage` or `buckets`; 0 (default): no limit", .min = 0, .max = 1e6},
    {"buckets", WEFT_KEY_SECTION_LIST, AT(buckets), "[]", "", "own buckets",
     .section = &weft_plan_bucket_section},
    {"samples", WEFT_KEY_I64, AT(samples), "0", "",
     "bucket batches per iteration; 0: one per 4 devices", .min = 0, .max = 1e6},
    {"zero", WEFT_KEY_I64, AT(zero), "2", "", "ZeRO stage of the model states", .min = 0, .max = 3},
    {"max_degree", WEFT_KEY_I64, AT(max_degree), "0", "", "widest cascade. 0: all devices",
     .min = 0, .max = 1 << 20},
    {"degrees", WEFT_KEY_I64_LIST, AT(degrees), "[]", "",
     "degrees to choose from; empty: every integer", .min = 1, .max = 1 << 20},
    {"text", WEFT_KEY_BOOL, AT(text), "true", "", "text encoder cascades"},
    {"inner", WEFT_KEY_BOOL, AT(inner), "true", "",
     "place each cascade by node, balance, rails and distance (Arachne §IV-C, priorities 1 to 4)"},
    {"inter", WEFT_KEY_BOOL, AT(inter), "true", "", "place a cascade over its producers"},
    {"iterations", WEFT_KEY_I64, AT(iterations), "50", "",
     "compare: iterations with seeds from --seed on", .min = 1, .max = 1e5},
};
const weft_section weft_plan_config_section = {"plan", "model, training stage, cluster and search",
                                               sizeof(weft_plan_config), keys, WEFT_COUNT(keys)};

weft_status weft_plan_not_of_run(weft_arena *arena, const char *path, weft_status_code status)
{
    weft_error_copy *error = weft_error_save();
    weft_run run;
    if (path && status == WEFT_E_CONFIG &&
        weft_config_load(arena, path, NULL, 0, &weft_run_section, &run) == WEFT_OK)
        status =
            weft_error(WEFT_MSG_CONFIG_SYNTAX, WEFT_AT(.file = path),
                       "this is a config of weft train: use `weft train %s --dry-run` to plan "
                       "iterations of its cascades, and `weft plan layout --run-config %s` to plan "
                       "its layout",
                       path, path);
    else
        status = weft_error_restore(error);
    weft_free(error);
    return status;
}

/* Drops the buckets with more than `most` frames. */
static weft_status limit_frames(int64_t most, weft_workload *w)
{
    int64_t kept = 0, shortest = INT64_MAX;
    for (int64_t i = 0; i < w->count; i++) {
        shortest = w->bucket[i].frames < shortest ? w->bucket[i].frames : shortest;
        if (w->bucket[i].frames <= most)
            w->bucket[kept++] = w->bucket[i];
    }
    if (!kept)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "max_frames", WEFT_NUMBER(most)),
                          "%" PRId64 " drops every bucket. The shortest clips have %" PRId64
                          " frames; use at least that.",
                          most, shortest);
    w->count = kept;
    return WEFT_OK;
}

weft_status weft_plan_setup_load(const weft_args *args, const char *path, weft_arena *arena,
                                 weft_plan_setup *s)
{
    int count;
    const char *const *overrides = weft_args_list(args, "--set", &count);
    const weft_status_code status =
        weft_config_load(arena, path, overrides, count, &weft_plan_config_section, &s->config);
    if (status != WEFT_OK)
        return weft_plan_not_of_run(arena, path, status);
    WEFT_TRY(weft_cluster_load(arena, s->config.cluster_spec, &s->cluster));
    if (s->config.buckets.count)
        s->buckets = (weft_workload){s->config.buckets.item, s->config.buckets.count};
    else
        WEFT_TRY(weft_workload_stage(arena, s->config.train_stage, &s->buckets));
    if (s->config.max_frames)
        WEFT_TRY(limit_frames(s->config.max_frames, &s->buckets));
    s->samples =
        s->config.samples ? s->config.samples : (weft_cluster_devices(&s->cluster) + 3) / 4;
    s->costs = (weft_cascade_costs){.cluster = &s->cluster,
                                    .model = &s->model,
                                    .zero = s->config.zero,
                                    .max_degree = s->config.max_degree,
                                    .degrees = s->config.degrees,
                                    .text = s->config.text};
    int64_t seed, threads;
    WEFT_TRY(weft_args_i64(args, "--seed", 0, INT64_MAX, &seed));
    WEFT_TRY(weft_args_i64(args, "--threads", 0, 4096, &threads));
    WEFT_TRY(weft_args_f64(args, "--seconds", 0, 1e6, &s->search.seconds));
    s->search.seed = (uint64_t)seed;
    s->search.threads = (int)threads;
    return WEFT_OK;
}
