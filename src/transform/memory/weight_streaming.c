/* Streaming: large parameters lie elsewhere, in the files of the model or in the host's memory, and
 * each use of one fetches it.
 *
 *   before   %w1   %w2   %w3         a(w1)          b(w2)   c(w3)
 *   after    w1, w2, w3 elsewhere    F1 F2  a(F1)   F3   b(F2)   c(F3)
 *
 * Fetches are under way beside the kernels, `room` bytes ahead of their use: as much as the largest
 * block has, so that a block is on its way while the one before it runs, and what was used is gone.
 * A parameter that several blocks read is fetched for each of them. A table of which rows are
 * looked up (embed, unpack by ids) is read where it lies. Small parameters stay. Bitwise. */
#include "pass/rewrite.h"

#include <string.h>
#include <xxhash.h>

typedef struct stream {
    weft_moving m;    /* leaves: a parameter that lies elsewhere */
    bool *fetched;    /* by root: and is fetched */
    uint64_t *block;  /* by root: of the use that it was fetched for last */
    int32_t *use;     /* by value: the need that m.late is for */
    weft_value *kept; /* by input of the node that is copied: what else it is */
    weft_value *made; /* by need: what is fetched */
} stream;

/* Nodes of one block, or of one scope outside of blocks, share what is fetched. */
static uint64_t block_of(const weft_node *node)
{
    const size_t length = weft_scope_block(node->scope);
    return XXH3_64bits(node->scope, length ? length : strlen(node->scope)) | 1;
}

/* Looked up by rows, not read whole. */
static bool looks_up(const stream *s, const weft_node *node, int i)
{
    const bool rows =
        node->op == WEFT_OP_EMBED ||
        (node->op == WEFT_OP_UNPACK && node->in_count > 1 && weft_value_ok(node->in[1]));
    return rows && i == 0 && s->m.root[node->in[0].id] == node->in[0].id;
}

static void choose(stream *s)
{
    int outputs, updates;
    const weft_named *output = weft_graph_outputs(s->m.g, &outputs);
    const weft_pair *update = weft_graph_updates(s->m.g, &updates);
    for (int32_t n = 0; n < s->m.nodes; n++) {
        const weft_node *node = weft_graph_node(s->m.g, n);
        s->m.leaves[node->out[0].id] = node->op == WEFT_OP_PARAM &&
                                       weft_value_bytes(s->m.g, node->out[0]) >= WEFT_OFFLOAD_LEAST;
    }
    for (int i = 0; i < outputs; i++)
        s->m.leaves[s->m.root[output[i].value.id]] = false;
    for (int i = 0; i < updates; i++)
        s->m.leaves[s->m.root[update[i].source.id]] = s->m.leaves[s->m.root[update[i].value.id]] =
            false;
}

static weft_status find_needs(stream *s)
{
    for (int32_t n = 0; n < s->m.nodes; n++) {
        const weft_node *node = weft_graph_node(s->m.g, n);
        const uint64_t block = block_of(node);
        for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
            const int32_t v = weft_value_ok(node->in[i]) ? s->m.root[node->in[i].id] : -1;
            if (v < 0 || !s->m.leaves[v] || looks_up(s, node, i) || s->block[v] == block)
                continue;
            s->block[v] = block;
            s->fetched[v] = true;
            WEFT_TRY(weft_moving_need(&s->m, v, n));
        }
    }
    return WEFT_OK;
}

/* Of the block that needs most: blocks stand one behind the other. */
static int64_t largest_block(const stream *s)
{
    int64_t most = 0, sum = 0;
    uint64_t last = 0;
    for (int64_t k = 0; k < s->m.count; k++) {
        const uint64_t block = block_of(weft_graph_node(s->m.g, s->m.needs[k].reader));
        sum = block == last ? sum + s->m.needs[k].bytes : s->m.needs[k].bytes;
        last = block;
        most = sum > most ? sum : most;
    }
    return most;
}

/* ---- the new graph --------------------------------------------------------------------------- */

