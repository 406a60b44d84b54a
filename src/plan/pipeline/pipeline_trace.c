/* Writes the steps of a pipeline plan's devices for the event simulator. */
#include "plan/pipeline/pipeline_trace.h"

#include "plan/pipeline/pipeline_plan.h"

#include <stdlib.h>
#include <string.h>

/* A task, or the send of its result. Sorted by time, then along the chain of a microbatch, so that
 * every event follows its prerequisites. */
typedef struct event {
    double time;
    int64_t chain;
    int64_t task;
    bool send;
} event;

static int by_time(const void *left, const void *right)
{
    const event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->chain != b->chain)
        return a->chain < b->chain ? -1 : 1;
    return a->task < b->task ? -1 : a->task > b->task;
}

/* Returns the boundary that the result of a task crosses to another device; -1: none. */
static int64_t crossing(const weft_pp_schedule *s, const weft_task *t)
{
    const int64_t next = t->kind == WEFT_TASK_F ? t->pp_stage + 1 : t->pp_stage - 1;
    if (t->kind == WEFT_TASK_W || next < 0 || next >= s->pp_stages ||
        s->device_of[next] == s->device_of[t->pp_stage])
        return -1;
    return t->kind == WEFT_TASK_F ? t->pp_stage : next;
}

static int64_t slot(const weft_pp_schedule *s, int kind, int64_t pp_stage, int64_t microbatch)
{
    return (kind * s->pp_stages + pp_stage) * s->microbatches + microbatch;
}

typedef struct writer {
    const weft_pipeline_plan *plan;
    int64_t stride, first;
    weft_trace *out;
    int32_t *task_step, *send_step; /* [3 S M]; -1: not written yet */
    bool *begun;                    /* [devices] */
} writer;

static weft_status write_send(writer *w, const weft_task *t, int64_t boundary)
{
    const weft_pp_schedule *s = &w->plan->schedule;
    const int64_t to = t->kind == WEFT_TASK_F ? t->pp_stage + 1 : t->pp_stage - 1;
    const int32_t pair[2] = {(int32_t)(w->first + t->device * w->stride),
                             (int32_t)(w->first + s->device_of[to] * w->stride)};
    const int64_t at = slot(s, (int)t->kind, t->pp_stage, t->microbatch);
    weft_trace_step step = {.kind = WEFT_TRACE_SEND, .stream = WEFT_STREAM_COMM, .repeat = 1};
    step.owner = t->microbatch;
    step.bytes = w->plan->boundary_bytes[boundary];
    WEFT_TRY(weft_trace_add_name(
        w->out, t->kind == WEFT_TASK_F ? "send activations" : "send gradients", &step.name));
    WEFT_TRY(weft_trace_add_group(w->out, pair, 2, &step.group));
    return weft_trace_add_step(w->out, step, &w->task_step[at], 1, &w->send_step[at]);
}

static weft_status write_task(writer *w, const weft_task *t)
{
    static const char *const names[] = {"forward", "backward", "weight gradient"};
    const weft_pp_schedule *s = &w->plan->schedule;
    const int32_t device = (int32_t)(w->first + t->device * w->stride);
    weft_trace_step step = {.kind = WEFT_TRACE_COMPUTE, .stream = WEFT_STREAM_COMPUTE, .repeat = 1};
    int32_t after[2];
    int count = 0;
    const int64_t from = t->kind == WEFT_TASK_F ? t->pp_stage - 1 : t->pp_stage + 1;
    if (t->kind != WEFT_TASK_W && from >= 0 && from < s->pp_stages) {
        const int64_t at = slot(s, (int)t->kind, from, t->microbatch);
        after[count++] = w->send_step[at] >= 0 ? w->send_step[at] : w->task_step[at];
    }
    if (t->kind != WEFT_TASK_F)
        after[count++] = w->task_step[slot(s, (int)t->kind - 1, t->pp_stage, t->microbatch)];
    const double activation = w->plan->pp_stage_activation[t->pp_stage];
    step.owner = t->microbatch;
    step.seconds = t->end - t->start;
    step.memory = t->kind == WEFT_TASK_F ? activation : 0;
    if (t->kind == (s->split ? WEFT_TASK_W : WEFT_TASK_B))
        step.memory = -activation; /* the device's next forward starts after the end of this task */
    if (!w->begun[t->device])
        step.memory += w->plan->parameter_bytes[t->device];
    w->begun[t->device] = true;
    WEFT_TRY(weft_trace_add_name(w->out, names[t->kind], &step.name));
    WEFT_TRY(weft_trace_add_group(w->out, &device, 1, &step.group));
    return weft_trace_add_step(w->out, step, after, count,
                               &w->task_step[slot(s, (int)t->kind, t->pp_stage, t->microbatch)]);
}

/* Writes one pipeline, whose device 0 is `first`. */
static weft_status write_replica(writer *w, const event *events, int64_t count, int64_t first)
{
    const weft_pp_schedule *s = &w->plan->schedule;
    const int64_t slots = 3 * s->pp_stages * s->microbatches;
    memset(w->task_step, -1, (size_t)slots * sizeof *w->task_step);
    memset(w->send_step, -1, (size_t)slots * sizeof *w->send_step);
    memset(w->begun, 0, (size_t)s->devices * sizeof *w->begun);
    w->first = first;
    for (int64_t i = 0; i < count; i++) {
        const weft_task *t = &s->task[events[i].task];
        WEFT_TRY(events[i].send ? write_send(w, t, crossing(s, t)) : write_task(w, t));
    }
    return WEFT_OK;
}

weft_status weft_pipeline_trace(const weft_pipeline_plan *plan, int64_t stride, int64_t replicas,
                                weft_trace *out)
{
    const weft_pp_schedule *s = &plan->schedule;
    const int64_t slots = 3 * s->pp_stages * s->microbatches;
    weft_trace trace = {.devices = s->devices * (stride > replicas ? stride : replicas)};
    writer w = {.plan = plan, .stride = stride, .out = &trace};
    event *events = weft_calloc(2 * s->task_count, sizeof *events);
    w.task_step = weft_calloc(slots, sizeof *w.task_step);
    w.send_step = weft_calloc(slots, sizeof *w.send_step);
    w.begun = weft_calloc(s->devices, sizeof *w.begun);
    weft_status_code status = WEFT_OK;
    if (!events || !w.task_step || !w.send_step || !w.begun)
        WEFT_GO(weft_no_memory("a trace of %" PRId64 " tasks", s->task_count));
    int64_t count = 0;
    for (int64_t i = 0; i < s->task_count; i++) {
        const weft_task *t = &s->task[i];
        const int64_t position = t->kind == WEFT_TASK_F   ? t->pp_stage
                                 : t->kind == WEFT_TASK_B ? 2 * s->pp_stages - 1 - t->pp_stage
                                                          : 2 * s->pp_stages;
        events[count++] = (event){t->start, 2 * position, i, false};
        if (crossing(s, t) >= 0)
            events[count++] = (event){t->end, 2 * position + 1, i, true};
    }
    qsort(events, (size_t)count, sizeof *events, by_time);
    for (int64_t r = 0; r < replicas; r++)
        WEFT_GO(write_replica(&w, events, count, r / stride * stride * s->devices + r % stride));
    *out = trace;
    trace = (weft_trace){0};
out:
    weft_trace_free(&trace);
    weft_free(events);
    weft_free(w.task_step);
    weft_free(w.send_step);
    weft_free(w.begun);
    return status;
}
