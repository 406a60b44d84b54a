/* Creates and binds requests: blocks by collective chunk, segments, and scratch memory for every
 * algorithm that may be chosen. */
#include "comm/comm_request.h"

#include "comm/coll_algorithms.h"
#include "comm/coll_plans.h"
#include "comm/comm_internal.h"
#include "graph/graph.h"
#include "kernel/device_links.h"
#include "kernel/host.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

static int64_t span(const weft_shape *s, int from, int to)
{
    int64_t count = 1;
    for (int d = from; d < to; d++)
        count *= s->dim[d];
    return count;
}

static weft_block flat(int64_t start, int64_t count)
{
    return count ? (weft_block){.start = start, .rows = 1, .row = count, .stride = count}
                 : (weft_block){0};
}

static weft_block whole(const weft_shape *s)
{
    return flat(0, span(s, 0, s->rank));
}

/* Returns the parts along `dim` of a tensor of shape `s`, whose `dim` has its complete length. */
static weft_blocks parts_of(const weft_shape *s, int dim)
{
    return (weft_blocks){.at = -1,
                         .length = s->dim[dim],
                         .outer = span(s, 0, dim),
                         .inner = span(s, dim + 1, s->rank)};
}

/* Returns the blocks of a tensor that is chunk `at` of the collective. */
static weft_blocks only(int at, const weft_shape *s)
{
    return (weft_blocks){.at = at, .one = whole(s)};
}

static weft_block block_at(const weft_blocks *b, int k, int j)
{
    int64_t start, len;
    if (b->at >= 0)
        return j == b->at ? b->one : (weft_block){0};
    weft_part(b->length, k, j, &start, &len);
    if (!b->outer || !b->inner || !len)
        return (weft_block){0};
    const weft_block block = {.start = start * b->inner,
                              .rows = b->outer,
                              .row = len * b->inner,
                              .stride = b->length * b->inner};
    return block.rows == 1 || block.row == block.stride ? flat(block.start, block.rows * block.row)
                                                        : block;
}

weft_block weft_comm_request_in(const weft_comm_request *x, int chunk)
{
    return block_at(&x->spec.in, x->spec.ranks, chunk);
}

weft_block weft_comm_request_out(const weft_comm_request *x, int chunk)
{
    return block_at(&x->spec.out, x->spec.ranks, chunk);
}

/* ---- scratch memory of an algorithm ---------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the elements of a segment. Equal on all ranks, so that sender and receiver cut alike. */
static int64_t segment_of(const weft_comm_request *x, const weft_coll_schedule *schedule)
{
    if (x->spec.flat)
        return (x->cut ? x->cut : WEFT_COMM_SEGMENT) / x->spec.sum_element;
    int64_t blocks = 2 * (x->spec.ranks < WEFT_DIRECT_RANKS ? x->spec.ranks : WEFT_DIRECT_RANKS);
    if (schedule->partials)
        blocks = 2 * x->spec.ranks; /* work, and its sent and received blocks */
    else if (schedule->sum_after >= 0)
        blocks += x->spec.ranks;
    else
        for (int64_t i = 0; i < schedule->count; i++)
            if (schedule->step[i].count > 1) /* half of all blocks sent, half received */
                blocks = larger(blocks, x->spec.ranks);
    const int64_t scratch = x->cut ? x->cut : WEFT_COMM_SCRATCH;
    return larger(scratch / (WEFT_COMM_SEGMENTS_MOST * blocks * x->spec.element), 256) / 16 * 16;
}

/* Returns the largest number of elements of a schedule step. */
static int64_t most_of(const weft_comm_request *x, const weft_coll_plan *p, const weft_coll_step *m)
{
    if (!x->spec.flat)
        return m->count * p->held;
    const int64_t chunk = (p->held + p->schedule.chunks - 1) / p->schedule.chunks;
    return m->count * chunk < p->held ? m->count * chunk : p->held;
}

static bool is_staged(const weft_comm_request *x, const weft_coll_step *m)
{
    if (m->kind == WEFT_COLL_STEP_RECEIVE_TERM)
        return false;
    if (m->kind == WEFT_COLL_STEP_ADD || (!x->spec.flat && m->count > 1))
        return true;
    return !x->spec.flat &&
           (m->from_in ? weft_comm_request_in(x, m->first) : weft_comm_request_out(x, m->first))
                   .rows > 1;
}

