/* weft simulate TRACE.json ...: what ranks have executed, on a clock. */
#ifndef WEFT_CLI_SIMULATE_TRACE_H
#define WEFT_CLI_SIMULATE_TRACE_H

#include "base/json.h"
#include "cli/verb.h"
#include "graph/trace.h"
#include "plan/cluster/cluster.h"

/* `path` is the file of a rank's timeline: JSON with a member "weft". */
bool weft_simulate_is_trace(const json_t *json);
/* The timelines of all ranks, joined; executed: seconds that they took. */
weft_status weft_simulate_traces(const weft_args *args, const char *const *paths, int count,
                                 weft_arena *arena, weft_trace *trace, weft_cluster *cluster,
                                 double *executed);

#endif
