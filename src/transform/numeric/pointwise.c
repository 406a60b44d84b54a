/* Joins chains of elementwise ops. A node joins the group of one of its operands:
 *
 *     %3 = add(%1, %2)              %5, %6 = pointwise(%1, %2, %4)
 *     %5 = silu(%3)        ->           {%a = add(0,1); %b = silu(%a) out; %c = mul(%b,2) out}
 *     %6 = mul(%5, %4)
 *
 * All nodes of a group have outputs of one shape. The group is computed at the place of its last
 * node, so no node before that place may read its results. Values between steps are not stored
 * unless another node reads them. Each step rounds to the type of its node, so results are bitwise
 * identical. */
#include "transform/numeric/pointwise.h"

#include "graph/rewrite.h"

#include <string.h>

/* Nodes between the first and the last of a group: operands of the first stay in memory until the
 * last is computed. Small values may wait longer. */
enum { NEAR = 32, FAR = 8192, SMALL_BYTES = 256 << 10 };
/* Fewer elements cost a launch only, and launches of scalars are joined by the stream. */
enum { LEAST_ELEMENTS = 64, MOST_INPUTS = 8 };

typedef struct group {
    int32_t count, node[WEFT_POINTWISE_STEPS];
} group;

typedef struct joiner {
    const weft_graph *g;
    int32_t *first, *reader; /* readers of value v: reader[first[v]] to reader[first[v + 1] - 1] */
    bool *kept;              /* by value: an output or an update */
    int32_t *of;             /* by node: its group; -1: none */
    group *groups;
    int32_t group_count;
    int small_steps; /* least steps of a group of small values */
} joiner;

/* ---- readers --------------------------------------------------------------------------------- */

static void list_readers(joiner *j)
{
    const weft_graph *g = j->g;
    const int32_t values = (int32_t)weft_graph_value_count(g);
    int count;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        for (int i = 0; i < weft_graph_node(g, n)->in_count; i++)
            if (weft_value_ok(weft_graph_node(g, n)->in[i]))
                j->first[weft_graph_node(g, n)->in[i].id + 1]++;
    for (int32_t v = 0; v < values; v++)
        j->first[v + 1] += j->first[v];
    const int32_t reads = j->first[values];
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--)
        for (int i = 0; i < weft_graph_node(g, n)->in_count; i++)
            if (weft_value_ok(weft_graph_node(g, n)->in[i]))
                j->reader[--j->first[weft_graph_node(g, n)->in[i].id + 1]] = n;
    /* first[v + 1] is the start of v now */
    memmove(j->first, j->first + 1, (size_t)values * sizeof *j->first);
    j->first[values] = reads;
    const weft_named *output = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        j->kept[output[i].value.id] = true;
    const weft_pair *update = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        j->kept[update[i].value.id] = true;
}

static bool has(const group *p, int32_t node)
{
    for (int i = 0; i < p->count; i++)
        if (p->node[i] == node)
            return true;
    return false;
}

