/* What each collective sends where: blocks per member of the group, rounds, scratch memory. */
#include "runtime/comm_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- blocks -------------------------------------------------------------------------------- */

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

/* Part j of k along `dim` of a tensor of shape s, whose dim is the whole length. */
static weft_block part_of(const weft_shape *s, int dim, int k, int j)
{
    int64_t start, len;
    weft_part(s->dim[dim], k, j, &start, &len);
    const int64_t outer = span(s, 0, dim), inner = span(s, dim + 1, s->rank);
    if (!outer || !inner || !len)
        return (weft_block){0};
    weft_block b = {
        .start = start * inner, .rows = outer, .row = len * inner, .stride = s->dim[dim] * inner};
    return b.rows == 1 || b.row == b.stride ? flat(b.start, b.rows * b.row) : b;
}

/* ---- making -------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static weft_status begin(int ranks, int own, weft_dtype dtype, weft_exchange **out)
{
    weft_arena *arena = weft_arena_create();
    weft_exchange *x = arena ? weft_arena_alloc(arena, sizeof *x) : NULL;
    if (!x)
        goto memory;
    x->arena = arena;
    x->dtype = dtype;
    x->element = weft_dtype_bytes(dtype);
    x->group_count = ranks;
    x->own = own;
    const int64_t k = ranks;
    x->pack = weft_arena_alloc(arena, k * (int64_t)sizeof *x->pack);
    x->unpack = weft_arena_alloc(arena, k * (int64_t)sizeof *x->unpack);
    x->term = weft_arena_alloc(arena, k * (int64_t)sizeof *x->term);
    for (int r = 0; r < 2; r++) {
        x->round[r].send = weft_arena_alloc(arena, k * (int64_t)sizeof(weft_block));
        x->round[r].recv = weft_arena_alloc(arena, k * (int64_t)sizeof(weft_block));
        if (!x->round[r].send || !x->round[r].recv)
            goto memory;
    }
    if (!x->pack || !x->unpack || !x->term)
        goto memory;
    /* Equal on all ranks, so that sender and receiver cut alike. */
    x->segment = larger(WEFT_COMM_SCRATCH / (2 * k * x->element), 4096) / 16 * 16;
    *out = x;
    return WEFT_OK;
memory:
    weft_arena_free(arena);
    return weft_fail(WEFT_E_MEMORY, "no memory for a collective");
}

weft_status weft_exchange_attach(weft_exchange *x, weft_group *group, weft_channel channel)
{
    if (group->count != x->group_count || group->own != x->own)
        return weft_fail(WEFT_E_ARG, "%s: made for member %d of %d ranks, bound to member %d of %d",
                         x->what, x->own, x->group_count, group->own, group->count);
    x->comm = group->comm;
    x->at = group;
    x->group = group->rank;
    x->channel = channel;
    return WEFT_OK;
}

static void finish(weft_exchange *x)
{
    int64_t longest = 0;
    for (int r = 0; r < x->round_count; r++) {
        weft_round *round = &x->round[r];
        for (int j = 0; j < x->group_count; j++) {
            const int64_t send = weft_block_count(&round->send[j]),
                          recv = weft_block_count(&round->recv[j]);
            const int64_t steps = (larger(send, recv) + x->segment - 1) / x->segment;
            round->steps = larger(round->steps, steps);
            longest = larger(longest, larger(send, recv));
            x->packs = x->packs || round->send[j].rows > 1;
            x->unpacks = x->unpacks || round->recv[j].rows > 1 || round->reduce;
        }
    }
    x->slot_bytes = ((longest < x->segment ? longest : x->segment) * x->element + 63) / 64 * 64;
}

