/* Executes collective schedules: the segments of a request go through the rounds on the progress
 * thread.
 *
 *   x->segment[0]   step 0: round 0, round 1, ...   step 2: round 0 ...
 *   x->segment[1]      step 1: round 0, round 1, ...   step 3 ...
 *
 * Each segment waits for its own messages only, so that one is packed or added while the other's
 * messages are in flight. */
#include "comm/comm_segment.h"

#include "comm/comm_internal.h"
#include "comm/comm_request.h"
#include "comm/simulated_collective.h"

#include "base/log.h"
#include "kernel/device.h"
#include "kernel/device_links.h"

/* ---- simulated time -------------------------------------------------------------------------- */

/* Sets the stream's clock to the segment's time. `leave` sets the segment's time to the clock. */
static void enter(const weft_comm_request *x, const weft_comm_segment *segment)
{
    if (x->simulated.clock.now)
        *x->simulated.clock.ready = segment->time;
}

static void leave(const weft_comm_request *x, weft_comm_segment *segment)
{
    if (x->simulated.clock.now)
        segment->time = *x->simulated.clock.ready;
}

/* Returns the time of the stream's clock, or real time without a clock. */
static double time_of(const weft_comm_request *x)
{
    return x->simulated.clock.now ? *x->simulated.clock.ready : weft_now();
}

static void arrive(const weft_comm_request *x, weft_comm_segment *segment, const weft_message *m)
{
    const double when = m->receiving ? m->there : m->left;
    if (x->simulated.clock.now && segment->time < when)
        segment->time = when;
}

/* ---- pinned memory --------------------------------------------------------------------------- */

/* Takes pinned memory for the messages of a round; NULL: out of memory. It is reused, so a run of
 * the same requests allocates nothing. */
static weft_pinned *take_pinned(weft_comm *comm, const weft_device *device, int64_t bytes)
{
    for (weft_pinned **at = &comm->pinned; *at; at = &(*at)->next) {
        weft_pinned *p = *at;
        if (p->device != device || p->bytes < bytes)
            continue;
        *at = p->next;
        return p;
    }
    weft_pinned *p = weft_alloc(sizeof *p);
    char *data = p ? weft_device_alloc_host(device, bytes) : NULL;
    if (!data) {
        weft_free(p);
        return NULL;
    }
    *p = (weft_pinned){.device = device, .bytes = bytes, .data = data};
    return p;
}

static weft_status take_all_pinned(weft_comm *comm, weft_comm_request *x)
{
    for (int i = 0; i < x->segments; i++) {
        weft_comm_segment *segment = &x->segment[i];
        segment->wire = x->buffers.wire ? x->buffers.wire + i * x->plan->round_bytes : NULL;
        if (segment->wire || !weft_device_is_apart(x->buffers.device))
            continue;
        segment->pinned = take_pinned(comm, x->buffers.device, x->plan->round_bytes);
        if (!segment->pinned)
            return weft_no_memory("%s", x->what);
        segment->wire = segment->pinned->data;
    }
    return WEFT_OK;
}

/* Returns the pinned memory, which no work of the stream uses any more. */
static void return_pinned(weft_comm *comm, weft_comm_request *x)
{
    for (int i = 0; i < x->segments; i++) {
        weft_pinned *p = x->segment[i].pinned;
        x->segment[i].pinned = NULL;
        if (!p)
            continue;
        p->next = comm->pinned;
        comm->pinned = p;
    }
}

void weft_comm_pinned_free(weft_comm *comm)
{
    for (weft_pinned *p = comm->pinned, *next; p; p = next) {
        next = p->next;
        weft_device_free_host(p->device, p->data);
        weft_free(p);
    }
    comm->pinned = NULL;
}

/* ---- copies between blocks and memory -------------------------------------------------------- */

static void copy(const weft_comm_request *x, char *to, const char *from, weft_rows rows)
{
    x->buffers.device->copy(x->buffers.stream, to, from, rows);
}

static void copy_dense(const weft_comm_request *x, void *to, const void *from, int64_t bytes)
{
    if (bytes)
        copy(x, to, from, (weft_rows){1, bytes, bytes, bytes});
}

/* Elements [begin, begin + count) of the row-major sequence of a block. */
typedef struct span {
    char *base;
    weft_block block;
    int64_t begin, count, element;
} span;

