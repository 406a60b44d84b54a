#include "pass/reuse.h"

#include "pass/rewrite.h"

#include <stdio.h>
#include <string.h>

typedef struct finder {
    const weft_graph *g;
    const weft_reuse_setup *setup;
    int front; /* blocks that always run */
    weft_arena *arena;
    int32_t nodes, values;
    bool *hot, *given,
        *timed;        /* by value: depends on the latents, on any input, on the time alone */
    int32_t *block;    /* by node: of its block; -1: none */
    const char **name; /* by block: its scope, */
    size_t *length;    /* of so many letters */
    int blocks;
    int32_t begin, start, end; /* nodes: the first of block 0, of those left out, the last of all */
    /* by value */
    bool *kept;
    weft_value *base; /* of what is kept: what it was added to; WEFT_NONE: kept as it is */
    bool *seen;
    int left;
    weft_value signal, signal_base; /* the difference of both, or (base NONE) the first */
} finder;

static int32_t maker(const finder *f, weft_value v)
{
    return weft_value_get(f->g, v)->node;
}

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for pass reuse");
}

static weft_status reserve(finder *f)
{
    const int64_t v = f->values + 1, n = f->nodes + 1;
    f->arena = weft_arena_create();
    if (!f->arena)
        return no_memory();
    f->hot = weft_arena_alloc(f->arena, v);
    f->given = weft_arena_alloc(f->arena, v);
    f->timed = weft_arena_alloc(f->arena, v);
    f->kept = weft_arena_alloc(f->arena, v);
    f->seen = weft_arena_alloc(f->arena, v);
    f->base = weft_arena_alloc(f->arena, v * (int64_t)sizeof *f->base);
    f->block = weft_arena_alloc(f->arena, n * (int64_t)sizeof *f->block);
    f->name = weft_arena_alloc(f->arena, n * (int64_t)sizeof *f->name);
    f->length = weft_arena_alloc(f->arena, n * (int64_t)sizeof *f->length);
    if (!f->hot || !f->given || !f->timed || !f->kept || !f->seen || !f->base || !f->block ||
        !f->name || !f->length)
        return no_memory();
    for (int64_t i = 0; i < f->values; i++)
        f->base[i] = WEFT_NONE;
    return WEFT_OK;
}

/* ---- what depends on what ------------------------------------------------------------------- */

