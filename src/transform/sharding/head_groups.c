#include "transform/sharding/head_groups.h"

#include "graph/builder_helpers.h"
#include "graph/graph.h"

#include <string.h>

enum { GROUPS_PREFETCHED = 2 };

/* Head groups of a value. */
typedef struct grouped {
    int32_t count;     /* number of groups; 0: not cut */
    weft_value *slice; /* before the exchange; NULL: concat of grouped values */
    weft_value *made;  /* after the exchange */
} grouped;

struct weft_head_groups {
    int64_t values;
    grouped *of;    /* per value of `from` */
    bool *deferred; /* per value of `from`: a concat that is emitted with its attention */
};

typedef struct heads {
    int32_t count; /* groups */
    int dim;       /* dim that is exchanged for tokens */
} heads;

weft_status weft_head_groups_create(int64_t values, weft_head_groups **out)
{
    weft_head_groups *h;
    WEFT_TRY(WEFT_NEW(h, 1, "sharding a graph"));
    *h = (weft_head_groups){
        .values = values, .of = weft_calloc(values, sizeof *h->of), .deferred = weft_alloc(values)};
    if (!h->of || !h->deferred) {
        weft_head_groups_free(h);
        return weft_no_memory("sharding a graph of %" PRId64 " values", values);
    }
    *out = h;
    return WEFT_OK;
}

void weft_head_groups_free(weft_head_groups *h)
{
    for (int64_t v = 0; h && h->of && v < h->values; v++) {
        weft_free(h->of[v].slice);
        weft_free(h->of[v].made);
    }
    if (h) {
        weft_free(h->of);
        weft_free(h->deferred);
    }
    weft_free(h);
}

void weft_head_groups_defer(weft_head_groups *h, weft_value v)
{
    h->deferred[v.id] = true;
}

bool weft_head_groups_take(weft_head_groups *h, weft_value v)
{
    const bool deferred = h->deferred[v.id];
    h->deferred[v.id] = false;
    return deferred;
}

/* Returns true if the value is split over the ranks along a dim other than heads and `dim`. */
static bool comes_split(const weft_axis_shard *p, weft_value v, int dim)
{
    const weft_layout home = p->home[v.id];
    return home.kind == WEFT_S && home.dim != dim && home.dim != WEFT_HEADS_DIM;
}

bool weft_head_groups_can_defer(const weft_axis_shard *p, const weft_node *n,
                                const weft_layout_choice *choice)
{
    const weft_layout out = choice->out[0];
    if (n->op != WEFT_OP_CONCAT || out.kind != WEFT_S ||
        (out.dim != WEFT_HEADS_DIM && out.dim != WEFT_SAMPLES_DIM) ||
        weft_axis_info(p, n->out[0])->shape.rank != 4 ||
        ((const weft_attr_concat *)n->attr)->dim == WEFT_HEADS_DIM ||
        p->consumers[n->out[0].id].others)
        return false;
    for (int i = 0; i < n->in_count; i++)
        if (!comes_split(p, n->in[i], out.dim) || p->heads->deferred[n->in[i].id])
            return false;
    return true;
}

int64_t weft_head_groups_most(const weft_axis_shard *p, const weft_node *n,
                              const weft_recipe_row *row, const weft_layout_choice *choice)
{
    const weft_layout need = weft_layout_need(choice, 0);
    if (need.kind != WEFT_S || (need.dim != WEFT_HEADS_DIM && need.dim != WEFT_SAMPLES_DIM) ||
        row->layout.kind != WEFT_S || row->layout.dim == WEFT_HEADS_DIM ||
        row->layout.dim == need.dim || p->consumers[n->out[1].id].all)
        return 1;
    for (int i = 0; i < 3; i++) {
        const weft_layout each = weft_layout_need(choice, i);
        if (!weft_layout_same(each, need) ||
            !(p->heads->deferred[n->in[i].id] || comes_split(p, n->in[i], need.dim)))
            return 1;
    }
    return weft_value_get(p->axis->smallest, n->in[0])->shape.dim[WEFT_HEADS_DIM] /
           (need.dim == WEFT_HEADS_DIM ? p->axis->ranks : 1);
}

static void group_of(const weft_axis_shard *p, const heads *h, weft_value v, int32_t g,
                     int64_t *start, int64_t *len)
{
    const int64_t all = weft_axis_info(p, v)->shape.dim[WEFT_HEADS_DIM],
                  unit = h->dim == WEFT_HEADS_DIM ? p->axis->ranks : 1, each = all / unit;
    *start = g * each / h->count * unit;
    *len = (g + 1 == h->count ? all : (g + 1) * each / h->count * unit) - *start;
}

static weft_value emit_all_to_all(weft_axis_shard *p, weft_value x, int dim, int64_t global,
                                  int dim2, int64_t global2, bool late)
{
    const weft_attr_comm attr = {.axis = p->axis->number,
                                 .dim = dim,
                                 .global = global,
                                 .dim2 = dim2,
                                 .global2 = global2,
                                 .late = late};
    return weft_emit(p->to, WEFT_OP_ALL_TO_ALL, &x, 1, &attr);
}

