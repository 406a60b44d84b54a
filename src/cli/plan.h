/* The commands of `weft plan`; each is in cli/plan_<name>.c. They share the verb's option table. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "base/json.h"
#include "cli/plan_models.h"
#include "cli/verb.h"
#include "plan/cost/op_list.h"

weft_status weft_plan_cascades_run(const weft_args *args);
weft_status weft_plan_pipeline_run(const weft_args *args);
weft_status weft_plan_layout_run(const weft_args *args);
weft_status weft_plan_run_layout_run(const weft_args *args); /* layout --for */
weft_status weft_plan_memory_run(const weft_args *args);
weft_status weft_plan_generate_run(const weft_args *args);
extern const weft_section weft_plan_pipeline_section, weft_plan_layout_section,
    weft_plan_memory_section, weft_plan_generate_section;

/* What `pipeline` and `layout` plan for; first in their configs. */
typedef struct weft_plan_target {
    const char *model, *cluster;
    int64_t frames, height, width;
} weft_plan_target;
/* clang-format off */
#define WEFT_PLAN_TARGET_KEYS(model_default, model_help, cluster_default) \
    {"model", WEFT_KEY_STRING, offsetof(weft_plan_target, model), model_default, "", model_help}, \
    {"frames", WEFT_KEY_I64, offsetof(weft_plan_target, frames), "81", "", \
     "of a clip, for the video models (wan-14b, hunyuanvideo-13b, ...)", .min = 1, .max = 100000}, \
    {"height", WEFT_KEY_I64, offsetof(weft_plan_target, height), "480", "pixels", "of a clip", \
     .min = 16, .max = 65536}, \
    {"width", WEFT_KEY_I64, offsetof(weft_plan_target, width), "832", "pixels", "of a clip", \
     .min = 16, .max = 65536}, \
    {"cluster", WEFT_KEY_STRING, offsetof(weft_plan_target, cluster), cluster_default, "", \
     "preset, preset:NODES, or a YAML file"}
/* clang-format on */
/* Sets what a plan of a model on a cluster says of both, and seals it: "cluster" {spec, id},
 * "model" {name, id, costs and, where `target` names a model, frames, height, width}. */
weft_status weft_plan_target_seal(json_t *plan, const char *format, const weft_plan_target *target,
                                  const weft_cluster *cluster, const weft_op_list *list,
                                  const char *source);
/* Whether the plan's cluster (`spec`, NULL: the one that it names) and model are those that it was
 * made for. A plan of bare numbers has neither: *cluster is set where there is a spec, and *known
 * tells. */
weft_status weft_plan_target_check(const json_t *plan, const char *path, const char *spec,
                                   weft_arena *arena, weft_cluster *cluster, bool *known);
/* Ranks to lay out: --devices, or as many as `all` where it says none, `most` at the most. */
weft_status weft_plan_ranks(const weft_args *args, int64_t all, int most, int *ranks);
/* The tail of every command: writes --svg and --out whole or not at all, prints `text` or --json.
 * NULL `json`: out of memory; NULL `svg`: there is no picture. Frees all three. */
weft_status weft_plan_finish(const weft_args *args, json_t *json, weft_buf *text, weft_buf *svg);
/* Indented, on standard output; NULL is an error too. */
weft_status weft_plan_print_json(const json_t *json);
weft_status weft_plan_compare_run(const weft_args *args);

/* The config of `cascades` and `compare`. */
typedef struct weft_plan_config {
    const char *cluster_spec, *model_name, *stage;
    weft_section_list buckets; /* of weft_plan_bucket */
    int64_t samples, zero, max_degree, iterations, max_frames;
    weft_i64_list degrees;
    bool text, inner, inter;
} weft_plan_config;
extern const weft_section weft_plan_config_section;

typedef struct weft_plan_setup {
    weft_plan_config config;
    weft_cluster cluster;
    weft_model_work model;
    weft_workload buckets; /* to draw from */
    int64_t samples;
    weft_cascade_costs costs; /* points into this struct */
    weft_cascade_search search;
} weft_plan_setup;
/* After `path` (NULL: none) was refused as a plan's config: as `status` says, or what plans for it
 * where it is one of weft train. */
weft_status weft_plan_not_of_run(weft_arena *arena, const char *path, weft_status_code status);
/* Reads the config (path NULL: defaults) with --set, then cluster, model, buckets and search. */
weft_status weft_plan_setup_load(const weft_args *args, const char *path, weft_arena *arena,
                                 weft_plan_setup *out);

#endif
