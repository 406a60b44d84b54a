/* Independent checker of the memory plan. Simulates the nodes with a list of entries "value v is
 * intact at these bytes". Each write removes the entries that it overlaps. Bytes that a node reads,
 * a running collective uses or the end of the run needs must be on the list. */

#include "transform/memory/lifetime_check.h"

#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct span {
    int32_t area;      /* -1 - region; >= 0: storage of that source */
    int64_t low, high; /* bytes [low, high) */
} span;

typedef struct holder { /* an intact value; value -1: a running collective */
    int32_t value, node;
    span at;
} holder;

typedef struct checker {
    const weft_graph *graph;
    const weft_lifetime_options *options;
    const weft_memory_plan *plan;
    int32_t *reads_left; /* per value: remaining reads by nodes, outputs and updates */
    int32_t *struck_by;  /* per value: node that overwrote it; -1: none */
    holder *held;
    int64_t held_count, held_capacity;
} checker;

static bool overlap(const span *a, const span *b)
{
    return a->area == b->area && a->low < b->high && b->low < a->high;
}

static weft_status span_of(const checker *c, int32_t value, span *out)
{
    int32_t root = value, steps = 0;
    int64_t shift = 0;
    while (c->plan->allocation[root].alias_of >= 0) {
        shift += c->plan->allocation[root].shift;
        root = c->plan->allocation[root].alias_of;
        if (root >= c->plan->count || ++steps > c->plan->count)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "the aliases of %%%d form a cycle", (int)value);
    }
    const weft_allocation *allocation = &c->plan->allocation[root];
    const weft_value_info *info = weft_value_get(c->graph, (weft_value){value});
    const int64_t bytes = c->plan->allocation[value].bytes;
    if (bytes < weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype) || shift < 0 ||
        shift + bytes > allocation->bytes)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(bytes)),
                          "%%%d has %" PRId64
                          " bytes, which is too few or more than its storage %%%d",
                          (int)value, bytes, (int)root);
    if (allocation->region == WEFT_REGION_STORE) {
        *out = (span){.area = root, .low = shift, .high = shift + bytes};
        return WEFT_OK;
    }
    const int64_t limit = allocation->region == WEFT_REGION_ARENA     ? c->plan->arena_bytes
                          : allocation->region == WEFT_REGION_INPUT   ? c->plan->input_bytes
                          : allocation->region == WEFT_REGION_OFFLOAD ? c->plan->offloaded_bytes
                                                                      : c->plan->constant_bytes;
    const int64_t low = allocation->offset + shift;
    if (allocation->offset < 0 || low % 64 || low + bytes > limit)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(low)),
                          "%%%d at %" PRId64 " of %" PRId64
                          " bytes is outside its area or not aligned",
                          (int)value, low, limit);
    *out = (span){.area = -1 - (int32_t)allocation->region, .low = low, .high = low + bytes};
    return WEFT_OK;
}

static weft_status hold(checker *c, int32_t value, int32_t node, const span *at)
{
    WEFT_TRY(weft_grow((void **)&c->held, c->held_count, &c->held_capacity, sizeof *c->held));
    c->held[c->held_count++] = (holder){.value = value, .node = node, .at = *at};
    return WEFT_OK;
}

/* Removes the values that node n overwrites at `at`. Bytes in use by a collective are an error. */
static weft_status strike(checker *c, int32_t n, const span *at)
{
    int64_t remaining = 0;
    for (int64_t h = 0; h < c->held_count; h++) {
        const holder *held = &c->held[h];
        if (overlap(&held->at, at)) {
            if (held->value < 0)
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                  "node %d writes bytes that the collective at node %d still uses",
                                  (int)n, (int)held->node);
            c->struck_by[held->value] = n;
            continue;
        }
        c->held[remaining++] = *held;
    }
    c->held_count = remaining;
    return WEFT_OK;
}

static weft_status demand(checker *c, int32_t value, int32_t n)
{
    if (c->struck_by[value] >= 0)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "node %d reads %%%d, which node %d overwrote", (int)n, (int)value,
                          (int)c->struck_by[value]);
    return WEFT_OK;
}

/* Removes a value after its last read, which keeps the list short. */
static void release(checker *c, int32_t value)
{
    if (--c->reads_left[value] > 0)
        return;
    for (int64_t h = 0; h < c->held_count; h++) {
        if (c->held[h].value == value) {
            c->held[h] = c->held[--c->held_count];
            return;
        }
    }
}