/* Returns the elements of the longest block. No part is longer than the first. */
static int64_t longest_of(const weft_blocks *b, int k)
{
    const weft_block block = block_at(b, k, b->at >= 0 ? b->at : 0);
    return weft_block_count(&block);
}

static void size_up(const weft_comm_request *x, weft_coll_plan *p)
{
    const weft_coll_schedule *s = &p->schedule;
    const int64_t longest = x->spec.flat ? x->spec.count
                                         : larger(longest_of(&x->spec.in, x->spec.ranks),
                                                  longest_of(&x->spec.out, x->spec.ranks));
    p->segment = segment_of(x, s);
    p->steps = larger((longest + p->segment - 1) / p->segment, 1);
    p->held = longest < p->segment ? longest : p->segment;
    p->work_bytes = p->slot_bytes = p->term_bytes = p->staging_bytes = p->round_bytes = 0;
    p->widest = 0;
    if (s->partials && !x->spec.flat)
        p->work_bytes = weft_aligned(x->spec.ranks * p->held * x->spec.element);
    else if (s->partials && x->spec.sum_dtype != x->spec.dtype)
        p->work_bytes = weft_aligned(larger(p->held, 1) * x->spec.sum_element);
    for (int64_t i = 0; i < s->count;) {
        const int round = s->step[i].round;
        int64_t staged = 0, all = 0;
        int messages = 0;
        for (; i < s->count && s->step[i].round == round; i++, messages++) {
            const weft_coll_step *m = &s->step[i];
            const int64_t bytes = weft_aligned(most_of(x, p, m) * x->spec.sum_element);
            if (m->kind == WEFT_COLL_STEP_RECEIVE_TERM)
                p->slot_bytes = larger(p->slot_bytes, bytes);
            staged += is_staged(x, m) ? bytes : 0;
            all += bytes;
        }
        p->staging_bytes = larger(p->staging_bytes, staged);
        p->round_bytes = larger(p->round_bytes, all);
        p->widest = messages > p->widest ? messages : p->widest;
    }
    if (s->sum_after >= 0)
        p->term_bytes =
            x->spec.ranks * p->slot_bytes + weft_sum_temp_bytes(x->spec.dtype, x->spec.ranks);
    p->segment_bytes = p->work_bytes + p->term_bytes + p->staging_bytes;
}

int weft_coll_plan_segments(const weft_coll_plan *p)
{
    return p->steps < WEFT_COMM_SEGMENTS_MOST ? (int)p->steps : WEFT_COMM_SEGMENTS_MOST;
}

void weft_coll_plan_lay_out(const weft_comm_request *x, const weft_coll_schedule *schedule,
                            weft_coll_plan *plan)
{
    *plan = (weft_coll_plan){.algorithm = x->algorithm, .span = x->span, .schedule = *schedule};
    size_up(x, plan);
}

/* Makes the plan of the chosen algorithm. */
static weft_status make_plan(const weft_comm_request *x, weft_coll_plan *plan)
{
    weft_coll_schedule schedule;
    WEFT_TRY(weft_coll_schedule_make(x->algorithm, x->spec.op, &x->span, x->spec.own,
                                     x->spec.argument, &schedule));
    weft_coll_plan_lay_out(x, &schedule, plan);
    return WEFT_OK;
}

bool weft_comm_segments_make(const weft_comm_request *x, const weft_coll_plan *plan,
                             weft_arena *arena, weft_comm_segment *segment)
{
    const int64_t n = plan->widest + 1;
    const int segments = weft_coll_plan_segments(plan);
    for (int i = 0; i < segments; i++) {
        segment[i].message = weft_arena_calloc(arena, n, sizeof *segment[i].message);
        segment[i].coll_step = weft_arena_calloc(arena, n, sizeof *segment[i].coll_step);
        segment[i].staged = weft_arena_calloc(arena, n, sizeof *segment[i].staged);
        segment[i].distant = weft_arena_calloc(arena, n, sizeof *segment[i].distant);
        segment[i].direct = weft_arena_calloc(arena, n, sizeof *segment[i].direct);
        const int64_t slots = plan->schedule.sum_after >= 0 ? 2 * x->spec.ranks : 1;
        segment[i].slot = weft_arena_calloc(arena, slots, sizeof *segment[i].slot);
        if (!segment[i].message || !segment[i].coll_step || !segment[i].staged ||
            !segment[i].distant || !segment[i].direct || !segment[i].slot)
            return false;
    }
    return true;
}