/* Emits the slices of all groups of a value, unless they exist. */
static void cut_heads(weft_axis_shard *p, const heads *h, weft_value v)
{
    const weft_node *maker = weft_graph_node(p->axis->from, weft_axis_info(p, v)->node);
    grouped *x = &p->heads->of[v.id];
    for (int i = 0; p->heads->deferred[v.id] && i < maker->in_count; i++)
        cut_heads(p, h, maker->in[i]);
    if (x->count)
        return;
    x->made = weft_calloc(h->count, sizeof *x->made);
    x->slice = p->heads->deferred[v.id] ? NULL : weft_calloc(h->count, sizeof *x->slice);
    if (!x->made || (!x->slice && !p->heads->deferred[v.id])) {
        weft_graph_fail(p->to, WEFT_MSG_OUT_OF_MEMORY, "out of memory sharding a graph");
        return;
    }
    x->count = h->count;
    for (int32_t g = 0; g < h->count; g++) {
        int64_t start, len;
        x->made[g] = WEFT_NONE;
        group_of(p, h, v, g, &start, &len);
        if (x->slice)
            x->slice[g] = weft_slice(p->to, p->version[v.id][weft_layout_slot(p->home[v.id])],
                                     WEFT_HEADS_DIM, start, len);
    }
}

/* Emits or returns group g of a value after the exchange. */
static weft_value fetch_heads(weft_axis_shard *p, const heads *h, weft_value v, int32_t g)
{
    const weft_node *maker = weft_graph_node(p->axis->from, weft_axis_info(p, v)->node);
    const grouped *x = &p->heads->of[v.id];
    if (weft_graph_check(p->to) != WEFT_OK || weft_value_ok(x->made[g]))
        return weft_graph_check(p->to) != WEFT_OK ? WEFT_NONE : x->made[g];
    int64_t start, len;
    const weft_layout home = p->home[v.id];
    group_of(p, h, v, g, &start, &len);
    if (x->slice) {
        x->made[g] = emit_all_to_all(
            p, x->slice[g], home.dim, weft_axis_info(p, v)->shape.dim[home.dim], h->dim,
            h->dim == WEFT_HEADS_DIM ? len : weft_axis_info(p, v)->shape.dim[h->dim], g > 0);
        return x->made[g];
    }
    weft_value *part = weft_calloc(maker->in_count, sizeof *part);
    if (!part) {
        weft_graph_fail(p->to, WEFT_MSG_OUT_OF_MEMORY, "out of memory sharding a graph");
        return WEFT_NONE;
    }
    for (int i = 0; i < maker->in_count; i++)
        part[i] = fetch_heads(p, h, maker->in[i], g);
    x->made[g] =
        weft_concat(p->to, part, maker->in_count, ((const weft_attr_concat *)maker->attr)->dim);
    weft_free(part);
    return x->made[g];
}

/* Starts the exchanges of group g. Parts of a concat are exchanged now and joined when the group is
 * used, because the join would wait for the exchange. */
static void start_heads(weft_axis_shard *p, const heads *h, const weft_node *n, int32_t g)
{
    for (int i = 0; g < h->count && i < 3; i++) {
        const weft_node *maker = weft_graph_node(p->axis->from, weft_axis_info(p, n->in[i])->node);
        for (int k = 0; p->heads->deferred[n->in[i].id] && k < maker->in_count; k++)
            fetch_heads(p, h, maker->in[k], g);
        if (!p->heads->deferred[n->in[i].id])
            fetch_heads(p, h, n->in[i], g);
    }
}

static weft_value attend_heads(weft_axis_shard *p, const heads *h, const weft_node *n, int32_t g)
{
    const weft_op_info *info = weft_op_get(n->op);
    weft_value made[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    int64_t start, len;
    weft_any_attr attr = {0};
    group_of(p, h, n->in[0], g, &start, &len);
    if (h->dim == WEFT_HEADS_DIM)
        weft_part(len, p->axis->ranks, p->axis->coordinate, &start, &len);
    else
        weft_part(weft_axis_info(p, n->out[0])->shape.dim[h->dim], p->axis->ranks,
                  p->axis->coordinate, &start, &len);
    memcpy(&attr, n->attr, (size_t)info->attr_bytes);
    info->local(p->to, &attr, h->dim, start, len);
    for (int i = 0; i < 3; i++)
        p->in[i] = fetch_heads(p, h, n->in[i], g);
    weft_emit_all(p->to, n->op, p->in, n->in_count, &attr, made);
    return made[0];
}

void weft_head_groups_emit(weft_axis_shard *p, const weft_node *n, const weft_recipe_row *row,
                           const weft_layout_choice *choice, int32_t count)
{
    const heads h = {.count = count, .dim = weft_layout_need(choice, 0).dim};
    const weft_value out = n->out[0];
    const weft_layout back = row->layout;
    weft_value *part = weft_calloc(count, sizeof *part);
    if (!part) {
        weft_graph_fail(p->to, WEFT_MSG_OUT_OF_MEMORY, "out of memory sharding a graph");
        return;
    }
    for (int i = 0; i < 3; i++)
        cut_heads(p, &h, n->in[i]);
    for (int i = 3; i < n->in_count; i++)
        p->in[i] = weft_axis_operand(p, n, choice, i);
    for (int32_t g = 0; g < GROUPS_PREFETCHED; g++)
        start_heads(p, &h, n, g);
    for (int32_t g = 0; g < count && weft_graph_check(p->to) == WEFT_OK; g++) {
        int64_t start, len;
        part[g] = attend_heads(p, &h, n, g);
        start_heads(p, &h, n, g + GROUPS_PREFETCHED);
        group_of(p, &h, out, g, &start, &len);
        const weft_shape *all = &weft_axis_info(p, out)->shape;
        part[g] =
            emit_all_to_all(p, part[g], h.dim, h.dim == WEFT_HEADS_DIM ? len : all->dim[h.dim],
                            back.dim, all->dim[back.dim], false);
    }
    if (weft_graph_check(p->to) == WEFT_OK) {
        p->home[out.id] = back;
        p->home[n->out[1].id] = choice->out[1];
        weft_axis_put(p, out, back, weft_concat(p->to, part, count, WEFT_HEADS_DIM));
        weft_axis_check_shape(p, n, out, back, p->version[out.id][weft_layout_slot(back)]);
    }
    weft_free(part);
}
