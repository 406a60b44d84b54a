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
    weft_rewrite r;
    const weft_graph *g;
    int32_t nodes, values;
    int32_t *root;    /* by value: the one that it is another name of, or itself */
    bool *leaves;     /* by root: a parameter that lies elsewhere */
    bool *fetched;    /* by root: and is fetched */
    uint64_t *block;  /* by root: of the use that it was fetched for last */
    int32_t *use;     /* by value: the need that `late` is for */
    weft_value *late; /* by value: what readers get */
    weft_value *kept; /* by input of the node that is copied: what else it is */
    weft_need *needs;
    weft_value *made; /* by need: what is fetched */
    int64_t count, capacity, room;
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
    return rows && i == 0 && s->root[node->in[0].id] == node->in[0].id;
}

static void choose(stream *s)
{
    int outputs, updates;
    const weft_named *output = weft_graph_outputs(s->g, &outputs);
    const weft_pair *update = weft_graph_updates(s->g, &updates);
    for (int32_t n = 0; n < s->nodes; n++) {
        const weft_node *node = weft_graph_node(s->g, n);
        for (int k = 0; k < node->out_count; k++)
            if (weft_value_ok(node->out[k]))
                s->root[node->out[k].id] =
                    weft_op_is_alias(node->op) ? s->root[node->in[0].id] : node->out[k].id;
        s->leaves[node->out[0].id] =
            node->op == WEFT_OP_PARAM && weft_value_bytes(s->g, node->out[0]) >= WEFT_OFFLOAD_LEAST;
    }
    for (int i = 0; i < outputs; i++)
        s->leaves[s->root[output[i].value.id]] = false;
    for (int i = 0; i < updates; i++)
        s->leaves[s->root[update[i].source.id]] = s->leaves[s->root[update[i].value.id]] = false;
}

static weft_status find_needs(stream *s)
{
    for (int32_t n = 0; n < s->nodes; n++) {
        const weft_node *node = weft_graph_node(s->g, n);
        const uint64_t block = block_of(node);
        for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
            const int32_t v = weft_value_ok(node->in[i]) ? s->root[node->in[i].id] : -1;
            if (v < 0 || !s->leaves[v] || looks_up(s, node, i) || s->block[v] == block)
                continue;
            s->block[v] = block;
            s->fetched[v] = true;
            WEFT_TRY(weft_grow((void **)&s->needs, s->count, &s->capacity, sizeof *s->needs));
            s->needs[s->count++] = (weft_need){
                .value = v, .reader = n, .bytes = weft_value_bytes(s->g, (weft_value){v})};
        }
    }
    return WEFT_OK;
}

/* Of the block that needs most: blocks stand one behind the other. */
static int64_t largest_block(const stream *s)
{
    int64_t most = 0, sum = 0;
    uint64_t last = 0;
    for (int64_t k = 0; k < s->count; k++) {
        const uint64_t block = block_of(weft_graph_node(s->g, s->needs[k].reader));
        sum = block == last ? sum + s->needs[k].bytes : s->needs[k].bytes;
        last = block;
        most = sum > most ? sum : most;
    }
    return most;
}

/* ---- the new graph --------------------------------------------------------------------------- */

static void put_param(stream *s, int32_t n)
{
    const weft_value v = weft_graph_node(s->g, n)->out[0];
    weft_attr_source attr = *(const weft_attr_source *)weft_graph_node(s->g, n)->attr;
    attr.away = true;
    s->r.map[v.id] = weft_source(s->r.to, WEFT_OP_PARAM, weft_value_get(s->g, v)->name, &attr);
    if (weft_value_ok(s->r.map[v.id]))
        weft_graph_set_layout(s->r.to, s->r.map[v.id], weft_value_get(s->g, v)->layout);
}

static weft_value fetch(stream *s, const weft_need *need)
{
    weft_graph *to = s->r.to;
    const weft_attr_move attr = {s->room};
    const weft_value in = s->r.map[need->value];
    weft_graph_push(to, "%s", weft_graph_node(s->g, need->reader)->scope);
    const weft_value out = weft_emit(to, WEFT_OP_FETCH, &in, 1, &attr);
    weft_graph_pop(to);
    if (weft_value_ok(out))
        weft_graph_set_layout(to, out, weft_value_get(to, in)->layout);
    return out;
}