/* Frees the request's own plan. */
static void drop_plan(weft_comm_request *x)
{
    for (int i = 0; i < x->segments; i++)
        if (x->segment[i].packed.handle)
            x->buffers.device->forget(x->buffers.device, &x->segment[i].packed);
    if (x->plan_arena) {
        weft_coll_schedule schedule = x->plan->schedule;
        weft_coll_schedule_free(&schedule);
        weft_arena_free(x->plan_arena);
    }
    x->plan = NULL;
    x->segment = NULL;
    x->segments = 0;
    x->plan_arena = NULL;
}

/* Allocates segments with space for the messages of the largest round, and takes over `plan`. */
static weft_status take_plan(weft_comm_request *x, weft_coll_plan *plan)
{
    weft_arena *arena = weft_arena_create();
    weft_coll_plan *own = arena ? weft_arena_alloc(arena, sizeof *own) : NULL;
    weft_comm_segment *segment =
        own ? weft_arena_calloc(arena, WEFT_COMM_SEGMENTS_MOST, sizeof *segment) : NULL;
    if (!segment || !weft_comm_segments_make(x, plan, arena, segment)) {
        weft_arena_free(arena);
        weft_coll_schedule_free(&plan->schedule);
        return weft_no_memory("%s", x->what);
    }
    drop_plan(x);
    *own = *plan;
    x->plan = own;
    x->plan_arena = arena;
    x->segments = weft_coll_plan_segments(plan);
    x->segment = segment;
    if (x->buffers.scratch)
        weft_comm_request_bind(x, x->buffers.in, x->buffers.out, x->buffers.scratch);
    return WEFT_OK;
}

weft_status weft_comm_request_plan(weft_comm_request *x)
{
    weft_coll_plan plan;
    if (x->plan)
        return WEFT_OK;
    WEFT_TRY(make_plan(x, &plan));
    return take_plan(x, &plan);
}

/* Only the hierarchical algorithm depends on the nodes. Requests of equal ranks are planned when
 * they run, because most requests share the plan of another (coll_plans.h). */
static weft_status take_algorithm(weft_comm_request *x, const weft_span *span,
                                  weft_algorithm algorithm)
{
    const bool planned =
        x->plan && algorithm == x->plan->algorithm &&
        (algorithm != WEFT_ALGORITHM_HIERARCHICAL || weft_span_equal(&x->plan->span, span));
    x->algorithm = algorithm;
    x->span = *span;
    if (planned)
        return WEFT_OK;
    if (x->like) {
        drop_plan(x);
        return WEFT_OK;
    }
    weft_coll_plan plan;
    WEFT_TRY(make_plan(x, &plan));
    return take_plan(x, &plan);
}

/* Chooses the algorithm by the communicator's costs, once per kind of request. The caller holds the
 * communicator's mutex. */
static weft_status choose_by_costs(weft_comm *comm, const weft_coll_selection *kind,
                                   weft_algorithm *algorithm)
{
    const uint64_t key[] = {(uint64_t)kind->op,         (uint64_t)kind->span.ranks,
                            (uint64_t)kind->span.nodes, (uint64_t)kind->span.per_node,
                            (uint64_t)kind->bytes,      kind->is_16bit};
    weft_coll_selection *known =
        &comm->choice.selection[XXH64(key, sizeof key, 0) % WEFT_COLL_SELECTION];
    if (known->op != kind->op || !weft_span_equal(&known->span, &kind->span) ||
        known->bytes != kind->bytes || known->is_16bit != kind->is_16bit) {
        weft_coll_selection made = *kind;
        WEFT_TRY(weft_algorithm_choose(kind->op, &kind->span, kind->bytes, kind->is_16bit,
                                       &comm->choice.costs, &made.algorithm, NULL));
        *known = made;
    }
    *algorithm = known->algorithm;
    return WEFT_OK;
}

