/* weft plan compare: plans the same iterations with weft's cascades and with baselines. */
#include "cli/plan_compare.h"

#include "cli/options/args.h"
#include "cli/plan_config.h"
#include "estimate/plan_models.h"

static weft_status compare(const weft_args *args, weft_arena *arena)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    weft_plan_setup s = {0};
    WEFT_TRY(weft_plan_setup_load(args, count > 1 ? words[1] : NULL, arena, &s));
    WEFT_TRY(
        weft_plan_model_work(arena, s.config.model_name, &s.buckets, &s.cluster.device, &s.model));
    return weft_plan_compare(&s, weft_args_string(args, "--out"), arena);
}

weft_status weft_plan_compare_run(const weft_args *args)
{
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the comparison of plans"));
    const weft_status_code status = compare(args, arena);
    weft_arena_free(arena);
    return status;
}
