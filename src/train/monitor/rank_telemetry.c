#include "train/bulletin.h"

#include "pass/rewrite.h"

/* What the bulletin goes along with, by mesh axis. */
typedef struct way {
    int32_t behind[WEFT_MAX_AXES]; /* node, ascending; the node count: behind all */
    int axis[WEFT_MAX_AXES];
    int count;
    uint32_t left; /* axes without one */
} way;

static void step_along(way *w, int axis, int32_t node)
{
    w->axis[w->count] = axis;
    w->behind[w->count++] = node;
    w->left &= ~(1u << axis);
}

/* Back from the end: what a contraction or another heavy op waits for is no companion, as it
 * travels on the channel of layers. */
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

/* The axis along which node n sums a scalar; -1: it does not. */
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

/* First those behind which the sum before has been waited for; of axes that have none such, the
 * last one, which waits a little earlier for what is there by then. */
static void find_way(const weft_graph *g, const int32_t *wait, const bool *leads, way *w)
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
        const int32_t from = w->count ? w->behind[w->count - 1] : -1;
        int next = -1;
        for (int a = 0; a < WEFT_MAX_AXES; a++)
            if (w->left >> a & 1 && last[a] > from && (next < 0 || last[a] < last[next]))
                next = a;
        if (next < 0)
            return;
        step_along(w, next, last[next]);
    }
}

/* The graph's copy; the bulletin's sums come where the way says. */
static weft_status copy(const weft_graph *g, const way *w, int64_t floats, uint32_t before,
                        weft_graph **out)
{
    weft_rewrite r;
    weft_layout layout[WEFT_MAX_AXES] = {0};
    const weft_mesh *mesh = weft_graph_mesh(g);
    const int32_t nodes = weft_graph_node_count(g);
    WEFT_TRY(weft_rewrite_begin(g, &r));
    for (int a = 0; a < mesh->axis_count; a++)
        layout[a].kind = before >> a & 1 ? WEFT_R : WEFT_P;
    weft_value news = weft_input(r.to, "bulletin", WEFT_F32, WEFT_SHAPE(floats));
    if (weft_value_ok(news))
        weft_graph_set_layout(r.to, news, layout);
    for (int32_t n = 0, k = 0; n <= nodes && weft_graph_check(r.to) == WEFT_OK; n++) {
        if (n < nodes)
            weft_rewrite_node(&r, n, NULL);
        for (; k < w->count && w->behind[k] == n; k++) {
            news = weft_emit(r.to, WEFT_OP_ALL_REDUCE, &news, 1,
                             &(weft_attr_comm){.axis = w->axis[k]});
            layout[w->axis[k]].kind = WEFT_R;
            if (weft_value_ok(news))
                weft_graph_set_layout(r.to, news, layout);
        }
    }
    weft_output(r.to, "bulletin.all", news);
    return weft_rewrite_finish(&r, "bulletin", out);
}

int64_t weft_bulletin_floats(int ranks)
{
    return 1 + ranks * (int64_t)(sizeof(weft_pace) / sizeof(float));
}

weft_status weft_bulletin_add(const weft_graph *g, int64_t floats, uint32_t before, bool all,
                              uint32_t *axes, weft_graph **out)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const int32_t nodes = weft_graph_node_count(g);
    weft_status_code status = WEFT_OK;
    way w = {0};
    for (int a = 0; a < mesh->axis_count; a++)
        w.left |= mesh->axis[a].size > 1 ? 1u << a : 0;
    const uint32_t every = w.left;
    w.left &= ~before;
    int32_t *wait = weft_alloc((nodes + 1) * (int64_t)sizeof *wait);
    bool *leads = weft_alloc(weft_graph_value_count(g) + 1);
    if (!wait || !leads) {
        status = weft_fail(WEFT_E_MEMORY, "no memory for the bulletin of a step");
        goto out;
    }
    WEFT_GO(weft_schedule_waits(g, wait));
    find_leading(g, leads);
    find_way(g, wait, leads, &w);
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
