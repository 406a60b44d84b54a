#include "transform/numeric/feature_cache_graphs.h"

#include "graph/builder_helpers.h"
#include "graph/rewrite.h"
#include "transform/memory/saved_activations.h"

#include <stdio.h>
#include <string.h>

typedef struct finder {
    const weft_graph *g;
    const weft_feature_cache_programs_setup *setup;
    int front; /* blocks that always run */
    weft_arena *arena;
    int32_t nodes, values;
    bool *hot, *fed, *timed; /* per value: depends on latents; any input; time alone */
    int32_t *block;          /* per node: its block; -1: none */
    const char **name;       /* per block: its scope */
    size_t *length;          /* per block: length of `name` */
    int blocks;
    int32_t begin, start, end; /* nodes: first of block 0, first skipped, last of all blocks */
    /* Tables by value */
    bool *cached;
    weft_value *base; /* cached values: subtracted value; WEFT_NONE: cached as is */
    bool *seen;
    int left;
    weft_value signal, signal_base; /* signal - signal_base; base WEFT_NONE: signal */
} finder;

static int32_t maker(const finder *f, weft_value v)
{
    return weft_value_get(f->g, v)->node;
}

static weft_status no_memory(void)
{
    return weft_no_memory("pass reuse");
}

static weft_status reserve(finder *f)
{
    const int64_t v = f->values + 1, n = f->nodes + 1;
    f->arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(f->arena, "pass reuse"));
    f->hot = weft_arena_alloc(f->arena, v);
    f->fed = weft_arena_alloc(f->arena, v);
    f->timed = weft_arena_alloc(f->arena, v);
    f->cached = weft_arena_alloc(f->arena, v);
    f->seen = weft_arena_alloc(f->arena, v);
    f->base = weft_arena_calloc(f->arena, v, sizeof *f->base);
    f->block = weft_arena_calloc(f->arena, n, sizeof *f->block);
    f->name = weft_arena_calloc(f->arena, n, sizeof *f->name);
    f->length = weft_arena_calloc(f->arena, n, sizeof *f->length);
    WEFT_TRY(WEFT_ALLOCATED(f->hot && f->fed && f->timed && f->cached && f->seen && f->base &&
                                f->block && f->name && f->length,
                            "pass reuse"));
    for (int64_t i = 0; i < f->values; i++)
        f->base[i] = WEFT_NONE;
    return WEFT_OK;
}

/* ---- dependencies -------------------------------------------------------------------------- */

static void set_dependence(finder *f)
{
    for (int32_t n = 0; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        bool hot = false, is_input = node->op == WEFT_OP_INPUT, time = false, other = false;
        if (is_input) {
            const char *name = weft_value_get(f->g, node->out[0])->name;
            hot = !strcmp(name, f->setup->latents);
            time = !strcmp(name, f->setup->time);
            other = !time;
        }
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t v = node->in[i].id;
            hot |= f->hot[v];
            is_input |= f->fed[v];
            time |= f->timed[v];
            other |= f->fed[v] && !f->timed[v];
        }
        for (int o = 0; o < node->out_count; o++) {
            if (!weft_value_ok(node->out[o]))
                continue;
            f->hot[node->out[o].id] = hot;
            f->fed[node->out[o].id] = is_input;
            f->timed[node->out[o].id] = time && !other;
        }
    }
}

static bool is_hot_attention(const finder *f, const weft_node *node)
{
    return node->op == WEFT_OP_ATTENTION && f->hot[node->in[0].id];
}

static int block_of_scope(const finder *f, const char *scope)
{
    const size_t length = weft_scope_block(scope);
    for (int b = f->blocks - 1; b >= 0 && length; b--)
        if (f->length[b] == length && !strncmp(f->name[b], scope, length))
            return b;
    return -1;
}

