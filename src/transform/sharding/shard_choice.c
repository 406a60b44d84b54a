#include "transform/sharding/shard_choice.h"

#include "graph/graph.h"

#include <math.h>
#include <string.h>

double weft_axis_bytes(const weft_axis_shard *p, weft_value v)
{
    const weft_value_info *info = weft_axis_info(p, v);
    return (double)weft_shape_count(&info->shape) * (double)weft_dtype_bytes(info->dtype);
}

/* Waste of an uneven split: largest shard times ranks, divided by the complete size. */
static double imbalance(const weft_axis_shard *p, weft_value v, weft_layout l)
{
    if (l.kind != WEFT_S)
        return 1;
    const int64_t n = weft_axis_info(p, v)->shape.dim[l.dim],
                  chunk = (n + p->axis->ranks - 1) / p->axis->ranks;
    return n ? (double)(chunk * p->axis->ranks) / (double)n : 1;
}

/* The source that `v` forwards. Conversions of earlier axes may be between a parameter and its
 * use. */
static weft_value forwarded_source(const weft_axis_shard *p, weft_value v)
{
    for (;;) {
        const weft_node *n = weft_graph_node(p->axis->from, weft_axis_info(p, v)->node);
        if (!weft_op_has(n->op, WEFT_TRAIT_FORWARDS))
            return v;
        v = n->in[0];
    }
}

/* Weights of conversions that send nothing, as shares of the value's bytes. They order choices that
 * send equally many bytes:
 *   RELABEL     vary, which copies nothing
 *   LOCAL_COPY  own shard of a replicated value; also a parameter that is gathered in any case */
static const double RELABEL = 1e-7, LOCAL_COPY = 1e-6;
/* Added share of an expansion's bytes: the op itself wins a tie. */
static const double EXPANSION = 1e-6;
/* Factor for gathering a parameter that stays split for its use, which is the last choice. */
static const double GATHER_OF_SPLIT_PARAM = 1e3;

/* Bytes sent in the forward by a ring algorithm, with the weights above. */
static double conversion_cost(const weft_axis_shard *p, weft_value v, weft_layout to)
{
    const weft_layout home = p->home[v.id];
    const double bytes = weft_axis_bytes(p, v),
                 others = (double)(p->axis->ranks - 1) / p->axis->ranks;
    if (weft_layout_same(home, to))
        return 0;
    if (to.kind == WEFT_P)
        return INFINITY;
    if (home.kind == WEFT_R)
        return bytes * (to.kind == WEFT_V ? RELABEL : LOCAL_COPY);
    if (home.kind == WEFT_P)
        return bytes * others * (to.kind == WEFT_S ? imbalance(p, v, to) : 2);
    const weft_value source = forwarded_source(p, v);
    if (p->gather[source.id] && to.kind != WEFT_S)
        return bytes * LOCAL_COPY;
    const bool param =
        weft_graph_node(p->axis->from, weft_axis_info(p, source)->node)->op == WEFT_OP_PARAM;
    const double penalty = param && !p->gather[source.id] ? GATHER_OF_SPLIT_PARAM : 1;
    return penalty * bytes * others *
           (to.kind == WEFT_S ? imbalance(p, v, to) / p->axis->ranks : 1);
}

void weft_layout_choice_mark_varying(const weft_node *n, weft_layout_choice *c)
{
    bool differs = false;
    for (int i = 0; i < n->in_count; i++)
        differs |= weft_value_ok(n->in[i]) && weft_layout_need(c, i).kind != WEFT_R;
    for (int o = 0; o < n->out_count; o++)
        differs |= c->out[o].kind != WEFT_R;
    for (int i = 0; differs && i < n->in_count && i < WEFT_MAX_INPUTS; i++)
        if (c->need[i].kind == WEFT_R)
            c->need[i].kind = WEFT_V;
}

static double choice_cost(const weft_axis_shard *p, const weft_node *n, const weft_layout_choice *c)
{
    double cost = 0;
    for (int i = 0; i < n->in_count; i++)
        if (weft_value_ok(n->in[i]))
            cost += conversion_cost(p, n->in[i], weft_layout_need(c, i));
    for (int o = 0; o < n->out_count; o++)
        if (c->out[o].kind == WEFT_P)
            cost += weft_axis_bytes(p, n->out[o]) * (p->axis->ranks - 1) / p->axis->ranks;
    return cost + c->wire_bytes * (1 + EXPANSION);
}

bool weft_axis_fits_all_ranks(const weft_axis_shard *p, const weft_node *n,
                              const weft_layout_choice *c)
{
    if (!weft_op_has(n->op, WEFT_TRAIT_FITS))
        return true;
    for (int i = 0; i < n->in_count + n->out_count; i++) {
        const weft_value v = i < n->in_count ? n->in[i] : n->out[i - n->in_count];
        const weft_layout l = i < n->in_count ? weft_layout_need(c, i) : c->out[i - n->in_count];
        if (weft_value_ok(v) && l.kind == WEFT_S &&
            weft_axis_info(p, v)->shape.dim[l.dim] !=
                weft_value_get(p->axis->smallest, v)->shape.dim[l.dim])
            return false;
    }
    return true;
}

void weft_axis_choose(weft_axis_shard *p, const weft_node *n, const char *by,
                      weft_layout_choice *best)
{
    weft_layout_choice choice[WEFT_MAX_CHOICES];
    const int count = weft_op_get(n->op)->layout(p->axis->from, n, p->axis->ranks, choice);
    *best = (weft_layout_choice){0}; /* all R */
    double least = by ? INFINITY : choice_cost(p, n, best);
    for (int i = 0; i < count; i++) {
        const weft_expansion *e = choice[i].expansion;
        if (!weft_axis_fits_all_ranks(p, n, &choice[i]) || (by && (!e || strcmp(e->name, by) != 0)))
            continue;
        weft_layout_choice_mark_varying(n, &choice[i]);
        const double cost = choice_cost(p, n, &choice[i]);
        if (cost < least) {
            least = cost;
            *best = choice[i];
        }
    }
    if (isinf(least))
        weft_graph_fail(p->to, WEFT_MSG_PASS_UNSUPPORTED,
                        "recipe %s: on axis %s %s cannot be computed by \"%s\": its layout rule "
                        "does not offer that for these operands; take \"by\" out of the row",
                        p->axis->recipe->name, p->axis->name, weft_op_get(n->op)->name,
                        by ? by : "");
}
