#include "transform/sharding/pp_stages.h"

#include "graph/rewrite.h"
#include "transform/memory/recompute_nodes.h"

#include <stdio.h>
#include <string.h>

static weft_status no_memory(const weft_graph *g)
{
    return weft_no_memory("the stages of a graph of %d nodes", (int)weft_graph_node_count(g));
}

void weft_train_stage_name(const weft_pp_edge *link, bool gradient,
                           char name[WEFT_TRAIN_STAGE_NAME])
{
    if (gradient)
        snprintf(name, WEFT_TRAIN_STAGE_NAME, "slot.v%d.to%d", (int)link->value, (int)link->to);
    else
        snprintf(name, WEFT_TRAIN_STAGE_NAME, "slot.v%d", (int)link->value);
}

/* ---- stages and edges ---------------------------------------------------------------------- */

static int32_t node_of(const weft_graph *g, weft_value v)
{
    return weft_value_get(g, v)->node;
}

static void assign_nodes(weft_pp_stages *s, const weft_layer_chain *chain, const int64_t *cut)
{
    const weft_graph *g = s->graph;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        int pp_stage = -1;
        while (chain->unit_of[n] >= 0 && pp_stage + 1 < s->count &&
               cut[pp_stage + 1] <= chain->unit_of[n])
            pp_stage++;
        s->pp_stage_of[n] = pp_stage;
    }
}

/* Marks the nodes of stage `q`: its own, and the nodes outside of blocks that they depend on. */
static void mark_pp_stage(const weft_pp_stages *s, int q, bool *has)
{
    const weft_graph *g = s->graph;
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        has[n] = has[n] || s->pp_stage_of[n] == q;
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count && has[n]; i++)
            if (weft_value_ok(node->in[i]) && s->pp_stage_of[node_of(g, node->in[i])] < 0)
                has[node_of(g, node->in[i])] = true;
    }
}

/* Sets reads[v * count + q]: stage q reads value v, which another stage computes. */
static void mark_consumers(const weft_pp_stages *s, bool *reads)
{
    const weft_graph *g = s->graph;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int made = s->pp_stage_of[node_of(g, node->in[i])];
            if (made >= 0 && s->pp_stage_of[n] != made)
                reads[(int64_t)node->in[i].id * s->count + s->pp_stage_of[n]] = true;
        }
    }
}

/* Creates the edges of a value, from the last consumer to the first. A stage on the device of the
 * computing stage reads the value there. Other stages receive it from the previous stage, which
 * then needs it, too. */
static void link_value(weft_pp_stages *s, int32_t v, bool *reads)
{
    const int made = s->pp_stage_of[node_of(s->graph, (weft_value){v})], first = s->links;
    for (int q = s->count - 1; q > made; q--) {
        if (!reads[q])
            continue;
        const int from = s->device_of[q] == s->device_of[made] ? made : q - 1;
        reads[from] = from > made;
        s->link[s->links++] = (weft_pp_edge){v, from, q, s->device_of[from] == s->device_of[q]};
    }
    for (int a = first, b = s->links - 1; a < b; a++, b--) {
        const weft_pp_edge swap = s->link[a];
        s->link[a] = s->link[b];
        s->link[b] = swap;
    }
}

static weft_status make_links(weft_pp_stages *s)
{
    const int64_t values = weft_graph_value_count(s->graph);
    bool *reads = weft_alloc((values + 1) * s->count);
    int64_t crossing = 0;
    if (!reads)
        return no_memory(s->graph);
    mark_consumers(s, reads);
    for (int64_t v = 0; v < values; v++) {
        bool any = false;
        for (int q = 0; q < s->count; q++)
            any = any || reads[v * s->count + q];
        crossing += any;
    }
    s->link = weft_arena_calloc(s->arena, crossing * s->count + 1, sizeof *s->link);
    for (int32_t v = 0; v < values && s->link; v++)
        if (s->pp_stage_of[node_of(s->graph, (weft_value){v})] >= 0)
            link_value(s, v, reads + (int64_t)v * s->count);
    weft_free(reads);
    return WEFT_ALLOCATED(s->link, "the stages of a graph of %d nodes",
                          (int)weft_graph_node_count(s->graph));
}

