#include "pass/stage.h"

#include "pass/rewrite.h"

#include <stdio.h>
#include <string.h>

static weft_status no_memory(const weft_graph *g)
{
    return weft_fail(WEFT_E_MEMORY, "no memory for the stages of a graph of %d nodes",
                     (int)weft_graph_node_count(g));
}

void weft_stage_name(const weft_stage_link *link, bool gradient, char name[WEFT_STAGE_NAME])
{
    if (gradient)
        snprintf(name, WEFT_STAGE_NAME, "slot.v%d.to%d", (int)link->value, (int)link->to);
    else
        snprintf(name, WEFT_STAGE_NAME, "slot.v%d", (int)link->value);
}

/* ---- what goes where ------------------------------------------------------------------------ */

static int32_t node_of(const weft_graph *g, weft_value v)
{
    return weft_value_get(g, v)->node;
}

static void place_nodes(weft_stages *s, const weft_chain *chain, const int64_t *cut)
{
    const weft_graph *g = s->graph;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        int stage = -1;
        while (chain->unit_of[n] >= 0 && stage + 1 < s->count &&
               cut[stage + 1] <= chain->unit_of[n])
            stage++;
        s->stage_of[n] = stage;
    }
}

/* Nodes that stage `q` has: its own, and of those that no block made what it reads. */
static void mark_stage(const weft_stages *s, int q, bool *has)
{
    const weft_graph *g = s->graph;
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        has[n] = has[n] || s->stage_of[n] == q;
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count && has[n]; i++)
            if (weft_value_ok(node->in[i]) && s->stage_of[node_of(g, node->in[i])] < 0)
                has[node_of(g, node->in[i])] = true;
    }
}

/* By value, a bit matrix of stages that read it from another: reads[v * count + q]. */
static void mark_readers(const weft_stages *s, bool *reads)
{
    const weft_graph *g = s->graph;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int made = s->stage_of[node_of(g, node->in[i])];
            if (made >= 0 && s->stage_of[n] != made)
                reads[(int64_t)node->in[i].id * s->count + s->stage_of[n]] = true;
        }
    }
}

/* From the last reader to the first: a stage on the maker's device takes the value from it, another
 * from the stage before, which so has it too. */
static void link_value(weft_stages *s, int32_t v, bool *reads)
{
    const int made = s->stage_of[node_of(s->graph, (weft_value){v})], first = s->links;
    for (int q = s->count - 1; q > made; q--) {
        if (!reads[q])
            continue;
        const int from = s->device_of[q] == s->device_of[made] ? made : q - 1;
        reads[from] = from > made;
        s->link[s->links++] = (weft_stage_link){v, from, q, s->device_of[from] == s->device_of[q]};
    }
    for (int a = first, b = s->links - 1; a < b; a++, b--) {
        const weft_stage_link swap = s->link[a];
        s->link[a] = s->link[b];
        s->link[b] = swap;
    }
}

static weft_status make_links(weft_stages *s)
{
    const int64_t values = weft_graph_value_count(s->graph);
    bool *reads = weft_alloc((values + 1) * s->count);
    int64_t crossing = 0;
    if (!reads)
        return no_memory(s->graph);
    mark_readers(s, reads);
    for (int64_t v = 0; v < values; v++) {
        bool any = false;
        for (int q = 0; q < s->count; q++)
            any = any || reads[v * s->count + q];
        crossing += any;
    }
    s->link = weft_arena_alloc(s->arena, (crossing * s->count + 1) * (int64_t)sizeof *s->link);
    for (int32_t v = 0; v < values && s->link; v++)
        if (s->stage_of[node_of(s->graph, (weft_value){v})] >= 0)
            link_value(s, v, reads + (int64_t)v * s->count);
    weft_free(reads);
    return s->link ? WEFT_OK : no_memory(s->graph);
}

