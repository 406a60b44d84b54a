/* weft simulate TRACE.json ...: analyzes the executed steps of ranks. */
#ifndef WEFT_CLI_SIMULATE_TRACES_H
#define WEFT_CLI_SIMULATE_TRACES_H

#include "base/json.h"
#include "cli/options/verb.h"
#include "graph/trace.h"
#include "plan/cluster/cluster.h"

/* Returns true if the JSON is a rank's timeline: it has a member "weft". */
bool weft_simulate_is_trace(const json_t *json);
/* Joins the timelines of all ranks. `executed`: measured seconds. */
weft_status weft_simulate_traces(const weft_args *args, const char *const *paths, int count,
                                 weft_arena *arena, weft_trace *trace, weft_cluster *cluster,
                                 double *executed);

#endif
