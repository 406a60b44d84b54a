/* Traces of jobs on several devices as JSON lines, such as the jobs of a server:
 *   {"arrival": 0.5, "size": "81x480x832", "deadline": 40, "priority": 0, "end": 13.1}
 * Times are seconds of one clock. `end`: the measured end, which a replay compares; optional.
 */
#ifndef WEFT_PLAN_ELASTIC_TRACE_FILE_H
#define WEFT_PLAN_ELASTIC_TRACE_FILE_H

#include "plan/queue/elastic_sizes.h"

/* *jobs: [*count] by arrival, heap (weft_free), which borrow the sizes of the table. */
weft_status weft_elastic_trace_read(const char *path, const weft_elastic_table *table,
                                    weft_elastic_job **jobs, int64_t *count);
weft_status weft_elastic_trace_write(const char *path, const weft_elastic_job *jobs, int64_t count);

#endif
