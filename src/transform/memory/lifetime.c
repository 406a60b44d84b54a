/* A place for every buffer.
 *
 *   1. storage:  each value is its own storage, or lies in another's: see pass.h
 *   2. life:     a storage is in use from the node that first writes it to the last that reads it;
 *                what a collective reads and writes, until the collective is waited for
 *   3. views:    slices and concats that need not copy (views.c)
 *   4. sharing:  in the order of the nodes, results that may be written over what nobody needs any
 *                more: an updated source, an input that dies there
 *   5. offsets:  offline best fit (offsets.c)                                                  */
#include "pass/lifetime.h"

#include "pass/offsets.h"

#include <string.h>

int32_t weft_memory_plan_root(const weft_memory_plan *plan, int32_t value)
{
    while (plan->place[value].alias_of >= 0)
        value = plan->place[value].alias_of;
    return value;
}

int64_t weft_memory_plan_shift(const weft_memory_plan *plan, int32_t value)
{
    int64_t shift = 0;
    for (; plan->place[value].alias_of >= 0; value = plan->place[value].alias_of)
        shift += plan->place[value].shift;
    return shift;
}

int64_t weft_lifetime_bytes(const lifetime *l, int32_t value)
{
    const weft_value_info *info = weft_value_get(l->graph, (weft_value){value});
    const int64_t element = l->options->element_bytes
                                ? l->options->element_bytes(l->options->user, info->dtype)
                                : weft_dtype_bytes(info->dtype);
    return weft_shape_count(&info->shape) * element;
}

static int32_t root_of(const lifetime *l, weft_value v)
{
    return weft_memory_plan_root(l->plan, v.id);
}

/* ---- storage and life ---------------------------------------------------------------------- */

static void set_source(lifetime *l, const weft_node *node, weft_place *place)
{
    weft_memory_plan *plan = l->plan;
    switch (node->op) {
    case WEFT_OP_INPUT:
        place->region = WEFT_REGION_INPUT;
        place->offset = plan->input_bytes;
        plan->input_bytes += place->bytes;
        break;
    case WEFT_OP_CONSTANT:
        place->region = WEFT_REGION_CONSTANT;
        place->offset = plan->constant_bytes;
        plan->constant_bytes += place->bytes;
        break;
    default:
        place->region = WEFT_REGION_STORE;
        if (((const weft_attr_source *)node->attr)->slot)
            break; /* of a record */
        if (((const weft_attr_source *)node->attr)->away)
            plan->streamed_bytes += place->bytes;
        else
            plan->source_bytes += place->bytes;
    }
}

/* Sources, and reshape and vary as aliases; the node at which each value is made. */
static void set_storage(lifetime *l)
{
    weft_memory_plan *plan = l->plan;
    for (int32_t v = 0; v < l->values; v++)
        plan->place[v] = (weft_place){
            .region = WEFT_REGION_ARENA, .offset = -1, .alias_of = -1, .first = -1, .last = -1};
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        plan->view[n] = weft_op_is_alias(node->op);
        for (int o = 0; o < node->out_count; o++) {
            const int32_t v = node->out[o].id;
            if (v < 0)
                continue;
            weft_place *place = &plan->place[v];
            place->first = n;
            place->bytes = weft_aligned(weft_lifetime_bytes(l, v));
            if (weft_op_has(node->op, WEFT_TRAIT_GIVEN))
                set_source(l, node, place);
            else if (node->op == WEFT_OP_OFFLOAD)
                place->region = WEFT_REGION_AWAY;
            else if (plan->view[n])
                place->alias_of = root_of(l, node->in[0]);
        }
    }
}

void weft_lifetime_set_lives(lifetime *l)
{
    const weft_memory_plan *plan = l->plan;
    for (int32_t v = 0; v < l->values; v++)
        l->life[v].last = l->life[v].reader = plan->place[v].first;
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        const int32_t until = plan->wait[n] > n + 1 ? plan->wait[n] - 1 : n;
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            life *in = &l->life[root_of(l, node->in[i])];
            in->reader = n;
            in->last = in->last > until ? in->last : until;
        }
        for (int o = 0; o < node->out_count; o++) { /* a collective writes until it is waited for */
            if (!weft_value_ok(node->out[o]))
                continue;
            life *out = &l->life[root_of(l, node->out[o])];
            out->last = out->last > until ? out->last : until;
        }
    }
}

/* ---- sharing ------------------------------------------------------------------------------- */

static void pin(lifetime *l, weft_value v)
{
    l->life[root_of(l, v)].pinned = true;
}

/* Outputs, and new values that are not written over their source, live to the end. */
static void pin_outputs(lifetime *l)
{
    int count;
    const weft_named *output = weft_graph_outputs(l->graph, &count);
    for (int i = 0; i < count; i++)
        pin(l, output[i].value);
}