static void land(checker *c, int32_t collective)
{
    int64_t remaining = 0;
    for (int64_t h = 0; h < c->held_count; h++)
        if (c->held[h].value >= 0 || c->held[h].node != collective)
            c->held[remaining++] = c->held[h];
    c->held_count = remaining;
}

/* An output may overlap an input of its node only if the kernel allows it, and if the bytes and the
 * types are the same. */
static weft_status check_in_place(checker *c, int32_t n, int o, const span *at)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    const uint32_t slots =
        c->options->in_place || node->op == WEFT_OP_ALL_REDUCE ? weft_op_over(node->op, o) : 0;
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_value_ok(node->in[i]))
            continue;
        span in;
        WEFT_TRY(span_of(c, node->in[i].id, &in));
        if (overlap(&in, at) &&
            (!weft_mask_has(slots, i) || in.low != at->low || in.high != at->high ||
             weft_value_get(c->graph, node->in[i])->dtype !=
                 weft_value_get(c->graph, node->out[o])->dtype))
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "node %d (%s) writes output %d over its input %d", (int)n,
                              weft_op_get(node->op)->name, o, i);
    }
    return WEFT_OK;
}

/* Elements from the start of a concat's result to its input i, or from the start of a slice's input
 * to the slice. 0 for aliases. -1: another op, or parts that are not contiguous. */
static int64_t part_begins(const checker *c, const weft_node *node, int i)
{
    const bool slice = node->op == WEFT_OP_SLICE, concat = node->op == WEFT_OP_CONCAT;
    if (weft_op_is_alias(node->op))
        return 0;
    if (!slice && !concat)
        return -1;
    const weft_shape *all = &weft_value_get(c->graph, slice ? node->in[0] : node->out[0])->shape;
    const int dim = slice ? ((const weft_attr_slice *)node->attr)->dim
                          : ((const weft_attr_concat *)node->attr)->dim;
    int64_t row = 1, at = slice ? ((const weft_attr_slice *)node->attr)->start : 0;
    for (int d = 0; d < all->rank; d++) {
        if (d < dim && all->dim[d] != 1)
            return -1;
        row *= d > dim ? all->dim[d] : 1;
    }
    for (int k = 0; k < i && concat; k++)
        at += weft_value_get(c->graph, node->in[k])->shape.dim[dim];
    return at * row;
}

/* Checks that the result of a node that executes nothing has the same bytes as its inputs. */
static weft_status check_view(const checker *c, int32_t n)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    const weft_dtype dtype = weft_value_get(c->graph, node->out[0])->dtype;
    const int64_t element = c->options->element_bytes
                                ? c->options->element_bytes(c->options->user, dtype)
                                : weft_dtype_bytes(dtype);
    span out, in;
    WEFT_TRY(span_of(c, node->out[0].id, &out));
    for (int i = 0; i < node->in_count; i++) {
        const int64_t begins = part_begins(c, node, i) * element;
        WEFT_TRY(span_of(c, node->in[i].id, &in));
        if (begins < 0 || in.area != out.area ||
            (node->op == WEFT_OP_CONCAT ? in.low - out.low : out.low - in.low) != begins)
            return weft_error(
                WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                "node %d (%s) executes nothing, but its result is not in the place of its input %d",
                (int)n, weft_op_get(node->op)->name, i);
    }
    return WEFT_OK;
}

static weft_status check_node(checker *c, int32_t n, int32_t *flying, int32_t *flying_count)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    const bool view = c->plan->view[n];
    const bool alias = view && node->op != WEFT_OP_CONCAT; /* reads nothing */
    if (view)
        WEFT_TRY(check_view(c, n));
    for (int32_t f = 0; f < *flying_count; f++) {
        if (c->plan->wait[flying[f]] > n)
            continue;
        land(c, flying[f]);
        flying[f--] = flying[--*flying_count];
    }
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_value_ok(node->in[i]))
            continue;
        WEFT_TRY(demand(c, node->in[i].id, n));
        span at;
        WEFT_TRY(span_of(c, node->in[i].id, &at));
        for (int32_t f = 0; f < *flying_count && !alias; f++) { /* results not waited for */
            const weft_node *other = weft_graph_node(c->graph, flying[f]);
            span result;
            WEFT_TRY(span_of(c, other->out[0].id, &result));
            if (overlap(&at, &result))
                return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                  "node %d reads %%%d before the wait for node %d", (int)n,
                                  (int)node->in[i].id, (int)flying[f]);
        }
    }
    for (int o = 0; o < node->out_count; o++) {
        if (!weft_value_ok(node->out[o]))
            continue;
        span at;
        WEFT_TRY(span_of(c, node->out[o].id, &at));
        if (!view) {
            WEFT_TRY(check_in_place(c, n, o, &at));
            WEFT_TRY(strike(c, n, &at));
        }
        if (c->reads_left[node->out[o].id] > 0)
            WEFT_TRY(hold(c, node->out[o].id, n, &at));
    }
    for (int o = 0; o < node->out_count; o++) /* outputs of one node must not overlap */
        if (weft_value_ok(node->out[o]))
            WEFT_TRY(demand(c, node->out[o].id, n));
    if (weft_op_runs_concurrently(node->op)) {
        if (c->plan->wait[n] <= n)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "the collective at node %d has no wait", (int)n);
        for (int i = 0; i < 2; i++) {
            span at;
            WEFT_TRY(span_of(c, i ? node->out[0].id : node->in[0].id, &at));
            WEFT_TRY(hold(c, -1, n, &at));
        }
        flying[(*flying_count)++] = n;
    }
    for (int i = 0; i < node->in_count; i++)
        if (weft_value_ok(node->in[i]))
            release(c, node->in[i].id);
    return WEFT_OK;
}