static weft_status choose(weft_comm_request *x, weft_comm *comm, const weft_span *span)
{
    weft_coll_selection kind = {.op = x->spec.op,
                                .span = *span,
                                .bytes = x->spec.bytes,
                                .is_16bit = x->spec.sum_dtype != x->spec.dtype};
    weft_algorithm algorithm;
    weft_status_code status = WEFT_OK;
    const bool tuned = weft_coll_tuning_find(&comm->choice.tuning, x->spec.op, span, x->spec.bytes,
                                             kind.is_16bit, &algorithm);
    if (!tuned && x->like && comm->transport.plans) {
        status = weft_coll_plans_choose(comm->transport.plans, &kind);
        algorithm = kind.algorithm;
    } else if (!tuned) {
        pthread_mutex_lock(&comm->mutex);
        status = choose_by_costs(comm, &kind, &algorithm);
        pthread_mutex_unlock(&comm->mutex);
    }
    WEFT_TRY(status);
    return take_algorithm(x, span, algorithm);
}

/* Chooses the algorithm as on one node. The scratch memory is the maximum over all algorithms; the
 * hierarchical algorithm needs the same scratch memory as doubling. */
static weft_status finish(weft_comm_request *x)
{
    const weft_span span = {.ranks = x->spec.ranks, .nodes = 1, .per_node = x->spec.ranks};
    const bool is_16bit = x->spec.sum_dtype != x->spec.dtype;
    for (int a = 0; a < WEFT_ALGORITHM_COUNT && x->spec.ranks > 1; a++) {
        weft_coll_plan plan;
        if (!weft_algorithm_fits((weft_algorithm)a, x->spec.op, &span, x->spec.bytes, is_16bit))
            continue;
        x->algorithm = (weft_algorithm)a;
        x->span = span;
        WEFT_TRY(make_plan(x, &plan));
        const int segments = weft_coll_plan_segments(&plan);
        x->scratch_bytes = larger(x->scratch_bytes, segments * plan.segment_bytes);
        x->wire_bytes = larger(x->wire_bytes, segments * plan.round_bytes);
        weft_coll_schedule_free(&plan.schedule);
    }
    weft_algorithm algorithm;
    if (x->spec.ranks == 1)
        return WEFT_OK;
    WEFT_TRY(weft_algorithm_choose(x->spec.op, &span, x->spec.bytes, is_16bit,
                                   &weft_link_costs_default, &algorithm, NULL));
    return take_algorithm(x, &span, algorithm);
}

/* ---- creation -------------------------------------------------------------------------------- */

static weft_status begin(int ranks, int own, weft_comm_op op, weft_dtype dtype, const char *what,
                         weft_comm_request **out)
{
    enum { WHAT = 160 };
    weft_arena *arena = weft_arena_create();
    weft_comm_request *x = arena ? weft_arena_alloc(arena, sizeof *x) : NULL;
    char *text = x ? weft_arena_alloc(arena, WHAT) : NULL;
    if (!text) {
        weft_arena_free(arena);
        return weft_no_memory("a collective");
    }
    *x = (weft_comm_request){.arena = arena,
                             .spec = {.op = op,
                                      .ranks = ranks,
                                      .own = own,
                                      .dtype = dtype,
                                      .sum_dtype = dtype,
                                      .element = weft_dtype_bytes(dtype)},
                             .buffers = {.device = &weft_device_host}};
    if (op == WEFT_COMM_ALL_REDUCE || op == WEFT_COMM_REDUCE_SCATTER)
        x->spec.sum_dtype = weft_sum_dtype(dtype);
    x->spec.sum_element = weft_dtype_bytes(x->spec.sum_dtype);
    snprintf(text, WHAT, "%s of %s", weft_comm_op_name(op), what);
    x->what = text;
    *out = x;
    return WEFT_OK;
}

static weft_status refuse(const weft_comm_request *x, const char *why)
{
    return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = x->what), "%s", why);
}

/* Returns the length of this rank's part along `dim`. */
static int64_t own_part(const weft_comm_request *x, const weft_shape *whole_shape, int dim)
{
    int64_t start, len;
    weft_part(whole_shape->dim[dim], x->spec.ranks, x->spec.own, &start, &len);
    return len;
}