weft_status weft_pp_stages_make(const weft_graph *g, const weft_layer_chain *chain,
                                const int64_t *cut, int count, const int32_t *device_of, int axis,
                                weft_pp_stages *out)
{
    const int64_t nodes = weft_graph_node_count(g) + 1;
    weft_pp_stages s = {.arena = weft_arena_create(), .graph = g, .count = count, .axis = axis};
    if (s.arena) {
        s.device_of = weft_arena_calloc(s.arena, count, sizeof *s.device_of);
        s.pp_stage_of = weft_arena_calloc(s.arena, nodes, sizeof *s.pp_stage_of);
    }
    if (!s.device_of || !s.pp_stage_of) {
        weft_arena_free(s.arena);
        return no_memory(g);
    }
    memcpy(s.device_of, device_of, (size_t)count * sizeof *device_of);
    assign_nodes(&s, chain, cut);
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_links(&s));
    *out = s;
    return WEFT_OK;
out:
    weft_arena_free(s.arena);
    return status;
}

void weft_pp_stages_free(weft_pp_stages *pp_stages)
{
    weft_arena_free(pp_stages->arena);
    *pp_stages = (weft_pp_stages){0};
}

/* ---- parameters on several devices --------------------------------------------------------- */

/* Sets device[] by node to its device; -1: none, -2: several. */
static weft_status find_devices(const weft_pp_stages *s, int32_t *device)
{
    const int32_t nodes = weft_graph_node_count(s->graph);
    bool *has = weft_alloc(nodes + 1);
    if (!has)
        return no_memory(s->graph);
    for (int32_t n = 0; n < nodes; n++)
        device[n] = -1;
    for (int q = 0; q < s->count; q++) {
        memset(has, 0, (size_t)nodes);
        mark_pp_stage(s, q, has);
        for (int32_t n = 0; n < nodes; n++)
            if (has[n])
                device[n] = device[n] == -1 || device[n] == s->device_of[q] ? s->device_of[q] : -2;
    }
    weft_free(has);
    return WEFT_OK;
}

static bool is_trained(const weft_node *node)
{
    return node->op == WEFT_OP_PARAM && !((const weft_attr_source *)node->attr)->frozen;
}

/* Marks trained parameters of several devices in `shared`, and parameters without a consumer in
 * `unread`. Scalars are shared, because they cannot be split over the axis like a parameter of one
 * stage. */
static weft_status mark_params(const weft_pp_stages *s, bool *shared, bool *unread)
{
    const weft_graph *g = s->graph;
    const int32_t nodes = weft_graph_node_count(g);
    int32_t *device = weft_calloc(nodes + 1, sizeof *device);
    if (!device)
        return no_memory(g);
    weft_status_code status = WEFT_OK;
    WEFT_GO(find_devices(s, device));
    for (int32_t n = 0; n < nodes; n++) {
        const weft_node *node = weft_graph_node(g, n);
        shared[n] = is_trained(node) && device[n] != -1 &&
                    (device[n] == -2 || weft_value_get(g, node->out[0])->shape.rank == 0);
        unread[n] = node->op == WEFT_OP_PARAM && device[n] == -1;
    }
out:
    weft_free(device);
    return status;
}

/* ---- the forward of a stage ----------------------------------------------------------------- */

typedef struct cutter {
    const weft_pp_stages *s;
    int pp_stage;
    weft_rewrite r;
    bool *has, *shared;
    bool *unread; /* parameters without a consumer; the last stage keeps them */
    weft_pp_stage_graph *out;
} cutter;

static weft_value slot_of_link(cutter *c, const weft_pp_edge *link, bool gradient)
{
    char name[WEFT_TRAIN_STAGE_NAME];
    weft_train_stage_name(link, gradient, name);
    const weft_value there = weft_graph_find(c->r.to, name);
    return weft_value_ok(there)
               ? there
               : weft_rewrite_slot(c->r.to, name,
                                   weft_value_get(c->s->graph, (weft_value){link->value}), false);
}

static weft_status reserve(cutter *c)
{
    const weft_pp_stages *s = c->s;
    weft_arena *arena = weft_graph_arena(c->r.to);
    const int64_t links = (s->links + 1) * (int64_t)sizeof(weft_value);
    const int64_t nodes = (weft_graph_node_count(s->graph) + 1) * (int64_t)sizeof(weft_value);
    weft_pp_stage_graph *o = c->out;
    o->sent = weft_arena_alloc(arena, links);
    o->sent_grad = weft_arena_alloc(arena, links);
    o->received = weft_arena_alloc(arena, links);
    o->received_grad = weft_arena_alloc(arena, links);
    o->shared = weft_arena_alloc(arena, nodes);
    return WEFT_ALLOCATED(o->sent && o->sent_grad && o->received && o->received_grad && o->shared,
                          "the stages of a graph of %d nodes",
                          (int)weft_graph_node_count(s->graph));
}