weft_status weft_stages_make(const weft_graph *g, const weft_chain *chain, const int64_t *cut,
                             int count, const int32_t *device_of, int axis, weft_stages *out)
{
    const int64_t nodes = weft_graph_node_count(g) + 1;
    weft_stages s = {.arena = weft_arena_create(), .graph = g, .count = count, .axis = axis};
    if (s.arena) {
        s.device_of = weft_arena_alloc(s.arena, count * (int64_t)sizeof *s.device_of);
        s.stage_of = weft_arena_alloc(s.arena, nodes * (int64_t)sizeof *s.stage_of);
    }
    if (!s.device_of || !s.stage_of) {
        weft_arena_free(s.arena);
        return no_memory(g);
    }
    memcpy(s.device_of, device_of, (size_t)count * sizeof *device_of);
    place_nodes(&s, chain, cut);
    const weft_status_code status = make_links(&s);
    if (status == WEFT_OK)
        *out = s;
    else
        weft_arena_free(s.arena);
    return status;
}

void weft_stages_free(weft_stages *stages)
{
    weft_arena_free(stages->arena);
    *stages = (weft_stages){0};
}

/* ---- parameters of several devices ---------------------------------------------------------- */

/* By node: the device that has it; -1 none, -2 several. */
static weft_status find_devices(const weft_stages *s, int32_t *device)
{
    const int32_t nodes = weft_graph_node_count(s->graph);
    bool *has = weft_alloc(nodes + 1);
    if (!has)
        return no_memory(s->graph);
    for (int32_t n = 0; n < nodes; n++)
        device[n] = -1;
    for (int q = 0; q < s->count; q++) {
        memset(has, 0, (size_t)nodes);
        mark_stage(s, q, has);
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

/* Marks trained parameters of several devices in `shared`, and parameters that no node reads in
 * `unread`. A scalar cannot be split over the axis like a parameter of one stage: each device has
 * it. */
static weft_status mark_params(const weft_stages *s, bool *shared, bool *unread)
{
    const weft_graph *g = s->graph;
    const int32_t nodes = weft_graph_node_count(g);
    int32_t *device = weft_alloc((nodes + 1) * (int64_t)sizeof *device);
    if (!device)
        return no_memory(g);
    const weft_status_code status = find_devices(s, device);
    for (int32_t n = 0; n < nodes && status == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(g, n);
        shared[n] = is_trained(node) && device[n] != -1 &&
                    (device[n] == -2 || weft_value_get(g, node->out[0])->shape.rank == 0);
        unread[n] = node->op == WEFT_OP_PARAM && device[n] == -1;
    }
    weft_free(device);
    return status;
}

/* ---- the forward of a stage ----------------------------------------------------------------- */

typedef struct cutter {
    const weft_stages *s;
    int stage;
    weft_rewrite r;
    bool *has, *shared;
    bool *unread; /* parameters that no stage reads; the last stage keeps them for the model */
    weft_stage_graph *out;
} cutter;

static weft_value slot_of_link(cutter *c, const weft_stage_link *link, bool gradient)
{
    char name[WEFT_STAGE_NAME];
    weft_stage_name(link, gradient, name);
    const weft_value there = weft_graph_find(c->r.to, name);
    return weft_value_ok(there)
               ? there
               : weft_rewrite_slot(c->r.to, name,
                                   weft_value_get(c->s->graph, (weft_value){link->value}), false);
}

static weft_status reserve(cutter *c)
{
    const weft_stages *s = c->s;
    weft_arena *arena = weft_graph_arena(c->r.to);
    const int64_t links = (s->links + 1) * (int64_t)sizeof(weft_value);
    const int64_t nodes = (weft_graph_node_count(s->graph) + 1) * (int64_t)sizeof(weft_value);
    weft_stage_graph *o = c->out;
    o->sent = weft_arena_alloc(arena, links);
    o->sent_grad = weft_arena_alloc(arena, links);
    o->received = weft_arena_alloc(arena, links);
    o->received_grad = weft_arena_alloc(arena, links);
    o->shared = weft_arena_alloc(arena, nodes);
    return o->sent && o->sent_grad && o->received && o->received_grad && o->shared
               ? WEFT_OK
               : no_memory(s->graph);
}

/* What comes from other stages is there first. */
static void add_received(cutter *c)
{
    const weft_stages *s = c->s;
    for (int i = 0; i < s->links && weft_graph_check(c->r.to) == WEFT_OK; i++) {
        const weft_stage_link *link = &s->link[i];
        if (link->to != c->stage)
            continue;
        const weft_value v = slot_of_link(c, link, false);
        c->r.map[link->value] = v;
        c->out->received[c->out->receives] = v;
        c->out->received_grad[c->out->receives++] = slot_of_link(c, link, true);
    }
}

/* What goes to others is kept where the message is sent from. */
static void add_sent(cutter *c)
{
    const weft_stages *s = c->s;
    int32_t before = -1;
    for (int i = 0; i < s->links && weft_graph_check(c->r.to) == WEFT_OK; i++) {
        const weft_stage_link *link = &s->link[i];
        if (link->from != c->stage)
            continue;
        const weft_value v = c->r.map[link->value], kept = slot_of_link(c, link, false);
        if (kept.id != v.id && before != link->value)
            weft_update(c->r.to, kept, v);
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

/* Each output on the stage that makes it; of what no block made, on the last. */
static void add_outputs(cutter *c)
{
    int count;
    const weft_named *output = weft_graph_outputs(c->s->graph, &count);
    for (int i = 0; i < count; i++) {
        const int made = c->s->stage_of[node_of(c->s->graph, output[i].value)];
        if ((made < 0 ? c->s->count - 1 : made) == c->stage)
            weft_output(c->r.to, output[i].name, c->r.map[output[i].value.id]);
    }
}

static void mark_outputs(cutter *c)
{
    int count;
    const weft_named *output = weft_graph_outputs(c->s->graph, &count);
    for (int i = 0; i < count && c->stage == c->s->count - 1; i++) {
        const int32_t made = node_of(c->s->graph, output[i].value);
        c->has[made] = c->has[made] || c->s->stage_of[made] < 0;
    }
}

weft_status weft_stage_cut(const weft_stages *s, int stage, bool shares, weft_stage_graph *out)
{
    const int64_t nodes = weft_graph_node_count(s->graph);
    weft_stage_graph made = {0};
    cutter c = {.s = s, .stage = stage, .out = &made};
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
        c.has[n] = (shares && c.shared[n]) || (stage == s->count - 1 && c.unread[n]);
    mark_outputs(&c);
    mark_stage(s, stage, c.has);
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

enum { ANYWHERE = -1, DEAD = -2, KINDS = WEFT_STAGE_W + 1 };

typedef struct splitter {
    const weft_graph *g;
    int8_t *kind_of;    /* by node; ANYWHERE: made again where it is read */
    bool *has[KINDS];   /* by kind and node: in its program */
    bool *reads[KINDS]; /* by kind and value: made by another, and read by it */
    int32_t *updated;   /* by value: the slot that holds it after its program; -1: none */
    bool *away;         /* by value: what it is handed over in lies elsewhere */
    weft_rewrite r;
} splitter;

/* Costs nothing, or needs nothing. */
static bool is_anywhere(const weft_node *node)
{
    return weft_op_has(node->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) || node->in_count == 0;
}

static bool is_slot(const weft_graph *g, weft_value v)
{
    const weft_node *node = weft_graph_node(g, node_of(g, v));
    return node->op == WEFT_OP_STATE && ((const weft_attr_source *)node->attr)->slot;
}

/* Marks what marked nodes read. */
static void mark_back(const weft_graph *g, bool *marked)
{
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count && marked[n]; i++)
            if (weft_value_ok(node->in[i]))
                marked[node_of(g, node->in[i])] = true;
    }
}

/* What outputs and updates need; with `slots` only updates of slots. */
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
                                 : n < backward                        ? WEFT_STAGE_F
                                 : !apart || leads[n]                  ? WEFT_STAGE_B
                                                                       : WEFT_STAGE_W);
    weft_free(alive);
    return WEFT_OK;
}

/* The program that has a value: what it comes from, where it costs nothing; what is handed on as it
 * came goes with the backward. */
static weft_stage_kind kind_of_value(const splitter *t, weft_value v)
{
    int32_t n = node_of(t->g, v);
    while (t->kind_of[n] == ANYWHERE && weft_graph_node(t->g, n)->in_count > 0)
        n = node_of(t->g, weft_graph_node(t->g, n)->in[0]);
    return t->kind_of[n] == ANYWHERE ? WEFT_STAGE_B : (weft_stage_kind)t->kind_of[n];
}

static void mark_program(splitter *t, weft_stage_kind kind)
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
        /* what comes from other stages has its place, also where nobody reads it */
        has[n] = has[n] || t->kind_of[n] == (int8_t)kind ||
                 (kind == WEFT_STAGE_B && node->op == WEFT_OP_STATE && is_slot(t->g, node->out[0]));
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

/* The state that value `v` is handed over in. */
static weft_value slot_of_value(splitter *t, int32_t v)
{
    const weft_value_info *info = weft_value_get(t->g, (weft_value){v});
    char name[WEFT_STAGE_NAME];
    if (t->updated[v] >= 0)
        snprintf(name, sizeof name, "%s", weft_value_get(t->g, (weft_value){t->updated[v]})->name);
    else
        snprintf(name, sizeof name, "slot.k%d", (int)v);
    const weft_value there = weft_graph_find(t->r.to, name);
    return weft_value_ok(there) ? there : weft_rewrite_slot(t->r.to, name, info, t->away[v]);
}

/* True: this program makes the value, another reads it, and no update hands it over already. */
static bool is_kept(const splitter *t, int32_t v, weft_stage_kind kind)
{
    bool read = false;
    for (int k = 0; k < KINDS; k++)
        read = read || t->reads[k][v];
    return read && t->updated[v] < 0 &&
           t->kind_of[weft_value_get(t->g, (weft_value){v})->node] == (int8_t)kind;
}

static weft_status emit_program(splitter *t, weft_stage_kind kind)
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
        if (is_kept(t, v, kind)) /* before what is made in it, so that it is made there */
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
        if (is_kept(t, v, kind))
            weft_update(to, slot_of_value(t, v), t->r.map[v]);
    return weft_graph_check(to);
}