/* Whether nodes outside the group read the result. Sets *soonest to the first such node. */
static bool leaves(const joiner *j, const group *p, weft_value v, int32_t *soonest)
{
    bool leaves = j->kept[v.id];
    for (int32_t i = j->first[v.id]; i < j->first[v.id + 1]; i++)
        if (!has(p, j->reader[i])) {
            leaves = true;
            *soonest = j->reader[i] < *soonest ? j->reader[i] : *soonest;
        }
    return leaves;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool is_joinable(const weft_graph *g, int32_t n)
{
    const weft_node *node = weft_graph_node(g, n);
    if (!weft_op_is_pointwise(node->op) || node->out_count != 1)
        return false;
    const weft_value_info *out = weft_value_get(g, node->out[0]);
    for (int i = 0; i < node->in_count; i++) {
        const weft_value_info *in = weft_value_get(g, node->in[i]);
        if (in->dtype > WEFT_F16 || in->shape.rank != out->shape.rank)
            return false;
    }
    return out->dtype <= WEFT_F16 && weft_shape_count(&out->shape) >= LEAST_ELEMENTS;
}

/* The number of values that the group reads and that no step computes. */
static int inputs_of(const joiner *j, const group *p, weft_value in[3 * WEFT_POINTWISE_STEPS])
{
    int count = 0;
    for (int m = 0; m < p->count; m++) {
        const weft_node *node = weft_graph_node(j->g, p->node[m]);
        for (int i = 0; i < node->in_count; i++) {
            int k = 0;
            while (k < count && in[k].id != node->in[i].id)
                k++;
            if (k == count && !has(p, weft_value_get(j->g, node->in[i])->node))
                in[count++] = node->in[i];
        }
    }
    return count;
}

/* Whether one kernel may compute the nodes at the place of the last one. */
static bool is_legal(const joiner *j, const group *p)
{
    weft_value in[3 * WEFT_POINTWISE_STEPS];
    const int32_t last = p->node[p->count - 1];
    const weft_node *end = weft_graph_node(j->g, last);
    const bool is_small = weft_value_bytes(j->g, end->out[0]) <= SMALL_BYTES;
    int outputs = 0;
    if (last - p->node[0] > (is_small ? FAR : NEAR) || inputs_of(j, p, in) > MOST_INPUTS)
        return false;
    for (int m = 0; m < p->count; m++) {
        const weft_node *node = weft_graph_node(j->g, p->node[m]);
        int32_t soonest = INT32_MAX;
        if (node->backward != end->backward ||
            !weft_shape_equal(&weft_value_get(j->g, node->out[0])->shape,
                              &weft_value_get(j->g, end->out[0])->shape))
            return false;
        outputs += leaves(j, p, node->out[0], &soonest);
        if (soonest < last)
            return false;
    }
    return outputs <= WEFT_MAX_OUTPUTS;
}

/* Adds the node to the group of one of its operands, or begins one. */
static void join(joiner *j, int32_t n)
{
    const weft_node *node = weft_graph_node(j->g, n);
    for (int i = 0; i < node->in_count; i++) {
        const int32_t of = j->of[weft_value_get(j->g, node->in[i])->node];
        if (of < 0 || j->groups[of].count == WEFT_POINTWISE_STEPS)
            continue;
        group larger = j->groups[of];
        larger.node[larger.count++] = n;
        if (!is_legal(j, &larger))
            continue;
        j->groups[of] = larger;
        j->of[n] = of;
        return;
    }
    j->of[n] = j->group_count;
    j->groups[j->group_count++] = (group){.count = 1, .node = {n}};
}

/* ---- the new graph --------------------------------------------------------------------------- */

static int32_t operand_of(const joiner *j, const group *p, weft_value v, const weft_value *in)
{
    const int32_t producer = weft_value_get(j->g, v)->node;
    int32_t k = 0;
    for (int m = 0; m < p->count; m++)
        if (p->node[m] == producer)
            return WEFT_POINTWISE_STEP + m;
    while (in[k].id != v.id)
        k++;
    return k;
}

/* The attribute of the node, and the values of `out` that it computes. */
static weft_attr_pointwise attr_of(const joiner *j, const group *p, const weft_value *in,
                                   weft_value out[WEFT_MAX_OUTPUTS])
{
    weft_attr_pointwise attr;
    int outputs = 0;
    memset(&attr, 0, sizeof attr); /* graphs compare the bytes */
    attr.count = p->count;
    for (int m = 0; m < p->count; m++) {
        const weft_node *node = weft_graph_node(j->g, p->node[m]);
        weft_pointwise_step *step = &attr.step[m];
        int32_t soonest = INT32_MAX;
        step->op = node->op;
        step->dtype = weft_value_get(j->g, node->out[0])->dtype;
        step->in_count = node->in_count;
        for (int i = 0; i < node->in_count; i++)
            step->in[i] = operand_of(j, p, node->in[i], in);
        step->out = -1;
        if (leaves(j, p, node->out[0], &soonest)) {
            step->out = outputs;
            out[outputs++] = node->out[0];
        }
        memcpy(&step->attr, node->attr, (size_t)weft_op_get(node->op)->attr_bytes);
    }
    return attr;
}

static void emit(const joiner *j, weft_rewrite *r, const group *p)
{
    weft_value in[3 * WEFT_POINTWISE_STEPS], was[WEFT_MAX_OUTPUTS], made[WEFT_MAX_OUTPUTS];
    const weft_node *end = weft_graph_node(j->g, p->node[p->count - 1]);
    const int count = inputs_of(j, p, in);
    const weft_attr_pointwise attr = attr_of(j, p, in, was);
    for (int i = 0; i < count; i++)
        in[i] = r->map[in[i].id];
    weft_graph_push(r->to, "%s", end->scope);
    weft_emit_all(r->to, WEFT_OP_POINTWISE, in, count, &attr, made);
    weft_graph_pop(r->to);
    if (weft_graph_check(r->to) != WEFT_OK)
        return;
    weft_graph_node_mut(r->to, weft_value_get(r->to, made[0])->node)->backward = end->backward;
    for (int s = 0; s < attr.count; s++) {
        const int o = attr.step[s].out;
        if (o < 0)
            continue;
        r->map[was[o].id] = made[o];
        weft_graph_set_layout(r->to, made[o], weft_value_get(j->g, was[o])->layout);
    }
}

static bool is_gain(const joiner *j, const group *p)
{
    const weft_value out = weft_graph_node(j->g, p->node[0])->out[0];
    int32_t soonest = INT32_MAX;
    bool is_read = false; /* else all nodes are dead */
    for (int m = 0; m < p->count; m++)
        is_read |= leaves(j, p, weft_graph_node(j->g, p->node[m])->out[0], &soonest);
    return is_read && (p->count >= j->small_steps ||
                       (p->count > 1 && weft_value_bytes(j->g, out) > SMALL_BYTES));
}

static void emit_nodes(const joiner *j, weft_rewrite *r)
{
    for (int32_t n = 0; n < weft_graph_node_count(j->g) && weft_graph_check(r->to) == WEFT_OK;
         n++) {
        const group *p = j->of[n] >= 0 ? &j->groups[j->of[n]] : NULL;
        if (!p || !is_gain(j, p))
            weft_rewrite_node(r, n, NULL);
        else if (p->node[p->count - 1] == n)
            emit(j, r, p);
    }
}

static void joiner_free(joiner *j)
{
    weft_free(j->first);
    weft_free(j->reader);
    weft_free(j->kept);
    weft_free(j->of);
    weft_free(j->groups);
}

static weft_status joiner_create(const weft_graph *g, int small_steps, joiner *j)
{
    const int64_t values = weft_graph_value_count(g), nodes = weft_graph_node_count(g);
    int64_t reads = 0;
    for (int32_t n = 0; n < nodes; n++)
        reads += weft_graph_node(g, n)->in_count;
    *j = (joiner){.g = g, .small_steps = small_steps};
    j->first = weft_calloc(values + 2, sizeof *j->first);
    j->reader = weft_calloc(reads + 1, sizeof *j->reader);
    j->kept = weft_calloc(values + 1, sizeof *j->kept);
    j->of = weft_calloc(nodes + 1, sizeof *j->of);
    j->groups = weft_calloc(nodes + 1, sizeof *j->groups);
    return WEFT_ALLOCATED(j->first && j->reader && j->kept && j->of && j->groups, "pass pointwise");
}

weft_status weft_pass_pointwise(const weft_graph *g, int small_steps, weft_graph **out)
{
    joiner j;
    weft_rewrite r;
    weft_status_code status = WEFT_OK;
    WEFT_GO(joiner_create(g, small_steps, &j));
    list_readers(&j);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        j.of[n] = -1;
        if (is_joinable(g, n))
            join(&j, n);
    }
    WEFT_GO(weft_rewrite_begin(g, &r));
    emit_nodes(&j, &r);
    status = weft_rewrite_finish(&r, "pointwise", out);
out:
    joiner_free(&j);
    return status;
}
