#include "transform/sharding/early_splits.h"

#include "graph/graph.h"
#include "transform/sharding/shard_choice.h"

#include <math.h>
#include <string.h>

enum { NEVER_READ = -1, READ_OTHERWISE = -2 };

typedef struct early {
    weft_axis_shard *p;
    bool *trained; /* per value: has a gradient */
    int8_t *read;  /* per value: dim in which all consumers read it, or a constant above */
} early;

static double gradient_bytes(const early *e, weft_value v)
{
    return e->trained[v.id] ? weft_axis_bytes(e->p, v) * (e->p->axis->ranks - 1) / e->p->axis->ranks
                            : 0;
}

/* Additional bytes sent for gradients of the operands; INFINITY: not possible. */
static double early_cost(const early *e, const weft_node *n, const weft_layout_choice *c)
{
    const weft_axis_shard *p = e->p;
    double cost = 0;
    for (int i = 0; i < n->in_count; i++) {
        if (!weft_value_ok(n->in[i]))
            continue;
        const weft_layout home = p->home[n->in[i].id], need = weft_layout_need(c, i);
        const int32_t at = weft_axis_info(p, n->in[i])->node;
        const bool source = weft_op_has(weft_graph_node(p->axis->from, at)->op, WEFT_TRAIT_NAMED);
        if (weft_layout_same(home, need))
            continue;
        if (home.kind != WEFT_R || need.kind == WEFT_P)
            return INFINITY;
        if (weft_value_ok(p->version[n->in[i].id][weft_layout_slot(need)])) /* converted already */
            continue;
        if (need.kind == WEFT_S) /* other values may be split early, too */
            cost += source || p->consumers[n->in[i].id].all > 1 ? gradient_bytes(e, n->in[i]) : 0;
        else
            cost += 2 * gradient_bytes(e, n->in[i]);
    }
    return cost;
}

static bool find_early(const early *e, const weft_node *n, int dim, weft_layout_choice *best)
{
    const weft_axis_shard *p = e->p;
    weft_layout_choice choice[WEFT_MAX_CHOICES];
    const int count = weft_op_get(n->op)->layout(p->axis->from, n, p->axis->ranks, choice);
    const double gain = gradient_bytes(e, n->out[0]);
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        const weft_layout out = choice[i].out[0];
        if (choice[i].expansion || out.kind != WEFT_S || out.dim != dim ||
            !weft_axis_fits_all_ranks(p, n, &choice[i]))
            continue;
        weft_layout_choice_mark_varying(n, &choice[i]);
        const double cost = early_cost(e, n, &choice[i]);
        if (cost < least && cost <= gain) {
            least = cost;
            *best = choice[i];
        }
    }
    return !isinf(least);
}

static void read_as(early *e, weft_value v, weft_layout need, bool counts)
{
    const int8_t dim = counts && need.kind == WEFT_S ? need.dim : READ_OTHERWISE;
    int8_t *read = &e->read[v.id];
    *read = *read == NEVER_READ || *read == dim ? dim : READ_OTHERWISE;
}

/* A slot that a row splits takes the value in parts, so the value may be computed in parts. */
static void read_update(early *e, const weft_pair *update)
{
    const weft_graph *g = e->p->axis->from;
    const weft_node *n = weft_graph_node(g, weft_value_get(g, update->source)->node);
    const bool slot = n->op == WEFT_OP_STATE && ((const weft_attr_source *)n->attr)->slot;
    read_as(e, update->value, slot ? e->p->home[update->source.id] : weft_whole, slot);
}

static bool split_early(early *e, int32_t index)
{
    weft_axis_shard *p = e->p;
    const weft_node *n = weft_graph_node(p->axis->from, index);
    const weft_recipe_row *row = weft_axis_node_row(p, n);
    weft_layout_choice *choice = &p->plan[index].choice;
    const bool cut = row && row->layout.kind == WEFT_S && row->layout.dim == WEFT_TOKENS_DIM;
    const int dim = cut ? WEFT_TOKENS_DIM : e->read[n->out[0].id];
    bool made = false;
    if (n->out_count == 1 && p->plan[index].portions == 1 && choice->out[0].kind == WEFT_R &&
        !choice->expansion && (!row || (cut && !row->by && !row->held && !row->piece)) && dim >= 0)
        made = find_early(e, n, dim, choice);
    for (int i = 0; i < n->in_count; i++) {
        const weft_layout need = weft_layout_need(choice, i);
        if (weft_value_ok(n->in[i]))
            read_as(e, n->in[i], need,
                    p->plan[index].portions == 1 && (made || need.dim == WEFT_TOKENS_DIM));
    }
    return made;
}

static void find_trained(early *e)
{
    const weft_graph *g = e->p->axis->from;
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node *n = weft_graph_node(g, i);
        bool trained = n->op == WEFT_OP_PARAM;
        for (int k = 0; k < n->in_count; k++)
            trained = trained || (weft_value_ok(n->in[k]) && e->trained[n->in[k].id]);
        for (int o = 0; o < n->out_count; o++)
            if (weft_value_ok(n->out[o]))
                e->trained[n->out[o].id] =
                    trained && weft_dtype_is_float(weft_axis_info(e->p, n->out[o])->dtype);
    }
}

weft_status weft_early_splits_plan(weft_axis_shard *p, bool *changed)
{
    const int64_t values = weft_graph_value_count(p->axis->from) + 1;
    int count;
    early e = {.p = p, .trained = weft_alloc(values), .read = weft_alloc(values)};
    if (!e.trained || !e.read) {
        weft_free(e.trained);
        weft_free(e.read);
        return weft_no_memory("sharding a graph");
    }
    memset(e.read, NEVER_READ, (size_t)values);
    find_trained(&e);
    const weft_named *output = weft_graph_outputs(p->axis->from, &count);
    for (int i = 0; i < count; i++)
        read_as(&e, output[i].value, weft_whole, false);
    const weft_pair *update = weft_graph_updates(p->axis->from, &count);
    for (int i = 0; i < count; i++)
        read_update(&e, &update[i]);
    for (int32_t i = weft_graph_node_count(p->axis->from) - 1; i >= 0; i--)
        if (!weft_op_has(weft_graph_node(p->axis->from, i)->op, WEFT_TRAIT_NAMED))
            *changed = split_early(&e, i) || *changed;
    weft_free(e.trained);
    weft_free(e.read);
    return WEFT_OK;
}