/* What nodes marked so make; outputs and what goes to other stages are wanted where they are. */
static void mark_away(splitter *t)
{
    int count;
    for (int32_t n = 0; n < weft_graph_node_count(t->g); n++) {
        const weft_node *node = weft_graph_node(t->g, n);
        for (int k = 0; k < node->out_count && node->away; k++)
            if (weft_value_ok(node->out[k]))
                t->away[node->out[k].id] = t->updated[node->out[k].id] < 0;
    }
    const weft_named *output = weft_graph_outputs(t->g, &count);
    for (int i = 0; i < count; i++)
        t->away[output[i].value.id] = false;
}

weft_status weft_stage_split(const weft_graph *g, bool apart, bool away, weft_stage_kind kind,
                             weft_graph **out)
{
    const int64_t nodes = weft_graph_node_count(g) + 1, values = weft_graph_value_count(g) + 1;
    splitter t = {.g = g};
    int count;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &t.r));
    char *marks = weft_alloc(KINDS * (nodes + values) + nodes + values);
    t.updated = weft_alloc(values * (int64_t)sizeof *t.updated);
    if (!marks || !t.updated)
        WEFT_GO(no_memory(g));
    t.kind_of = (int8_t *)marks;
    for (int k = 0; k < KINDS; k++) {
        t.has[k] = (bool *)(marks + nodes + k * nodes);
        t.reads[k] = (bool *)(marks + nodes + KINDS * nodes + k * values);
    }
    t.away = (bool *)(marks + nodes + KINDS * (nodes + values));
    memset(t.updated, 0xff, (size_t)values * sizeof *t.updated);
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        if (is_slot(g, update[i].source))
            t.updated[update[i].value.id] = update[i].source.id;
    if (away)
        mark_away(&t);
    WEFT_GO(mark_kinds(&t, apart));
    for (int k = 0; k < KINDS; k++)
        mark_program(&t, (weft_stage_kind)k);
    WEFT_GO(emit_program(&t, kind));
    *out = t.r.to;
    t.r.to = NULL;
out:
    weft_free(marks);
    weft_free(t.updated);
    weft_rewrite_abandon(&t.r);
    return status;
}