static weft_status find_blocks(finder *f)
{
    f->blocks = 0;
    for (int32_t n = 0; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (!is_hot_attention(f, node) || !weft_scope_block(node->scope) ||
            block_of_scope(f, node->scope) >= 0)
            continue;
        f->name[f->blocks] = node->scope;
        f->length[f->blocks++] = weft_scope_block(node->scope);
    }
    f->begin = f->start = -1;
    for (int32_t n = 0; n < f->nodes; n++) {
        f->block[n] = block_of_scope(f, weft_graph_node(f->g, n)->scope);
        if (f->block[n] < 0)
            continue;
        f->begin = f->begin < 0 ? n : f->begin;
        f->start = f->start < 0 && f->block[n] >= f->front ? n : f->start;
        f->end = n;
    }
    if (f->blocks > f->front)
        return WEFT_OK;
    return weft_error(WEFT_MSG_CACHE_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(f->blocks)),
                      "the model has %d blocks with attention over latents, and %d of them are "
                      "always computed; no block is left to reuse",
                      f->blocks, f->front);
}

/* ---- the residual stream ------------------------------------------------------------------- */

static bool alike(const finder *f, weft_value a, weft_value b)
{
    const weft_value_info *x = weft_value_get(f->g, a), *y = weft_value_get(f->g, b);
    return x->dtype == y->dtype && weft_shape_equal(&x->shape, &y->shape);
}

/* Returns true if the result has the operand's elements in another shape or order. */
static bool keeps_values(const weft_node *node)
{
    return weft_op_get(node->op)->origin == WEFT_ORIGIN_same;
}

/* Returns true for a value computed before node `before`, or a reshape or permute of one. */
static bool is_there(const finder *f, weft_value v, int32_t before)
{
    const weft_node *node = weft_graph_node(f->g, maker(f, v));
    while (maker(f, v) >= before) {
        if (!keeps_values(node))
            return false;
        v = node->in[0];
        node = weft_graph_node(f->g, maker(f, v));
    }
    return true;
}

/* Traces sums back from `v` to a value that is computed before node `before` and has the type and
 * shape of `like`. WEFT_NONE: not found. */
static weft_value trace(finder *f, weft_value v, weft_value like, int32_t before)
{
    if (!weft_value_ok(v) || f->seen[v.id] || !f->fed[v.id])
        return WEFT_NONE;
    f->seen[v.id] = true;
    const weft_node *node = weft_graph_node(f->g, maker(f, v));
    if (is_there(f, v, before) && alike(f, v, like))
        return v;
    int operands = keeps_values(node); /* allowed also before that node */
    switch (weft_op_get(node->op)->origin) {
    case WEFT_ORIGIN_residual:
    case WEFT_ORIGIN_part: operands = maker(f, v) >= before; break;
    case WEFT_ORIGIN_sum:
    case WEFT_ORIGIN_joined: operands = maker(f, v) >= before ? node->in_count : 0; break;
    default: break;
    }
    for (int i = 0; i < operands; i++) {
        const weft_value found = trace(f, node->in[i], like, before);
        if (weft_value_ok(found))
            return found;
    }
    return WEFT_NONE;
}

static weft_value trace_back(finder *f, weft_value v, int32_t before)
{
    memset(f->seen, 0, (size_t)f->values);
    return trace(f, v, v, before);
}

/* Returns true if the result is a part of the operand, or has another shape or order. */
static bool forms(const weft_node *node)
{
    const weft_op_origin origin = weft_op_get(node->op)->origin;
    return origin == WEFT_ORIGIN_same || origin == WEFT_ORIGIN_part;
}

/* Returns true if only slices, permutes and reshapes read `v` after node `end`. Their results may
 * then be cached instead of `v`. */
static bool only_formed(const finder *f, weft_value v)
{
    int count;
    const weft_named *output = weft_graph_outputs(f->g, &count);
    for (int i = 0; i < count; i++)
        if (output[i].value.id == v.id)
            return false;
    for (int32_t n = f->end + 1; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) && node->in[i].id == v.id && !forms(node))
                return false;
    }
    return true;
}

