/* Plans the memory of every value.
 *
 *   1. storage:      each value has its own storage, or is an alias into another's: see lifetime.h
 *   2. live ranges:  a storage is in use from the node that first writes it to the last that reads
 *                    it; operands and results of a collective, until the wait for the collective
 *   3. views:        slices and concats without a copy (views.c)
 *   4. sharing:      in node order, results overwrite storage that no later node needs: an updated
 *                    source, or an input that dies there
 *   5. offsets:      offline best fit (offsets.c) */
#include "transform/memory/lifetime.h"

#include "transform/memory/lifetime_internal.h"

#include "graph/graph.h"
#include "transform/memory/comm_waits.h"
#include "transform/memory/offsets.h"
#include "transform/memory/views.h"

#include <string.h>

int32_t weft_memory_plan_root(const weft_memory_plan *plan, int32_t value)
{
    while (plan->allocation[value].alias_of >= 0)
        value = plan->allocation[value].alias_of;
    return value;
}

int64_t weft_memory_plan_shift(const weft_memory_plan *plan, int32_t value)
{
    int64_t shift = 0;
    for (; plan->allocation[value].alias_of >= 0; value = plan->allocation[value].alias_of)
        shift += plan->allocation[value].shift;
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

/* ---- storage and live ranges --------------------------------------------------------------- */

static void set_source(lifetime *l, const weft_node *node, weft_allocation *allocation)
{
    weft_memory_plan *plan = l->plan;
    switch (weft_op_get(node->op)->storage) {
    case WEFT_STORAGE_input:
        allocation->region = WEFT_REGION_INPUT;
        allocation->offset = plan->input_bytes;
        plan->input_bytes += allocation->bytes;
        break;
    case WEFT_STORAGE_constant:
        allocation->region = WEFT_REGION_CONSTANT;
        allocation->offset = plan->constant_bytes;
        plan->constant_bytes += allocation->bytes;
        break;
    default:
        allocation->region = WEFT_REGION_STORE;
        if (((const weft_attr_source *)node->attr)->slot)
            break; /* stored in a slot */
        if (((const weft_attr_source *)node->attr)->offloaded)
            plan->streamed_bytes += allocation->bytes;
        else
            plan->source_bytes += allocation->bytes;
    }
}

/* Sets the storage of sources, the aliases of reshape and vary, and the first node of each
 * value. */
static void set_storage(lifetime *l)
{
    weft_memory_plan *plan = l->plan;
    for (int32_t v = 0; v < l->values; v++)
        plan->allocation[v] = (weft_allocation){
            .region = WEFT_REGION_ARENA, .offset = -1, .alias_of = -1, .first = -1, .last = -1};
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        plan->view[n] = weft_op_is_alias(node->op);
        for (int o = 0; o < node->out_count; o++) {
            const int32_t v = node->out[o].id;
            if (v < 0)
                continue;
            weft_allocation *allocation = &plan->allocation[v];
            allocation->first = n;
            allocation->bytes = weft_aligned(weft_lifetime_bytes(l, v));
            if (weft_op_has(node->op, WEFT_TRAIT_GIVEN))
                set_source(l, node, allocation);
            else if (weft_op_get(node->op)->storage == WEFT_STORAGE_offloaded)
                allocation->region = WEFT_REGION_OFFLOAD;
            else if (plan->view[n])
                allocation->alias_of = root_of(l, node->in[0]);
        }
    }
}

