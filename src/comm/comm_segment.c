/* Interprets moves: an exchange's segments on their way through the rounds, on the progress thread.
 *
 *   lane 0   segment 0: round 0, round 1, ...   segment 2: round 0 ...
 *   lane 1      segment 1: round 0, round 1, ...   segment 3 ...
 *
 * Each lane waits for its own messages only, so that one is packed or added up while the other's
 * messages travel. */
#include "runtime/comm_internal.h"

#include "base/log.h"

/* ---- modelled time ------------------------------------------------------------------------- */

/* The stream's work from here on is the lane's; and is done. */
static void enter(const weft_exchange *x, const weft_lane *lane)
{
    if (x->clock.now)
        *x->clock.ready = lane->time;
}

static void leave(const weft_exchange *x, weft_lane *lane)
{
    if (x->clock.now)
        lane->time = *x->clock.ready;
}

/* By the clock of its copies. */
static double time_of(const weft_exchange *x)
{
    return x->clock.now ? *x->clock.ready : weft_now();
}

static void arrive(const weft_exchange *x, weft_lane *lane, const weft_message *m)
{
    const double when = m->receiving ? m->there : m->left;
    if (x->clock.now && lane->time < when)
        lane->time = when;
}

/* ---- where the bytes are ------------------------------------------------------------------- */

static void copy(const weft_exchange *x, char *to, const char *from, weft_rows rows)
{
    x->device->copy(x->stream, to, from, rows);
}

static void copy_dense(const weft_exchange *x, void *to, const void *from, int64_t bytes)
{
    if (bytes)
        copy(x, to, from, (weft_rows){1, bytes, bytes, bytes});
}

/* Elements [begin, begin + count) of two blocks' row-major sequences, whose rows may differ in
 * length; as few strided copies as there can be: a launch each on a device.
 *
 *   from  |  begin...|  the rest of a row        to  |..............................|
 *         |..........|  whole rows: one copy,        its pieces lie behind one another there,
 *         |..........|  or the other way round       or are whole rows of the same length
 *         |...end    |  the beginning of one
 */
static void copy_between(const weft_exchange *x, const weft_block *from, const char *in,
                         const weft_block *to, char *out, int64_t begin, int64_t count,
                         int64_t element)
{
    while (count > 0) {
        const int64_t at[2] = {begin % from->row, begin % to->row},
                      left[2] = {from->row - at[0], to->row - at[1]},
                      shorter = left[0] < left[1] ? left[0] : left[1],
                      n = shorter < count ? shorter : count;
        const bool rows[2] = {n == from->row, n == to->row};
        int64_t times = count / n;
        for (int i = 0; i < 2; i++)
            if (!rows[i] && left[i] / n < times)
                times = left[i] / n;
        copy(x, out + (to->start + begin / to->row * to->stride + at[1]) * element,
             in + (from->start + begin / from->row * from->stride + at[0]) * element,
             (weft_rows){.rows = times,
                         .row = n * element,
                         .to = (rows[1] ? to->stride : n) * element,
                         .from = (rows[0] ? from->stride : n) * element});
        begin += times * n;
        count -= times * n;
    }
}

static weft_block dense(int64_t start, int64_t count)
{
    return (weft_block){.start = start, .rows = 1, .row = count, .stride = count};
}

/* Elements [begin, begin + count) of the block's row-major sequence, to or from dense memory. */
static void copy_block(const weft_exchange *x, const weft_block *b, int64_t begin, int64_t count,
                       int64_t element, char *tensor, char *memory, bool pack)
{
    const weft_block d = dense(-begin, begin + count); /* its element `begin` is the first there */
    if (pack)
        copy_between(x, b, tensor, &d, memory, begin, count, element);
    else
        copy_between(x, &d, memory, b, tensor, begin, count, element);
}

/* Some elements of one chunk in a segment. */
typedef struct span {
    char *base;
    weft_block block;
    int64_t begin, count, element;
} span;

/* Chunks [first, first + count) of the flat segment of the lane: begin (in the segment), length. */
static int64_t flat_range(const weft_exchange *x, const weft_lane *lane, int first, int count,
                          int64_t *start)
{
    const int64_t from = lane->step * x->plan.segment, left = x->count - from;
    const int64_t n = left < x->plan.segment ? left : x->plan.segment;
    int64_t last_start, last_length, length;
    weft_part(n, x->plan.moves.chunks, first, start, &length);
    weft_part(n, x->plan.moves.chunks, first + count - 1, &last_start, &last_length);
    return last_start + last_length - *start;
}

static int64_t block_range(const weft_exchange *x, const weft_lane *lane, const weft_block *block)
{
    const int64_t left = weft_block_count(block) - lane->step * x->plan.segment;
    return left < 0 ? 0 : left < x->plan.segment ? left : x->plan.segment;
}