static void cache_value(finder *f, weft_value v)
{
    f->base[v.id] = trace_back(f, v, f->start);
    f->cached[v.id] = true;
    if (weft_value_ok(f->base[v.id]) || !only_formed(f, v))
        return;
    f->cached[v.id] = false;
    for (int32_t n = f->end + 1; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (!forms(node) || node->in[0].id != v.id)
            continue;
        f->base[node->out[0].id] = trace_back(f, node->out[0], f->start);
        f->cached[node->out[0].id] = true;
    }
}

static bool left_out(const finder *f, weft_value v)
{
    return maker(f, v) >= f->start && maker(f, v) <= f->end && f->hot[v.id] && !f->cached[v.id];
}

/* Caches values that are computed between start and end and read later. Returns true if at least
 * one is a sum. */
static bool find_ends(finder *f)
{
    int count;
    const weft_named *output = weft_graph_outputs(f->g, &count);
    memset(f->cached, 0, (size_t)f->values);
    for (int32_t n = f->end + 1; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) && left_out(f, node->in[i]))
                cache_value(f, node->in[i]);
    }
    for (int i = 0; i < count; i++)
        if (left_out(f, output[i].value))
            cache_value(f, output[i].value);
    for (int32_t v = 0; v < f->values; v++)
        if (f->cached[v] && weft_value_ok(f->base[v]))
            return true;
    return false;
}

/* Finds the sums that the blocks add to. With alternating spatial and temporal blocks, the residual
 * stream has its final shape only after some blocks. The front is then longer than requested. */
static weft_status find_added(finder *f)
{
    const int asked = f->front;
    do {
        WEFT_TRY(find_blocks(f));
        if (find_ends(f)) {
            f->left = f->blocks - f->front;
            return WEFT_OK;
        }
    } while (asked && ++f->front < f->blocks);
    return weft_error(WEFT_MSG_CACHE_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(f->blocks)),
                      "the model's %d blocks do not add to one sum, so their output cannot be "
                      "reused; attention can be: attention:3",
                      f->blocks);
}

/* ---- attention ------------------------------------------------------------------------------ */

static bool in_scope(const char *scope, const char *outer)
{
    const size_t length = strlen(outer);
    return !strncmp(scope, outer, length) && (!scope[length] || scope[length] == '.');
}

/* Caches the values that other modules read from the attention's module. An attention without a
 * module of its own caches its result. */
static void cache_module(finder *f, const weft_node *attention)
{
    const char *scope = attention->scope;
    if (strlen(scope) == weft_scope_block(scope)) {
        f->cached[attention->out[0].id] = true;
        f->left++;
        return;
    }
    for (int32_t n = maker(f, attention->out[0]) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (is_hot_attention(f, node) && !strcmp(node->scope, scope))
            return; /* the module is cached already */
    }
    f->left++;
    for (int32_t n = 0; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (in_scope(node->scope, scope))
            continue;
        for (int i = 0; i < node->in_count; i++) {
            const weft_value v = node->in[i];
            if (weft_value_ok(v) && f->hot[v.id] && maker(f, v) > f->begin &&
                in_scope(weft_graph_node(f->g, maker(f, v))->scope, scope))
                f->cached[v.id] = true;
        }
    }
}

static weft_status find_attention(finder *f)
{
    WEFT_TRY(find_blocks(f));
    for (int32_t n = 0; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (is_hot_attention(f, node) && f->block[n] >= 0)
            cache_module(f, node);
    }
    return WEFT_OK;
}

/* ---- the signal ----------------------------------------------------------------------------- */

static weft_value first_input(const finder *f)
{
    for (int32_t n = f->begin; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (f->block[n] == 0 && node->op == WEFT_OP_LINEAR && f->hot[node->in[0].id])
            return node->in[0];
    }
    return WEFT_NONE;
}