void weft_lifetime_set_lives(lifetime *l)
{
    const weft_memory_plan *plan = l->plan;
    for (int32_t v = 0; v < l->values; v++)
        l->life[v].last = l->life[v].last_read = plan->allocation[v].first;
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        const int32_t until = plan->wait[n] > n + 1 ? plan->wait[n] - 1 : n;
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            life *in = &l->life[root_of(l, node->in[i])];
            in->last_read = n;
            in->last = in->last > until ? in->last : until;
        }
        for (int o = 0; o < node->out_count; o++) { /* a collective writes until its wait */
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

/* Pins outputs, which are live to the end. */
static void pin_outputs(lifetime *l)
{
    int count;
    const weft_named *output = weft_graph_outputs(l->graph, &count);
    for (int i = 0; i < count; i++)
        pin(l, output[i].value);
}

/* Finds the updates that may be in place, and sets `goal` of the new value to the source. Pins the
 * other new values. */
static weft_status find_goals(lifetime *l)
{
    int count;
    const weft_pair *update = weft_graph_updates(l->graph, &count);
    for (int32_t v = 0; v < l->values; v++)
        l->life[v].goal = -1;
    for (int u = 0; u < count; u++) { /* one value for two sources: in place for neither */
        int32_t *goal = &l->life[update[u].value.id].goal;
        *goal = *goal == -1 ? update[u].source.id : -2;
    }
    for (int u = 0; u < count; u++) {
        const int32_t s = update[u].source.id, v = update[u].value.id,
                      root = root_of(l, update[u].value);
        const weft_value_info *info = weft_value_get(l->graph, update[u].value);
        if (root == s)
            continue;
        for (int w = 0; w < count && l->plan->allocation[root].region == WEFT_REGION_STORE; w++)
            if (update[w].source.id == root)
                return weft_error(WEFT_MSG_PASS_UNSUPPORTED, WEFT_NOWHERE,
                                  "the update of \"%s\" is the storage of \"%s\", which is updated "
                                  "too; compute a copy first",
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

/* Mask of the inputs whose storage output o may overwrite. Collectives need no in-place kernel: an
 * all_reduce sends every term before it is overwritten. */
static uint32_t over_inputs(const lifetime *l, const weft_node *node, int o)
{
    return l->options->in_place || weft_op_is_collective(node->op) ? weft_op_over(node->op, o) : 0;
}

/* Returns true if the node reads root's storage only through inputs that its kernel may overwrite,
 * with the type and shape of the output; also if it does not read root. */
static bool allows_over(const lifetime *l, int32_t n, int o, int32_t root)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    const uint32_t slots = over_inputs(l, node, o);
    const weft_value_info *out = weft_value_get(l->graph, node->out[o]);
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_value_ok(node->in[i]) || root_of(l, node->in[i]) != root)
            continue;
        const weft_value_info *in = weft_value_get(l->graph, node->in[i]);
        if (!weft_mask_has(slots, i) || in->dtype != out->dtype ||
            !weft_shape_equal(&in->shape, &out->shape))
            return false;
    }
    return true;
}

/* Returns true if output o of node n may overwrite `root`:
 *
 *   the old bytes are not needed   no later node reads the bytes, no collective before n still
 *                                  sends the bytes, and the storage is not pinned
 *   the node allows it             node n reads the bytes only where its kernel may overwrite
 *   the sizes are equal */
static bool may_overwrite(const lifetime *l, int32_t n, int o, int32_t root)
{
    const life *old = &l->life[root];
    const int32_t v = weft_graph_node(l->graph, n)->out[o].id;
    return old->last_read <= n && old->landed <= n && !old->pinned &&
           l->plan->allocation[root].bytes == l->plan->allocation[v].bytes &&
           allows_over(l, n, o, root);
}

/* Makes the value an alias of `root`, and extends root's live range by that of the value. */
static void put_over(lifetime *l, int32_t v, int32_t root)
{
    life *old = &l->life[root], *new = &l->life[v];
    l->plan->allocation[v].alias_of = root;
    old->last = old->last > new->last ? old->last : new->last;
    old->last_read = new->last_read;
    old->pinned = new->pinned;
}

static void share_output(lifetime *l, int32_t n, int o)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    const int32_t v = node->out[o].id;
    if (v < 0 || l->plan->allocation[v].alias_of >= 0 || weft_op_has(node->op, WEFT_TRAIT_GIVEN) ||
        l->plan->view[n])
        return;
    if (l->life[v].goal >= 0) {
        if (may_overwrite(l, n, o, l->life[v].goal)) {
            put_over(l, v, l->life[v].goal);
            l->life[l->life[v].goal].pinned = true; /* the next run reads it */
            return;
        }
        l->life[v].pinned = true; /* live to the end, then copied */
    }
    const uint32_t slots = over_inputs(l, node, o);
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_mask_has(slots, i) || !weft_value_ok(node->in[i]))
            continue;
        const int32_t root = root_of(l, node->in[i]);
        if (l->plan->allocation[root].region == WEFT_REGION_ARENA && may_overwrite(l, n, o, root)) {
            put_over(l, v, root);
            return;
        }
    }
}