/* The i-th piece of a move: flat ones have one, others one per chunk. */
static span piece_of(const weft_exchange *x, const weft_lane *lane, const weft_move *m, int i)
{
    char *in = (char *)(uintptr_t)x->in;
    const bool in_work = x->plan.work_bytes > 0 && !m->from_in;
    span s = {.base = m->from_in ? in
                      : in_work  ? lane->work
                                 : x->out,
              .element = in_work ? x->sum_element : x->element};
    if (x->flat) {
        int64_t start;
        s.count = flat_range(x, lane, m->first, m->count, &start);
        s.block = dense((in_work ? 0 : lane->step * x->plan.segment) + start, s.count);
        return s;
    }
    const int c = (m->first + i * m->stride) % x->plan.moves.chunks;
    const weft_block *block =
        m->from_in || in_work ? weft_exchange_in(x, c) : weft_exchange_out(x, c);
    s.count = block_range(x, lane, block);
    s.begin = lane->step * x->plan.segment;
    s.block = *block;
    if (in_work) {
        s.begin = 0;
        s.block = dense(c * x->plan.held, s.count);
    }
    return s;
}

static int pieces_of(const weft_exchange *x, const weft_move *m)
{
    return x->flat ? 1 : m->count;
}

/* Elements of the move; *alone: its only piece, when that is dense where it is. */
static int64_t measure(const weft_exchange *x, const weft_lane *lane, const weft_move *m,
                       char **alone, int64_t *element)
{
    int64_t count = 0;
    int there = 0;
    *alone = NULL;
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, lane, m, i);
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

static void pack(const weft_exchange *x, const weft_lane *lane, const weft_move *m, char *to)
{
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, lane, m, i);
        copy_block(x, &s.block, s.begin, s.count, s.element, s.base, to, true);
        to += s.count * s.element;
    }
}

static void unpack(const weft_exchange *x, const weft_lane *lane, const weft_move *m, char *from)
{
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, lane, m, i);
        if (m->kind == WEFT_MOVE_ADD) { /* partial sums are dense, in `out` or in `work` */
            char *at = s.base + s.block.start * s.element;
            x->device->add(x->stream, x->sum_dtype, at, at, from, s.count);
        } else {
            copy_block(x, &s.block, s.begin, s.count, s.element, s.base, from, false);
        }
        from += s.count * s.element;
    }
}

/* ---- a segment ----------------------------------------------------------------------------- */

static void begin_segment(weft_exchange *x, weft_lane *lane)
{
    const weft_moves *s = &x->plan.moves;
    lane->first = lane->next = 0;
    lane->count = lane->left = 0;
    if (s->copy_all && x->flat) {
        int64_t start;
        const int64_t at = lane->step * x->plan.segment;
        const int64_t n = flat_range(x, lane, 0, s->chunks, &start);
        if (x->plan.work_bytes)
            x->device->convert(x->stream, lane->work, WEFT_F32,
                               (const char *)x->in + at * x->element, x->dtype, n);
        else if (x->in != x->out)
            copy_dense(x, (char *)x->out + at * x->element, (const char *)x->in + at * x->element,
                       n * x->element);
    }
    for (int c = 0; s->copy_all && !x->flat && c < s->chunks; c++)
        copy_block(x, weft_exchange_in(x, c), lane->step * x->plan.segment,
                   block_range(x, lane, weft_exchange_in(x, c)), x->element,
                   (char *)(uintptr_t)x->in, lane->work + c * x->plan.held * x->element, true);
    if (s->copy_own >= 0)
        copy_between(x, weft_exchange_in(x, s->copy_own), x->in, weft_exchange_out(x, s->copy_own),
                     x->out, lane->step * x->plan.segment,
                     block_range(x, lane, weft_exchange_in(x, s->copy_own)), x->element);
}

static void end_segment(weft_exchange *x, weft_lane *lane)
{
    if (!x->plan.work_bytes)
        return;
    const int64_t at = lane->step * x->plan.segment;
    if (x->flat) {
        int64_t start;
        const int64_t n = flat_range(x, lane, 0, x->plan.moves.chunks, &start);
        x->device->convert(x->stream, (char *)x->out + at * x->element, x->dtype, lane->work,
                           WEFT_F32, n);
    } else {
        copy_block(x, weft_exchange_out(x, x->own), at,
                   block_range(x, lane, weft_exchange_out(x, x->own)), x->element, x->out,
                   lane->work + x->own * x->plan.held * x->element, false);
    }
}

