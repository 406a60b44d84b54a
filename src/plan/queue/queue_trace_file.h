/* Traces of jobs as JSON lines:
 *   {"arrival": 0, "seconds": 12.5, "deadline": 40, "owner": "laptop", "priority": 0,
 *    "steps": 30, "actual": 13.1} */
#ifndef WEFT_PLAN_QUEUE_TRACE_FILE_H
#define WEFT_PLAN_QUEUE_TRACE_FILE_H

#include "plan/queue/queue_replay.h"

/* *jobs: [*count], heap (weft_free). *owners: number of owners. */
weft_status weft_queue_trace_read(const char *path, weft_queue_run **jobs, int64_t *count,
                                  int64_t *owners);
/* Writes a trace that weft_queue_trace_read reads as the same jobs. */
weft_status weft_queue_trace_write(const char *path, const weft_queue_run *jobs, int64_t count);

#endif
