/* Slices and concats that copy nothing.
 *
 *   slice     | a . . . . . . |      of a dim with nothing but ones before it: the rows of the part
 *             :   | b . . |   :      lie together, and b is those bytes of a
 *
 *   concat    | c . . . . . . |      along such a dim: a and b are made where they belong in c,
 *             | a . | b . . . |      and the node has nothing left to do
 *
 * A part begins at a multiple of 64 bytes, as vector kernels and libraries like it. What lies in
 * another's storage keeps all of that alive; so a slice is a view only where that holds no more
 * bytes x nodes than the copies would. A concat may hold half more: it is there whole from its
 * first part on, but where it would copy both are there. */
#include "pass/lifetime.h"

#include <string.h>

typedef struct slices { /* of one storage */
    double copies;      /* bytes x nodes that the copies would live */
    int32_t until;      /* the last node that reads one of them */
} slices;

/* Rows along `dim` lie together. */
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

/* Where in its input the slice begins; -1: it must be copied. */
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
    slices *of = weft_alloc((l->values + 1) * (int64_t)sizeof *of);
    if (!of)
        return weft_fail(WEFT_E_MEMORY, "no memory for the memory plan");
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        if (node->op != WEFT_OP_SLICE || slice_shift(l, node) < 0)
            continue;
        slices *s = &of[weft_memory_plan_root(plan, node->in[0].id)];
        const int32_t last = last_of(l, node->out[0].id);
        s->copies += (double)plan->place[node->out[0].id].bytes * (last - n + 1);
        s->until = last > s->until ? last : s->until;
    }
    for (int32_t n = 0; n < l->nodes; n++) {
        const weft_node *node = weft_graph_node(l->graph, n);
        if (node->op != WEFT_OP_SLICE || slice_shift(l, node) < 0)
            continue;
        const int32_t v = node->out[0].id, root = weft_memory_plan_root(plan, node->in[0].id);
        const int32_t longer = of[root].until - l->life[root].last;
        if (plan->place[root].region == WEFT_REGION_ARENA && longer > 0 &&
            (double)plan->place[root].bytes * longer > of[root].copies)
            continue;
        plan->place[v].alias_of = node->in[0].id;
        plan->place[v].shift = slice_shift(l, node);
        plan->view[n] = true;
    }
    weft_free(of);
    return WEFT_OK;
}

/* Input i of a concat can be made in its place: it is the whole of a storage of its own that is
 * neither given nor placed already. */
static bool can_be_part(const lifetime *l, const weft_node *node, int i, int64_t shift)
{
    const int32_t v = node->in[i].id, root = weft_memory_plan_root(l->plan, v);
    for (int k = 0; k < i; k++)
        if (weft_memory_plan_root(l->plan, node->in[k].id) == root)
            return false;
    return l->plan->place[root].region == WEFT_REGION_ARENA && shift % WEFT_ALIGNMENT == 0 &&
           weft_lifetime_bytes(l, v) == weft_lifetime_bytes(l, root) &&
           weft_lifetime_bytes(l, v) > 0 && !l->life[root].pinned && !l->life[root].goal;
}

static bool concat_is_view(const lifetime *l, int32_t n)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    const weft_place *out = &l->plan->place[node->out[0].id];
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
        const weft_place *part = &l->plan->place[root];
        copies += (double)part->bytes * (l->life[root].last - part->first + 1);
        first = part->first < first ? part->first : first;
        last = l->life[root].last > last ? l->life[root].last : last;
        shift += weft_lifetime_bytes(l, node->in[i].id);
    }
    return 2 * (double)out->bytes * (last - first + 1) <= 3 * copies;
}

static void place_parts(lifetime *l, int32_t n)
{
    const weft_node *node = weft_graph_node(l->graph, n);
    weft_place *out = &l->plan->place[node->out[0].id];
    life *whole = &l->life[node->out[0].id];
    int64_t shift = 0;
    l->plan->view[n] = true;
    for (int i = 0; i < node->in_count; i++) {
        const int32_t root = weft_memory_plan_root(l->plan, node->in[i].id);
        weft_place *part = &l->plan->place[root];
        part->alias_of = node->out[0].id;
        part->shift = shift;
        out->first = part->first < out->first ? part->first : out->first;
        whole->last = l->life[root].last > whole->last ? l->life[root].last : whole->last;
        shift += weft_lifetime_bytes(l, node->in[i].id);
    }
}

/* Outputs are pinned and live to the end; `goal` marks new values of sources, which may be written
 * over them and lie in nothing else. */
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
            place_parts(l, n);
    memset(l->life, 0, (size_t)l->values * sizeof *l->life);
    return WEFT_OK;
}