static weft_value time_embedding(const finder *f)
{
    for (int32_t n = f->begin; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int i = 0; i < node->in_count && f->block[n] == 0; i++)
            if (weft_value_ok(node->in[i]) && f->timed[node->in[i].id] &&
                maker(f, node->in[i]) < f->begin)
                return node->in[i];
    }
    return WEFT_NONE;
}

/* Sets the signal to `v`, the residual stream after the front, or to an earlier form or part of the
 * stream. Sets the base to the stream before the front. Returns false if there is none that depends
 * on the latents. */
static bool trace_front_sum(finder *f, weft_value v)
{
    if (!weft_value_ok(v) || maker(f, v) < f->begin)
        return false;
    const weft_node *node = weft_graph_node(f->g, maker(f, v));
    const weft_op_origin origin = weft_op_get(node->op)->origin;
    f->signal = v;
    f->signal_base = trace_back(f, v, f->begin);
    if (weft_value_ok(f->signal_base) && f->hot[f->signal_base.id])
        return true;
    const int operands = origin == WEFT_ORIGIN_joined               ? node->in_count
                         : forms(node) || origin == WEFT_ORIGIN_sum ? 1
                                                                    : 0;
    for (int i = 0; i < operands; i++)
        if (trace_front_sum(f, node->in[i]))
            return true;
    return false;
}

/* Blocks may add to more than the residual stream: mixtures of experts also sum their load, which
 * no value before the blocks begins. The front may have a stream of its own, such as control blocks
 * or an encoder before decoder blocks. Then the signal is the last sum of that stream. */
static void find_front_sum(finder *f)
{
    for (int32_t k = 0; k < f->values; k++)
        if (f->cached[k] && trace_front_sum(f, f->base[k]))
            return;
    for (int32_t n = f->start - 1; n >= f->begin; n--) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (f->block[n] >= 0 && node->out_count == 1 && f->hot[node->out[0].id] &&
            trace_front_sum(f, node->out[0]))
            return;
    }
    f->signal = WEFT_NONE;
}

static weft_status find_signal(finder *f)
{
    f->signal = f->signal_base = WEFT_NONE;
    const char *what = "";
    switch (f->setup->signal) {
    case WEFT_SIGNAL_NONE: return WEFT_OK;
    case WEFT_SIGNAL_BLOCK:
        find_front_sum(f);
        what = "the sum to which its first block adds";
        break;
    case WEFT_SIGNAL_INPUT:
        f->signal = first_input(f);
        what = "a linear layer that reads latents in its first block";
        break;
    case WEFT_SIGNAL_TIME:
        f->signal = time_embedding(f);
        what = "a timestep input of its first block";
        break;
    }
    if (!weft_value_ok(f->signal))
        return weft_error(WEFT_MSG_CACHE_UNSUPPORTED, WEFT_NOWHERE,
                          "the rule needs %s, and the model has none. Use a rule without a "
                          "threshold, such as every:2, or omit --feature-cache.",
                          what);
    return WEFT_OK;
}

/* ---- the graphs ----------------------------------------------------------------------------- */

typedef enum part { PROBE, REFRESH, REUSE } part;

typedef struct writer {
    const finder *f;
    part part;
    weft_rewrite r;
    bool *want; /* per value: needed by this program */
    bool *need; /* per node: computed by this program */
} writer;

/* Returns true if the probe computes the value: it depends on an input and precedes the first
 * skipped node. Other values (tables, gathered weights) are computed in each program. */
static bool left_by_probe(const finder *f, int32_t v)
{
    return f->setup->signal && f->fed[v] && maker(f, (weft_value){v}) < f->start;
}

/* Returns true if this program reads the value from a state. */
static bool taken(const writer *w, int32_t v)
{
    return w->part != PROBE && (left_by_probe(w->f, v) || (w->part == REUSE && w->f->cached[v]));
}

