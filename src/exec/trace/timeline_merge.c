/* Joins the timelines of all ranks into one trace.
 *
 *     rank 0   k k [=== a ===] w k        steps of each rank in its order, streams as recorded
 *     rank 1   k [==== a =====] k w
 *     joined   0: k k, 1: k | a of 0 and 1, after the steps before it on each | 0: w, 1: k w ...
 *
 * A collective is the n-th of its group on its channel on all its ranks. It is added to the trace
 * when the last of its ranks has reached it. A rank that waits for it stops until then. */
#include "exec/trace/timeline_merge.h"

#include "base/memory.h"

#include <string.h>

enum { MOST_AFTER = 8 }; /* maximum dependencies of a step on one rank */

typedef struct meeting {
    int32_t there, count; /* ranks that arrived, and ranks in total */
    int32_t step;         /* step of the joined trace; -1: ranks are missing */
    /* index in the joiner's `after`: the previous step of each member; -1: none */
    int32_t first_after;
    double bytes, handling; /* maximum over its members */
} meeting;

/* Collectives of one list of ranks on one channel. */
typedef struct queue {
    const int32_t *member;
    int32_t count, channel;
    int32_t *at;      /* [count]: index of each member's next one */
    int32_t *meeting; /* indexes in the joiner's list */
    int64_t meetings, capacity;
} queue;

typedef struct track {
    const weft_timeline *t;
    int64_t next;
    int32_t last;  /* last joined step of the compute stream; -1: none */
    double before; /* end of that step, seconds */
    /* joined step of each own step (-1: none); for a collective the index of its meeting */
    int32_t *is;
} track;

typedef struct joiner {
    track *track;
    int ranks;
    queue *queue;
    int64_t queues, queue_capacity;
    meeting *meeting;
    int64_t meetings, meeting_capacity;
    int32_t *after; /* dependencies of the meetings */
    int64_t after_count, after_capacity;
    weft_trace *out;
} joiner;

static weft_status find_queue(joiner *j, const weft_timeline *t, weft_timeline_note note,
                              queue **found)
{
    const weft_trace_group *g = &t->trace.group[note.group];
    const int32_t *member = t->trace.member + g->first;
    for (int64_t i = 0; i < j->queues; i++)
        if (j->queue[i].channel == note.channel && j->queue[i].count == g->count &&
            !memcmp(j->queue[i].member, member, (size_t)g->count * sizeof *member)) {
            *found = &j->queue[i];
            return WEFT_OK;
        }
    WEFT_TRY(weft_grow((void **)&j->queue, j->queues, &j->queue_capacity, sizeof *j->queue));
    queue *q = &j->queue[j->queues];
    *q = (queue){.member = member, .count = g->count, .channel = note.channel};
    WEFT_TRY(WEFT_NEW(q->at, g->count, "joining timelines"));
    j->queues++;
    *found = q;
    return WEFT_OK;
}

static weft_status open_meeting(joiner *j, queue *q)
{
    WEFT_TRY(weft_grow((void **)&q->meeting, q->meetings, &q->capacity, sizeof *q->meeting));
    WEFT_TRY(
        weft_grow((void **)&j->meeting, j->meetings, &j->meeting_capacity, sizeof *j->meeting));
    j->meeting[j->meetings] =
        (meeting){.count = q->count, .step = -1, .first_after = (int32_t)j->after_count};
    for (int32_t i = 0; i < q->count; i++) {
        WEFT_TRY(
            weft_grow((void **)&j->after, j->after_count, &j->after_capacity, sizeof *j->after));
        j->after[j->after_count++] = -1;
    }
    q->meeting[q->meetings++] = (int32_t)j->meetings++;
    return WEFT_OK;
}