static void set_dependence(finder *f)
{
    for (int32_t n = 0; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        bool hot = false, given = node->op == WEFT_OP_INPUT, time = false, other = false;
        if (given) {
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
            given |= f->given[v];
            time |= f->timed[v];
            other |= f->given[v] && !f->timed[v];
        }
        for (int o = 0; o < node->out_count; o++) {
            if (!weft_value_ok(node->out[o]))
                continue;
            f->hot[node->out[o].id] = hot;
            f->given[node->out[o].id] = given;
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
    return weft_fail(WEFT_E_UNSUPPORTED,
                     "the model has %d blocks with attention over what is denoised, and %d of them "
                     "always run: nothing is left to take again",
                     f->blocks, f->front);
}

/* ---- what goes through the blocks ----------------------------------------------------------- */

static bool alike(const finder *f, weft_value a, weft_value b)
{
    const weft_value_info *x = weft_value_get(f->g, a), *y = weft_value_get(f->g, b);
    return x->dtype == y->dtype && weft_shape_equal(&x->shape, &y->shape);
}

/* The result is the operand in another form. */
static bool keeps_numbers(const weft_node *node)
{
    return node->op == WEFT_OP_RESHAPE || node->op == WEFT_OP_PERMUTE;
}

/* Made before node `before`, or another form of a value that is. */
static bool is_there(const finder *f, weft_value v, int32_t before)
{
    const weft_node *node = weft_graph_node(f->g, maker(f, v));
    while (maker(f, v) >= before) {
        if (!keeps_numbers(node))
            return false;
        v = node->in[0];
        node = weft_graph_node(f->g, maker(f, v));
    }
    return true;
}

/* Back along sums, from `v` to what was there before node `before` and is like `like`. */
static weft_value trace(finder *f, weft_value v, weft_value like, int32_t before)
{
    if (!weft_value_ok(v) || f->seen[v.id] || !f->given[v.id])
        return WEFT_NONE;
    f->seen[v.id] = true;
    const weft_node *node = weft_graph_node(f->g, maker(f, v));
    if (is_there(f, v, before) && alike(f, v, like))
        return v;
    int ways = keeps_numbers(node); /* also before that node */
    switch (node->op) {
    case WEFT_OP_GATED_ADD:
    case WEFT_OP_SLICE: ways = maker(f, v) >= before; break;
    case WEFT_OP_ADD: ways = maker(f, v) >= before ? 2 : 0; break;
    case WEFT_OP_CONCAT: ways = maker(f, v) >= before ? node->in_count : 0; break;
    default: break;
    }
    for (int i = 0; i < ways; i++) {
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

/* Another form, or a part, of what it reads. */
static bool forms(const weft_node *node)
{
    return node->op == WEFT_OP_SLICE || node->op == WEFT_OP_PERMUTE || node->op == WEFT_OP_RESHAPE;
}

/* Behind node `end` nothing else reads it: what goes through the blocks may be those. */
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

static void keep(finder *f, weft_value v)
{
    f->base[v.id] = trace_back(f, v, f->start);
    f->kept[v.id] = true;
    if (weft_value_ok(f->base[v.id]) || !only_formed(f, v))
        return;
    f->kept[v.id] = false;
    for (int32_t n = f->end + 1; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (!forms(node) || node->in[0].id != v.id)
            continue;
        f->base[node->out[0].id] = trace_back(f, node->out[0], f->start);
        f->kept[node->out[0].id] = true;
    }
}

static bool left_out(const finder *f, weft_value v)
{
    return maker(f, v) >= f->start && maker(f, v) <= f->end && f->hot[v.id] && !f->kept[v.id];
}

/* What was made between start and end and is read behind; whether any of it is a sum. */
static bool find_ends(finder *f)
{
    int count;
    const weft_named *output = weft_graph_outputs(f->g, &count);
    memset(f->kept, 0, (size_t)f->values);
    for (int32_t n = f->end + 1; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) && left_out(f, node->in[i]))
                keep(f, node->in[i]);
    }
    for (int i = 0; i < count; i++)
        if (left_out(f, output[i].value))
            keep(f, output[i].value);
    for (int32_t v = 0; v < f->values; v++)
        if (f->kept[v] && weft_value_ok(f->base[v]))
            return true;
    return false;
}

/* Where blocks take turns over space and time, what goes through them has the shape that it ends
 * with behind some of them only: then the front is longer than asked for. */
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
    return weft_fail(WEFT_E_UNSUPPORTED,
                     "what goes through the model's %d blocks is no sum to which each adds, so "
                     "there is nothing to add again; attention can be kept: attention:3",
                     f->blocks);
}

/* ---- attention ------------------------------------------------------------------------------ */

static bool in_scope(const char *scope, const char *outer)
{
    const size_t length = strlen(outer);
    return !strncmp(scope, outer, length) && (!scope[length] || scope[length] == '.');
}

/* Keeps the values that other modules read of the attention's module. An attention that is not in a
 * module of its own keeps its result. */
static void keep_module(finder *f, const weft_node *attention)
{
    const char *scope = attention->scope;
    if (strlen(scope) == weft_scope_block(scope)) {
        f->kept[attention->out[0].id] = true;
        f->left++;
        return;
    }
    for (int32_t n = maker(f, attention->out[0]) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (is_hot_attention(f, node) && !strcmp(node->scope, scope))
            return; /* a part of a module that is kept */
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
                f->kept[v.id] = true;
        }
    }
}