static void sum_terms(weft_exchange *x, weft_lane *lane)
{
    const weft_move own = {
        .first = x->plan.moves.sum_chunk, .count = 1, .stride = 1, .from_in = true};
    const span s = piece_of(x, lane, &own, 0);
    char *temp = lane->term + x->ranks * x->plan.slot_bytes;
    void **slots = lane->slot;
    const void **term = (const void **)lane->slot + x->ranks;
    for (int r = 0; r < x->ranks; r++)
        term[r] = slots[r] = lane->term + r * x->plan.slot_bytes;
    if (s.block.rows > 1)
        copy_block(x, &s.block, s.begin, s.count, s.element, s.base, slots[x->own], true);
    else
        term[x->own] = s.base + (s.block.start + s.begin) * s.element;
    char *out = x->out;
    if (x->flat)
        out += s.block.start * x->element;
    else
        out += (weft_exchange_out(x, x->own)->start + s.begin) * x->element;
    if (s.count)
        x->device->sum(x->stream, x->dtype, x->ranks, term, slots, temp, out, s.count);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void add_message(weft_comm *comm, weft_exchange *x, weft_lane *lane, int64_t index,
                        char **stage)
{
    const weft_move *m = &x->plan.moves.move[index];
    char *at;
    int64_t element = x->element, count;
    if (m->kind == WEFT_MOVE_TERM) {
        const weft_move own = {.first = m->first, .count = 1, .stride = 1, .from_in = true};
        count = piece_of(x, lane, &own, 0).count;
        at = lane->term + m->peer * x->plan.slot_bytes;
    } else {
        count = measure(x, lane, m, &at, &element);
    }
    if (!count)
        return;
    char *staged = NULL;
    if (!at || m->kind == WEFT_MOVE_ADD) {
        at = staged = *stage;
        *stage += weft_aligned(count * element);
        if (m->kind == WEFT_MOVE_SEND)
            pack(x, lane, m, staged);
    }
    weft_message *message = &lane->message[lane->count];
    *message = (weft_message){.peer = x->group->rank[m->peer],
                              .tag = x->tag | (lane->step & 1),
                              .receiving = m->kind != WEFT_MOVE_SEND,
                              .data = at,
                              .bytes = count * element,
                              .hollow = x->device->hollow};
    lane->move[lane->count] = (int32_t)index;
    lane->staged[lane->count++] = staged;
    lane->left++;
    if (m->kind == WEFT_MOVE_SEND) {
        atomic_fetch_add_explicit(&comm->messages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&comm->bytes, count * element, memory_order_relaxed);
    }
}

static weft_status post(weft_comm *comm, weft_exchange *x, weft_lane *lane, weft_message *m)
{
    if (x->clock.now) /* when it comes is written in it: who waits need not see each at once */
        m->together = &lane->together;
    if (x->clock.now && !m->receiving) {
        m->timed = true;
        m->apart = comm->transport.turns && x->op == WEFT_COMM_SEND;
        m->from = m->left = m->there = lane->time > x->port ? lane->time : x->port;
        const weft_status_code status = comm->transport.post(comm->transport.self, m);
        x->port = m->left;
        return status;
    }
    return comm->transport.post(comm->transport.self, m);
}

static weft_status begin_round(weft_comm *comm, weft_exchange *x, weft_lane *lane)
{
    const weft_moves *s = &x->plan.moves;
    const int round = s->move[lane->next].round;
    char *stage = lane->stage;
    lane->first = lane->next;
    lane->count = lane->left = 0;
    for (; lane->next < s->count && s->move[lane->next].round == round; lane->next++)
        add_message(comm, x, lane, lane->next, &stage);
    /* What is sent is there, and what is received into is read no more. */
    if (x->device->wait(x->stream) != WEFT_OK) {
        lane->count = 0;
        return weft_fail(WEFT_E_COMM, "%s: the device failed: %s", x->what, weft_error_message());
    }
    weft_status_code status = WEFT_OK;
    const int made = lane->count;
    leave(x, lane);
    atomic_store(&lane->together, made);
    for (lane->count = 0; lane->count < made && status == WEFT_OK; lane->count++)
        status = post(comm, x, lane, &lane->message[lane->count]);
    return status;
}

static void end_round(weft_exchange *x, weft_lane *lane)
{
    const weft_moves *s = &x->plan.moves;
    for (int i = 0; i < lane->count; i++) {
        const weft_move *m = &s->move[lane->move[i]];
        if (lane->staged[i] && m->kind != WEFT_MOVE_SEND)
            unpack(x, lane, m, lane->staged[i]);
    }
    lane->count = 0;
    if (lane->next > lane->first && s->move[lane->first].round == s->sum_after)
        sum_terms(x, lane);
}

/* *ended: a round. */
static weft_status advance_lane(weft_comm *comm, weft_exchange *x, weft_lane *lane, bool *moved,
                                bool *ended)
{
    for (int i = 0; i < lane->count && lane->left; i++) {
        weft_message *m = &lane->message[i];
        const weft_transport *t = &comm->transport;
        if (m->taken)
            continue;
        if (!atomic_load_explicit(&m->done, memory_order_acquire))
            WEFT_TRY(t->test(t->self, m));
        if (!atomic_load_explicit(&m->done, memory_order_acquire) ||
            (t->late && t->late(t->self, m)))
            continue;
        m->taken = true;
        arrive(x, lane, m);
        lane->left--;
        *moved = true;
    }
    enter(x, lane);
    const bool handles = lane->running && !lane->left;
    const double before = handles ? time_of(x) : 0;
    while (lane->running && !lane->left) {
        end_round(x, lane);
        *moved = *ended = true;
        if (lane->next < x->plan.moves.count) {
            WEFT_TRY(begin_round(comm, x, lane));
            continue;
        }
        end_segment(x, lane);
        lane->step += x->lanes;
        lane->running = lane->step < x->plan.steps;
        if (lane->running)
            begin_segment(x, lane);
        leave(x, lane);
    }
    if (handles)
        x->handled += time_of(x) - before;
    return WEFT_OK;
}

/* ---- an exchange --------------------------------------------------------------------------- */

weft_status weft_exchange_begin(weft_comm *comm, weft_exchange *x)
{
    x->begun = true;
    x->started = x->last = weft_now();
    char *at = x->out;
    weft_lane beginning = {.time = x->asked > x->queue->end ? x->asked : x->queue->end};
    x->begin = beginning.time;
    x->turn = 0;
    x->handled = 0;
    enter(x, &beginning);
    double before = time_of(x);
    for (int i = 0; i < x->piece_count; at += x->piece[i++].bytes)
        copy_dense(x, at, x->piece[i].in, x->piece[i].bytes);
    x->handled += time_of(x) - before;
    leave(x, &beginning);
    for (int i = 0; i < x->lanes; i++) {
        x->lane[i].step = i;
        x->lane[i].running = true;
        x->lane[i].time = beginning.time;
        enter(x, &x->lane[i]);
        before = time_of(x);
        begin_segment(x, &x->lane[i]);
        x->handled += time_of(x) - before;
        leave(x, &x->lane[i]);
    }
    (void)comm;
    return WEFT_OK;
}

/* With modelled time. */
static weft_status advance_in_turn(weft_comm *comm, weft_exchange *x, bool *moved)
{
    bool ended = false;
    for (int i = 0; i < x->lanes && !x->lane[x->turn].running; i++)
        x->turn = (x->turn + 1) % x->lanes;
    if (x->lane[x->turn].running)
        WEFT_TRY(advance_lane(comm, x, &x->lane[x->turn], moved, &ended));
    if (ended)
        x->turn = (x->turn + 1) % x->lanes;
    return WEFT_OK;
}

weft_status weft_exchange_advance(weft_comm *comm, weft_exchange *x, bool *moved, bool *finished)
{
    bool here = false, ended;
    *finished = true;
    if (x->clock.now)
        WEFT_TRY(advance_in_turn(comm, x, &here));
    for (int i = 0; i < x->lanes; i++) {
        if (x->lane[i].running && !x->clock.now)
            WEFT_TRY(advance_lane(comm, x, &x->lane[i], &here, &ended));
        *finished = *finished && !x->lane[i].running;
    }
    if (here) {
        x->last = weft_now();
        *moved = true;
    }
    char *at = x->out;
    weft_lane all = {.time = x->begin};
    for (int i = 0; i < x->lanes; i++)
        all.time = x->lane[i].time > all.time ? x->lane[i].time : all.time;
    if (*finished)
        enter(x, &all);
    for (int i = 0; *finished && i < x->piece_count; at += x->piece[i++].bytes)
        copy_dense(x, x->piece[i].out, at, x->piece[i].bytes);
    if (*finished) {
        leave(x, &all);
        x->end = x->queue->end = all.time;
    }
    return *finished ? x->device->wait(x->stream) : WEFT_OK;
}

void weft_exchange_cancel(weft_comm *comm, weft_exchange *x)
{
    for (int i = 0; i < x->lanes && x->begun; i++) {
        weft_lane *lane = &x->lane[i];
        for (int j = 0; j < lane->count; j++)
            if (!atomic_load(&lane->message[j].done))
                comm->transport.cancel(comm->transport.self, &lane->message[j]);
        lane->count = lane->left = 0;
        lane->running = false;
    }
}

weft_status weft_exchange_copy(weft_exchange *x)
{
    if (x->in == x->out)
        return WEFT_OK;
    if (x->flat)
        copy_dense(x, x->out, x->in, x->count * x->element);
    else
        copy_between(x, weft_exchange_in(x, 0), x->in, weft_exchange_out(x, 0), x->out, 0,
                     weft_block_count(weft_exchange_in(x, 0)), x->element);
    return x->device->wait(x->stream);
}