static weft_block dense(int64_t start, int64_t count)
{
    return (weft_block){.start = start, .rows = 1, .row = count, .stride = count};
}

static int64_t block_range(const weft_comm_request *x, const weft_comm_segment *segment,
                           const weft_block *block)
{
    const int64_t left = weft_block_count(block) - segment->step * x->plan->segment;
    return left < 0 ? 0 : left < x->plan->segment ? left : x->plan->segment;
}

/* Returns the elements of a block that a segment contains, in the tensor at `base`. */
static span part_of(const weft_comm_request *x, const weft_comm_segment *segment, weft_block block,
                    const void *base)
{
    return (span){.base = (char *)(uintptr_t)base,
                  .block = block,
                  .begin = segment->step * x->plan->segment,
                  .count = block_range(x, segment, &block),
                  .element = x->spec.element};
}

/* Copies the elements of `from` to the first elements of `to`, whose rows may differ in length.
 * Makes as few strided copies as possible, because each is a launch on a device.
 *
 *   from  |  begin...|  the rest of a row        to  |..............................|
 *         |..........|  whole rows: one copy,        its pieces are contiguous in `to`,
 *         |..........|  or the other way round       or are whole rows of the same length
 *         |...end    |  the beginning of one */
static void copy_span(const weft_comm_request *x, const span *from, const span *to)
{
    const weft_block *a = &from->block, *b = &to->block;
    for (int64_t done = 0; done < from->count;) {
        const int64_t position[2] = {from->begin + done, to->begin + done},
                      at[2] = {position[0] % a->row, position[1] % b->row},
                      left[2] = {a->row - at[0], b->row - at[1]}, count = from->count - done,
                      shorter = left[0] < left[1] ? left[0] : left[1],
                      n = shorter < count ? shorter : count;
        const bool rows[2] = {n == a->row, n == b->row};
        int64_t times = count / n;
        for (int i = 0; i < 2; i++)
            if (!rows[i] && left[i] / n < times)
                times = left[i] / n;
        copy(x, to->base + (b->start + position[1] / b->row * b->stride + at[1]) * from->element,
             from->base + (a->start + position[0] / a->row * a->stride + at[0]) * from->element,
             (weft_rows){.rows = times,
                         .row = n * from->element,
                         .to = (rows[1] ? b->stride : n) * from->element,
                         .from = (rows[0] ? a->stride : n) * from->element});
        done += times * n;
    }
}

/* Returns dense memory for the elements of `s`. */
static span dense_span(const span *s, char *memory)
{
    return (span){
        .base = memory, .block = dense(0, s->count), .count = s->count, .element = s->element};
}

static void pack_span(const weft_comm_request *x, const span *from, char *memory)
{
    const span to = dense_span(from, memory);
    copy_span(x, from, &to);
}

static void unpack_span(const weft_comm_request *x, const span *to, char *memory)
{
    const span from = dense_span(to, memory);
    copy_span(x, &from, to);
}

/* Returns the length of collective chunks [first, first + count) of a flat segment. *start: their
 * first element in the segment. */
static int64_t flat_range(const weft_comm_request *x, const weft_comm_segment *segment, int first,
                          int count, int64_t *start)
{
    const int64_t from = segment->step * x->plan->segment, left = x->spec.count - from;
    const int64_t n = left < x->plan->segment ? left : x->plan->segment;
    int64_t last_start, last_length, length;
    weft_part(n, x->plan->schedule.chunks, first, start, &length);
    weft_part(n, x->plan->schedule.chunks, first + count - 1, &last_start, &last_length);
    return last_start + last_length - *start;
}

/* Returns the i-th piece of a schedule step. A flat request has one piece, others one per
 * collective chunk. */
static span piece_of(const weft_comm_request *x, const weft_comm_segment *segment,
                     const weft_coll_step *m, int i)
{
    char *in = (char *)(uintptr_t)x->buffers.in;
    const bool in_work = x->plan->work_bytes > 0 && !m->from_in;
    span s = {.base = m->from_in ? in
                      : in_work  ? segment->work
                                 : x->buffers.out,
              .element = in_work ? x->spec.sum_element : x->spec.element};
    if (x->spec.flat) {
        int64_t start;
        s.count = flat_range(x, segment, m->first, m->count, &start);
        s.block = dense((in_work ? 0 : segment->step * x->plan->segment) + start, s.count);
        return s;
    }
    const int c = (m->first + i * m->stride) % x->plan->schedule.chunks;
    s.block = m->from_in || in_work ? weft_comm_request_in(x, c) : weft_comm_request_out(x, c);
    s.count = block_range(x, segment, &s.block);
    s.begin = segment->step * x->plan->segment;
    if (in_work) {
        s.begin = 0;
        s.block = dense(c * x->plan->held, s.count);
    }
    return s;
}

