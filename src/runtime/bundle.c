/* Small sums travel together: all_reduces of one mesh axis and type are bundled into one exchange.
 *
 *   nodes    a1 . A . b1 . b2 . c .. w(a1)       a1 b1 b2: small, on axis dp
 *   starts   .. . A . .. . a1+b1+b2  c           A: large, on dp    c: on axis tp
 *
 * A bundle starts at the place of its last member. It takes no more members when
 *   - a member is waited for: what it delivers is needed now;
 *   - a collective of another axis comes, which would otherwise wait behind it for its start;
 *   - it is full.
 * Ranks that share an axis see the same sizes on it and so make the same bundles; what they make
 * is compared before the first run. Within an axis small ones may pass large ones, for those who
 * take part agree on it.
 * The memory plan is that of single collectives: what they read and write stays theirs from their
 * own place to their wait, and a bundle starts between the two. Sums are made element by element
 * along the same tree of ranks, so bundled or not they are the same bits. */
#include "runtime/program.h"

typedef struct bundle {
    int32_t last; /* member; -1: none open */
    int axis;
    weft_dtype dtype;
    int64_t bytes;
    int pieces;
    int32_t until; /* node before which a member is waited for */
} bundle;

static bool may_join(const weft_program *p, const weft_node *node, int64_t bytes)
{
    const weft_attr_comm *attr = node->attr;
    return node->op == WEFT_OP_ALL_REDUCE && attr->axis >= 0 && attr->axis < p->mesh.axis_count &&
           p->mesh.axis[attr->axis].size > 1 && bytes <= WEFT_COMM_SMALL;
}

static void join(weft_program *p, bundle *b, int32_t n)
{
    p->joined[n] = b->last;
    b->last = n;
    for (int32_t m = n; m >= 0; m = p->joined[m])
        p->begins[m] = n;
}

void weft_program_bundle(weft_program *p)
{
    bundle b = {.last = -1};
    for (int32_t n = 0; n < weft_graph_node_count(p->graph); n++) {
        const weft_node *node = weft_graph_node(p->graph, n);
        p->joined[n] = -1;
        p->begins[n] = n;
        if (b.last >= 0 && b.until <= n)
            b.last = -1;
        if (p->plan.wait[n] < 0 || p->options.no_bundle || p->options.no_overlap)
            continue;
        const weft_view *in = &p->view[node->in[0].id];
        const int axis = ((const weft_attr_comm *)node->attr)->axis;
        const int64_t bytes = weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
        if (b.last >= 0 && b.axis != axis)
            b.last = -1;
        if (!may_join(p, node, bytes))
            continue;
        if (b.last >= 0 && (b.dtype != in->dtype || b.bytes + bytes > WEFT_COMM_BUNDLE ||
                            b.pieces == WEFT_COMM_BUNDLE_PIECES))
            b.last = -1;
        if (b.last < 0)
            b = (bundle){.last = -1, .axis = axis, .dtype = in->dtype, .until = p->plan.wait[n]};
        join(p, &b, n);
        b.bytes += bytes;
        b.pieces++;
        b.until = p->plan.wait[n] < b.until ? p->plan.wait[n] : b.until;
    }
}
