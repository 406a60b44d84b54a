/* Compares plans of weft for iterations of cascades with static and adaptive baselines of the same
 * costs. */
#ifndef WEFT_ESTIMATE_PLAN_COMPARISON_H
#define WEFT_ESTIMATE_PLAN_COMPARISON_H

#include "base/config.h"
#include "plan/cascade/cascade.h"
#include "plan/cascade/workload.h"

/* The config of `cascades` and `compare`. */
typedef struct weft_plan_config {
    const char *cluster_spec, *model_name, *train_stage;
    weft_section_list buckets; /* items: weft_plan_bucket */
    int64_t samples, zero, max_degree, iterations, max_frames;
    weft_i64_list degrees;
    bool text, inner, inter;
} weft_plan_config;

typedef struct weft_plan_setup {
    weft_plan_config config;
    weft_cluster cluster;
    weft_model_work model;
    weft_workload buckets; /* distribution of samples */
    int64_t samples;
    weft_cascade_costs costs; /* points into this struct */
    weft_cascade_search search;
} weft_plan_setup;

/* Plans config.iterations iterations of `setup` and prints a table of all systems. `out` receives
 * the table as JSON; NULL: no file. */
weft_status weft_plan_compare(const weft_plan_setup *setup, const char *out, weft_arena *arena);

#endif
