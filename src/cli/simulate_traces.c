#include "cli/simulate_trace.h"

#include "runtime/runtime.h"

bool weft_simulate_is_trace(const json_t *json)
{
    return json_is_object(json_object_get(json, "weft"));
}

weft_status weft_simulate_traces(const weft_args *args, const char *const *paths, int count,
                                 weft_arena *arena, weft_trace *trace, weft_cluster *cluster,
                                 double *executed)
{
    const char *spec = weft_args_string(args, "--cluster");
    weft_timeline *timeline = weft_alloc(count * (int64_t)sizeof *timeline);
    weft_status_code status = WEFT_OK;
    if (!timeline)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for %d timelines", count));
    if (!spec)
        WEFT_GO(weft_fail(WEFT_E_ARG, "%s: over which links? Give --cluster PRESET or FILE.yaml",
                          paths[0]));
    WEFT_GO(weft_cluster_load(arena, spec, cluster));
    for (int i = 0; i < count; i++)
        WEFT_GO(weft_timeline_read(paths[i], &timeline[i]));
    WEFT_GO(weft_timelines_join(timeline, count, trace, executed));
out:
    for (int i = 0; i < count && timeline; i++)
        weft_timeline_free(&timeline[i]);
    weft_free(timeline);
    return status;
}