/* Finds the updates that may be made in place: `goal` of the new value is the source. The others
 * are pinned. */
static weft_status find_goals(lifetime *l)
{
    int count;
    const weft_pair *update = weft_graph_updates(l->graph, &count);
    for (int32_t v = 0; v < l->values; v++)
        l->life[v].goal = -1;
    for (int u = 0; u < count; u++) { /* two sources with one new value: neither is in its place */
        int32_t *goal = &l->life[update[u].value.id].goal;
        *goal = *goal == -1 ? update[u].source.id : -2;
    }
    for (int u = 0; u < count; u++) {
        const int32_t s = update[u].source.id, v = update[u].value.id,
                      root = root_of(l, update[u].value);
        const weft_value_info *info = weft_value_get(l->graph, update[u].value);
        if (root == s)
            continue;
        for (int w = 0; w < count && l->plan->place[root].region == WEFT_REGION_STORE; w++)
            if (update[w].source.id == root)
                return weft_fail(WEFT_E_UNSUPPORTED,
                                 "update of \"%s\": its new value is the storage of \"%s\", which "
                                 "is updated too; compute a copy first",
                                 weft_value_get(l->graph, update[u].source)->name,
                                 weft_value_get(l->graph, (weft_value){root})->name);
        if (root != v || l->life[v].goal < 0 || l->life[v].pinned || l->life[s].pinned ||
            weft_op_has(weft_graph_node(l->graph, info->node)->op, WEFT_TRAIT_GIVEN) ||
            l->plan->view[info->node] || l->options->no_alias) {
            l->life[v].goal = -1;
            pin(l, update[u].value);
        }
    }
    return WEFT_OK;
}

/* Which inputs' storage output o of the node may be. An all_reduce has no kernel: every term is
 * sent before it is overwritten. */
static uint32_t over_inputs(const lifetime *l, const weft_node *node, int o)
{
    return l->options->in_place || weft_op_is_collective(node->op) ? weft_op_over(node->op, o) : 0;
}

/* The node reads nothing of root's storage, or only as inputs that its kernel may write over, in
 * the shape of the output. */
static bool allows_over(const lifetime *l, int32_t n, int o, int32_t root)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    const uint32_t slots = over_inputs(l, node, o);
    const weft_shape *shape = &weft_value_get(l->graph, node->out[o])->shape;
    for (int i = 0; i < node->in_count; i++)
        if (weft_value_ok(node->in[i]) && root_of(l, node->in[i]) == root &&
            (!weft_mask_has(slots, i) ||
             !weft_shape_equal(&weft_value_get(l->graph, node->in[i])->shape, shape)))
            return false;
    return true;
}

/* Output o of node n may be written over `root`:
 *
 *   nobody needs the old bytes      no later node reads them; no collective among the nodes before
 *                                   still sends them; they are not an output
 *   the node itself does not mind   it reads them only where its kernel says so
 *   the new ones fit                the same number of bytes                                    */
static bool may_overwrite(const lifetime *l, int32_t n, int o, int32_t root)
{
    const life *old = &l->life[root];
    const int32_t v = weft_graph_node(l->graph, n)->out[o].id;
    return old->reader <= n && old->landed <= n && !old->pinned &&
           l->plan->place[root].bytes == l->plan->place[v].bytes && allows_over(l, n, o, root);
}

/* The value lies in `root` from now on, which is needed as long as the value is. */
static void put_over(lifetime *l, int32_t v, int32_t root)
{
    life *old = &l->life[root], *new = &l->life[v];
    l->plan->place[v].alias_of = root;
    old->last = old->last > new->last ? old->last : new->last;
    old->reader = new->reader;
    old->pinned = new->pinned;
}

static void share_output(lifetime *l, int32_t n, int o)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    const int32_t v = node->out[o].id;
    if (v < 0 || l->plan->place[v].alias_of >= 0 || weft_op_has(node->op, WEFT_TRAIT_GIVEN) ||
        l->plan->view[n])
        return;
    if (l->life[v].goal >= 0) {
        if (may_overwrite(l, n, o, l->life[v].goal)) {
            put_over(l, v, l->life[v].goal);
            l->life[l->life[v].goal].pinned = true; /* it is what the next run reads */
            return;
        }
        l->life[v].pinned = true; /* kept to the end and copied then */
    }
    const uint32_t slots = over_inputs(l, node, o);
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_mask_has(slots, i) || !weft_value_ok(node->in[i]))
            continue;
        const int32_t root = root_of(l, node->in[i]);
        if (l->plan->place[root].region == WEFT_REGION_ARENA && may_overwrite(l, n, o, root)) {
            put_over(l, v, root);
            return;
        }
    }
}

