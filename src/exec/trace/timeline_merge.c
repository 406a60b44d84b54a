/* The timelines of all ranks as one trace.
 *
 *     rank 0   k k [=== a ===] w k        steps of each rank in its order, streams as they were
 *     rank 1   k [==== a =====] k w
 *     joined   0: k k, 1: k | a of 0 and 1, behind what each did before it | 0: w, 1: k w ...
 *
 * An exchange is the n-th of its ranks on its channel on all of them. It goes into the list when
 * the last of its ranks has come to it; a rank that waits for it stands still until then. */
#include "base/memory.h"
#include "runtime/runtime.h"

#include <string.h>

enum { MOST_AFTER = 8 }; /* of a step of a rank's own */

typedef struct meeting {
    int32_t there, count; /* ranks that came, and all that it has */
    int32_t step;         /* of the joined trace; -1: not all ranks are there yet */
    int32_t first_after;  /* into `after` of the joiner: what each member did before; -1: nothing */
    double bytes, handling; /* of the member that has most */
} meeting;

/* Exchanges of one list of ranks on one channel. */
typedef struct queue {
    const int32_t *member;
    int32_t count, channel;
    int32_t *at;      /* [count]: the next one of each member */
    int32_t *meeting; /* indexes */
    int64_t meetings, room;
} queue;

typedef struct track {
    const weft_timeline *t;
    int64_t next;
    int32_t last;  /* joined step of the compute stream; -1: none */
    double before; /* when that ended */
    /* by own step: the joined one, -1: none; of an exchange its meeting */
    int32_t *is;
} track;

typedef struct joiner {
    track *track;
    int ranks;
    queue *queue;
    int64_t queues, queue_room;
    meeting *meeting;
    int64_t meetings, meeting_room;
    int32_t *after; /* of meetings */
    int64_t after_count, after_room;
    weft_trace *out;
} joiner;

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory joining timelines");
}

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
    WEFT_TRY(weft_grow((void **)&j->queue, j->queues, &j->queue_room, sizeof *j->queue));
    queue *q = &j->queue[j->queues];
    *q = (queue){.member = member, .count = g->count, .channel = note.channel};
    q->at = weft_alloc(g->count * (int64_t)sizeof *q->at);
    if (!q->at)
        return no_memory();
    j->queues++;
    *found = q;
    return WEFT_OK;
}

static weft_status open_meeting(joiner *j, queue *q)
{
    WEFT_TRY(weft_grow((void **)&q->meeting, q->meetings, &q->room, sizeof *q->meeting));
    WEFT_TRY(weft_grow((void **)&j->meeting, j->meetings, &j->meeting_room, sizeof *j->meeting));
    j->meeting[j->meetings] =
        (meeting){.count = q->count, .step = -1, .first_after = (int32_t)j->after_count};
    for (int32_t i = 0; i < q->count; i++) {
        WEFT_TRY(weft_grow((void **)&j->after, j->after_count, &j->after_room, sizeof *j->after));
        j->after[j->after_count++] = -1;
    }
    q->meeting[q->meetings++] = (int32_t)j->meetings++;
    return WEFT_OK;
}

/* All are there: it goes into the list. */
static weft_status begin_exchange(joiner *j, const queue *q, meeting *m,
                                  const weft_trace_step *like, const char *name)
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
        return weft_fail(WEFT_E_FORMAT, "timelines: %s of rank %d is among other ranks", name,
                         r->t->rank);
    if (q->at[own] == q->meetings)
        WEFT_TRY(open_meeting(j, q));
    r->is[i] = q->meeting[q->at[own]++];
    meeting *m = &j->meeting[r->is[i]];
    j->after[m->first_after + own] = r->last;
    m->bytes = s->bytes > m->bytes ? s->bytes : m->bytes;
    const double handling = r->t->note[i].handling;
    m->handling = handling > m->handling ? handling : m->handling;
    return ++m->there == q->count ? begin_exchange(j, q, m, s, name) : WEFT_OK;
}

/* Of the joined list, -1: not there yet. */
static int32_t joined(const joiner *j, const track *r, int32_t own)
{
    return r->t->note[own].group >= 0 ? j->meeting[r->is[own]].step : r->is[own];
}

/* *stands: it waits for ranks that have not come yet. */
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
            continue; /* it was not joined */
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

/* As far as a rank gets; *moved: it got anywhere. */
static weft_status advance(joiner *j, track *r, bool *moved)
{
    for (; r->next < r->t->trace.step_count; r->next++) {
        const weft_trace_step *s = &r->t->trace.step[r->next];
        bool stands = false;
        if (s->kind == WEFT_TRACE_SEND)
            return weft_fail(WEFT_E_FORMAT,
                             "timeline of rank %d: \"%s\" goes from one stage of a pipeline to "
                             "another; weft simulate RUN.yaml plays those",
                             r->t->rank, r->t->trace.name[s->name]);
        if (s->stream == WEFT_STREAM_TASK)
            continue; /* what the others belong to */
        if (r->t->note[r->next].group >= 0)
            WEFT_TRY(arrive(j, r, r->next));
        else
            WEFT_TRY(add_own(j, r, r->next, &stands));
        if (stands)
            return WEFT_OK;
        *moved = true;
    }
    return WEFT_OK;
}

static weft_status stuck(const joiner *j)
{
    for (int i = 0; i < j->ranks; i++) {
        const track *r = &j->track[i];
        if (r->next < r->t->trace.step_count)
            return weft_fail(WEFT_E_FORMAT,
                             "timelines: rank %d stops at \"%s\", which others never began; they "
                             "are not of one run",
                             r->t->rank, r->t->trace.name[r->t->trace.step[r->next].name]);
    }
    return WEFT_OK;
}

static weft_status join(joiner *j)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < j->ranks; i++)
            WEFT_TRY(advance(j, &j->track[i], &moved));
    }
    WEFT_TRY(stuck(j));
    for (int64_t m = 0; m < j->meetings; m++)
        if (j->meeting[m].step < 0)
            return weft_fail(WEFT_E_FORMAT,
                             "timelines: an exchange has %d ranks, and %d of them began it; they "
                             "are not of one run",
                             j->meeting[m].count, j->meeting[m].there);
    return weft_trace_check(j->out);
}

static weft_status check_ranks(const weft_timeline *t, int count)
{
    for (int i = 0; i < count; i++) {
        if (t[i].trace.devices != count || t[i].rank < 0 || t[i].rank >= count)
            return weft_fail(WEFT_E_FORMAT,
                             "timelines: one is of rank %d of %lld, and there are %d of them: give "
                             "those of all ranks",
                             t[i].rank, (long long)t[i].trace.devices, count);
        for (int k = 0; k < i; k++)
            if (t[k].rank == t[i].rank)
                return weft_fail(WEFT_E_FORMAT, "timelines: rank %d is there twice", t[i].rank);
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
    j.track = weft_alloc(count * (int64_t)sizeof *j.track);
    if (!j.track)
        return no_memory();
    for (int i = 0; i < count; i++) {
        const weft_timeline *t = &timeline[i];
        j.track[i] = (track){.t = t, .last = -1};
        j.track[i].is = weft_alloc((t->trace.step_count + 1) * (int64_t)sizeof(int32_t));
        if (!j.track[i].is)
            WEFT_GO(no_memory());
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