static void want(writer *w, weft_value v)
{
    if (weft_value_ok(v))
        w->want[v.id] = true;
}

static void want_ends(writer *w)
{
    const finder *f = w->f;
    int count;
    const weft_named *output = weft_graph_outputs(f->g, &count);
    for (int i = 0; i < count && w->part != PROBE; i++)
        want(w, output[i].value);
    for (int32_t v = 0; v < f->values && w->part == REFRESH; v++)
        if (f->cached[v]) {
            want(w, (weft_value){v});
            want(w, f->base[v]);
        }
    if (w->part == PROBE) {
        want(w, f->signal);
        want(w, f->signal_base);
    }
}

static void spread_wants(writer *w)
{
    const finder *f = w->f;
    for (int32_t n = f->nodes - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int o = 0; o < node->out_count; o++) {
            if (!weft_value_ok(node->out[o]) || !w->want[node->out[o].id])
                continue;
            if (!taken(w, node->out[o].id))
                w->need[n] = true;
            else if (!left_by_probe(f, node->out[o].id))
                want(w, f->base[node->out[o].id]);
        }
        for (int i = 0; i < node->in_count && w->need[n]; i++)
            want(w, node->in[i]);
    }
}

static weft_value slot_for(writer *w, const char *kind, int32_t v)
{
    char name[48];
    if (v < 0)
        snprintf(name, sizeof name, "reuse.%s", kind);
    else
        snprintf(name, sizeof name, "reuse.%s.v%d", kind, (int)v);
    const weft_value like = v < 0 ? w->f->signal : (weft_value){v};
    return weft_rewrite_slot(w->r.to, name, weft_value_get(w->f->g, like), false);
}

static void take(writer *w, int32_t v)
{
    const finder *f = w->f;
    if (left_by_probe(f, v)) {
        w->r.map[v] = slot_for(w, "front", v);
        return;
    }
    const weft_value added = slot_for(w, "kept", v);
    w->r.map[v] =
        weft_value_ok(f->base[v]) ? weft_add(w->r.to, w->r.map[f->base[v].id], added) : added;
}

