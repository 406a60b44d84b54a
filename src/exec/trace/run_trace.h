#ifndef WEFT_EXEC_TRACE_RUN_TRACE_H
#define WEFT_EXEC_TRACE_RUN_TRACE_H

#include "comm/comm.h"
#include "comm/common_clock.h"
#include "exec/program.h"
#include "graph/trace.h"

/* Communication of a timeline step: process group of its request (a group of the trace; -1: none)
 * and channel. `waits`: the step only waits. */
typedef struct weft_timeline_note {
    int32_t group, channel;
    bool waits;
    double handling; /* seconds of copies and sums on the request's critical path */
} weft_timeline_note;
/* Events of one rank of a job, as a trace of one device with times. Zero-initialise. All pointers
 * are heap memory that the timeline owns. */
typedef struct weft_timeline {
    weft_trace trace;
    weft_timeline_note *note; /* one per step of the trace */
    int64_t note_capacity;
    double *start, *end; /* seconds since the origin, by step of the trace */
    int64_t start_capacity, end_capacity;
    double origin; /* time of opening, on weft_now()'s clock */
    int rank;
    int32_t last; /* last step of the compute stream; -1: none yet */
} weft_timeline;

/* Adds the last run of a completed send or receive. `what`: its purpose, such as "microbatch 3". */
weft_status weft_timeline_add_exchange(weft_timeline *timeline, const weft_comm_request *request,
                                       const char *what);

/* Opens the timelines of all ranks with one origin on the common clock, so that times of ranks are
 * comparable. Collective. `own`: this rank's clock for the times that are added; NULL:
 * weft_now(). */
weft_status weft_timeline_open_together(weft_comm *comm, const weft_own_clock *own,
                                        weft_timeline *timeline);

weft_timeline weft_timeline_open(int rank, int ranks);
void weft_timeline_free(weft_timeline *timeline);
/* Adds an event without a program, from `begin` to `end` (weft_now()): a wait (on the compute
 * stream) or a task. */
weft_status weft_timeline_add(weft_timeline *timeline, weft_trace_stream stream, const char *name,
                              double begin, double end);
/* Adds the last run of a program with `profile`: kernels, waits for collectives ("wait: ..."), and
 * collectives on their own stream with their dependencies. Returns WEFT_E_ARG without profile or
 * before a run. */
weft_status weft_timeline_add_program(weft_timeline *timeline, const weft_program *program);

#endif