/* Adds the received values first. */
static void add_received(cutter *c)
{
    const weft_pp_stages *s = c->s;
    for (int i = 0; i < s->links && weft_graph_check(c->r.to) == WEFT_OK; i++) {
        const weft_pp_edge *link = &s->link[i];
        if (link->to != c->pp_stage)
            continue;
        const weft_value v = slot_of_link(c, link, false);
        c->r.map[link->value] = v;
        c->out->received[c->out->receives] = v;
        c->out->received_grad[c->out->receives++] = slot_of_link(c, link, true);
    }
}

/* Stores sent values in the slots from which messages are sent. */
static void add_sent(cutter *c)
{
    const weft_pp_stages *s = c->s;
    int32_t before = -1;
    for (int i = 0; i < s->links && weft_graph_check(c->r.to) == WEFT_OK; i++) {
        const weft_pp_edge *link = &s->link[i];
        if (link->from != c->pp_stage)
            continue;
        const weft_value v = c->r.map[link->value], slot = slot_of_link(c, link, false);
        if (slot.id != v.id && before != link->value)
            weft_update(c->r.to, slot, v);
        before = link->value;
        c->out->sent[c->out->sends] = v;
        c->out->sent_grad[c->out->sends++] = slot_of_link(c, link, true);
    }
}

static void copy_nodes(cutter *c)
{
    const weft_graph *g = c->s->graph;
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(c->r.to) == WEFT_OK; n++) {
        if (!c->has[n])
            continue;
        weft_rewrite_node(&c->r, n, NULL);
        if (c->shared[n])
            c->out->shared[c->out->shares++] = c->r.map[weft_graph_node(g, n)->out[0].id];
    }
}

/* Adds each output on the stage that computes it. Outputs that no block computes are on the last
 * stage. */
static void add_outputs(cutter *c)
{
    int count;
    const weft_named *output = weft_graph_outputs(c->s->graph, &count);
    for (int i = 0; i < count; i++) {
        const int made = c->s->pp_stage_of[node_of(c->s->graph, output[i].value)];
        if ((made < 0 ? c->s->count - 1 : made) == c->pp_stage)
            weft_output(c->r.to, output[i].name, c->r.map[output[i].value.id]);
    }
}

static void mark_outputs(cutter *c)
{
    int count;
    const weft_named *output = weft_graph_outputs(c->s->graph, &count);
    for (int i = 0; i < count && c->pp_stage == c->s->count - 1; i++) {
        const int32_t made = node_of(c->s->graph, output[i].value);
        c->has[made] = c->has[made] || c->s->pp_stage_of[made] < 0;
    }
}

weft_status weft_pp_stage_extract(const weft_pp_stages *s, int pp_stage, bool shares,
                                  weft_pp_stage_graph *out)
{
    const int64_t nodes = weft_graph_node_count(s->graph);
    weft_pp_stage_graph made = {0};
    cutter c = {.s = s, .pp_stage = pp_stage, .out = &made};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(s->graph, &c.r));
    c.has = weft_alloc(nodes + 1);
    c.shared = weft_alloc(nodes + 1);
    c.unread = weft_alloc(nodes + 1);
    if (!c.has || !c.shared || !c.unread)
        WEFT_GO(no_memory(s->graph));
    WEFT_GO(mark_params(s, c.shared, c.unread));
    WEFT_GO(reserve(&c));
    for (int64_t n = 0; n < nodes; n++)
        c.has[n] = (shares && c.shared[n]) || (pp_stage == s->count - 1 && c.unread[n]);
    mark_outputs(&c);
    mark_pp_stage(s, pp_stage, c.has);
    add_received(&c);
    copy_nodes(&c);
    add_sent(&c);
    add_outputs(&c);
    WEFT_GO(weft_graph_check(c.r.to));
    made.graph = c.r.to;
    c.r.to = NULL;
    *out = made;
out:
    weft_free(c.has);
    weft_free(c.shared);
    weft_free(c.unread);
    weft_rewrite_abandon(&c.r);
    return status;
}

/* ---- programs of a stage -------------------------------------------------------------------- */

enum { ANYWHERE = -1, DEAD = -2, KINDS = WEFT_PP_TASK_W + 1 };