/* Shares storage in node order, so that chains form. */
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
        const weft_region region = plan->allocation[root].region;
        const bool stays =
            l->life[root].pinned || (region != WEFT_REGION_ARENA && region != WEFT_REGION_OFFLOAD);
        plan->allocation[v].region = plan->allocation[root].region;
        plan->allocation[v].last = stays ? l->nodes : l->life[root].last;
    }
}

/* Page size of files: copied data is evicted from this process in complete pages. */
enum { PAGE = 4096 };

/* The last node during which no other value uses the bytes. */
static int32_t last_of(const lifetime *l, int32_t v)
{
    const int32_t last = l->plan->allocation[v].last,
                  idle = l->options->idle ? l->options->idle(l->options->user, l->graph, v) : 0;
    return last + idle < l->nodes ? last + idle : l->nodes;
}

static weft_status set_offsets(lifetime *l, weft_region region, int64_t *height, int64_t *live)
{
    weft_memory_plan *plan = l->plan;
    const bool offloaded = region == WEFT_REGION_OFFLOAD;
    const int64_t guard = offloaded ? 0 : l->options->guard;
    int32_t count = 0;
    weft_offset_request *box;
    WEFT_TRY(WEFT_NEW(box, l->values + 1, "the memory plan"));
    for (int32_t v = 0; v < l->values; v++) {
        const weft_allocation *allocation = &plan->allocation[v];
        const int64_t bytes = allocation->bytes + 2 * guard;
        if (allocation->region == region && allocation->alias_of < 0 && allocation->first >= 0)
            box[count++] = (weft_offset_request){
                .value = v,
                .first = allocation->first,
                .last = offloaded ? allocation->last : last_of(l, v),
                .bytes = offloaded ? (bytes + PAGE - 1) / PAGE * PAGE : bytes};
    }
    const weft_status_code status = weft_offset_requests_plan(box, count, l->nodes, height, live);
    for (int32_t b = 0; b < count; b++)
        plan->allocation[box[b].value].offset = box[b].offset + guard;
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
    int64_t offloaded_live;
    WEFT_TRY(weft_graph_check(g));
    *plan = (weft_memory_plan){.count = l.values, .node_count = l.nodes};
    plan->allocation = weft_calloc(l.values + 1, sizeof *plan->allocation);
    plan->wait = weft_calloc(l.nodes + 1, sizeof *plan->wait);
    plan->view = weft_calloc(l.nodes + 1, sizeof *plan->view);
    l.life = weft_calloc(l.values + 1, sizeof *l.life);
    WEFT_GO(WEFT_ALLOCATED(plan->allocation && plan->wait && plan->view && l.life,
                           "the memory plan of %d values", (int)l.values));
    set_storage(&l);
    WEFT_GO(weft_comm_waits(g, plan->wait));
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
    WEFT_GO(set_offsets(&l, WEFT_REGION_OFFLOAD, &plan->offloaded_bytes, &offloaded_live));
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
    weft_free(plan->allocation);
    weft_free(plan->wait);
    weft_free(plan->view);
    *plan = (weft_memory_plan){0};
}