static void put_param(stream *s, int32_t n)
{
    const weft_value v = weft_graph_node(s->m.g, n)->out[0];
    weft_attr_source attr = *(const weft_attr_source *)weft_graph_node(s->m.g, n)->attr;
    attr.away = true;
    s->m.r.map[v.id] =
        weft_source(s->m.r.to, WEFT_OP_PARAM, weft_value_get(s->m.g, v)->name, &attr);
    if (weft_value_ok(s->m.r.map[v.id]))
        weft_graph_set_layout(s->m.r.to, s->m.r.map[v.id], weft_value_get(s->m.g, v)->layout);
}

/* Value v as readers of what need k fetched see it, other names made anew. */
static weft_value name_again(stream *s, int32_t v)
{
    const int32_t k = s->use[s->m.root[v]];
    if (s->use[v] != k) {
        const int32_t n = weft_value_get(s->m.g, (weft_value){v})->node;
        name_again(s, weft_graph_node(s->m.g, n)->in[0].id); /* names of names: a few */
        weft_rewrite_node(&s->m.r, n, s->m.late);
        s->use[v] = k;
    }
    return s->m.late[v];
}

static void put_reader(stream *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->m.g, n);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        s->kept[i] = weft_value_ok(v) ? s->m.r.map[v.id] : v;
        if (weft_value_ok(v) && s->fetched[s->m.root[v.id]] && !looks_up(s, node, i))
            s->m.r.map[v.id] = name_again(s, v.id);
    }
    weft_rewrite_node(&s->m.r, n, NULL);
    for (int i = node->in_count - 1; i >= 0; i--)
        if (weft_value_ok(node->in[i]))
            s->m.r.map[node->in[i].id] = s->kept[i];
}

static void put_nodes(stream *s)
{
    int64_t started = 0, used = 0;
    for (int32_t n = 0; n < s->m.nodes && weft_graph_check(s->m.r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(s->m.g, n);
        if (node->op == WEFT_OP_PARAM && s->m.leaves[node->out[0].id])
            put_param(s, n);
    }
    for (int32_t n = 0; n < s->m.nodes && weft_graph_check(s->m.r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(s->m.g, n);
        for (; started < s->m.count && s->m.needs[started].start <= n; started++)
            s->made[started] =
                weft_moving_emit(&s->m, WEFT_OP_FETCH, s->m.r.map[s->m.needs[started].value],
                                 weft_graph_node(s->m.g, s->m.needs[started].reader), false);
        for (; used < s->m.count && s->m.needs[used].reader == n; used++) {
            s->use[s->m.needs[used].value] = (int32_t)used;
            s->m.late[s->m.needs[used].value] = s->made[used];
        }
        const bool alias = weft_op_is_alias(node->op) && s->fetched[s->m.root[node->in[0].id]],
                   there = node->op == WEFT_OP_PARAM && s->m.leaves[node->out[0].id];
        if (!alias && !there)
            put_reader(s, n);
    }
}

static weft_status rewrite(stream *s, weft_graph **out)
{
    choose(s);
    WEFT_TRY(find_needs(s));
    s->made = weft_arena_alloc(s->m.arena, (s->m.count + 1) * (int64_t)sizeof *s->made);
    if (!s->made)
        return weft_fail(WEFT_E_MEMORY, "no memory for pass stream");
    s->m.room = s->m.room ? s->m.room : largest_block(s);
    weft_needs_start(s->m.needs, s->m.count, 0, &s->m.room);
    put_nodes(s);
    return weft_rewrite_finish(&s->m.r, "stream", out);
}

weft_status weft_pass_stream(const weft_graph *g, int64_t room, weft_graph **out)
{
    stream s;
    WEFT_TRY(weft_moving_begin(g, "stream", room, &s.m));
    const int64_t values = s.m.values + 1;
    s.fetched = weft_arena_alloc(s.m.arena, values);
    s.block = weft_arena_alloc(s.m.arena, values * (int64_t)sizeof *s.block);
    s.use = weft_arena_alloc(s.m.arena, values * (int64_t)sizeof *s.use);
    s.kept = weft_arena_alloc(s.m.arena, weft_graph_most_inputs(g) * (int64_t)sizeof *s.kept);
    for (int64_t v = 0; s.use && v < values; v++)
        s.use[v] = -1;
    const weft_status_code status = s.fetched && s.block && s.use && s.kept
                                        ? rewrite(&s, out)
                                        : weft_fail(WEFT_E_MEMORY, "no memory for pass stream");
    weft_moving_free(&s.m);
    return status;
}