static int pieces_of(const weft_comm_request *x, const weft_coll_step *m)
{
    return x->spec.flat ? 1 : m->count;
}

/* Returns the number of elements of a schedule step. *alone: address of its only piece if that is
 * dense, otherwise NULL. */
static int64_t measure(const weft_comm_request *x, const weft_comm_segment *segment,
                       const weft_coll_step *m, char **alone, int64_t *element)
{
    int64_t count = 0;
    int there = 0;
    *alone = NULL;
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, segment, m, i);
        *element = s.element;
        if (!s.count)
            continue;
        count += s.count;
        there++;
        *alone =
            there == 1 && s.block.rows == 1 ? s.base + (s.block.start + s.begin) * s.element : NULL;
    }
    return count;
}

static void pack(const weft_comm_request *x, const weft_comm_segment *segment,
                 const weft_coll_step *m, char *to)
{
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, segment, m, i);
        pack_span(x, &s, to);
        to += s.count * s.element;
    }
}

static void unpack(const weft_comm_request *x, const weft_comm_segment *segment,
                   const weft_coll_step *m, char *from)
{
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, segment, m, i);
        if (m->kind == WEFT_COLL_STEP_ADD) { /* partial sums are dense, in `out` or in `work` */
            char *at = s.base + s.block.start * s.element;
            x->buffers.device->add(x->buffers.stream, x->spec.sum_dtype, at, at, from, s.count);
        } else {
            unpack_span(x, &s, from);
        }
        from += s.count * s.element;
    }
}

/* ---- segments -------------------------------------------------------------------------------- */

static void begin_segment(weft_comm_request *x, weft_comm_segment *segment)
{
    const weft_coll_schedule *s = &x->plan->schedule;
    segment->first = segment->next = 0;
    segment->count = segment->left = 0;
    if (s->copy_all && x->spec.flat) {
        int64_t start;
        const int64_t at = segment->step * x->plan->segment;
        const int64_t n = flat_range(x, segment, 0, s->chunks, &start);
        if (x->plan->work_bytes)
            x->buffers.device->convert(x->buffers.stream, segment->work, WEFT_F32,
                                       (const char *)x->buffers.in + at * x->spec.element,
                                       x->spec.dtype, n);
        else if (x->buffers.in != x->buffers.out)
            copy_dense(x, (char *)x->buffers.out + at * x->spec.element,
                       (const char *)x->buffers.in + at * x->spec.element, n * x->spec.element);
    }
    for (int c = 0; s->copy_all && !x->spec.flat && c < s->chunks; c++) {
        const span chunk = part_of(x, segment, weft_comm_request_in(x, c), x->buffers.in);
        pack_span(x, &chunk, segment->work + c * x->plan->held * x->spec.element);
    }
    if (s->copy_own >= 0) {
        const span from = part_of(x, segment, weft_comm_request_in(x, s->copy_own), x->buffers.in),
                   to = part_of(x, segment, weft_comm_request_out(x, s->copy_own), x->buffers.out);
        copy_span(x, &from, &to);
    }
}

static void end_segment(weft_comm_request *x, weft_comm_segment *segment)
{
    if (!x->plan->work_bytes)
        return;
    const int64_t at = segment->step * x->plan->segment;
    if (x->spec.flat) {
        int64_t start;
        const int64_t n = flat_range(x, segment, 0, x->plan->schedule.chunks, &start);
        x->buffers.device->convert(x->buffers.stream, (char *)x->buffers.out + at * x->spec.element,
                                   x->spec.dtype, segment->work, WEFT_F32, n);
    } else {
        const span own = part_of(x, segment, weft_comm_request_out(x, x->spec.own), x->buffers.out);
        unpack_span(x, &own, segment->work + x->spec.own * x->plan->held * x->spec.element);
    }
}

