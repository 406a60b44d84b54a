/* Traces: what the devices do, as steps on streams with costs and dependencies. The runtime writes
 * them from programs, the planners from plans; plan/simulate/ runs them over a topology.
 *
 * A step belongs to a group of devices and occupies one stream of each: a compute step of a group
 * is the same work on every member (a group of one for a single rank), a collective is one
 * operation of all; a send is its first member's and occupies no stream of the second. Steps of a
 * stream run in the order of the list; a step starts when it has come
 * to the front on all its devices and everything in `after` has ended. */
#ifndef WEFT_GRAPH_TRACE_H
#define WEFT_GRAPH_TRACE_H

#include "base/memory.h"

typedef enum weft_trace_kind {
    WEFT_TRACE_COMPUTE,        /* `seconds` on every member */
    WEFT_TRACE_ALL_REDUCE,     /* bytes: the tensor that every member holds; ring */
    WEFT_TRACE_ALL_GATHER,     /* bytes: the whole result; ring */
    WEFT_TRACE_REDUCE_SCATTER, /* bytes: the whole input; ring */
    WEFT_TRACE_ALL_TO_ALL,     /* bytes: what one member holds before and after; `together` */
    WEFT_TRACE_BROADCAST,      /* bytes, from the group's first member; binomial tree */
    WEFT_TRACE_RING_SHIFT,     /* bytes: what every member sends to the next */
    WEFT_TRACE_SEND,           /* bytes from the group's first member to its second */
    WEFT_TRACE_OFFLOAD,        /* bytes from every member to its host */
    WEFT_TRACE_FETCH,          /* and back */
    WEFT_TRACE_KIND_COUNT,
} weft_trace_kind;

typedef enum weft_trace_stream {
    WEFT_STREAM_COMPUTE,
    WEFT_STREAM_COMM,
    WEFT_STREAM_HOST, /* copies to and from the host, and hand-offs beside the collectives */
    WEFT_STREAM_TASK, /* what those of the others belong to: programs, tasks of a pipeline */
    WEFT_STREAM_COUNT,
} weft_trace_stream;

typedef struct weft_trace_step {
    int32_t name; /* index into names */
    uint8_t kind, stream;
    int32_t group;  /* index into groups */
    int32_t owner;  /* cascade, stage or -1: for tables and colours */
    double seconds; /* of an exchange: beside its bytes, before they leave */
    double bytes;
    /* the operation so many times one after the other (layers folded into one); >= 1 */
    double repeat;
    double memory; /* bytes that each member holds from the step's start on: plus or minus */
    int32_t first_after, after_count; /* into `after` */
    /* ALL_TO_ALL: messages go as soon as their links have room for them; else pairwise, in rounds
     * that all members begin together */
    bool together;
} weft_trace_step;

typedef struct weft_trace_group {
    int32_t first, count; /* into `members` */
} weft_trace_group;

/* Everything heap, owned; zero-initialise. */
typedef struct weft_trace {
    int64_t devices;
    weft_trace_step *step;
    int64_t step_count, step_room;
    int32_t *after;
    int64_t after_count, after_room;
    weft_trace_group *group;
    int64_t group_count, group_room;
    int32_t *member;
    int64_t member_count, member_room;
    char **name;
    int64_t name_count, name_room;
} weft_trace;
void weft_trace_free(weft_trace *trace);

/* Each returns the new index in *out (may be NULL). A name or group that is there already is found
 * again when it is among the last few. */
weft_status weft_trace_add_name(weft_trace *trace, const char *name, int32_t *out);
weft_status weft_trace_add_group(weft_trace *trace, const int32_t *member, int64_t count,
                                 int32_t *out);
/* `step`'s first_after and after_count are set here. */
weft_status weft_trace_add_step(weft_trace *trace, weft_trace_step step, const int32_t *after,
                                int64_t after_count, int32_t *out);
/* Members in range and once per group, `after` earlier steps only, finite numbers.
 * WEFT_E_FORMAT. */
weft_status weft_trace_check(const weft_trace *trace);
const char *weft_trace_kind_name(weft_trace_kind kind);
/* As a string of JSON: names come from scopes and files. */
void weft_trace_put_string(weft_buf *out, const char *text);
/* The steps at their times (seconds, by step; NaN: left out) in Chrome's trace format, which
 * Perfetto opens: a process per device, named by node when devices_per_node > 0, and a thread per
 * stream. */
weft_status weft_trace_chrome(const weft_trace *trace, int64_t devices_per_node,
                              const double *start, const double *end, weft_buf *out);

#endif
