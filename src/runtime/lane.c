/* Interprets moves: an exchange's segments on their way through the rounds, on the progress thread.
 *
 *   lane 0   segment 0: round 0, round 1, ...   segment 2: round 0 ...
 *   lane 1      segment 1: round 0, round 1, ...   segment 3 ...
 *
 * Each lane waits for its own messages only, so that one is packed or added up while the other's
 * messages travel. */
#include "runtime/comm_internal.h"

#include "base/log.h"

#include <string.h>

/* ---- where the bytes are ------------------------------------------------------------------- */

/* Elements [begin, begin + count) of the block's row-major sequence, to or from dense memory. */
static void copy_block(const weft_block *b, int64_t begin, int64_t count, int64_t element,
                       char *tensor, char *dense, bool pack)
{
    int64_t row = count ? begin / b->row : 0, column = count ? begin % b->row : 0;
    while (count > 0) {
        const int64_t n = b->row - column < count ? b->row - column : count;
        char *at = tensor + (b->start + row * b->stride + column) * element;
        memcpy(pack ? dense : at, pack ? at : dense, (size_t)(n * element));
        dense += n * element;
        count -= n;
        column = 0;
        row++;
    }
}

static void copy_between(const weft_block *from, const char *in, const weft_block *to, char *out,
                         int64_t begin, int64_t count, int64_t element)
{
    while (count > 0) {
        const int64_t column = begin % from->row, left = from->row - column;
        const int64_t n = left < count ? left : count;
        copy_block(to, begin, n, element, out,
                   (char *)(uintptr_t)in +
                       (from->start + begin / from->row * from->stride + column) * element,
                   false);
        begin += n;
        count -= n;
    }
}

/* Some elements of one chunk in a segment. */
typedef struct span {
    char *base;
    weft_block block;
    int64_t begin, count, element;
} span;

static weft_block dense(int64_t start, int64_t count)
{
    return (weft_block){.start = start, .rows = 1, .row = count, .stride = count};
}

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
    const weft_block *block = m->from_in || in_work ? &x->in_block[c] : &x->out_block[c];
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
        copy_block(&s.block, s.begin, s.count, s.element, s.base, to, true);
        to += s.count * s.element;
    }
}