static weft_status lay_out(weft_comm_request *x, const weft_attr_comm *attr, const weft_shape *in,
                           const weft_shape *out)
{
    const int k = x->spec.ranks;
    const int64_t e = x->spec.element;
    switch (x->spec.op) {
    case WEFT_COMM_ALL_REDUCE:
        if (!weft_shape_equal(in, out))
            return refuse(x, "input and output differ in shape");
        x->spec.flat = true;
        x->spec.count = weft_shape_count(in);
        x->spec.bytes = x->spec.count * e;
        return WEFT_OK;
    case WEFT_COMM_ALL_GATHER:
        if (in->dim[attr->dim] != own_part(x, out, attr->dim))
            return refuse(x, "the input is not this rank's part of the output");
        x->spec.in = only(x->spec.own, in);
        x->spec.out = parts_of(out, attr->dim);
        x->spec.bytes = weft_shape_count(out) * e;
        return WEFT_OK;
    case WEFT_COMM_REDUCE_SCATTER:
        if (out->dim[attr->dim] != own_part(x, in, attr->dim))
            return refuse(x, "the output is not this rank's part of the input");
        x->spec.out = only(x->spec.own, out);
        x->spec.in = parts_of(in, attr->dim);
        x->spec.bytes = weft_shape_count(in) * e;
        return WEFT_OK;
    case WEFT_COMM_ALL_TO_ALL:
        if (in->dim[attr->dim] != own_part(x, out, attr->dim))
            return refuse(x, "the input is not this rank's part along the gathered dim");
        if (out->dim[attr->dim2] != own_part(x, in, attr->dim2))
            return refuse(x, "the output is not this rank's part along the split dim");
        x->spec.in = parts_of(in, attr->dim2);
        x->spec.out = parts_of(out, attr->dim);
        x->spec.bytes = weft_shape_count(in) * e;
        return WEFT_OK;
    default: { /* rank r sends to rank r + shift; block sizes may differ by rank */
        x->spec.argument = x->spec.op == WEFT_COMM_RELAY ? 1 : attr->shift;
        const int by = (x->spec.argument % k + k) % k;
        x->spec.in = only((x->spec.own + by) % k, in);
        x->spec.out = only((x->spec.own - by + k) % k, out);
        x->spec.bytes = weft_shape_count(in) * e;
        return WEFT_OK;
    }
    }
}

static bool find_op(weft_op op, weft_comm_op *found)
{
    switch (op) {
    case WEFT_OP_ALL_REDUCE: *found = WEFT_COMM_ALL_REDUCE; return true;
    case WEFT_OP_ALL_GATHER: *found = WEFT_COMM_ALL_GATHER; return true;
    case WEFT_OP_REDUCE_SCATTER: *found = WEFT_COMM_REDUCE_SCATTER; return true;
    case WEFT_OP_ALL_TO_ALL: *found = WEFT_COMM_ALL_TO_ALL; return true;
    case WEFT_OP_RING_SHIFT: *found = WEFT_COMM_RING_SHIFT; return true;
    case WEFT_OP_RELAY: *found = WEFT_COMM_RELAY; return true;
    default: return false;
    }
}

weft_status weft_comm_request_create(int ranks, int own, weft_op op, const weft_attr_comm *attr,
                                     const weft_shape *in, const weft_shape *out, weft_dtype dtype,
                                     const char *what, weft_comm_request **request)
{
    weft_comm_request *x;
    weft_comm_op found;
    weft_status_code status = WEFT_OK;
    const bool reduces = op == WEFT_OP_ALL_REDUCE || op == WEFT_OP_REDUCE_SCATTER;
    if (!find_op(op, &found))
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = what), "%s is not a collective",
                          weft_op_get(op)->name);
    if (reduces && (dtype == WEFT_U8 || dtype == WEFT_F8E4M3))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.key = what, .value = weft_dtype_name(dtype)),
                          "%s values cannot be summed over ranks", weft_dtype_name(dtype));
    WEFT_TRY(begin(ranks, own, found, dtype, what, &x));
    WEFT_GO(lay_out(x, attr, in, out));
    WEFT_GO(finish(x));
    *request = x;
    return WEFT_OK;
out:
    weft_comm_request_free(x);
    return status;
}

