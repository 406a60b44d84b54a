#ifndef WEFT_CLI_PLAN_CONFIG_H
#define WEFT_CLI_PLAN_CONFIG_H

#include "base/memory.h"
#include "cli/options/verb.h"
#include "estimate/plan_comparison.h"

extern const weft_section weft_plan_config_section;
/* Reports that `path` (NULL: none) is not a plan's config. If it is a config of weft train, names
 * the command that plans it; else returns `status`. */
weft_status weft_plan_not_of_run(weft_arena *arena, const char *path, weft_status_code status);
/* Reads the config (path NULL: defaults) with --set, then the cluster, model, buckets and
 * search. */
weft_status weft_plan_setup_load(const weft_args *args, const char *path, weft_arena *arena,
                                 weft_plan_setup *out);

#endif
