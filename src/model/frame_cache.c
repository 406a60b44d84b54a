#include "model/frame_cache.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <stdio.h>

weft_frame_cache_size weft_frame_cache_of(const weft_grid *grid, int64_t frames)
{
    const int64_t block = grid->block > 1 ? grid->block : 1;
    const bool whole = !grid->window || grid->window >= frames;
    const int64_t kept = (whole ? frames : grid->window) - block;
    return (weft_frame_cache_size){
        .block = block, .rest = whole ? kept : kept - grid->sink, .sink = whole ? 0 : grid->sink};
}

int64_t weft_frame_cache_begin(const weft_frame_cache_size *size, int64_t at)
{
    const int64_t kept = size->rest + size->sink, past = at * size->block;
    return kept - (past < kept ? past : kept);
}

int weft_frame_cache_turn(const weft_frame_cache_size *size, int64_t at)
{
    const int64_t past = at * size->block;
    return past + size->block <= size->sink ? 0 : past < size->sink ? 1 : 2;
}

void weft_frame_cache_inputs(weft_graph *g, weft_frame_cache *cache, int64_t batch, int64_t rows,
                             int64_t columns)
{
    static const char *const name[3] = {"block.frame", "block.row", "block.column"};
    const weft_shape tokens = WEFT_SHAPE(1, cache->size.block * rows * columns);
    for (int i = 0; i < 3; i++)
        cache->position[i] = weft_input(g, name[i], WEFT_I32, tokens);
    cache->keys = weft_input(g, "batch.block_keys", WEFT_I32, WEFT_SHAPE(batch, 1, 4));
    cache->turn = cache->adds && cache->size.sink
                      ? weft_input(g, "block.turn", WEFT_F32, WEFT_SHAPE(3))
                      : WEFT_NONE;
}

/* A state of a layer: frames of `shape`'s tokens. */
static weft_value state_of(weft_graph *g, weft_dtype dtype, int64_t layer, const char *what,
                           weft_shape shape)
{
    char name[64];
    snprintf(name, sizeof name, WEFT_FRAME_CACHE_STATES "%" PRId64 ".%s", layer, what);
    return weft_source(
        g, WEFT_OP_STATE, name,
        &(weft_attr_source){
            .dtype = dtype, .shape = shape, .global = shape, .init = {.kind = WEFT_INIT_ZERO}});
}

/* The last tokens of `kept` followed by `count` tokens of `x` from `first` on, as many as in
 * `kept`. */
static weft_value shift_in(weft_graph *g, weft_value kept, weft_value x, int64_t first,
                           int64_t count)
{
    const int64_t all = weft_dim(g, kept, 1);
    if (count >= all)
        return weft_slice(g, x, 1, first + count - all, all);
    const weft_value part[] = {weft_slice(g, kept, 1, count, all - count),
                               weft_slice(g, x, 1, first, count)};
    return weft_concat(g, part, 2, 1);
}

/* The one of three values whose item of `turn` is 1. Products with 0 and 1 are exact. */
static weft_value choose(weft_graph *g, weft_value turn, const weft_value of[3])
{
    weft_value sum = WEFT_NONE;
    for (int i = 0; i < 3; i++) {
        const weft_value one =
                             weft_reshape(g, weft_slice(g, turn, 0, i, 1), WEFT_SHAPE(1, 1, 1, 1)),
                         part = weft_mul(g, of[i], one);
        sum = i ? weft_add(g, sum, part) : part;
    }
    return sum;
}

static void update(weft_graph *g, const weft_frame_cache *c, weft_value state, weft_value x)
{
    weft_update(g, state, c->dtype == WEFT_F32 ? x : weft_cast(g, x, c->dtype));
}

/* Replaces the oldest frames by the block's. `state` and `kept`: the rest and the sink, and their
 * values in f32; WEFT_NONE: none. */