/* Adds a collective to the joined trace after all its ranks have arrived. */
static weft_status begin_request(joiner *j, const queue *q, meeting *m, const weft_trace_step *like,
                                 const char *name)
{
    weft_trace_step step = {.kind = like->kind,
                            .stream = WEFT_STREAM_COMM,
                            .owner = -1,
                            .seconds = m->handling,
                            .bytes = m->bytes,
                            .together = like->together};
    int32_t *after = j->after + m->first_after;
    int64_t count = 0;
    for (int32_t i = 0; i < q->count; i++)
        if (after[i] >= 0)
            after[count++] = after[i];
    WEFT_TRY(weft_trace_add_name(j->out, name, &step.name));
    WEFT_TRY(weft_trace_add_group(j->out, q->member, q->count, &step.group));
    return weft_trace_add_step(j->out, step, after, count, &m->step);
}

static weft_status arrive(joiner *j, track *r, int64_t i)
{
    const weft_trace_step *s = &r->t->trace.step[i];
    const char *name = r->t->trace.name[s->name];
    queue *q = NULL;
    WEFT_TRY(find_queue(j, r->t, r->t->note[i], &q));
    int32_t own = 0;
    while (own < q->count && q->member[own] != r->t->rank)
        own++;
    if (own == q->count)
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_RANK(r->t->rank)),
            "the timeline of rank %d has the exchange \"%s\" of a group without this rank",
            r->t->rank, name);
    if (q->at[own] == q->meetings)
        WEFT_TRY(open_meeting(j, q));
    r->is[i] = q->meeting[q->at[own]++];
    meeting *m = &j->meeting[r->is[i]];
    j->after[m->first_after + own] = r->last;
    m->bytes = s->bytes > m->bytes ? s->bytes : m->bytes;
    const double handling = r->t->note[i].handling;
    m->handling = handling > m->handling ? handling : m->handling;
    return ++m->there == q->count ? begin_request(j, q, m, s, name) : WEFT_OK;
}

/* The joined step of an own step; -1: not joined yet. */
static int32_t joined(const joiner *j, const track *r, int32_t own)
{
    return r->t->note[own].group >= 0 ? j->meeting[r->is[own]].step : r->is[own];
}

/* Adds a step of one rank. *stands: the step waits for ranks that have not arrived. */
static weft_status add_own(joiner *j, track *r, int64_t i, bool *stands)
{
    const weft_timeline *t = r->t;
    const weft_trace_step *s = &t->trace.step[i];
    const bool computes = s->stream == WEFT_STREAM_COMPUTE;
    const double between = computes && t->start[i] > r->before ? t->start[i] - r->before : 0;
    weft_trace_step step = {.kind = WEFT_TRACE_COMPUTE, .stream = s->stream, .owner = -1};
    int32_t after[MOST_AFTER];
    int64_t count = 0;
    for (int32_t k = 0; k < s->after_count && count < MOST_AFTER; k++) {
        const int32_t own = t->trace.after[s->first_after + k];
        if (t->trace.step[own].stream == WEFT_STREAM_TASK)
            continue; /* tasks are not joined */
        after[count] = joined(j, r, own);
        *stands = after[count] < 0;
        if (*stands)
            return WEFT_OK;
        count++;
    }
    step.seconds = between + (t->note[i].waits ? 0 : t->end[i] - t->start[i]);
    WEFT_TRY(weft_trace_add_name(j->out, t->trace.name[s->name], &step.name));
    WEFT_TRY(weft_trace_add_group(j->out, &t->rank, 1, &step.group));
    WEFT_TRY(weft_trace_add_step(j->out, step, after, count, &r->is[i]));
    if (computes) {
        r->last = r->is[i];
        r->before = t->end[i];
    }
    return WEFT_OK;
}

