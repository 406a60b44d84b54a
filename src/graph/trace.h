/* Traces: steps of devices on streams, with costs and dependencies. The executor writes traces from
 * programs, and the planners from plans; plan/simulate/ runs them over a topology.
 *
 * A step belongs to a group of devices and occupies one stream of each. A compute step is the same
 * work on every member (a group of one for a single rank). A collective is one operation of all
 * members. A send occupies a stream of its first member only. Steps of a stream run in the order of
 * the list. A step starts when it is first in line on all its devices and all steps in `after` have
 * ended. */
#ifndef WEFT_GRAPH_TRACE_H
#define WEFT_GRAPH_TRACE_H

#include "base/memory.h"

typedef enum weft_trace_kind {
    WEFT_TRACE_COMPUTE,        /* `seconds` on every member */
    WEFT_TRACE_ALL_REDUCE,     /* bytes: the tensor that every member holds; ring */
    WEFT_TRACE_ALL_GATHER,     /* bytes: the gathered result; ring */
    WEFT_TRACE_REDUCE_SCATTER, /* bytes: the complete input; ring */
    WEFT_TRACE_ALL_TO_ALL,     /* bytes: held by one member before and after; `together` */
    WEFT_TRACE_BROADCAST,      /* bytes, from the group's first member; binomial tree */
    WEFT_TRACE_RING_SHIFT,     /* bytes: sent by every member to the next */
    WEFT_TRACE_SEND,           /* bytes from the group's first member to its second */
    WEFT_TRACE_OFFLOAD,        /* bytes from every member to its host */
    WEFT_TRACE_FETCH,          /* bytes from the host to every member */
    WEFT_TRACE_KIND_COUNT,
} weft_trace_kind;

typedef enum weft_trace_stream {
    WEFT_STREAM_COMPUTE,
    WEFT_STREAM_COMM,
    WEFT_STREAM_HOST, /* copies to and from the host, and sends next to the collectives */
    WEFT_STREAM_TASK, /* enclosing spans: programs, tasks of a pipeline */
    WEFT_STREAM_COUNT,
} weft_trace_stream;

typedef struct weft_trace_step {
    int32_t name; /* index into names */
    uint8_t kind, stream;
    int32_t group;  /* index into groups */
    int32_t owner;  /* cascade or stage, for tables and colours; -1: none */
    double seconds; /* communication: time before its bytes leave */
    double bytes;
    /* number of consecutive repetitions (layers folded into one step); >= 1 */
    double repeat;
    double memory; /* change of the bytes that each member holds, at the step's start */
    int32_t first_after, after_count; /* into `after` */
    /* ALL_TO_ALL: messages leave as soon as their links are free; false: pairwise, in rounds that
     * all members begin at the same time */
    bool together;
} weft_trace_step;

typedef struct weft_trace_group {
    int32_t first, count; /* into `members` */
} weft_trace_group;

/* All members are heap and owned; initialise with zeros. */
typedef struct weft_trace {
    int64_t devices;
    weft_trace_step *step;
    int64_t step_count, step_capacity;
    int32_t *after;
    int64_t after_count, after_capacity;
    weft_trace_group *group;
    int64_t group_count, group_capacity;
    int32_t *member;
    int64_t member_count, member_capacity;
    char **name;
    int64_t name_count, name_capacity;
} weft_trace;
void weft_trace_free(weft_trace *trace);

/* Each sets *out (may be NULL) to the new index. A name or group that equals one of the last few is
 * reused. */
weft_status weft_trace_add_name(weft_trace *trace, const char *name, int32_t *out);
weft_status weft_trace_add_group(weft_trace *trace, const int32_t *member, int64_t count,
                                 int32_t *out);
/* Sets first_after and after_count of `step`. */
weft_status weft_trace_add_step(weft_trace *trace, weft_trace_step step, const int32_t *after,
                                int64_t after_count, int32_t *out);
/* Checks that members are in range and unique in a group, `after` lists earlier steps only, and
 * numbers are finite. WEFT_E_FORMAT. */
weft_status weft_trace_check(const weft_trace *trace);
const char *weft_trace_kind_name(weft_trace_kind kind);
/* Appends `text` as a JSON string. Names come from scopes and files. */
void weft_trace_put_string(weft_buf *out, const char *text);
/* Appends the steps in Chrome's trace format (for Perfetto). start, end: seconds by step; NaN: the
 * step is omitted. One process per device, named by node if devices_per_node > 0, and one thread
 * per stream. */
weft_status weft_trace_chrome(const weft_trace *trace, int64_t devices_per_node,
                              const double *start, const double *end, weft_buf *out);

#endif
