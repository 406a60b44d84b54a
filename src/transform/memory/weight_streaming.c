/* Weight streaming: large parameters are offloaded, in the model's files or in host memory, and
 * fetched for each use.
 *
 *   before   %w1   %w2   %w3         a(w1)          b(w2)   c(w3)
 *   after    w1, w2, w3 offloaded    F1 F2  a(F1)   F3   b(F2)   c(F3)
 *
 * Fetches overlap with kernels and start at most prefetch_bytes ahead of use. The default is the
 * bytes of the largest block, so that a block is fetched while the previous one runs. Parameters
 * are dropped after use. A parameter that several blocks read is fetched for each of them. A table
 * whose rows are looked up (embed, unpack by ids) is read in place. Small parameters stay resident.
 * Results are bitwise identical. */
#include "transform/memory/weight_streaming.h"

#include "graph/rewrite.h"
#include "transform/memory/offload.h"
#include "transform/memory/prefetch.h"
#include "transform/memory/saved_activations.h"

#include <string.h>
#include <xxhash.h>

typedef struct stream {
    weft_offload_rewrite m; /* leaves: offloaded parameters */
    bool *fetched;          /* per root: some node needs a fetch */
    uint64_t *block;        /* per root: block of the last fetch */
    int32_t *use;           /* per value: need that m.late belongs to; -1: none */
    weft_value *original;   /* saved map entries, per input of the current node */
    weft_value *made;       /* per need: the fetched value */
} stream;

/* Hash of the node's block, or of its scope outside of blocks. Nodes of one block share fetches. */
static uint64_t block_of(const weft_node *node)
{
    const size_t length = weft_scope_block(node->scope);
    return XXH3_64bits(node->scope, length ? length : strlen(node->scope)) | 1;
}

/* Returns true if the node looks up rows of input i, and does not read the complete table. */
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
            WEFT_TRY(weft_offload_rewrite_need(&s->m, v, n));
        }
    }
    return WEFT_OK;
}

/* Bytes fetched for the largest block. The needs of a block are contiguous. */
static int64_t largest_block(const stream *s)
{
    int64_t most = 0, sum = 0;
    uint64_t last = 0;
    for (int64_t k = 0; k < s->m.count; k++) {
        const uint64_t block = block_of(weft_graph_node(s->m.g, s->m.needs[k].consumer));
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
    attr.offloaded = true;
    s->m.r.map[v.id] =
        weft_source(s->m.r.to, WEFT_OP_PARAM, weft_value_get(s->m.g, v)->name, &attr);
    if (weft_value_ok(s->m.r.map[v.id]))
        weft_graph_set_layout(s->m.r.to, s->m.r.map[v.id], weft_value_get(s->m.g, v)->layout);
}

/* Value v for the consumers of need k. Emits aliases of the fetched value again. */
static weft_value reemit_alias(stream *s, int32_t v)
{
    const int32_t k = s->use[s->m.root[v]];
    if (s->use[v] != k) {
        const int32_t n = weft_value_get(s->m.g, (weft_value){v})->node;
        reemit_alias(s, weft_graph_node(s->m.g, n)->in[0].id); /* chains of aliases are short */
        weft_rewrite_node(&s->m.r, n, s->m.late);
        s->use[v] = k;
    }
    return s->m.late[v];
}

static void emit_consumer(stream *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->m.g, n);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        s->original[i] = weft_value_ok(v) ? s->m.r.map[v.id] : v;
        if (weft_value_ok(v) && s->fetched[s->m.root[v.id]] && !looks_up(s, node, i))
            s->m.r.map[v.id] = reemit_alias(s, v.id);
    }
    weft_rewrite_node(&s->m.r, n, NULL);
    for (int i = node->in_count - 1; i >= 0; i--)
        if (weft_value_ok(node->in[i]))
            s->m.r.map[node->in[i].id] = s->original[i];
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
            s->made[started] = weft_offload_rewrite_emit(
                &s->m, WEFT_OP_FETCH, s->m.r.map[s->m.needs[started].value],
                weft_graph_node(s->m.g, s->m.needs[started].consumer), false);
        for (; used < s->m.count && s->m.needs[used].consumer == n; used++) {
            s->use[s->m.needs[used].value] = (int32_t)used;
            s->m.late[s->m.needs[used].value] = s->made[used];
        }
        const bool alias = weft_op_is_alias(node->op) && s->fetched[s->m.root[node->in[0].id]],
                   there = node->op == WEFT_OP_PARAM && s->m.leaves[node->out[0].id];
        if (!alias && !there)
            emit_consumer(s, n);
    }
}

static weft_status rewrite(stream *s, weft_graph **out)
{
    choose(s);
    WEFT_TRY(find_needs(s));
    WEFT_TRY(WEFT_ARENA_NEW(s->m.arena, s->made, s->m.count + 1, "pass stream"));
    s->m.prefetch_bytes = s->m.prefetch_bytes ? s->m.prefetch_bytes : largest_block(s);
    weft_prefetch_schedule(s->m.needs, s->m.count, 0, &s->m.prefetch_bytes);
    put_nodes(s);
    return weft_rewrite_finish(&s->m.r, "stream", out);
}

weft_status weft_pass_stream(const weft_graph *g, int64_t prefetch_bytes, weft_graph **out)
{
    stream s;
    WEFT_TRY(weft_offload_rewrite_begin(g, "stream", prefetch_bytes, &s.m));
    const int64_t values = s.m.values + 1;
    s.fetched = weft_arena_alloc(s.m.arena, values);
    s.block = weft_arena_calloc(s.m.arena, values, sizeof *s.block);
    s.use = weft_arena_calloc(s.m.arena, values, sizeof *s.use);
    s.original = weft_arena_calloc(s.m.arena, weft_graph_most_inputs(g), sizeof *s.original);
    for (int64_t v = 0; s.use && v < values; v++)
        s.use[v] = -1;
    const weft_status_code status = s.fetched && s.block && s.use && s.original
                                        ? rewrite(&s, out)
                                        : weft_no_memory("pass stream");
    weft_offload_rewrite_free(&s.m);
    return status;
}
