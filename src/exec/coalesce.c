/* On which channel a collective goes, and which small sums travel together.
 *
 * Channels: what a contraction or another heavy op reads, however far behind, is on layers; what
 * only the update reads is on gradients. So a gather that the next layer of the backward needs does
 * not stand behind the sums of all gradients before it:
 *
 *   layers      gather(w2) ---> matmul     gather(w1) ---> matmul
 *   gradients              sum(dw3) -----------------sum(dw2) ----------------> update
 *
 * Bundles: all_reduces of one mesh axis, channel and type become one exchange.
 *
 *   nodes    a1 . A . b1 . b2 . c .. w(a1)       a1 b1 b2: small, on axis dp
 *   starts   .. . A . .. . .. . c .. a1+b1+b2    A: large, on dp    c: on axis tp
 *
 * A bundle starts at the place of its last member. It takes no more members when
 *   - a member is waited for: what it delivers is needed now;
 *   - it is full.
 * Ranks that share an axis see the same sizes on it and so make the same bundles, whatever they see
 * on others; what they make is compared before the first run. Small ones may pass large ones, for
 * those who take part agree on it, and collectives of other axes and channels, which are in other
 * queues. No rank waits before it has started what its node order has before the wait, so at the
 * first place where any rank waits all its peers have started what it waits for: none hangs.
 * The memory plan is that of single collectives: what they read and write stays theirs from their
 * own place to their wait, and a bundle starts between the two. Sums are made element by element
 * along the same tree of ranks, so bundled or not they are the same bits. */
#include "runtime/program.h"

/* Back from the end: what leads to something heavy. Without an update there are no gradients. */
weft_status weft_program_choose_channels(weft_program *p)
{
    const weft_graph *g = p->graph;
    int updates;
    weft_graph_updates(g, &updates);
    bool *leads = weft_alloc((p->plan.count + 1) * (int64_t)sizeof *leads); /* by value */
    if (!leads)
        return weft_fail(WEFT_E_MEMORY, "no memory to compile a program");
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        bool heavy = weft_op_has(node->op, WEFT_TRAIT_HEAVY), behind = false;
        for (int o = 0; o < node->out_count; o++)
            behind = behind || (weft_value_ok(node->out[o]) && leads[node->out[o].id]);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                leads[node->in[i].id] |= heavy || behind;
        p->channel[n] = updates && !behind ? WEFT_CHANNEL_GRADIENTS : WEFT_CHANNEL_LAYERS;
    }
    weft_free(leads);
    return WEFT_OK;
}

/* One that takes members, of an axis and channel. */
typedef struct bundle {
    int32_t last;  /* member; -1: none open */
    int32_t until; /* node before which a member is waited for */
    weft_dtype dtype;
    int64_t bytes;
    int pieces;
} bundle;

static bool may_join(const weft_program *p, int32_t n, int64_t bytes)
{
    const weft_node *node = weft_graph_node(p->graph, n);
    const weft_attr_comm *attr = node->attr;
    return p->plan.wait[n] >= 0 && !p->options.no_bundle && !p->options.no_overlap &&
           node->op == WEFT_OP_ALL_REDUCE && attr->axis >= 0 && attr->axis < p->mesh.axis_count &&
           p->mesh.axis[attr->axis].size > 1 && bytes <= WEFT_COMM_SMALL;
}

static void join(weft_program *p, bundle *b, int32_t n, weft_dtype dtype, int64_t bytes)
{
    const int32_t wait = p->plan.wait[n];
    if (b->last >= 0 &&
        (b->until <= n || b->dtype != dtype || b->bytes + bytes > WEFT_COMM_BUNDLE ||
         b->pieces == WEFT_COMM_BUNDLE_PIECES))
        b->last = -1;
    if (b->last < 0)
        *b = (bundle){.last = -1, .dtype = dtype, .until = wait};
    p->joined[n] = b->last;
    b->last = n;
    for (int32_t m = n; m >= 0; m = p->joined[m])
        p->begins[m] = n;
    b->bytes += bytes;
    b->pieces++;
    b->until = wait < b->until ? wait : b->until;
}

void weft_program_bundle(weft_program *p)
{
    bundle open[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT];
    for (int i = 0; i < WEFT_MAX_AXES * WEFT_CHANNEL_COUNT; i++)
        open[i / WEFT_CHANNEL_COUNT][i % WEFT_CHANNEL_COUNT].last = -1;
    for (int32_t n = 0; n < weft_graph_node_count(p->graph); n++) {
        const weft_node *node = weft_graph_node(p->graph, n);
        p->joined[n] = -1;
        p->begins[n] = n;
        if (!weft_op_is_collective(node->op))
            continue;
        const weft_view *in = &p->view[node->in[0].id];
        const int axis = ((const weft_attr_comm *)node->attr)->axis;
        const int64_t bytes = weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
        if (may_join(p, n, bytes))
            join(p, &open[axis][p->channel[n]], n, in->dtype, bytes);
    }
}
