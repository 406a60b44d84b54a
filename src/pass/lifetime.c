/* A place for every buffer.
 *
 *   1. storage:  each value is its own storage, or an alias of another value's (see pass.h)
 *   2. life:     a storage is live from the node that first writes it to the last that reads it;
 * what a collective reads stays untouched until the collective is waited for
 *   3. offsets:  offline best fit, biggest buffers first, and best fit in the order of time; the
 * smaller of the two peaks wins
 *
 *   offset
 *     ^   +---------+   +------------------+
 *     |   |  %3     |   |   %9             |      two boxes never overlap;
 *     |   +------+--+-----+------+---------+      the arena is as high as the highest box
 *     |   |  %2  |  | %5  |      | %11  |
 *     +---+------+--+-----+------+------+---->  node                                        */
#include "pass/offsets.h"
#include "pass/pass.h"

#include <string.h>

enum { ALIGN = 64 };

typedef struct lifetime {
    const weft_graph *graph;
    const weft_lifetime_options *options;
    weft_memory_plan *plan;
    int32_t nodes, values;
    int32_t *last;   /* by root value: last node during which its storage is in use */
    int32_t *reader; /* by root value: last node that reads it; earlier than `last` when a
                        collective reads it until its wait */
    int32_t *
        flight; /* by root value: last node before which a collective that reads it is waited for */
    bool *pinned; /* by root value: named output or pending update, live to the end */
    bool *given;  /* by value: input, param, state or constant */
} lifetime;

int32_t weft_memory_plan_root(const weft_memory_plan *plan, int32_t value)
{
    while (plan->place[value].alias_of >= 0)
        value = plan->place[value].alias_of;
    return value;
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t storage_bytes(const lifetime *l, int32_t value)
{
    const weft_value_info *info = weft_value_get(l->graph, (weft_value){value});
    const int64_t element = l->options->element_bytes
                                ? l->options->element_bytes(l->options->user, info->dtype)
                                : weft_dtype_bytes(info->dtype);
    return round_up(weft_shape_count(&info->shape) * element);
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
        for (int o = 0; o < node->out_count; o++) {
            const int32_t v = node->out[o].id;
            if (v < 0)
                continue;
            weft_place *place = &plan->place[v];
            place->first = n;
            place->bytes = storage_bytes(l, v);
            switch (node->op) {
            case WEFT_OP_INPUT:
                place->region = WEFT_REGION_INPUT;
                place->offset = plan->input_bytes;
                plan->input_bytes += place->bytes;
                break;
            case WEFT_OP_PARAM:
            case WEFT_OP_STATE:
                place->region = WEFT_REGION_STORE;
                plan->source_bytes += place->bytes;
                break;
            case WEFT_OP_CONSTANT:
                place->region = WEFT_REGION_CONSTANT;
                place->offset = plan->constant_bytes;
                plan->constant_bytes += place->bytes;
                break;
            default:
                if (weft_op_is_alias(node->op))
                    place->alias_of = weft_memory_plan_root(plan, node->in[0].id);
            }
            l->given[v] = weft_op_has(node->op, WEFT_TRAIT_GIVEN);
        }
    }
}

static void set_lives(lifetime *l)
{
    for (int32_t v = 0; v < l->values; v++)
        l->last[v] = l->reader[v] = l->plan->place[v].first;
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        if (weft_op_is_alias(node->op))
            continue;
        int32_t until = n;
        if (l->plan->wait[n] > n + 1)
            until = l->plan->wait[n] - 1;
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t root = weft_memory_plan_root(l->plan, node->in[i].id);
            l->reader[root] = n;
            if (l->plan->wait[n] > l->flight[root])
                l->flight[root] = l->plan->wait[n];
            if (l->last[root] < until)
                l->last[root] = until;
        }
        for (int o = 0; o < node->out_count; o++) /* a collective writes until it is waited for */
            if (weft_value_ok(node->out[o]) && l->last[node->out[o].id] < until)
                l->last[node->out[o].id] = until;
    }
}

/* True when `node` reads nothing of root's storage except as input `slot` in the shape of the
 * output. */