/* Creates a request of a vector that is sent to, received from or broadcast by `peer`. */
static weft_status create_single(int ranks, int own, int peer, weft_comm_op op, int64_t count,
                                 weft_dtype dtype, const char *what, weft_comm_request **request)
{
    weft_comm_request *x;
    if (peer < 0 || peer >= ranks || (peer == own && op != WEFT_COMM_BROADCAST))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = what, WEFT_NUMBER(peer)),
                          "%s between members %d and %d of %d ranks is not possible; members "
                          "are two different numbers from 0",
                          weft_comm_op_name(op), own, peer, ranks);
    WEFT_TRY(begin(ranks, own, op, dtype, what, &x));
    x->spec.argument = peer;
    x->spec.flat = true;
    x->spec.count = count;
    x->spec.bytes = count * x->spec.element;
    weft_status_code status = WEFT_OK;
    WEFT_GO(finish(x));
    *request = x;
    return WEFT_OK;
out:
    weft_comm_request_free(x);
    return status;
}

weft_status weft_comm_request_create_send(int ranks, int own, int peer, int64_t count,
                                          weft_dtype dtype, const char *what,
                                          weft_comm_request **request)
{
    return create_single(ranks, own, peer, WEFT_COMM_SEND, count, dtype, what, request);
}

weft_status weft_comm_request_create_recv(int ranks, int own, int peer, int64_t count,
                                          weft_dtype dtype, const char *what,
                                          weft_comm_request **request)
{
    return create_single(ranks, own, peer, WEFT_COMM_RECV, count, dtype, what, request);
}

weft_status weft_comm_request_create_broadcast(int ranks, int own, int root, int64_t count,
                                               weft_dtype dtype, const char *what,
                                               weft_comm_request **request)
{
    return create_single(ranks, own, root, WEFT_COMM_BROADCAST, count, dtype, what, request);
}

weft_status weft_comm_request_create_bundle(int ranks, int own, weft_dtype dtype,
                                            const int64_t *count, int pieces, const char *what,
                                            weft_comm_request **request)
{
    weft_comm_request *x;
    int64_t whole_count = 0;
    for (int i = 0; i < pieces; i++)
        whole_count += count[i];
    const weft_shape shape = WEFT_SHAPE(whole_count);
    WEFT_TRY(weft_comm_request_create(ranks, own, WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0}, &shape,
                                      &shape, dtype, what, &x));
    x->buffers.piece = weft_arena_calloc(x->arena, pieces, sizeof *x->buffers.piece);
    if (!x->buffers.piece) {
        weft_comm_request_free(x);
        return weft_no_memory("a collective");
    }
    x->buffers.piece_count = pieces;
    for (int i = 0; i < pieces; i++)
        x->buffers.piece[i].bytes = count[i] * x->spec.element;
    x->buffers.coalesced_bytes = weft_aligned(whole_count * x->spec.element);
    *request = x;
    return WEFT_OK;
}

/* Returns true if both members have parts of the same size along all dims that are split. */
static bool equal_parts(const weft_comm_request *x, int a, int b)
{
    const weft_blocks *blocks[] = {&x->spec.in, &x->spec.out};
    for (int i = 0; i < 2; i++) {
        int64_t start, len[2];
        if (blocks[i]->at >= 0)
            continue;
        weft_part(blocks[i]->length, x->spec.ranks, a, &start, &len[0]);
        weft_part(blocks[i]->length, x->spec.ranks, b, &start, &len[1]);
        if (len[0] != len[1])
            return false;
    }
    return true;
}

weft_status weft_comm_request_create_like(const weft_comm_request *like, int own,
                                          weft_comm_request **request)
{
    const int k = like->spec.ranks, by = own - like->spec.own + k;
    weft_comm_request *x;
    if (!like->spec.flat && !equal_parts(like, like->spec.own, own))
        return refuse(like, "the ranks have parts of different sizes");
    WEFT_TRY(WEFT_NEW(x, 1, "a collective"));
    *x = (weft_comm_request){.like = like,
                             .what = like->what,
                             .spec = like->spec,
                             .scratch_bytes = like->scratch_bytes,
                             .wire_bytes = like->wire_bytes,
                             .cut = like->cut,
                             .buffers = {.device = like->buffers.device,
                                         .piece = like->buffers.piece,
                                         .piece_count = like->buffers.piece_count,
                                         .coalesced_bytes = like->buffers.coalesced_bytes},
                             .algorithm = like->algorithm,
                             .span = like->span};
    x->spec.own = own;
    x->spec.in.at = like->spec.in.at >= 0 ? (like->spec.in.at + by) % k : -1;
    x->spec.out.at = like->spec.out.at >= 0 ? (like->spec.out.at + by) % k : -1;
    *request = x;
    return WEFT_OK;
}