static void add_block(weft_graph *g, const weft_frame_cache *c, const weft_value state[2],
                      const weft_value kept[2], weft_value x)
{
    const int64_t tokens = weft_dim(g, x, 1), frame = tokens / c->size.block,
                  sink = c->size.sink * frame, begun = sink % tokens;
    const weft_value rest = kept[0];
    if (!c->size.sink) {
        update(g, c, state[0], shift_in(g, rest, x, 0, tokens));
        return;
    }
    const weft_value first[3] = {shift_in(g, kept[1], x, 0, tokens),
                                 begun ? shift_in(g, kept[1], x, 0, begun) : kept[1], kept[1]};
    update(g, c, state[1], choose(g, c->turn, first));
    if (!c->size.rest)
        return;
    const weft_value later[3] = {rest, begun ? shift_in(g, rest, x, begun, tokens - begun) : rest,
                                 shift_in(g, rest, x, 0, tokens)};
    update(g, c, state[0], choose(g, c->turn, later));
}

/* The keys or values that a block sees: the kept ones of `past`, followed by its `own`. */
static weft_value join_past(weft_graph *g, const weft_frame_cache *c, weft_value past,
                            weft_value own)
{
    if (!c->at)
        return own;
    const int64_t frame = weft_dim(g, own, 1) / c->size.block, frames = c->at * c->size.block,
                  sink = c->size.sink * frame, rest = c->size.rest * frame, all = frames * frame;
    weft_value part[3];
    int parts = 0;
    if (all <= sink + rest) {
        part[parts++] = past;
    } else {
        if (sink)
            part[parts++] = weft_slice(g, past, 1, 0, sink);
        if (rest)
            part[parts++] = weft_slice(g, past, 1, all - rest, rest);
    }
    part[parts++] = own;
    return parts > 1 ? weft_concat(g, part, parts, 1) : own;
}

static void join_values(weft_graph *g, const weft_frame_cache *c, int64_t layer,
                        const weft_value kv[2], weft_value joined[2])
{
    for (int i = 0; i < 2; i++) {
        weft_value *past = &c->past[2 * layer + i];
        const weft_value own = kv[i];
        joined[i] = join_past(g, c, *past, own);
        if (!c->adds)
            continue;
        const weft_value stays = weft_unary(g, WEFT_OP_STOP, own);
        *past = c->at ? weft_concat(g, (weft_value[]){*past, stays}, 2, 1) : stays;
    }
}

void weft_frame_cache_join(weft_graph *g, const weft_frame_cache *c, int64_t layer,
                           const weft_value kv[2], weft_value joined[2])
{
    weft_graph_push(g, "keys");
    for (int i = 0; i < 2 && !c->past; i++) {
        const weft_value own = kv[i];
        weft_value part[3], state[2] = {WEFT_NONE, WEFT_NONE}, kept[2] = {WEFT_NONE, WEFT_NONE};
        char name[16];
        int parts = 0;
        weft_shape shape = weft_value_ok(own) ? weft_value_get(g, own)->shape : WEFT_SCALAR;
        const int64_t frame = shape.dim[1] / c->size.block,
                      frames[2] = {c->size.rest, c->size.sink};
        for (int k = 0; k < 2; k++) {
            if (!frames[k])
                continue;
            shape.dim[1] = frames[k] * frame;
            snprintf(name, sizeof name, "%s%s", k ? "sink_" : "", i ? "v" : "k");
            kept[k] = state[k] = state_of(g, c->dtype, layer, name, shape);
            if (c->dtype != WEFT_F32)
                kept[k] = weft_cast(g, state[k], WEFT_F32);
            part[parts++] = kept[k];
        }
        part[parts++] = own;
        joined[i] = weft_concat(g, part, parts, 1);
        if (c->adds && parts > 1)
            add_block(g, c, state, kept, own);
    }
    if (c->past)
        join_values(g, c, layer, kv, joined);
    weft_graph_pop(g);
}