static bool reads_only_as(const lifetime *l, const weft_node *node, int32_t root, uint32_t slots,
                          const weft_shape *shape)
{
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_value_ok(node->in[i]) || weft_memory_plan_root(l->plan, node->in[i].id) != root)
            continue;
        if (!(slots >> i & 1) ||
            !weft_shape_equal(&weft_value_get(l->graph, node->in[i])->shape, shape))
            return false;
    }
    return true;
}

/* Which inputs' storage output o of the node may be. */
static uint32_t in_place_slots(const lifetime *l, int32_t n, int o)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    if (node->op ==
        WEFT_OP_ALL_REDUCE) /* the runtime's own: every term is sent before it is overwritten */
        return 1;
    if (weft_op_is_collective(node->op) || !l->options->in_place)
        return 0;
    const uint32_t slots = l->options->in_place(l->options->user, l->graph, n);
    if (node->op == WEFT_OP_ADAMW) {
        static const uint32_t slot[3] = {1 << 0, 1 << 2, 1 << 3};
        return slots ? slot[o] : 0;
    }
    return o == 0 ? slots : 0;
}

/* Updated sources: written where they are when nothing reads the old value after (or while) the new
 * one is made; else the new value is kept to the end and copied. */
static weft_status place_updates(lifetime *l)
{
    int count;
    const weft_pair *update = weft_graph_updates(l->graph, &count);
    for (int u = 0; u < count; u++) {
        const int32_t s = update[u].source.id, v = update[u].value.id;
        const int32_t root = weft_memory_plan_root(l->plan, v);
        const weft_value_info *info = weft_value_get(l->graph, update[u].value);
        const weft_node *node = weft_graph_node(l->graph, info->node);
        if (root == s)
            continue;
        if (l->plan->place[root].region == WEFT_REGION_STORE) {
            for (int w = 0; w < count; w++)
                if (update[w].source.id == root)
                    return weft_fail(WEFT_E_UNSUPPORTED,
                                     "update of \"%s\": its new value is the storage of \"%s\", "
                                     "which is updated too; "
                                     "compute a copy first",
                                     weft_value_get(l->graph, (weft_value){s})->name,
                                     weft_value_get(l->graph, (weft_value){root})->name);
        }
        const bool own =
            root == v && !l->given[v] && !l->pinned[v] && !weft_op_is_collective(node->op);
        if (own && l->last[s] <= info->node && l->flight[s] <= info->node && !l->pinned[s] &&
            l->plan->place[s].bytes == l->plan->place[v].bytes &&
            reads_only_as(l, node, s, in_place_slots(l, info->node, info->output), &info->shape) &&
            !l->options->no_alias) {
            l->plan->place[v].alias_of = s;
            l->last[s] = l->nodes;
        } else {
            l->pinned[root] = true;
        }
    }
    return WEFT_OK;
}

static void place_outputs(lifetime *l)
{
    int count;
    const weft_named *output = weft_graph_outputs(l->graph, &count);
    for (int i = 0; i < count; i++)
        l->pinned[weft_memory_plan_root(l->plan, output[i].value.id)] = true;
}

/* Outputs that take the storage of an input that dies at their node. In node order, so that chains
 * form. */
static void share_dying_inputs(lifetime *l)
{
    if (l->options->no_alias)
        return;
    memset(l->flight, 0,
           (size_t)l->values * sizeof *l->flight); /* from here on: of the nodes before n */
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        for (int o = 0; o < node->out_count; o++) {
            const int32_t v = node->out[o].id;
            if (v < 0 || l->plan->place[v].alias_of >= 0 || l->given[v])
                continue;
            const uint32_t slots = in_place_slots(l, n, o);
            const weft_value_info *info = weft_value_get(l->graph, (weft_value){v});
            for (int i = 0; i < node->in_count && slots; i++) {
                if (!(slots >> i & 1) || !weft_value_ok(node->in[i]))
                    continue;
                const int32_t root = weft_memory_plan_root(l->plan, node->in[i].id);
                const int32_t dies = l->plan->wait[n] > n + 1 ? l->plan->wait[n] - 1 : n;
                if (l->plan->place[root].region != WEFT_REGION_ARENA || l->pinned[root] ||
                    l->reader[root] > n || l->last[root] > dies || l->flight[root] > n ||
                    l->plan->place[root].bytes != l->plan->place[v].bytes ||
                    !reads_only_as(l, node, root, slots, &info->shape))
                    continue;
                l->plan->place[v].alias_of = root;
                if (l->last[root] < l->last[v])
                    l->last[root] = l->last[v];
                l->reader[root] = l->reader[v];
                l->pinned[root] = l->pinned[v];
                break;
            }
        }
        for (int i = 0; i < node->in_count && l->plan->wait[n] >= 0; i++) {
            int32_t *flight = &l->flight[weft_memory_plan_root(l->plan, node->in[i].id)];
            *flight = l->plan->wait[n] > *flight ? l->plan->wait[n] : *flight;
        }
    }
}