void weft_comm_request_drop(weft_comm_request *x)
{
    weft_event *const events[] = {&x->buffers.ready, &x->run.ended, &x->run.hold_begun,
                                  &x->run.hold_ended};
    drop_plan(x);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]->handle)
            x->buffers.device->forget(x->buffers.device, events[i]);
    if (x->arena)
        weft_arena_free(x->arena);
    else
        weft_free(x);
}

weft_status weft_comm_request_cut(weft_comm_request *x, int64_t bytes)
{
    x->cut = bytes;
    if (x->spec.ranks == 1)
        return WEFT_OK;
    drop_plan(x);
    x->scratch_bytes = x->wire_bytes = 0;
    return finish(x);
}

weft_status weft_comm_request_attach(weft_comm_request *x, weft_group *group, weft_channel channel)
{
    weft_comm *comm = group->comm;
    const bool single = x->spec.op == WEFT_COMM_SEND || x->spec.op == WEFT_COMM_RECV;
    const int state = atomic_load(&x->run.state);
    if (group->count != x->spec.ranks || group->own != x->spec.own)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = x->what),
                          "the request is for member %d of %d ranks, and the group has this rank "
                          "as member %d of %d",
                          x->spec.own, x->spec.ranks, group->own, group->count);
    if (state == WEFT_COMM_REQUEST_QUEUED)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = x->what),
                          "the request has not finished and cannot be moved to another group");
    if (x->spec.ranks > 1)
        WEFT_TRY(choose(x, comm, &group->span));
    pthread_mutex_lock(&comm->mutex);
    weft_queue *queue = weft_group_queue(group, channel, single ? x->spec.argument : -1,
                                         x->spec.op == WEFT_COMM_RECV);
    pthread_mutex_unlock(&comm->mutex);
    WEFT_TRY(WEFT_ALLOCATED(queue, "%s", x->what));
    x->comm = comm;
    x->group = group;
    x->channel = channel;
    x->queue = queue;
    atomic_store(&x->run.state, WEFT_COMM_REQUEST_NEW);
    return WEFT_OK;
}

weft_status weft_comm_request_plan_on(weft_comm_request *x, const weft_span *span)
{
    weft_algorithm algorithm;
    if (x->spec.ranks == 1)
        return WEFT_OK;
    WEFT_TRY(weft_algorithm_choose(x->spec.op, span, x->spec.bytes,
                                   x->spec.sum_dtype != x->spec.dtype, &weft_link_costs_default,
                                   &algorithm, NULL));
    return take_algorithm(x, span, algorithm);
}

weft_status weft_comm_request_predict(const weft_comm_request *x, const weft_link_costs *costs,
                                      double *seconds)
{
    *seconds = 0;
    return x->spec.ranks == 1
               ? WEFT_OK
               : weft_algorithm_cost_cut(x->algorithm, x->spec.op, &x->span, x->spec.bytes,
                                         x->cut ? x->cut : WEFT_COMM_SEGMENT, costs, seconds);
}

const char *weft_comm_request_describe(const weft_comm_request *x)
{
    return x->what;
}

int64_t weft_comm_request_scratch(const weft_comm_request *x)
{
    return x->spec.ranks == 1 ? 0 : x->buffers.coalesced_bytes + x->scratch_bytes;
}

int64_t weft_comm_request_pinned(const weft_comm_request *x)
{
    return x->spec.ranks == 1 ? 0 : x->wire_bytes;
}

int64_t weft_comm_request_own_bytes(const weft_comm_request *x)
{
    return weft_arena_bytes(x->arena) +
           (x->plan_arena ? weft_arena_bytes(x->plan_arena) +
                                x->plan->schedule.capacity * (int64_t)sizeof(weft_coll_step)
                          : 0);
}

/* Segments are cut into collective chunks one at a time, but their sizes add up to about the size
 * of the complete tensor. */
