#include "cli/simulate_traces.h"

#include "cli/options/args.h"
#include "exec/trace/run_trace.h"
#include "exec/trace/timeline_file.h"
#include "exec/trace/timeline_merge.h"

bool weft_simulate_is_trace(const json_t *json)
{
    return json_is_object(json_object_get(json, "weft"));
}

weft_status weft_simulate_traces(const weft_args *args, const char *const *paths, int count,
                                 weft_arena *arena, weft_trace *trace, weft_cluster *cluster,
                                 double *executed)
{
    const char *spec = weft_args_string(args, "--on");
    weft_timeline *timeline = weft_calloc(count, sizeof *timeline);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(timeline, "%d timelines", count));
    if (!spec)
        WEFT_GO(weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--on"),
                           "the trace %s is simulated over the links of a cluster; give --on "
                           "PRESET or FILE.yaml",
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