/* ---- offsets ------------------------------------------------------------------------------- */

static weft_status set_offsets(lifetime *l)
{
    weft_memory_plan *plan = l->plan;
    const int64_t guard = l->options->guard;
    int32_t count = 0;
    weft_box *box = weft_alloc((l->values + 1) * (int64_t)sizeof *box);
    if (!box)
        return weft_fail(WEFT_E_MEMORY, "no memory for the memory plan");
    for (int32_t v = 0; v < l->values; v++) {
        const weft_place *place = &plan->place[v];
        if (place->region == WEFT_REGION_ARENA && place->alias_of < 0 && place->first >= 0)
            box[count++] = (weft_box){.value = v,
                                      .first = place->first,
                                      .last = place->last,
                                      .bytes = place->bytes + 2 * guard};
    }
    const weft_status_code status =
        weft_boxes_place(box, count, l->nodes, &plan->arena_bytes, &plan->live_bytes);
    for (int32_t b = 0; b < count; b++)
        plan->place[box[b].value].offset = box[b].offset + guard;
    weft_free(box);
    return status;
}

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
    WEFT_TRY(weft_graph_check(g));
    *plan = (weft_memory_plan){.count = l.values, .node_count = l.nodes};
    plan->place = weft_alloc((int64_t)l.values * (int64_t)sizeof *plan->place);
    plan->wait = weft_alloc((int64_t)l.nodes * (int64_t)sizeof *plan->wait);
    l.last = weft_alloc((int64_t)l.values * (int64_t)sizeof *l.last);
    l.reader = weft_alloc((int64_t)l.values * (int64_t)sizeof *l.reader);
    l.flight = weft_alloc((int64_t)l.values * (int64_t)sizeof *l.flight);
    l.pinned = weft_alloc((int64_t)l.values);
    l.given = weft_alloc((int64_t)l.values);
    if (!plan->place || !plan->wait || !l.last || !l.reader || !l.flight || !l.pinned || !l.given) {
        status =
            weft_fail(WEFT_E_MEMORY, "no memory for the memory plan of %d values", (int)l.values);
        goto out;
    }
    set_storage(&l);
    weft_schedule_waits(g, plan->wait);
    set_lives(&l);
    place_outputs(&l);
    WEFT_GO(place_updates(&l));
    share_dying_inputs(&l);
    for (int32_t v = 0; v < l.values; v++) {
        const int32_t root = weft_memory_plan_root(plan, v);
        plan->place[v].region = plan->place[root].region;
        plan->place[v].last = l.pinned[root] || plan->place[root].region != WEFT_REGION_ARENA
                                  ? l.nodes
                                  : l.last[root];
    }
    WEFT_GO(set_offsets(&l));
    for (int32_t n = 0; n < l.nodes && l.options->workspace; n++) {
        const int64_t bytes = round_up(l.options->workspace(l.options->user, g, n));
        plan->workspace_bytes = bytes > plan->workspace_bytes ? bytes : plan->workspace_bytes;
    }
out:
    weft_free(l.last);
    weft_free(l.reader);
    weft_free(l.flight);
    weft_free(l.pinned);
    weft_free(l.given);
    if (status != WEFT_OK)
        weft_memory_plan_free(plan);
    return status;
}

void weft_memory_plan_free(weft_memory_plan *plan)
{
    weft_free(plan->place);
    weft_free(plan->wait);
    *plan = (weft_memory_plan){0};
}