typedef struct splitter {
    const weft_graph *g;
    int8_t *kind_of;    /* per node; ANYWHERE: repeated where it is read */
    bool *has[KINDS];   /* per kind and node: part of the kind's program */
    bool *reads[KINDS]; /* per kind and value: computed by another, read by this */
    int32_t *updated;   /* per value: slot that it updates; -1: none */
    bool *offloaded;    /* per value: its slot is offloaded */
    weft_rewrite r;
} splitter;

/* Returns true for sources, aliases and nodes without inputs, which cost nothing to repeat. */
static bool is_anywhere(const weft_node *node)
{
    return weft_op_has(node->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) || node->in_count == 0;
}

static bool is_slot(const weft_graph *g, weft_value v)
{
    const weft_node *node = weft_graph_node(g, node_of(g, v));
    return node->op == WEFT_OP_STATE && ((const weft_attr_source *)node->attr)->slot;
}

/* Marks the nodes that marked nodes depend on. */
static void mark_back(const weft_graph *g, bool *marked)
{
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count && marked[n]; i++)
            if (weft_value_ok(node->in[i]))
                marked[node_of(g, node->in[i])] = true;
    }
}

/* Marks the nodes that outputs and updates need; with `slots` only updates of slots. */
static void mark_needed(const weft_graph *g, bool slots, bool *needed)
{
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count && !slots; i++)
        needed[node_of(g, output[i].value)] = true;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        if (!slots || is_slot(g, update[i].source))
            needed[node_of(g, update[i].value)] = true;
    mark_back(g, needed);
}

static weft_status mark_kinds(splitter *t, bool apart)
{
    const int32_t nodes = weft_graph_node_count(t->g), backward = weft_rewrite_backward(t->g);
    bool *alive = weft_alloc(2 * (nodes + 1)), *leads = alive + nodes + 1;
    if (!alive)
        return no_memory(t->g);
    mark_needed(t->g, false, alive);
    mark_needed(t->g, true, leads);
    for (int32_t n = 0; n < nodes; n++)
        t->kind_of[n] = (int8_t)(is_anywhere(weft_graph_node(t->g, n)) ? ANYWHERE
                                 : !alive[n]                           ? DEAD
                                 : n < backward                        ? WEFT_PP_TASK_F
                                 : !apart || leads[n]                  ? WEFT_PP_TASK_B
                                                                       : WEFT_PP_TASK_W);
    weft_free(alive);
    return WEFT_OK;
}

/* The program that computes a value, through free nodes. A value that is only passed on belongs to
 * the backward. */
static weft_pp_task_kind kind_of_value(const splitter *t, weft_value v)
{
    int32_t n = node_of(t->g, v);
    while (t->kind_of[n] == ANYWHERE && weft_graph_node(t->g, n)->in_count > 0)
        n = node_of(t->g, weft_graph_node(t->g, n)->in[0]);
    return t->kind_of[n] == ANYWHERE ? WEFT_PP_TASK_B : (weft_pp_task_kind)t->kind_of[n];
}