static weft_status find_attention(finder *f)
{
    WEFT_TRY(find_blocks(f));
    for (int32_t n = 0; n < f->nodes; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (is_hot_attention(f, node) && f->block[n] >= 0)
            keep_module(f, node);
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

static weft_value told_of_time(const finder *f)
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

/* What goes through the blocks behind the front, or before that in another form, and from what. */
static void find_front_sum(finder *f)
{
    weft_value v = WEFT_NONE;
    for (int32_t k = 0; k < f->values && !weft_value_ok(v); k++)
        if (f->kept[k])
            v = f->base[k];
    while (weft_value_ok(v) && maker(f, v) >= f->begin) {
        const weft_node *node = weft_graph_node(f->g, maker(f, v));
        f->signal = v;
        f->signal_base = trace_back(f, v, f->begin);
        if (weft_value_ok(f->signal_base))
            return;
        v = forms(node) || node->op == WEFT_OP_ADD ? node->in[0] : WEFT_NONE;
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
        what = "what its first block adds";
        break;
    case WEFT_SIGNAL_INPUT:
        f->signal = first_input(f);
        what = "a linear layer that reads latents in its first block";
        break;
    case WEFT_SIGNAL_TIME:
        f->signal = told_of_time(f);
        what = "what its first block is told of the time";
        break;
    }
    if (!weft_value_ok(f->signal))
        return weft_fail(WEFT_E_UNSUPPORTED, "the rule looks at %s, which the model has not", what);
    return WEFT_OK;
}

/* ---- the graphs ----------------------------------------------------------------------------- */

typedef enum part { PROBE, REFRESH, REUSE } part;

typedef struct writer {
    const finder *f;
    part part;
    weft_rewrite r;
    bool *want; /* by value */
    bool *need; /* by node */
} writer;

/* Left by the probe: it is there before the first node that is left out, and fed or made of what is
 * fed. Other things (tables, gathered weights) are made again. */
static bool handed(const finder *f, int32_t v)
{
    return f->setup->signal && f->given[v] && maker(f, (weft_value){v}) < f->start;
}

/* In this graph the value comes from a state. */
static bool taken(const writer *w, int32_t v)
{
    return w->part != PROBE && (handed(w->f, v) || (w->part == REUSE && w->f->kept[v]));
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
        if (f->kept[v]) {
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
            else if (!handed(f, node->out[o].id))
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
    if (handed(f, v)) {
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

/* The sum of |x| over all but rows. */
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

static void write_ends(writer *w, const bool *handed_on)
{
    const finder *f = w->f;
    weft_graph *g = w->r.to;
    int count;
    const weft_named *output = weft_graph_outputs(f->g, &count);
    for (int i = 0; i < count && w->part != PROBE; i++)
        weft_output(g, output[i].name, w->r.map[output[i].value.id]);
    for (int32_t v = 0; v < f->values && weft_graph_check(g) == WEFT_OK; v++) {
        if (w->part == REFRESH && f->kept[v])
            weft_update(g, slot_for(w, "kept", v),
                        weft_value_ok(f->base[v])
                            ? weft_sub(g, w->r.map[v], w->r.map[f->base[v].id])
                            : w->r.map[v]);
        if (w->part == PROBE && handed_on[v])
            weft_update(g, slot_for(w, "front", v), w->r.map[v]);
    }
    if (w->part == PROBE)
        write_signal(w);
}

/* handed_on[values]: of REFRESH and REUSE those that they read are added to it, for PROBE to leave
 * them. */
static weft_status write_part(finder *f, part which, bool *handed_on, weft_graph **out)
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
        w.want[v] |= handed_on[v];
    spread_wants(&w);
    for (int32_t v = 0; v < f->values && which != PROBE; v++)
        handed_on[v] |= w.want[v] && handed(f, v);
    copy_nodes(&w);
    write_ends(&w, handed_on);
    return weft_rewrite_check(&w.r, "reuse", out);
}

weft_status weft_pass_reuse(const weft_graph *g, const weft_reuse_setup *setup, weft_reuse *out)
{
    const bool given = setup->what == WEFT_REUSE_BLOCKS && !setup->signal;
    finder f = {.g = g,
                .setup = setup,
                .front = given ? setup->front : setup->signal == WEFT_SIGNAL_BLOCK,
                .nodes = weft_graph_node_count(g),
                .values = weft_graph_value_count(g)};
    weft_reuse made = {0};
    weft_status_code status = WEFT_OK;
    bool *handed_on = NULL;
    if (weft_mesh_ranks(weft_graph_mesh(g)) > 1)
        return weft_fail(WEFT_E_ARG, "pass reuse: the graph is that of one rank of several; the "
                                     "choice of blocks needs the graph of whole tensors");
    WEFT_GO(reserve(&f));
    handed_on = weft_arena_alloc(f.arena, f.values + 1);
    if (!handed_on)
        WEFT_GO(no_memory());
    set_dependence(&f);
    WEFT_GO(setup->what == WEFT_REUSE_BLOCKS ? find_added(&f) : find_attention(&f));
    WEFT_GO(find_signal(&f));
    made.blocks = f.blocks;
    made.left = f.left;
    WEFT_GO(write_part(&f, REFRESH, handed_on, &made.refresh));
    WEFT_GO(write_part(&f, REUSE, handed_on, &made.reuse));
    if (setup->signal)
        WEFT_GO(write_part(&f, PROBE, handed_on, &made.probe));
    *out = made;
    made = (weft_reuse){0};
out:
    weft_reuse_free(&made);
    weft_arena_free(f.arena);
    return status;
}

void weft_reuse_free(weft_reuse *r)
{
    weft_graph_free(r->probe);
    weft_graph_free(r->refresh);
    weft_graph_free(r->reuse);
    *r = (weft_reuse){0};
}