static void unpack(const weft_exchange *x, const weft_lane *lane, const weft_move *m, char *from)
{
    for (int i = 0; i < pieces_of(x, m); i++) {
        const span s = piece_of(x, lane, m, i);
        if (m->kind == WEFT_MOVE_ADD) { /* partial sums are dense, in `out` or in `work` */
            char *at = s.base + s.block.start * s.element;
            weft_sum_two(x->sum_dtype, at, from, at, s.count);
        } else {
            copy_block(&s.block, s.begin, s.count, s.element, s.base, from, false);
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
            weft_sum_widen(x->dtype, (const char *)x->in + at * x->element,
                           (float *)(void *)lane->work, n);
        else if (x->in != x->out)
            memcpy((char *)x->out + at * x->element, (const char *)x->in + at * x->element,
                   (size_t)(n * x->element));
    }
    for (int c = 0; s->copy_all && !x->flat && c < s->chunks; c++)
        copy_block(&x->in_block[c], lane->step * x->plan.segment,
                   block_range(x, lane, &x->in_block[c]), x->element, (char *)(uintptr_t)x->in,
                   lane->work + c * x->plan.held * x->element, true);
    if (s->copy_own >= 0)
        copy_between(&x->in_block[s->copy_own], x->in, &x->out_block[s->copy_own], x->out,
                     lane->step * x->plan.segment, block_range(x, lane, &x->in_block[s->copy_own]),
                     x->element);
}

static void end_segment(weft_exchange *x, weft_lane *lane)
{
    if (!x->plan.work_bytes)
        return;
    const int64_t at = lane->step * x->plan.segment;
    if (x->flat) {
        int64_t start;
        const int64_t n = flat_range(x, lane, 0, x->plan.moves.chunks, &start);
        weft_sum_narrow(x->dtype, (const float *)(const void *)lane->work,
                        (char *)x->out + at * x->element, n);
    } else {
        copy_block(&x->out_block[x->own], at, block_range(x, lane, &x->out_block[x->own]),
                   x->element, x->out, lane->work + x->own * x->plan.held * x->element, false);
    }
}

static void sum_terms(weft_exchange *x, weft_lane *lane)
{
    const weft_move own = {
        .first = x->plan.moves.sum_chunk, .count = 1, .stride = 1, .from_in = true};
    const span s = piece_of(x, lane, &own, 0);
    char *temp = lane->term + x->ranks * x->plan.slot_bytes;
    const void **term = (const void **)(temp + weft_sum_temp_bytes(x->dtype, x->ranks));
    void **slots = (void **)term + x->ranks;
    for (int r = 0; r < x->ranks; r++)
        term[r] = slots[r] = lane->term + r * x->plan.slot_bytes;
    if (s.block.rows > 1)
        copy_block(&s.block, s.begin, s.count, s.element, s.base, slots[x->own], true);
    else
        term[x->own] = s.base + (s.block.start + s.begin) * s.element;
    char *out = x->out;
    if (x->flat)
        out += s.block.start * x->element;
    else
        out += (x->out_block[x->own].start + s.begin) * x->element;
    if (s.count)
        weft_sum_terms(x->dtype, x->ranks, term, slots, temp, s.count, out);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static weft_status post_move(weft_comm *comm, weft_exchange *x, weft_lane *lane, int64_t index,
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
        return WEFT_OK;
    char *staged = NULL;
    if (!at || m->kind == WEFT_MOVE_ADD) {
        at = staged = *stage;
        *stage += (count * element + 63) / 64 * 64;
        if (m->kind == WEFT_MOVE_SEND)
            pack(x, lane, m, staged);
    }
    weft_message *message = &lane->message[lane->count];
    *message = (weft_message){.peer = x->group->rank[m->peer],
                              .tag = x->tag | (lane->step & 1),
                              .receiving = m->kind != WEFT_MOVE_SEND,
                              .data = at,
                              .bytes = count * element};
    lane->move[lane->count] = (int32_t)index;
    lane->staged[lane->count++] = staged;
    lane->left++;
    if (m->kind == WEFT_MOVE_SEND) {
        atomic_fetch_add_explicit(&comm->messages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&comm->bytes, count * element, memory_order_relaxed);
    }
    return comm->transport.post(comm->transport.self, message);
}

static weft_status begin_round(weft_comm *comm, weft_exchange *x, weft_lane *lane)
{
    const weft_moves *s = &x->plan.moves;
    const int round = s->move[lane->next].round;
    char *stage = lane->stage;
    lane->first = lane->next;
    lane->count = lane->left = 0;
    for (; lane->next < s->count && s->move[lane->next].round == round; lane->next++)
        WEFT_TRY(post_move(comm, x, lane, lane->next, &stage));
    return WEFT_OK;
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

static weft_status advance_lane(weft_comm *comm, weft_exchange *x, weft_lane *lane, bool *moved)
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
        lane->left--;
        *moved = true;
    }
    while (lane->running && !lane->left) {
        end_round(x, lane);
        *moved = true;
        if (lane->next < x->plan.moves.count) {
            WEFT_TRY(begin_round(comm, x, lane));
            continue;
        }
        end_segment(x, lane);
        lane->step += x->lanes;
        lane->running = lane->step < x->plan.steps;
        if (lane->running)
            begin_segment(x, lane);
    }
    return WEFT_OK;
}

/* ---- an exchange --------------------------------------------------------------------------- */

weft_status weft_exchange_begin(weft_comm *comm, weft_exchange *x)
{
    x->begun = true;
    x->started = x->last = weft_now();
    char *at = x->out;
    for (int i = 0; i < x->piece_count; at += x->piece[i++].bytes)
        memcpy(at, x->piece[i].in, (size_t)x->piece[i].bytes);
    for (int i = 0; i < x->lanes; i++) {
        x->lane[i].step = i;
        x->lane[i].running = true;
        begin_segment(x, &x->lane[i]);
    }
    (void)comm;
    return WEFT_OK;
}

weft_status weft_exchange_advance(weft_comm *comm, weft_exchange *x, bool *moved, bool *finished)
{
    bool here = false;
    *finished = true;
    for (int i = 0; i < x->lanes; i++) {
        if (x->lane[i].running)
            WEFT_TRY(advance_lane(comm, x, &x->lane[i], &here));
        *finished = *finished && !x->lane[i].running;
    }
    if (here) {
        x->last = weft_now();
        *moved = true;
    }
    char *at = x->out;
    for (int i = 0; *finished && i < x->piece_count; at += x->piece[i++].bytes)
        memcpy(x->piece[i].out, at, (size_t)x->piece[i].bytes);
    return WEFT_OK;
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

void weft_exchange_copy(weft_exchange *x)
{
    if (x->in == x->out)
        return;
    if (x->flat)
        memcpy(x->out, x->in, (size_t)(x->count * x->element));
    else
        copy_between(&x->in_block[0], x->in, &x->out_block[0], x->out, 0,
                     weft_block_count(&x->in_block[0]), x->element);
}