/* Everything to everybody for small ones; else each rank adds its part and sends the sum to all. */
static void plan_all_reduce(weft_exchange *x, int64_t count)
{
    const int k = x->group_count;
    x->round[0].reduce = true;
    if (count * x->element <= WEFT_COMM_DIRECT || k == 1) {
        x->round_count = 1;
        for (int j = 0; j < k; j++)
            x->round[0].send[j] = x->round[0].recv[j] = flat(0, count);
        return;
    }
    x->round_count = 2;
    x->round[1].from_out = true;
    int64_t own_start, own_len;
    weft_part(count, k, x->own, &own_start, &own_len);
    for (int j = 0; j < k; j++) {
        int64_t start, len;
        weft_part(count, k, j, &start, &len);
        x->round[0].send[j] = flat(start, len);
        x->round[0].recv[j] = flat(own_start, own_len);
        x->round[1].send[j] = flat(own_start, own_len);
        x->round[1].recv[j] = flat(start, len);
    }
}

static weft_status refuse(const weft_exchange *x, const char *why)
{
    return weft_fail(WEFT_E_SHAPE, "%s: %s", x->what, why);
}

static weft_status plan(weft_exchange *x, weft_op op, const weft_attr_comm *attr,
                        const weft_shape *in, const weft_shape *out)
{
    const int k = x->group_count;
    weft_round *round = &x->round[0];
    int64_t start, len;
    x->round_count = 1;
    switch (op) {
    case WEFT_OP_ALL_REDUCE:
        if (!weft_shape_equal(in, out))
            return refuse(x, "input and output differ in shape");
        plan_all_reduce(x, span(in, 0, in->rank));
        return WEFT_OK;
    case WEFT_OP_ALL_GATHER:
        weft_part(out->dim[attr->dim], k, x->own, &start, &len);
        if (in->dim[attr->dim] != len)
            return refuse(x, "the input is not this rank's part of the output");
        for (int j = 0; j < k; j++) {
            round->send[j] = whole(in);
            round->recv[j] = part_of(out, attr->dim, k, j);
        }
        return WEFT_OK;
    case WEFT_OP_REDUCE_SCATTER:
        weft_part(in->dim[attr->dim], k, x->own, &start, &len);
        if (out->dim[attr->dim] != len)
            return refuse(x, "the output is not this rank's part of the input");
        round->reduce = true;
        for (int j = 0; j < k; j++) {
            round->send[j] = part_of(in, attr->dim, k, j);
            round->recv[j] = whole(out);
        }
        return WEFT_OK;
    case WEFT_OP_ALL_TO_ALL:
        weft_part(out->dim[attr->dim], k, x->own, &start, &len);
        if (in->dim[attr->dim] != len)
            return refuse(x, "the input is not this rank's part along the gathered dim");
        weft_part(in->dim[attr->dim2], k, x->own, &start, &len);
        if (out->dim[attr->dim2] != len)
            return refuse(x, "the output is not this rank's part along the split dim");
        for (int j = 0; j < k; j++) {
            round->send[j] = part_of(in, attr->dim2, k, j);
            round->recv[j] = part_of(out, attr->dim, k, j);
        }
        return WEFT_OK;
    case WEFT_OP_RING_SHIFT: {
        /* What rank r has goes to rank r + shift; blocks may differ in size between ranks. */
        const int to = ((x->own + attr->shift) % k + k) % k,
                  from = ((x->own - attr->shift) % k + k) % k;
        round->send[to] = whole(in);
        round->recv[from] = whole(out);
        return WEFT_OK;
    }
    default: return weft_fail(WEFT_E_INTERNAL, "%s is not a collective", weft_op_get(op)->name);
    }
}

weft_status weft_exchange_create(int ranks, int own, weft_op op, const weft_attr_comm *attr,
                                 const weft_shape *in, const weft_shape *out, weft_dtype dtype,
                                 const char *what, weft_exchange **exchange)
{
    weft_exchange *x;
    weft_status_code status = WEFT_OK;
    const bool reduces = op == WEFT_OP_ALL_REDUCE || op == WEFT_OP_REDUCE_SCATTER;
    if (reduces && (dtype == WEFT_U8 || dtype == WEFT_F8E4M3))
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: no sum of %s", what, weft_dtype_name(dtype));
    WEFT_TRY(begin(ranks, own, dtype, &x));
    snprintf(x->what, sizeof x->what, "%s of %s", weft_op_get(op)->name, what);
    WEFT_GO(plan(x, op, attr, in, out));
    finish(x);
    *exchange = x;
    return WEFT_OK;
out:
    weft_exchange_free(x);
    return status;
}