static weft_status check_end(checker *c)
{
    int count;
    const weft_named *output = weft_graph_outputs(c->graph, &count);
    for (int i = 0; i < count; i++)
        WEFT_TRY(demand(c, output[i].value.id, c->plan->node_count));
    const weft_pair *update = weft_graph_updates(c->graph, &count);
    for (int i = 0; i < count; i++)
        WEFT_TRY(demand(c, update[i].value.id, c->plan->node_count));
    for (int i = 0; i < count;
         i++) { /* a source overwritten during the run must contain its update */
        span source, value;
        WEFT_TRY(span_of(c, update[i].source.id, &source));
        WEFT_TRY(span_of(c, update[i].value.id, &value));
        if (c->struck_by[update[i].source.id] >= 0 && source.area != value.area)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "\"%s\" was overwritten by another value than its update",
                              weft_value_get(c->graph, update[i].source)->name);
    }
    /* a source without an update must be untouched */
    for (int32_t v = 0; v < c->plan->count; v++) {
        const weft_value_info *info = weft_value_get(c->graph, (weft_value){v});
        const weft_op op = weft_graph_node(c->graph, info->node)->op;
        if (c->struck_by[v] < 0 || !weft_op_has(op, WEFT_TRAIT_GIVEN))
            continue;
        bool updated = false;
        for (int i = 0; i < count; i++)
            updated = updated || update[i].source.id == v;
        if (!updated)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "\"%s\" is overwritten by node %d but has no update",
                              info->name ? info->name : "constant", (int)c->struck_by[v]);
    }
    return WEFT_OK;
}

weft_status weft_memory_plan_check(const weft_graph *g, const weft_lifetime_options *options,
                                   const weft_memory_plan *plan)
{
    static const weft_lifetime_options plain = {0};
    checker c = {.graph = g, .options = options ? options : &plain, .plan = plan};
    int32_t *flying = NULL, flying_count = 0;
    weft_status_code status = WEFT_OK;
    if (plan->count != weft_graph_value_count(g) || plan->node_count != weft_graph_node_count(g))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "the memory plan is for another graph: it has %d values and %d nodes, "
                          "the graph %d and %d",
                          (int)plan->count, (int)plan->node_count, (int)weft_graph_value_count(g),
                          (int)weft_graph_node_count(g));
    c.reads_left = weft_calloc((int64_t)plan->count, sizeof *c.reads_left);
    c.struck_by = weft_calloc((int64_t)plan->count, sizeof *c.struck_by);
    flying = weft_calloc((int64_t)plan->node_count, sizeof *flying);
    WEFT_GO(WEFT_ALLOCATED(c.reads_left && c.struck_by && flying, "checking a memory plan"));
    memset(c.struck_by, 0xff, (size_t)plan->count * sizeof *c.struck_by);
    for (int32_t n = 0; n < plan->node_count; n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                c.reads_left[node->in[i].id]++;
        if (weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            c.reads_left[node->out[0].id]++; /* the next run reads it */
    }
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        c.reads_left[output[i].value.id]++;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        c.reads_left[update[i].value.id]++;
    for (int32_t n = 0; n < plan->node_count; n++)
        WEFT_GO(check_node(&c, n, flying, &flying_count));
    WEFT_GO(check_end(&c));
out:
    weft_free(c.reads_left);
    weft_free(c.struck_by);
    weft_free(c.held);
    weft_free(flying);
    return status;
}