/* In node order, so that chains form. */
static void share(lifetime *l)
{
    for (int32_t n = 0; n < l->nodes && !l->options->no_alias; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        for (int o = 0; o < node->out_count; o++)
            share_output(l, n, o);
        for (int i = 0; i < node->in_count && l->plan->wait[n] >= 0; i++) {
            int32_t *landed = &l->life[root_of(l, node->in[i])].landed;
            *landed = l->plan->wait[n] > *landed ? l->plan->wait[n] : *landed;
        }
    }
}

/* ---- offsets ------------------------------------------------------------------------------- */

static void set_ends(lifetime *l)
{
    weft_memory_plan *plan = l->plan;
    for (int32_t v = 0; v < l->values; v++) {
        const int32_t root = weft_memory_plan_root(plan, v);
        const weft_region region = plan->place[root].region;
        const bool stays =
            l->life[root].pinned || (region != WEFT_REGION_ARENA && region != WEFT_REGION_AWAY);
        plan->place[v].region = plan->place[root].region;
        plan->place[v].last = stays ? l->nodes : l->life[root].last;
    }
}

/* Pages of a file: what is copied there or back leaves this process' memory by whole ones. */
enum { PAGE = 4096 };

static weft_status set_offsets(lifetime *l, weft_region region, int64_t *height, int64_t *live)
{
    weft_memory_plan *plan = l->plan;
    const bool away = region == WEFT_REGION_AWAY;
    const int64_t guard = away ? 0 : l->options->guard;
    int32_t count = 0;
    weft_brick *box = weft_alloc((l->values + 1) * (int64_t)sizeof *box);
    if (!box)
        return weft_fail(WEFT_E_MEMORY, "no memory for the memory plan");
    for (int32_t v = 0; v < l->values; v++) {
        const weft_place *place = &plan->place[v];
        const int64_t bytes = place->bytes + 2 * guard;
        if (place->region == region && place->alias_of < 0 && place->first >= 0)
            box[count++] = (weft_brick){.value = v,
                                        .first = place->first,
                                        .last = place->last,
                                        .bytes = away ? (bytes + PAGE - 1) / PAGE * PAGE : bytes};
    }
    const weft_status_code status = weft_bricks_place(box, count, l->nodes, height, live);
    for (int32_t b = 0; b < count; b++)
        plan->place[box[b].value].offset = box[b].offset + guard;
    weft_free(box);
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------ */

weft_status weft_pass_lifetime(const weft_graph *g, const weft_lifetime_options *options,
                               weft_memory_plan *plan)
{
    static const weft_lifetime_options plain = {0};
    lifetime l = {.graph = g,
                  .options = options ? options : &plain,
                  .plan = plan,
                  .nodes = weft_graph_node_count(g),
                  .values = weft_graph_value_count(g)};
    weft_status_code status = WEFT_OK;
    int64_t away_live;
    WEFT_TRY(weft_graph_check(g));
    *plan = (weft_memory_plan){.count = l.values, .node_count = l.nodes};
    plan->place = weft_alloc((l.values + 1) * (int64_t)sizeof *plan->place);
    plan->wait = weft_alloc((l.nodes + 1) * (int64_t)sizeof *plan->wait);
    plan->view = weft_alloc((l.nodes + 1) * (int64_t)sizeof *plan->view);
    l.life = weft_alloc((l.values + 1) * (int64_t)sizeof *l.life);
    if (!plan->place || !plan->wait || !plan->view || !l.life) {
        status =
            weft_fail(WEFT_E_MEMORY, "no memory for the memory plan of %d values", (int)l.values);
        goto out;
    }
    set_storage(&l);
    WEFT_GO(weft_schedule_waits(g, plan->wait));
    weft_lifetime_set_lives(&l);
    if (!l.options->no_views && !l.options->no_alias) {
        WEFT_GO(weft_lifetime_find_views(&l));
        weft_lifetime_set_lives(&l);
    }
    pin_outputs(&l);
    WEFT_GO(find_goals(&l));
    share(&l);
    set_ends(&l);
    WEFT_GO(set_offsets(&l, WEFT_REGION_ARENA, &plan->arena_bytes, &plan->live_bytes));
    WEFT_GO(set_offsets(&l, WEFT_REGION_AWAY, &plan->away_bytes, &away_live));
    for (int32_t n = 0; n < l.nodes && l.options->workspace; n++) {
        const int64_t bytes = weft_aligned(l.options->workspace(l.options->user, g, n));
        plan->workspace_bytes = bytes > plan->workspace_bytes ? bytes : plan->workspace_bytes;
    }
out:
    weft_free(l.life);
    if (status != WEFT_OK)
        weft_memory_plan_free(plan);
    return status;
}

void weft_memory_plan_free(weft_memory_plan *plan)
{
    weft_free(plan->place);
    weft_free(plan->wait);
    weft_free(plan->view);
    *plan = (weft_memory_plan){0};
}
