/* Chooses the channel of each collective, and coalesces small all-reduces.
 *
 * Channels: a collective on whose result a heavy op depends, directly or indirectly, uses the
 * channel layers. If only the update reads the result, it uses the channel gradients. So a gather
 * that the next layer of the backward needs does not queue after the gradients' all-reduces:
 *
 *   layers      gather(w2) ---> matmul     gather(w1) ---> matmul
 *   gradients              sum(dw3) -----------------sum(dw2) ----------------> update
 *
 * Coalesced all-reduces: small ones of one mesh axis, channel and type become one request.
 *
 *   nodes    a1 . A . b1 . b2 . c .. w(a1)       a1 b1 b2: small, on axis dp
 *   starts   .. . A . .. . .. . c .. a1+b1+b2    A: large, on dp    c: on axis tp
 *
 * The request starts at the node of its last member. It takes no more members when
 *   - a member is waited for, because its result is needed;
 *   - it is full.
 * Ranks that share an axis have the same sizes on it, so they coalesce equally. The first run
 * compares the requests of all ranks. A small all-reduce may start after a later large one, because
 * all its ranks agree on the order. Collectives of other axes and channels are in other queues. No
 * rank waits before it has started all collectives that precede the wait in its node order. So at
 * the first wait of any rank, all peers have started the collective that it waits for, and no rank
 * deadlocks. The memory plan is that of single collectives: their buffers stay reserved from their
 * own node to their wait, and the coalesced request starts between the two. Sums are computed per
 * element along the same tree of ranks, so the results are bitwise identical with and without
 * coalescing. */
#include "exec/coalesce.h"

#include "exec/compiled.h"
#include "graph/graph.h"

/* Goes backward over the nodes and marks values that lead to a heavy op. Without updates no
 * collective uses the channel gradients. */
weft_status weft_compiled_choose_channels(weft_compiled *c)
{
    const weft_graph *g = c->graph;
    int updates;
    weft_graph_updates(g, &updates);
    bool *leads; /* one per value */
    WEFT_TRY(WEFT_NEW(leads, c->plan.count + 1, "compiling a program"));
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        bool heavy = weft_op_has(node->op, WEFT_TRAIT_HEAVY), reaches = false;
        for (int o = 0; o < node->out_count; o++)
            reaches = reaches || (weft_value_ok(node->out[o]) && leads[node->out[o].id]);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                leads[node->in[i].id] |= heavy || reaches;
        c->channel[n] = updates && !reaches ? WEFT_CHANNEL_GRADIENTS : WEFT_CHANNEL_LAYERS;
    }
    weft_free(leads);
    return WEFT_OK;
}

/* The open request of an axis and channel, which takes more members. */
typedef struct coalesced {
    int32_t last;  /* member; -1: none open */
    int32_t until; /* node before which the first member is waited for */
    weft_dtype dtype;
    int64_t bytes;
    int pieces;
} coalesced;

static bool may_join(const weft_compiled *c, int32_t n, int64_t bytes)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    const weft_attr_comm *attr = node->attr;
    return c->plan.wait[n] >= 0 && !c->options.no_coalesce && !c->options.no_overlap &&
           node->op == WEFT_OP_ALL_REDUCE && attr->axis >= 0 && attr->axis < c->mesh.axis_count &&
           c->mesh.axis[attr->axis].size > 1 && bytes <= WEFT_COMM_SMALL;
}

static void join(weft_compiled *c, coalesced *b, int32_t n, weft_dtype dtype, int64_t bytes)
{
    const int32_t wait = c->plan.wait[n];
    if (b->last >= 0 &&
        (b->until <= n || b->dtype != dtype || b->bytes + bytes > WEFT_COMM_BUNDLE ||
         b->pieces == WEFT_COMM_BUNDLE_PIECES))
        b->last = -1;
    if (b->last < 0)
        *b = (coalesced){.last = -1, .dtype = dtype, .until = wait};
    c->joined[n] = b->last;
    b->last = n;
    for (int32_t m = n; m >= 0; m = c->joined[m])
        c->begins[m] = n;
    b->bytes += bytes;
    b->pieces++;
    b->until = wait < b->until ? wait : b->until;
}

void weft_compiled_coalesce(weft_compiled *c)
{
    coalesced open[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT];
    for (int i = 0; i < WEFT_MAX_AXES * WEFT_CHANNEL_COUNT; i++)
        open[i / WEFT_CHANNEL_COUNT][i % WEFT_CHANNEL_COUNT].last = -1;
    for (int32_t n = 0; n < weft_graph_node_count(c->graph); n++) {
        const weft_node *node = weft_graph_node(c->graph, n);
        c->joined[n] = -1;
        c->begins[n] = n;
        if (!weft_op_is_collective(node->op))
            continue;
        const weft_view *in = &c->view[node->in[0].id];
        const int axis = ((const weft_attr_comm *)node->attr)->axis;
        const int64_t bytes = weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
        if (may_join(c, n, bytes))
            join(c, &open[axis][c->channel[n]], n, in->dtype, bytes);
    }
}