weft_status weft_exchange_create_bundle(int ranks, int own, weft_dtype dtype, const int64_t *count,
                                        int pieces, const char *what, weft_exchange **exchange)
{
    weft_exchange *x;
    int64_t whole_count = 0;
    for (int i = 0; i < pieces; i++)
        whole_count += count[i];
    const weft_shape shape = WEFT_SHAPE(whole_count);
    WEFT_TRY(weft_exchange_create(ranks, own, WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0}, &shape,
                                  &shape, dtype, what, &x));
    x->piece = weft_arena_alloc(x->arena, pieces * (int64_t)sizeof *x->piece);
    if (!x->piece) {
        weft_exchange_free(x);
        return weft_fail(WEFT_E_MEMORY, "no memory for a collective");
    }
    x->piece_count = pieces;
    for (int i = 0; i < pieces; i++)
        x->piece[i].bytes = count[i] * x->element;
    x->bundle_bytes = (whole_count * x->element + 63) / 64 * 64;
    *exchange = x;
    return WEFT_OK;
}

weft_status weft_exchange_create_world(weft_comm *comm, weft_world_op op, weft_dtype dtype,
                                       int64_t count, int root, weft_exchange **exchange)
{
    static const char *const name[] = {"a barrier", "a broadcast", "an all_gather", "a sum"};
    weft_exchange *x;
    weft_group *world;
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_TRY(begin(world->count, world->own, dtype, &x));
    snprintf(x->what, sizeof x->what, "%s of all ranks", name[op]);
    const weft_status_code attached = weft_exchange_attach(x, world, WEFT_CHANNEL_CONTROL);
    if (attached != WEFT_OK) {
        weft_exchange_free(x);
        return attached;
    }
    x->round_count = 1;
    if (op == WEFT_WORLD_BARRIER || op == WEFT_WORLD_SUM) {
        plan_all_reduce(x, count);
    } else {
        for (int j = 0; j < x->group_count; j++) {
            if (op == WEFT_WORLD_ALL_GATHER) {
                x->round[0].send[j] = flat(0, count);
                x->round[0].recv[j] = flat(j * count, count);
            } else if (x->own == root) {
                x->round[0].send[j] = j == root ? (weft_block){0} : flat(0, count);
            } else if (j == root) {
                x->round[0].recv[j] = flat(0, count);
            }
        }
    }
    finish(x);
    *exchange = x;
    return WEFT_OK;
}

void weft_exchange_free(weft_exchange *x)
{
    if (x)
        weft_arena_free(x->arena);
}

const char *weft_exchange_what(const weft_exchange *x)
{
    return x->what;
}

int64_t weft_exchange_scratch(const weft_exchange *x)
{
    const int sets = (x->packs ? 1 : 0) + (x->unpacks ? 1 : 0);
    return x->group_count == 1 ? 0 : x->bundle_bytes + x->slot_bytes * x->group_count * sets;
}

int64_t weft_exchange_wire_bytes(const weft_exchange *x)
{
    int64_t bytes = 0;
    for (int r = 0; r < x->round_count; r++)
        for (int j = 0; j < x->group_count; j++)
            if (j != x->own)
                bytes += weft_block_count(&x->round[r].send[j]) * x->element;
    return bytes;
}

void weft_exchange_bind(weft_exchange *x, const void *in, void *out, void *scratch)
{
    char *at = scratch;
    x->in = in;
    x->out = out;
    if (x->group_count == 1)
        return;
    for (int j = 0; j < x->group_count && x->packs; j++, at += x->slot_bytes)
        x->pack[j] = at;
    for (int j = 0; j < x->group_count && x->unpacks; j++, at += x->slot_bytes)
        x->unpack[j] = at;
}

void weft_exchange_bind_bundle(weft_exchange *x, void *scratch)
{
    weft_exchange_bind(x, scratch, scratch, (char *)scratch + x->bundle_bytes);
}

void weft_exchange_bind_piece(weft_exchange *x, int piece, const void *in, void *out)
{
    x->piece[piece].in = in;
    x->piece[piece].out = out;
}