int64_t weft_comm_request_wire_bytes(const weft_comm_request *x)
{
    int64_t elements = 0;
    if (!x->plan) /* a single rank */
        return 0;
    const weft_coll_schedule *s = &x->plan->schedule;
    for (int64_t i = 0; i < s->count; i++) {
        const weft_coll_step *m = &s->step[i];
        for (int j = 0; j < m->count && m->kind == WEFT_COLL_STEP_SEND; j++) {
            const int c = (m->first + j * m->stride) % s->chunks;
            int64_t start, length;
            weft_part(x->spec.count, s->chunks, c, &start, &length);
            const weft_block block = s->partials || m->from_in ? weft_comm_request_in(x, c)
                                                               : weft_comm_request_out(x, c);
            elements += x->spec.flat ? length : weft_block_count(&block);
        }
    }
    return elements * (s->partials ? x->spec.sum_element : x->spec.element);
}

void weft_comm_request_set_device(weft_comm_request *x, const weft_device *device,
                                  weft_device_stream *stream)
{
    x->buffers.device = device;
    x->buffers.stream = stream;
    if (!device->clock || !device->clock(stream, &x->simulated.clock))
        x->simulated.clock = (weft_device_clock){0};
}

/*   scratch   | coalesced tensors | segment[0]: work | terms | staged | segment[1] ... |   */
void weft_comm_request_bind(weft_comm_request *x, const void *in, void *out, void *scratch)
{
    char *at = scratch;
    x->buffers.in = in;
    x->buffers.out = out;
    x->buffers.scratch = scratch;
    for (int i = 0; i < x->segments; i++, at += x->plan->segment_bytes) {
        x->segment[i].work = at;
        x->segment[i].term = at + x->plan->work_bytes;
        x->segment[i].staging = at + x->plan->work_bytes + x->plan->term_bytes;
    }
}

void weft_comm_request_set_pinned(weft_comm_request *x, char *wire, uint32_t *gate)
{
    x->buffers.wire = wire;
    x->buffers.gate = gate;
}

void weft_comm_request_bind_bundle(weft_comm_request *x, void *scratch)
{
    weft_comm_request_bind(x, scratch, scratch, (char *)scratch + x->buffers.coalesced_bytes);
}

void weft_comm_request_bind_piece(weft_comm_request *x, int piece, const void *in, void *out)
{
    if (x->like) /* the pieces are shared, and no data is accessed */
        return;
    x->buffers.piece[piece].in = in;
    x->buffers.piece[piece].out = out;
}

/* ---- waits of streams ------------------------------------------------------------------------ */

weft_status weft_comm_request_hold(weft_comm_request *x, weft_device_stream *stream)
{
    const weft_device *device = x->buffers.device;
    if (atomic_load(&x->run.holding)) /* the stream waits for this run already */
        return WEFT_OK;
    WEFT_TRY(device->record(stream, &x->run.hold_begun));
    if (x->run.linked)
        device->after(stream, &x->run.ended);
    else
        device->hold(stream, x->buffers.gate, x->run.turn);
    WEFT_TRY(device->record(stream, &x->run.hold_ended));
    x->run.holder = stream;
    atomic_store(&x->run.holding, true);
    if (x->comm && !x->comm->transport.sleep) {
        pthread_mutex_lock(&x->comm->mutex);
        pthread_cond_signal(
            &x->comm->queued); /* the progress thread polls more often from now on */
        pthread_mutex_unlock(&x->comm->mutex);
    }
    return WEFT_OK;
}

weft_status weft_comm_request_end_hold(weft_comm_request *x)
{
    const weft_device *device = x->buffers.device;
    if (!atomic_exchange(&x->run.holding, false))
        return WEFT_OK;
    WEFT_TRY(device->await(x->run.holder, &x->run.hold_begun));
    WEFT_TRY(device->await(x->run.holder, &x->run.hold_ended));
    x->run.waited = x->run.hold_ended.seconds - x->run.hold_begun.seconds;
    if (x->comm) {
        pthread_mutex_lock(&x->comm->mutex);
        x->comm->total.waited += x->run.waited;
        pthread_mutex_unlock(&x->comm->mutex);
    }
    return WEFT_OK;
}

bool weft_comm_request_failed(const weft_comm_request *x)
{
    return atomic_load(&x->run.state) == WEFT_COMM_REQUEST_FAILED;
}
