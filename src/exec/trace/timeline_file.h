#ifndef WEFT_EXEC_TRACE_TIMELINE_FILE_H
#define WEFT_EXEC_TRACE_TIMELINE_FILE_H

#include "base/status.h"
#include "exec/trace/run_trace.h"

/* Writes Chrome's trace format, for Perfetto, with the data of a replay under "weft"; reads it
 * back. */
weft_status weft_timeline_write(const weft_timeline *timeline, const char *path);
weft_status weft_timeline_read(const char *path, weft_timeline *timeline);

#endif