static void mark_program(splitter *t, weft_pp_task_kind kind)
{
    bool *has = t->has[kind];
    int count;
    const weft_named *output = weft_graph_outputs(t->g, &count);
    for (int i = 0; i < count; i++)
        if (kind_of_value(t, output[i].value) == kind)
            has[node_of(t->g, output[i].value)] = true;
    const weft_pair *update = weft_graph_updates(t->g, &count);
    for (int i = 0; i < count; i++)
        if (kind_of_value(t, update[i].value) == kind)
            has[node_of(t->g, update[i].value)] = has[node_of(t->g, update[i].source)] = true;
    for (int32_t n = weft_graph_node_count(t->g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(t->g, n);
        /* slots from other stages are part of B, even if unread */
        has[n] =
            has[n] || t->kind_of[n] == (int8_t)kind ||
            (kind == WEFT_PP_TASK_B && node->op == WEFT_OP_STATE && is_slot(t->g, node->out[0]));
        for (int i = 0; i < node->in_count && has[n]; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t made = node_of(t->g, node->in[i]);
            if (t->kind_of[made] == ANYWHERE || t->kind_of[made] == (int8_t)kind)
                has[made] = true;
            else
                t->reads[kind][node->in[i].id] = true;
        }
    }
}

/* The slot in which value `v` is passed on. */
static weft_value slot_of_value(splitter *t, int32_t v)
{
    const weft_value_info *info = weft_value_get(t->g, (weft_value){v});
    char name[WEFT_TRAIN_STAGE_NAME];
    if (t->updated[v] >= 0)
        snprintf(name, sizeof name, "%s", weft_value_get(t->g, (weft_value){t->updated[v]})->name);
    else
        snprintf(name, sizeof name, "slot.k%d", (int)v);
    const weft_value there = weft_graph_find(t->r.to, name);
    return weft_value_ok(there) ? there : weft_rewrite_slot(t->r.to, name, info, t->offloaded[v]);
}

/* Returns true if this program computes the value, another reads it, and no update stores it in a
 * slot already. */
static bool is_saved(const splitter *t, int32_t v, weft_pp_task_kind kind)
{
    bool read = false;
    for (int k = 0; k < KINDS; k++)
        read = read || t->reads[k][v];
    return read && t->updated[v] < 0 &&
           t->kind_of[weft_value_get(t->g, (weft_value){v})->node] == (int8_t)kind;
}

static weft_status emit_program(splitter *t, weft_pp_task_kind kind)
{
    const weft_graph *g = t->g;
    const int32_t values = weft_graph_value_count(g);
    weft_graph *to = t->r.to;
    int count;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (t->has[kind][n] && weft_graph_node(g, n)->in_count == 0)
            weft_rewrite_node(&t->r, n, NULL);
    for (int32_t v = 0; v < values && weft_graph_check(to) == WEFT_OK; v++) {
        if (t->reads[kind][v])
            t->r.map[v] = slot_of_value(t, v);
        if (is_saved(t, v, kind)) /* the slot comes first, so that the value is computed in place */
            slot_of_value(t, v);
    }
    for (int32_t n = 0; n < weft_graph_node_count(g) && weft_graph_check(to) == WEFT_OK; n++)
        if (t->has[kind][n] && weft_graph_node(g, n)->in_count > 0)
            weft_rewrite_node(&t->r, n, NULL);
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        if (kind_of_value(t, output[i].value) == kind)
            weft_output(to, output[i].name, t->r.map[output[i].value.id]);
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        if (kind_of_value(t, update[i].value) == kind)
            weft_update(to, t->r.map[update[i].source.id], t->r.map[update[i].value.id]);
    for (int32_t v = 0; v < values && weft_graph_check(to) == WEFT_OK; v++)
        if (is_saved(t, v, kind))
            weft_update(to, slot_of_value(t, v), t->r.map[v]);
    return weft_graph_check(to);
}

/* Marks the outputs of nodes marked `offload`. Outputs of the graph and values sent to other stages
 * stay resident. */
static void mark_offloaded(splitter *t)
{
    int count;
    for (int32_t n = 0; n < weft_graph_node_count(t->g); n++) {
        const weft_node *node = weft_graph_node(t->g, n);
        for (int k = 0; k < node->out_count && node->offload; k++)
            if (weft_value_ok(node->out[k]))
                t->offloaded[node->out[k].id] = t->updated[node->out[k].id] < 0;
    }
    const weft_named *output = weft_graph_outputs(t->g, &count);
    for (int i = 0; i < count; i++)
        t->offloaded[output[i].value.id] = false;
}

weft_status weft_pp_stage_split(const weft_graph *g, bool apart, bool offload,
                                weft_pp_task_kind kind, weft_graph **out)
{
    const int64_t nodes = weft_graph_node_count(g) + 1, values = weft_graph_value_count(g) + 1;
    splitter t = {.g = g};
    int count;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &t.r));
    char *marks = weft_alloc(KINDS * (nodes + values) + nodes + values);
    t.updated = weft_calloc(values, sizeof *t.updated);
    if (!marks || !t.updated)
        WEFT_GO(no_memory(g));
    t.kind_of = (int8_t *)marks;
    for (int k = 0; k < KINDS; k++) {
        t.has[k] = (bool *)(marks + nodes + k * nodes);
        t.reads[k] = (bool *)(marks + nodes + KINDS * nodes + k * values);
    }
    t.offloaded = (bool *)(marks + nodes + KINDS * (nodes + values));
    memset(t.updated, 0xff, (size_t)values * sizeof *t.updated);
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        if (is_slot(g, update[i].source))
            t.updated[update[i].value.id] = update[i].source.id;
    if (offload)
        mark_offloaded(&t);
    WEFT_GO(mark_kinds(&t, apart));
    for (int k = 0; k < KINDS; k++)
        mark_program(&t, (weft_pp_task_kind)k);
    WEFT_GO(emit_program(&t, kind));
    *out = t.r.to;
    t.r.to = NULL;
out:
    weft_free(marks);
    weft_free(t.updated);
    weft_rewrite_abandon(&t.r);
    return status;
}
