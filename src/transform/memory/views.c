/* Slices and concats without a copy.
 *
 *   slice     | a . . . . . . |      if all dims before the sliced one are 1, the rows of the part
 *             :   | b . . |   :      are contiguous, and b is those bytes of a
 *
 *   concat    | c . . . . . . |      along such a dim, a and b are computed in their ranges of c,
 *             | a . | b . . . |      and the concat has nothing to do
 *
 * A part begins at a multiple of 64 bytes, for vector kernels and libraries. A view keeps the
 * complete storage live. So a slice is a view only if this costs no more bytes x nodes than the
 * copies would. A concat may cost up to 1.5 times the copies: its storage is live from its first
 * part on, but a copy would need parts and result at the same time. */
#include "transform/memory/views.h"

#include "graph/graph.h"
#include "transform/memory/lifetime_internal.h"

#include <string.h>

typedef struct slices { /* slices of one storage */
    double copies;      /* bytes x nodes of the copies' live ranges */
    int32_t until;      /* last node that reads one of the slices */
} slices;

/* Returns true if rows along `dim` are contiguous. */
static bool leads(const weft_shape *shape, int dim)
{
    for (int d = 0; d < dim; d++)
        if (shape->dim[d] != 1)
            return false;
    return true;
}

static int32_t last_of(const lifetime *l, int32_t v)
{
    return l->life[weft_memory_plan_root(l->plan, v)].last;
}

/* Byte offset of the slice in its input; -1: a copy is needed. */
static int64_t slice_shift(const lifetime *l, const weft_node *node)
{
    const life *own = &l->life[node->out[0].id];
    const weft_attr_slice *attr = node->attr;
    const weft_shape *from = &weft_value_get(l->graph, node->in[0])->shape;
    const int64_t bytes = weft_lifetime_bytes(l, node->in[0].id);
    if (own->pinned || own->goal || !leads(from, attr->dim) || bytes == 0 || attr->len == 0)
        return -1;
    const int64_t shift = bytes / from->dim[attr->dim] * attr->start;
    return shift % WEFT_ALIGNMENT ? -1 : shift;
}

static weft_status find_slices(lifetime *l)
{
    weft_memory_plan *plan = l->plan;
    slices *of;
    WEFT_TRY(WEFT_NEW(of, l->values + 1, "the memory plan"));
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        if (node->op != WEFT_OP_SLICE || slice_shift(l, node) < 0)
            continue;
        slices *s = &of[weft_memory_plan_root(plan, node->in[0].id)];
        const int32_t last = last_of(l, node->out[0].id);
        s->copies += (double)plan->allocation[node->out[0].id].bytes * (last - n + 1);
        s->until = last > s->until ? last : s->until;
    }
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        if (node->op != WEFT_OP_SLICE || slice_shift(l, node) < 0)
            continue;
        const int32_t v = node->out[0].id, root = weft_memory_plan_root(plan, node->in[0].id);
        const int32_t longer = of[root].until - l->life[root].last;
        if (plan->allocation[root].region == WEFT_REGION_ARENA && longer > 0 &&
            (double)plan->allocation[root].bytes * longer > of[root].copies)
            continue;
        plan->allocation[v].alias_of = node->in[0].id;
        plan->allocation[v].shift = slice_shift(l, node);
        plan->view[n] = true;
    }
    weft_free(of);
    return WEFT_OK;
}

/* Returns true if input i of a concat can be computed in place: it is a complete arena storage that
 * is not pinned and occurs once. */
static bool can_be_part(const lifetime *l, const weft_node *node, int i, int64_t shift)
{
    const int32_t v = node->in[i].id, root = weft_memory_plan_root(l->plan, v);
    for (int k = 0; k < i; k++)
        if (weft_memory_plan_root(l->plan, node->in[k].id) == root)
            return false;
    return l->plan->allocation[root].region == WEFT_REGION_ARENA && shift % WEFT_ALIGNMENT == 0 &&
           weft_lifetime_bytes(l, v) == weft_lifetime_bytes(l, root) &&
           weft_lifetime_bytes(l, v) > 0 && !l->life[root].pinned && !l->life[root].goal;
}

static bool concat_is_view(const lifetime *l, int32_t n)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    const weft_allocation *out = &l->plan->allocation[node->out[0].id];
    const int32_t out_last = last_of(l, node->out[0].id);
    double copies = (double)out->bytes * (out_last - n + 1);
    int64_t shift = 0;
    int32_t first = n, last = out_last;
    if (l->life[node->out[0].id].goal || !leads(&weft_value_get(l->graph, node->out[0])->shape,
                                                ((const weft_attr_concat *)node->attr)->dim))
        return false;
    for (int i = 0; i < node->in_count; i++) {
        if (!can_be_part(l, node, i, shift))
            return false;
        const int32_t root = weft_memory_plan_root(l->plan, node->in[i].id);
        const weft_allocation *part = &l->plan->allocation[root];
        copies += (double)part->bytes * (l->life[root].last - part->first + 1);
        first = part->first < first ? part->first : first;
        last = l->life[root].last > last ? l->life[root].last : last;
        shift += weft_lifetime_bytes(l, node->in[i].id);
    }
    return 2 * (double)out->bytes * (last - first + 1) <= 3 * copies;
}

static void assign_parts(lifetime *l, int32_t n)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    weft_allocation *out = &l->plan->allocation[node->out[0].id];
    life *whole = &l->life[node->out[0].id];
    int64_t shift = 0;
    l->plan->view[n] = true;
    for (int i = 0; i < node->in_count; i++) {
        const int32_t root = weft_memory_plan_root(l->plan, node->in[i].id);
        weft_allocation *part = &l->plan->allocation[root];
        part->alias_of = node->out[0].id;
        part->shift = shift;
        out->first = part->first < out->first ? part->first : out->first;
        whole->last = l->life[root].last > whole->last ? l->life[root].last : whole->last;
        shift += weft_lifetime_bytes(l, node->in[i].id);
    }
}

/* Pins outputs, which are live to the end. Marks new values of sources with `goal`: these may
 * overwrite their sources, so they are not placed in other storage. */
static void mark_ends(lifetime *l)
{
    int count;
    const weft_named *output = weft_graph_outputs(l->graph, &count);
    for (int i = 0; i < count; i++) {
        life *of = &l->life[weft_memory_plan_root(l->plan, output[i].value.id)];
        of->pinned = true;
        of->last = l->nodes;
    }
    const weft_pair *update = weft_graph_updates(l->graph, &count);
    for (int i = 0; i < count; i++)
        l->life[weft_memory_plan_root(l->plan, update[i].value.id)].goal = 1;
}

weft_status weft_lifetime_find_views(lifetime *l)
{
    mark_ends(l);
    WEFT_TRY(find_slices(l));
    weft_lifetime_set_lives(l);
    mark_ends(l);
    for (int32_t n = 0; n < l->nodes; n++)
        if (weft_graph_node(l->graph, n)->op == WEFT_OP_CONCAT && concat_is_view(l, n))
            assign_parts(l, n);
    memset(l->life, 0, (size_t)l->values * sizeof *l->life);
    return WEFT_OK;
}
