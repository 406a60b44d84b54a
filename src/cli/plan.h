/* The commands of `weft plan`; each is in cli/plan_<name>.c. They share the verb's option table. */
#ifndef WEFT_CLI_PLAN_H
#define WEFT_CLI_PLAN_H

#include "cli/verb.h"
#include "base/json.h"
#include "plan/workload.h"

weft_status weft_plan_cascades_run(const weft_args *args);
weft_status weft_plan_pipeline_run(const weft_args *args);
weft_status weft_plan_layout_run(const weft_args *args);
weft_status weft_plan_memory_run(const weft_args *args);
extern const weft_section weft_plan_pipeline_section, weft_plan_layout_section, weft_plan_memory_section;

/* The operators of a named model for a clip: plan/dit_costs.h and plan/unet_costs.h (whose sample sizes
 * are in the name), plan/model_costs.h. */
weft_status weft_plan_model_load(weft_arena *arena, const char *name, int64_t frames, int64_t height,
                                 int64_t width, weft_op_list *out);
/* Writes a picture whole or not at all; frees it. */
weft_status weft_plan_write_svg(weft_buf *svg, const char *path);
/* Indented, on standard output; NULL is an error too. */
weft_status weft_plan_print_json(const json_t *json);
weft_status weft_plan_compare_run(const weft_args *args);

/* The config of `cascades` and `compare`. */
typedef struct weft_plan_config {
    const char *cluster_spec, *model_name, *stage;
    weft_section_list buckets; /* of weft_plan_bucket */
    int64_t samples, zero, max_degree, iterations;
    weft_i64_list degrees;
    bool text, inner, inter;
} weft_plan_config;
extern const weft_section weft_plan_config_section;

typedef struct weft_plan_setup {
    weft_plan_config config;
    weft_cluster cluster;
    const weft_model_preset *model;
    weft_workload buckets; /* to draw from */
    int64_t samples;
    weft_cascade_costs costs; /* points into this struct */
    weft_cascade_search search;
} weft_plan_setup;
/* Reads the config (path NULL: defaults) with --set, then cluster, model, buckets and search. */
weft_status weft_plan_setup_load(const weft_args *args, const char *path, weft_arena *arena,
                                 weft_plan_setup *out);

#endif