static void sum_terms(weft_comm_request *x, weft_comm_segment *segment)
{
    const weft_coll_step own = {
        .first = x->plan->schedule.sum_chunk, .count = 1, .stride = 1, .from_in = true};
    const span s = piece_of(x, segment, &own, 0);
    char *temp = segment->term + x->spec.ranks * x->plan->slot_bytes;
    void **slots = segment->slot;
    const void **term = (const void **)segment->slot + x->spec.ranks;
    for (int r = 0; r < x->spec.ranks; r++)
        term[r] = slots[r] = segment->term + r * x->plan->slot_bytes;
    if (s.block.rows > 1)
        pack_span(x, &s, slots[x->spec.own]);
    else
        term[x->spec.own] = s.base + (s.block.start + s.begin) * s.element;
    char *out = x->buffers.out;
    if (x->spec.flat)
        out += s.block.start * x->spec.element;
    else
        out += (weft_comm_request_out(x, x->spec.own).start + s.begin) * x->spec.element;
    if (s.count)
        x->buffers.device->sum(x->buffers.stream, x->spec.dtype, x->spec.ranks, term, slots, temp,
                               out, s.count);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Memory of a round's messages that is still unused. */
typedef struct round_memory {
    char *staging, *pinned; /* pinned NULL: messages are sent from the device's memory */
} round_memory;

/* Returns the memory that the transport accesses for a message at `at`. */
static char *wire_memory(weft_comm_request *x, weft_comm_segment *segment, const weft_coll_step *m,
                         char *at, int64_t bytes, round_memory *memory)
{
    char *pinned = memory->pinned;
    segment->distant[segment->count] = at;
    if (!pinned)
        return at;
    memory->pinned += weft_aligned(bytes);
    if (m->kind == WEFT_COLL_STEP_SEND)
        x->buffers.device->host_copy(x->buffers.stream, pinned, at, bytes);
    return pinned;
}

static void add_message(weft_comm *comm, weft_comm_request *x, weft_comm_segment *segment,
                        int64_t index, round_memory *memory)
{
    const weft_coll_step *m = &x->plan->schedule.step[index];
    char *at;
    int64_t element = x->spec.element, count;
    if (m->kind == WEFT_COLL_STEP_RECEIVE_TERM) {
        const weft_coll_step own = {.first = m->first, .count = 1, .stride = 1, .from_in = true};
        count = piece_of(x, segment, &own, 0).count;
        at = segment->term + m->peer * x->plan->slot_bytes;
    } else {
        count = measure(x, segment, m, &at, &element);
    }
    if (!count)
        return;
    char *staged = NULL;
    if (!at || m->kind == WEFT_COLL_STEP_ADD) {
        at = staged = memory->staging;
        memory->staging += weft_aligned(count * element);
        if (m->kind == WEFT_COLL_STEP_SEND)
            pack(x, segment, m, staged);
    }
    weft_message *message = &segment->message[segment->count];
    *message = (weft_message){.peer = x->group->rank[m->peer],
                              .tag = x->run.tag | (segment->step & 1),
                              .receiving = m->kind != WEFT_COLL_STEP_SEND,
                              .handle = {.number = m->peer},
                              .data = wire_memory(x, segment, m, at, count * element, memory),
                              .bytes = count * element,
                              .meta = x->buffers.device->meta};
    segment->coll_step[segment->count] = (int32_t)index;
    segment->staged[segment->count++] = staged;
    segment->left++;
    if (m->kind == WEFT_COLL_STEP_SEND) {
        atomic_fetch_add_explicit(&comm->total.messages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&comm->total.bytes, count * element, memory_order_relaxed);
        x->sent.messages++;
        x->sent.bytes += count * element;
    }
}

/* handle.number: member at the other end. */
static weft_status hand_over(weft_comm *comm, const weft_comm_request *x, weft_message *m)
{
    return x->simulated.together ? weft_simulated_collective_post(x->simulated.together, x, m)
                                 : comm->transport.post(comm->transport.self, m);
}

static weft_status post(weft_comm *comm, weft_comm_request *x, weft_comm_segment *segment,
                        weft_message *m)
{
    if (x->simulated.clock.now) /* a message carries its time, so the poster wakes once */
        m->together = &segment->together;
    if (x->simulated.clock.now && !m->receiving) {
        m->timed = true;
        m->apart = comm->transport.links && x->spec.op == WEFT_COMM_SEND;
        m->from = m->left = m->there =
            segment->time > x->simulated.port ? segment->time : x->simulated.port;
        const weft_status_code status = hand_over(comm, x, m);
        x->simulated.port = m->left;
        return status;
    }
    return hand_over(comm, x, m);
}

/* The error stays one of the device ("gpu-lost"), and gets the collective that found it. */
static weft_status device_failed(const weft_comm_request *x)
{
    return weft_error(weft_error_class(), WEFT_AT(.key = x->what), "the device failed: %s",
                      weft_error_message());
}

/* Posts the messages of a round, whose data is complete. */
static weft_status post_all(weft_comm *comm, weft_comm_request *x, weft_comm_segment *segment)
{
    const int made = segment->made;
    segment->made = 0;
    leave(x, segment);
    atomic_store(&segment->together, made);
    for (segment->count = 0; segment->count < made; segment->count++)
        WEFT_TRY(post(comm, x, segment, &segment->message[segment->count]));
    return WEFT_OK;
}

/* Posts the messages of a round if the stream has reached them. *progressed is set to true then. */
static weft_status post_packed(weft_comm *comm, weft_comm_request *x, weft_comm_segment *segment,
                               bool *progressed)
{
    const weft_device *device = x->buffers.device;
    if (!segment->made || !device->reached(device, &segment->packed))
        return WEFT_OK;
    if (device->await(x->buffers.stream, &segment->packed) != WEFT_OK)
        return device_failed(x);
    *progressed = true;
    return post_all(comm, x, segment);
}

static weft_status begin_round(weft_comm *comm, weft_comm_request *x, weft_comm_segment *segment)
{
    const weft_coll_schedule *s = &x->plan->schedule;
    const int round = s->step[segment->next].round;
    round_memory memory = {segment->staging, segment->wire};
    segment->first = segment->next;
    segment->count = segment->left = 0;
    for (; segment->next < s->count && s->step[segment->next].round == round; segment->next++)
        add_message(comm, x, segment, segment->next, &memory);
    segment->made = segment->count;
    segment->count = 0;
    /* Sent data must be complete, and receive buffers must not be read any more. */
    if (weft_device_is_apart(x->buffers.device))
        return segment->made ? x->buffers.device->record(x->buffers.stream, &segment->packed)
                             : WEFT_OK;
    if (x->buffers.device->wait(x->buffers.stream) != WEFT_OK)
        return device_failed(x);
    return post_all(comm, x, segment);
}

static void end_round(weft_comm_request *x, weft_comm_segment *segment)
{
    const weft_coll_schedule *s = &x->plan->schedule;
    for (int i = 0; i < segment->count; i++) {
        const weft_coll_step *m = &s->step[segment->coll_step[i]];
        if (segment->wire && m->kind != WEFT_COLL_STEP_SEND)
            x->buffers.device->host_copy(x->buffers.stream, segment->distant[i],
                                         segment->message[i].data, segment->message[i].bytes);
        if (segment->staged[i] && m->kind != WEFT_COLL_STEP_SEND)
            unpack(x, segment, m, segment->staged[i]);
    }
    segment->count = 0;
    if (segment->next > segment->first && s->step[segment->first].round == s->sum_after)
        sum_terms(x, segment);
}

/* *ended is set to true if a round has ended. */
static weft_status advance_segment(weft_comm *comm, weft_comm_request *x,
                                   weft_comm_segment *segment, bool *progressed, bool *ended)
{
    WEFT_TRY(post_packed(comm, x, segment, progressed));
    for (int i = 0; i < segment->count && segment->left; i++) {
        weft_message *m = &segment->message[i];
        const weft_transport *t = &comm->transport;
        if (m->taken)
            continue;
        if (!atomic_load_explicit(&m->done, memory_order_acquire))
            WEFT_TRY(t->test(t->self, m));
        if (!atomic_load_explicit(&m->done, memory_order_acquire) ||
            (t->late && t->late(t->self, m)))
            continue;
        m->taken = true;
        arrive(x, segment, m);
        segment->left--;
        *progressed = true;
    }
    enter(x, segment);
    const bool handles = segment->running && !segment->left;
    const double before = handles ? time_of(x) : 0;
    while (segment->running && !segment->left) {
        end_round(x, segment);
        *progressed = *ended = true;
        if (segment->next < x->plan->schedule.count) {
            WEFT_TRY(begin_round(comm, x, segment));
            continue;
        }
        end_segment(x, segment);
        segment->step += x->segments;
        segment->running = segment->step < x->plan->steps;
        if (segment->running)
            begin_segment(x, segment);
        leave(x, segment);
    }
    if (handles)
        x->run.handled += time_of(x) - before;
    return WEFT_OK;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Bytes that a send step transfers in the segment. */
static int64_t send_bytes(const weft_comm_request *x, const weft_comm_segment *segment,
                          const weft_coll_step *m)
{
    const bool in_work = x->plan->work_bytes > 0 && !m->from_in;
    int64_t start, count = 0;
    if (x->spec.flat)
        count = flat_range(x, segment, m->first, m->count, &start);
    for (int i = 0; !x->spec.flat && i < m->count; i++) {
        const int c = (m->first + i * m->stride) % x->plan->schedule.chunks;
        const weft_block block =
            m->from_in || in_work ? weft_comm_request_in(x, c) : weft_comm_request_out(x, c);
        count += block_range(x, segment, &block);
    }
    return count * (in_work ? x->spec.sum_element : x->spec.element);
}

weft_sent weft_comm_request_planned(const weft_comm_request *x)
{
    weft_sent sent = {0};
    if (x->spec.ranks == 1)
        return sent;
    for (weft_comm_segment segment = {0}; segment.step < x->plan->steps; segment.step++)
        for (int64_t i = 0; i < x->plan->schedule.count; i++) {
            const weft_coll_step *m = &x->plan->schedule.step[i];
            const int64_t bytes = m->kind == WEFT_COLL_STEP_SEND ? send_bytes(x, &segment, m) : 0;
            sent.messages += bytes > 0;
            sent.bytes += bytes;
        }
    return sent;
}

weft_sent weft_comm_request_sent(const weft_comm_request *x)
{
    return x->sent;
}

/* ---- requests over connections of devices ---------------------------------------------------- */

static void copy_pieces_in(const weft_comm_request *x)
{
    char *at = x->buffers.out;
    for (int i = 0; i < x->buffers.piece_count; at += x->buffers.piece[i++].bytes)
        copy_dense(x, at, x->buffers.piece[i].in, x->buffers.piece[i].bytes);
}

static void copy_pieces_out(const weft_comm_request *x)
{
    const char *at = x->buffers.out;
    for (int i = 0; i < x->buffers.piece_count; at += x->buffers.piece[i++].bytes)
        copy_dense(x, x->buffers.piece[i].out, at, x->buffers.piece[i].bytes);
}

/* True if the parts of a tensor are equal and contiguous. */
static bool has_equal_parts(const weft_blocks *b, int ranks)
{
    return b->at < 0 && b->outer == 1 && b->length % ranks == 0;
}

/* Adds the request as one operation of the library, if that has it. */
static bool add_whole(const weft_comm_request *x)
{
    const weft_group *g = x->group;
    weft_link_collective c = {
        .dtype = x->spec.dtype, .in = x->buffers.in, .out = x->buffers.out, .count = x->spec.count};
    switch (g->is_fast ? x->spec.op : WEFT_COMM_SEND) {
    case WEFT_COMM_ALL_REDUCE: c.op = WEFT_OP_ALL_REDUCE; break;
    case WEFT_COMM_ALL_GATHER:
        c.op = WEFT_OP_ALL_GATHER;
        c.count = weft_block_count(&x->spec.in.one);
        if (!has_equal_parts(&x->spec.out, x->spec.ranks))
            return false;
        break;
    case WEFT_COMM_REDUCE_SCATTER:
        c.op = WEFT_OP_REDUCE_SCATTER;
        c.count = weft_block_count(&x->spec.out.one);
        if (!has_equal_parts(&x->spec.in, x->spec.ranks))
            return false;
        break;
    default: return false;
    }
    return g->links->collective(x->buffers.stream, g->link, &c);
}

/* Adds the rounds of the segment at `step`. */
static void add_segment(weft_comm *comm, weft_comm_request *x, int64_t step)
{
    const weft_coll_schedule *s = &x->plan->schedule;
    weft_comm_segment *segment = &x->segment[0];
    segment->step = step;
    begin_segment(x, segment);
    while (segment->next < s->count) {
        const int round = s->step[segment->next].round;
        round_memory memory = {segment->staging, NULL};
        segment->first = segment->next;
        segment->count = segment->left = 0;
        for (; segment->next < s->count && s->step[segment->next].round == round; segment->next++)
            add_message(comm, x, segment, segment->next, &memory);
        for (int i = 0; i < segment->count; i++) {
            const weft_message *m = &segment->message[i];
            segment->direct[i] =
                (weft_link_message){(int)m->handle.number, m->receiving, m->data, m->bytes};
        }
        if (segment->count)
            x->group->links->exchange(x->buffers.stream, x->group->link, segment->direct,
                                      segment->count);
        end_round(x, segment);
    }
    end_segment(x, segment);
}

void weft_comm_request_add(weft_comm *comm, weft_comm_request *x)
{
    x->segment[0].wire = NULL;
    copy_pieces_in(x);
    if (!add_whole(x))
        for (int64_t step = 0; step < x->plan->steps; step++)
            add_segment(comm, x, step);
    copy_pieces_out(x);
}

/* Finishes when the stream has done the work. */
static weft_status await_linked(const weft_comm_request *x, bool *finished)
{
    const weft_device *device = x->buffers.device;
    *finished = device->reached(device, &x->run.ended);
    if (!*finished)
        return x->group->links->check(x->group->link);
    weft_event ended = x->run.ended;
    return device->await(x->buffers.stream, &ended) == WEFT_OK ? WEFT_OK : device_failed(x);
}

/* ---- requests -------------------------------------------------------------------------------- */

weft_status weft_comm_request_begin(weft_comm *comm, weft_comm_request *x)
{
    x->run.begun = true;
    x->run.started = x->run.last = weft_now();
    if (x->run.linked)
        return WEFT_OK;
    WEFT_TRY(take_all_pinned(comm, x));
    if (x->buffers.follows)
        x->buffers.device->after(x->buffers.stream, &x->buffers.ready);
    if (x->buffers.device->mark)
        x->buffers.device->mark(x->buffers.stream, -1, x->what, "");
    char *at = x->buffers.out;
    weft_comm_segment beginning = {.time = x->simulated.asked > x->queue->end ? x->simulated.asked
                                                                              : x->queue->end};
    x->simulated.begin = beginning.time;
    x->simulated.next_segment = 0;
    x->run.handled = 0;
    enter(x, &beginning);
    double before = time_of(x);
    for (int i = 0; i < x->buffers.piece_count; at += x->buffers.piece[i++].bytes)
        copy_dense(x, at, x->buffers.piece[i].in, x->buffers.piece[i].bytes);
    x->run.handled += time_of(x) - before;
    leave(x, &beginning);
    for (int i = 0; i < x->segments; i++) {
        x->segment[i].step = i;
        x->segment[i].running = true;
        x->segment[i].time = beginning.time;
        enter(x, &x->segment[i]);
        before = time_of(x);
        begin_segment(x, &x->segment[i]);
        x->run.handled += time_of(x) - before;
        leave(x, &x->segment[i]);
    }
    return WEFT_OK;
}

/* Advances one segment, in simulated time. */
static weft_status advance_round_robin(weft_comm *comm, weft_comm_request *x, bool *progressed)
{
    bool ended = false;
    for (int i = 0; i < x->segments && !x->segment[x->simulated.next_segment].running; i++)
        x->simulated.next_segment = (x->simulated.next_segment + 1) % x->segments;
    if (x->segment[x->simulated.next_segment].running)
        WEFT_TRY(
            advance_segment(comm, x, &x->segment[x->simulated.next_segment], progressed, &ended));
    if (ended)
        x->simulated.next_segment = (x->simulated.next_segment + 1) % x->segments;
    return WEFT_OK;
}

/* Opens the gate for the stream that waits, and finishes when the work is done. */
static weft_status end_work(weft_comm *comm, weft_comm_request *x, bool *finished)
{
    const weft_device *device = x->buffers.device;
    if (!weft_device_is_apart(device))
        return device->wait(x->buffers.stream);
    if (!x->run.ending) {
        if (x->buffers.gate)
            device->lift(x->buffers.stream, x->buffers.gate, x->run.turn);
        WEFT_TRY(device->record(x->buffers.stream, &x->run.ended));
        x->run.ending = true;
    }
    *finished = device->reached(device, &x->run.ended);
    if (!*finished)
        return WEFT_OK;
    x->run.ending = false;
    const weft_status_code status = device->await(x->buffers.stream, &x->run.ended);
    return_pinned(comm, x);
    return status;
}

bool weft_comm_request_may_begin(const weft_comm_request *x)
{
    return !x->buffers.follows || x->run.linked ||
           x->buffers.device->reached(x->buffers.device, &x->buffers.ready);
}

bool weft_comm_request_awaits_device(const weft_comm_request *x)
{
    bool awaits = x->run.ending || (!x->run.begun && x->buffers.follows && !x->run.linked);
    for (int i = 0; i < x->segments && x->run.begun && !x->run.linked; i++)
        awaits = awaits || x->segment[i].made;
    return awaits;
}

weft_status weft_comm_request_advance(weft_comm *comm, weft_comm_request *x, bool *progressed,
                                      bool *finished)
{
    bool here = false, ended;
    *finished = true;
    if (x->run.linked)
        return await_linked(x, finished);
    if (x->run.ending)
        return end_work(comm, x, finished);
    if (x->simulated.clock.now)
        WEFT_TRY(advance_round_robin(comm, x, &here));
    for (int i = 0; i < x->segments; i++) {
        if (x->segment[i].running && !x->simulated.clock.now)
            WEFT_TRY(advance_segment(comm, x, &x->segment[i], &here, &ended));
        *finished = *finished && !x->segment[i].running;
    }
    if (here) {
        x->run.last = weft_now();
        *progressed = true;
    }
    char *at = x->buffers.out;
    weft_comm_segment all = {.time = x->simulated.begin};
    for (int i = 0; i < x->segments; i++)
        all.time = x->segment[i].time > all.time ? x->segment[i].time : all.time;
    if (*finished)
        enter(x, &all);
    for (int i = 0; *finished && i < x->buffers.piece_count; at += x->buffers.piece[i++].bytes)
        copy_dense(x, x->buffers.piece[i].out, at, x->buffers.piece[i].bytes);
    if (*finished) {
        leave(x, &all);
        x->simulated.end = x->queue->end = all.time;
    }
    return *finished ? end_work(comm, x, finished) : WEFT_OK;
}

void weft_comm_request_force(const weft_comm_request *x)
{
    if (x->buffers.gate)
        x->buffers.device->force(x->buffers.device, x->buffers.gate, x->run.turn);
}

void weft_comm_request_cancel(weft_comm *comm, weft_comm_request *x)
{
    if (x->run.linked) {
        x->group->links->abort(x->group->link);
        return;
    }
    for (int i = 0; i < x->segments && x->run.begun; i++) {
        weft_comm_segment *segment = &x->segment[i];
        for (int j = 0; j < segment->count; j++)
            if (!atomic_load(&segment->message[j].done))
                comm->transport.cancel(comm->transport.self, &segment->message[j]);
        segment->count = segment->left = segment->made = 0;
        segment->running = false;
    }
    x->run.ending = false;
    if (x->segments && x->segment->wire && x->run.begun) {
        (void)x->buffers.device->wait(x->buffers.stream);
        return_pinned(comm, x);
    }
    weft_comm_request_force(x);
}

weft_status weft_comm_request_copy(weft_comm_request *x)
{
    if (x->buffers.in == x->buffers.out) {
        weft_comm_request_force(x);
        return WEFT_OK;
    }
    if (x->buffers.follows)
        x->buffers.device->after(x->buffers.stream, &x->buffers.ready);
    if (x->spec.flat) {
        copy_dense(x, x->buffers.out, x->buffers.in, x->spec.count * x->spec.element);
    } else {
        const weft_block in = weft_comm_request_in(x, 0);
        const span from = {.base = (char *)(uintptr_t)x->buffers.in,
                           .block = in,
                           .count = weft_block_count(&in),
                           .element = x->spec.element},
                   to = {.base = x->buffers.out, .block = weft_comm_request_out(x, 0)};
        copy_span(x, &from, &to);
    }
    if (x->buffers.gate)
        x->buffers.device->lift(x->buffers.stream, x->buffers.gate, x->run.turn);
    return x->buffers.device->wait(x->buffers.stream);
}
