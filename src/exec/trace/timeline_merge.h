#ifndef WEFT_EXEC_TRACE_TIMELINE_MERGE_H
#define WEFT_EXEC_TRACE_TIMELINE_MERGE_H

#include "base/status.h"
#include "exec/trace/run_trace.h"

/* Joins the timelines of all `count` ranks (in any order) into one trace for simulation. Kernels
 * and the gaps between them keep their seconds. Collectives have all their ranks and their bytes,
 * and the simulation computes the waits. *executed: seconds from the opening of the timelines
 * (weft_timeline_open_together) to the last end. Returns WEFT_E_FORMAT, with the rank and the
 * request, if the timelines belong to different runs or if pipeline stages send. */
weft_status weft_timelines_join(const weft_timeline *timeline, int count, weft_trace *out,
                                double *executed);

#endif
