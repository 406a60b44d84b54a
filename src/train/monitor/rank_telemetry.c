#include "train/monitor/rank_telemetry.h"

#include "graph/rewrite.h"
#include "transform/memory/comm_waits.h"

/* The all-reduces after which the telemetry is reduced, with their mesh axes. */
typedef struct route {
    int32_t after[WEFT_MAX_AXES]; /* node index, ascending; node count: at the end */
    int axis[WEFT_MAX_AXES];
    int count;
    uint32_t left; /* axes not yet reduced */
} route;

static void step_along(route *w, int axis, int32_t node)
{
    w->axis[w->count] = axis;
    w->after[w->count++] = node;
    w->left &= ~(1u << axis);
}

/* Marks the inputs of contractions and other heavy ops, from the end of the graph. Their
 * all-reduces are excluded because they use the channel of layers. */
static void find_leading(const weft_graph *g, bool *leads)
{
    for (int32_t n = weft_graph_node_count(g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        bool heavy = weft_op_has(node->op, WEFT_TRAIT_HEAVY);
        for (int o = 0; o < node->out_count; o++)
            heavy = heavy || (weft_value_ok(node->out[o]) && leads[node->out[o].id]);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]))
                leads[node->in[i].id] |= heavy;
    }
}

/* The axis along which node n all-reduces a scalar; -1: none. */
static int companion(const weft_graph *g, int32_t n, const bool *leads)
{
    const weft_node *node = weft_graph_node(g, n);
    if (node->op != WEFT_OP_ALL_REDUCE || leads[node->out[0].id])
        return -1;
    const weft_value_info *info = weft_value_get(g, node->out[0]);
    return info->shape.rank == 0 && info->dtype == WEFT_F32
               ? ((const weft_attr_comm *)node->attr)->axis
               : -1;
}

/* Chooses all-reduces that start after the previous telemetry reduction has been waited for. For
 * axes without one, chooses the last, whose wait for the previous reduction may come a little
 * earlier. */
static void find_route(const weft_graph *g, const int32_t *wait, const bool *leads, route *w)
{
    const int32_t nodes = weft_graph_node_count(g);
    int32_t ready = 0, last[WEFT_MAX_AXES];
    for (int a = 0; a < WEFT_MAX_AXES; a++)
        last[a] = -1;
    for (int32_t n = 0; n < nodes; n++) {
        const int axis = companion(g, n, leads);
        if (axis < 0 || !(w->left >> axis & 1))
            continue;
        last[axis] = n;
        if (n < ready)
            continue;
        step_along(w, axis, n);
        ready = wait[n];
    }
    for (;;) {
        const int32_t from = w->count ? w->after[w->count - 1] : -1;
        int next = -1;
        for (int a = 0; a < WEFT_MAX_AXES; a++)
            if (w->left >> a & 1 && last[a] > from && (next < 0 || last[a] < last[next]))
                next = a;
        if (next < 0)
            return;
        step_along(w, next, last[next]);
    }
}

/* Copies the graph and adds the all-reduces of the route. */
static weft_status copy(const weft_graph *g, const route *w, int64_t floats, uint32_t before,
                        weft_graph **out)
{
    weft_rewrite r;
    weft_layout layout[WEFT_MAX_AXES] = {0};
    const weft_mesh *mesh = weft_graph_mesh(g);
    const int32_t nodes = weft_graph_node_count(g);
    WEFT_TRY(weft_rewrite_begin(g, &r));
    for (int a = 0; a < mesh->axis_count; a++)
        layout[a].kind = before >> a & 1 ? WEFT_R : WEFT_P;
    weft_value telemetry = weft_input(r.to, "bulletin", WEFT_F32, WEFT_SHAPE(floats));
    if (weft_value_ok(telemetry))
        weft_graph_set_layout(r.to, telemetry, layout);
    for (int32_t n = 0, k = 0; n <= nodes && weft_graph_check(r.to) == WEFT_OK; n++) {
        if (n < nodes)
            weft_rewrite_node(&r, n, NULL);
        for (; k < w->count && w->after[k] == n; k++) {
            telemetry = weft_emit(r.to, WEFT_OP_ALL_REDUCE, &telemetry, 1,
                                  &(weft_attr_comm){.axis = w->axis[k]});
            layout[w->axis[k]].kind = WEFT_R;
            if (weft_value_ok(telemetry))
                weft_graph_set_layout(r.to, telemetry, layout);
        }
    }
    weft_output(r.to, "bulletin.all", telemetry);
    return weft_rewrite_finish(&r, "bulletin", out);
}

int64_t weft_rank_telemetry_floats(int ranks)
{
    return 1 + ranks * (int64_t)(sizeof(weft_step_timing) / sizeof(float));
}

weft_status weft_rank_telemetry_add(const weft_graph *g, int64_t floats, uint32_t before, bool all,
                                    uint32_t *axes, weft_graph **out)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const int32_t nodes = weft_graph_node_count(g);
    weft_status_code status = WEFT_OK;
    route w = {0};
    for (int a = 0; a < mesh->axis_count; a++)
        w.left |= mesh->axis[a].size > 1 ? 1u << a : 0;
    const uint32_t every = w.left;
    w.left &= ~before;
    int32_t *wait = weft_calloc(nodes + 1, sizeof *wait);
    bool *leads = weft_alloc(weft_graph_value_count(g) + 1);
    WEFT_GO(WEFT_ALLOCATED(wait && leads, "the rank telemetry of a step"));
    WEFT_GO(weft_comm_waits(g, wait));
    find_leading(g, leads);
    find_route(g, wait, leads, &w);
    for (int a = 0; all && a < mesh->axis_count; a++)
        if (w.left >> a & 1)
            step_along(&w, a, nodes);
    *axes = every & ~w.left;
    *out = NULL;
    if (w.count)
        WEFT_GO(copy(g, &w, floats, before, out));
out:
    weft_free(wait);
    weft_free(leads);
    return status;
}