/* Advances a rank until it must wait. *progressed: the rank advanced at least one step. */
static weft_status advance(joiner *j, track *r, bool *progressed)
{
    for (; r->next < r->t->trace.step_count; r->next++) {
        const weft_trace_step *s = &r->t->trace.step[r->next];
        bool stands = false;
        if (s->kind == WEFT_TRACE_SEND)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_RANK(r->t->rank)),
                              "the timeline of rank %d has \"%s\", a transfer between pipeline "
                              "stages. Use weft simulate RUN.yaml for pipelines.",
                              r->t->rank, r->t->trace.name[s->name]);
        if (s->stream == WEFT_STREAM_TASK)
            continue; /* a task only encloses other steps */
        if (r->t->note[r->next].group >= 0)
            WEFT_TRY(arrive(j, r, r->next));
        else
            WEFT_TRY(add_own(j, r, r->next, &stands));
        if (stands)
            return WEFT_OK;
        *progressed = true;
    }
    return WEFT_OK;
}

static weft_status stuck(const joiner *j)
{
    for (int i = 0; i < j->ranks; i++) {
        const track *r = &j->track[i];
        if (r->next < r->t->trace.step_count)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_RANK(r->t->rank)),
                              "the timeline of rank %d stops at \"%s\", which other ranks never "
                              "began. Give the timelines of one run.",
                              r->t->rank, r->t->trace.name[r->t->trace.step[r->next].name]);
    }
    return WEFT_OK;
}

static weft_status join(joiner *j)
{
    for (bool progressed = true; progressed;) {
        progressed = false;
        for (int i = 0; i < j->ranks; i++)
            WEFT_TRY(advance(j, &j->track[i], &progressed));
    }
    WEFT_TRY(stuck(j));
    for (int64_t m = 0; m < j->meetings; m++)
        if (j->meeting[m].step < 0)
            return weft_error(
                WEFT_MSG_FORMAT_DAMAGED, WEFT_NOWHERE,
                "a collective of %d ranks has the timelines of only %d ranks. Give the timelines "
                "of all ranks of one run.",
                j->meeting[m].count, j->meeting[m].there);
    return weft_trace_check(j->out);
}

static weft_status check_ranks(const weft_timeline *t, int count)
{
    for (int i = 0; i < count; i++) {
        if (t[i].trace.devices != count || t[i].rank < 0 || t[i].rank >= count)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_RANK(t[i].rank)),
                              "a timeline is of rank %d of %" PRId64
                              ", and %d timelines are given. Give "
                              "the timelines of all ranks.",
                              t[i].rank, t[i].trace.devices, count);
        for (int k = 0; k < i; k++)
            if (t[k].rank == t[i].rank)
                return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_RANK(t[i].rank)),
                                  "the timeline of rank %d is given twice", t[i].rank);
    }
    return WEFT_OK;
}

weft_status weft_timelines_join(const weft_timeline *timeline, int count, weft_trace *out,
                                double *executed)
{
    joiner j = {.ranks = count, .out = out};
    weft_status_code status = WEFT_OK;
    *out = (weft_trace){.devices = count};
    *executed = 0;
    WEFT_TRY(check_ranks(timeline, count));
    WEFT_TRY(WEFT_NEW(j.track, count, "joining timelines"));
    for (int i = 0; i < count; i++) {
        const weft_timeline *t = &timeline[i];
        j.track[i] = (track){.t = t, .last = -1};
        WEFT_GO(WEFT_NEW(j.track[i].is, t->trace.step_count + 1, "joining timelines"));
        for (int64_t s = 0; s < t->trace.step_count; s++)
            if (t->trace.step[s].stream == WEFT_STREAM_COMPUTE && t->end[s] > *executed)
                *executed = t->end[s];
    }
    WEFT_GO(join(&j));
out:
    for (int i = 0; i < count; i++)
        weft_free(j.track[i].is);
    for (int64_t i = 0; i < j.queues; i++) {
        weft_free(j.queue[i].at);
        weft_free(j.queue[i].meeting);
    }
    weft_free(j.track);
    weft_free(j.queue);
    weft_free(j.meeting);
    weft_free(j.after);
    if (status != WEFT_OK)
        weft_trace_free(out);
    return status;
}