/* Value v as readers of what need k fetched see it, other names made anew. */
static weft_value name_again(stream *s, int32_t v)
{
    const int32_t k = s->use[s->root[v]];
    if (s->use[v] != k) {
        const int32_t n = weft_value_get(s->g, (weft_value){v})->node;
        name_again(s, weft_graph_node(s->g, n)->in[0].id); /* names of names: a few */
        weft_rewrite_node(&s->r, n, s->late);
        s->use[v] = k;
    }
    return s->late[v];
}

static void put_reader(stream *s, int32_t n)
{
    const weft_node *node = weft_graph_node(s->g, n);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value v = node->in[i];
        s->kept[i] = weft_value_ok(v) ? s->r.map[v.id] : v;
        if (weft_value_ok(v) && s->fetched[s->root[v.id]] && !looks_up(s, node, i))
            s->r.map[v.id] = name_again(s, v.id);
    }
    weft_rewrite_node(&s->r, n, NULL);
    for (int i = node->in_count - 1; i >= 0; i--)
        if (weft_value_ok(node->in[i]))
            s->r.map[node->in[i].id] = s->kept[i];
}

static void put_nodes(stream *s)
{
    int64_t started = 0, used = 0;
    for (int32_t n = 0; n < s->nodes && weft_graph_check(s->r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(s->g, n);
        if (node->op == WEFT_OP_PARAM && s->leaves[node->out[0].id])
            put_param(s, n);
    }
    for (int32_t n = 0; n < s->nodes && weft_graph_check(s->r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(s->g, n);
        for (; started < s->count && s->needs[started].start <= n; started++)
            s->made[started] = fetch(s, &s->needs[started]);
        for (; used < s->count && s->needs[used].reader == n; used++) {
            s->use[s->needs[used].value] = (int32_t)used;
            s->late[s->needs[used].value] = s->made[used];
        }
        const bool alias = weft_op_is_alias(node->op) && s->fetched[s->root[node->in[0].id]],
                   there = node->op == WEFT_OP_PARAM && s->leaves[node->out[0].id];
        if (!alias && !there)
            put_reader(s, n);
    }
}

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for pass stream");
}

static weft_status rewrite(stream *s, weft_graph **out)
{
    choose(s);
    weft_status_code status = find_needs(s);
    if (status == WEFT_OK) {
        s->made = weft_alloc((s->count + 1) * (int64_t)sizeof *s->made);
        status = s->made ? WEFT_OK : no_memory();
    }
    if (status != WEFT_OK) {
        weft_rewrite_abandon(&s->r);
        return status;
    }
    s->room = s->room ? s->room : largest_block(s);
    weft_needs_start(s->needs, s->count, 0, &s->room);
    put_nodes(s);
    return weft_rewrite_finish(&s->r, "stream", out);
}

weft_status weft_pass_stream(const weft_graph *g, int64_t room, weft_graph **out)
{
    stream s = {.g = g,
                .nodes = weft_graph_node_count(g),
                .values = weft_graph_value_count(g),
                .room = room};
    const int64_t word = (int64_t)sizeof(int32_t), values = s.values + 1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &s.r));
    s.root = weft_alloc(values * word);
    s.leaves = weft_alloc(values);
    s.fetched = weft_alloc(values);
    s.block = weft_alloc(values * (int64_t)sizeof *s.block);
    s.use = weft_alloc(values * word);
    s.late = weft_alloc(values * (int64_t)sizeof *s.late);
    s.kept = weft_alloc(weft_graph_most_inputs(g) * (int64_t)sizeof *s.kept);
    if (!s.root || !s.leaves || !s.fetched || !s.block || !s.use || !s.late || !s.kept) {
        weft_rewrite_abandon(&s.r);
        status = no_memory();
    }
    for (int64_t v = 0; status == WEFT_OK && v < values; v++) {
        s.use[v] = -1;
        s.late[v] = WEFT_NONE;
    }
    if (status == WEFT_OK)
        status = rewrite(&s, out);
    weft_free(s.root);
    weft_free(s.leaves);
    weft_free(s.fetched);
    weft_free(s.block);
    weft_free(s.use);
    weft_free(s.late);
    weft_free(s.kept);
    weft_free(s.made);
    weft_free(s.needs);
    return status;
}