static void copy_nodes(writer *w)
{
    for (int32_t n = 0; n < w->f->nodes && weft_graph_check(w->r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(w->f->g, n);
        if (w->need[n])
            weft_rewrite_node(&w->r, n, NULL);
        for (int o = 0; o < node->out_count; o++)
            if (weft_value_ok(node->out[o]) && w->want[node->out[o].id] &&
                taken(w, node->out[o].id))
                take(w, node->out[o].id);
    }
}

/* The sum of |x| over all dims except rows. */
static weft_value sum_absolute(weft_graph *g, weft_value x)
{
    const int rank = weft_value_get(g, x)->shape.rank;
    const weft_value y =
        weft_unary(g, WEFT_OP_SQRT, weft_unary(g, WEFT_OP_SQUARE, weft_cast(g, x, WEFT_F32)));
    return rank > 1 ? weft_sum(g, y, (1u << rank) - 2) : y;
}

static void write_signal(writer *w)
{
    const finder *f = w->f;
    weft_graph *g = w->r.to;
    weft_value x = w->r.map[f->signal.id];
    if (weft_value_ok(f->signal_base))
        x = weft_sub(g, x, w->r.map[f->signal_base.id]);
    const weft_value before = slot_for(w, "before", -1), now = slot_for(w, "now", -1);
    weft_output(g, "reuse.moved", sum_absolute(g, weft_sub(g, x, before)));
    weft_output(g, "reuse.size", sum_absolute(g, before));
    weft_update(g, now, x);
}

static void write_ends(writer *w, const bool *probe_values)
{
    const finder *f = w->f;
    weft_graph *g = w->r.to;
    int count;
    const weft_named *output = weft_graph_outputs(f->g, &count);
    for (int i = 0; i < count && w->part != PROBE; i++)
        weft_output(g, output[i].name, w->r.map[output[i].value.id]);
    for (int32_t v = 0; v < f->values && weft_graph_check(g) == WEFT_OK; v++) {
        if (w->part == REFRESH && f->cached[v])
            weft_update(g, slot_for(w, "kept", v),
                        weft_value_ok(f->base[v])
                            ? weft_sub(g, w->r.map[v], w->r.map[f->base[v].id])
                            : w->r.map[v]);
        if (w->part == PROBE && probe_values[v])
            weft_update(g, slot_for(w, "front", v), w->r.map[v]);
    }
    if (w->part == PROBE)
        write_signal(w);
}

/* Writes one program. probe_values[values]: REFRESH and REUSE mark the values that they read from
 * the probe, and PROBE writes the marked values to states. */
static weft_status write_part(finder *f, part which, bool *probe_values, weft_graph **out)
{
    writer w = {.f = f, .part = which};
    WEFT_TRY(weft_rewrite_begin(f->g, &w.r));
    w.want = weft_arena_alloc(f->arena, f->values + 1);
    w.need = weft_arena_alloc(f->arena, f->nodes + 1);
    if (!w.want || !w.need) {
        weft_rewrite_abandon(&w.r);
        return no_memory();
    }
    want_ends(&w);
    for (int32_t v = 0; v < f->values && which == PROBE; v++)
        w.want[v] |= probe_values[v];
    spread_wants(&w);
    for (int32_t v = 0; v < f->values && which != PROBE; v++)
        probe_values[v] |= w.want[v] && left_by_probe(f, v);
    copy_nodes(&w);
    write_ends(&w, probe_values);
    return weft_rewrite_check(&w.r, "reuse", out);
}

weft_status weft_pass_feature_cache(const weft_graph *g,
                                    const weft_feature_cache_programs_setup *setup,
                                    weft_feature_cache_programs *out)
{
    const bool use_front = setup->what == WEFT_FEATURE_CACHE_BLOCKS && !setup->signal;
    finder f = {.g = g,
                .setup = setup,
                .front = use_front ? setup->front : setup->signal == WEFT_SIGNAL_BLOCK,
                .nodes = weft_graph_node_count(g),
                .values = weft_graph_value_count(g)};
    weft_feature_cache_programs made = {0};
    weft_status_code status = WEFT_OK;
    bool *probe_values = NULL;
    if (weft_mesh_ranks(weft_graph_mesh(g)) > 1)
        return weft_error(WEFT_MSG_PASS_INVALID, WEFT_AT(.key = "pass reuse"),
                          "the graph has shards of one of several ranks; blocks are chosen in the "
                          "graph of complete tensors");
    WEFT_GO(reserve(&f));
    probe_values = weft_arena_alloc(f.arena, f.values + 1);
    WEFT_GO(WEFT_ALLOCATED(probe_values, "pass reuse"));
    set_dependence(&f);
    WEFT_GO(setup->what == WEFT_FEATURE_CACHE_BLOCKS ? find_added(&f) : find_attention(&f));
    WEFT_GO(find_signal(&f));
    made.blocks = f.blocks;
    made.left = f.left;
    WEFT_GO(write_part(&f, REFRESH, probe_values, &made.refresh));
    WEFT_GO(write_part(&f, REUSE, probe_values, &made.reuse));
    if (setup->signal)
        WEFT_GO(write_part(&f, PROBE, probe_values, &made.probe));
    *out = made;
    made = (weft_feature_cache_programs){0};
out:
    weft_feature_cache_programs_free(&made);
    weft_arena_free(f.arena);
    return status;
}

void weft_feature_cache_programs_free(weft_feature_cache_programs *r)
{
    weft_graph_free(r->probe);
    weft_graph_free(r->refresh);
    weft_graph_free(r->reuse);
    *r = (weft_feature_cache_programs){0};
}
