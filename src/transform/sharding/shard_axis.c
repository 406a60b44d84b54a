#include "transform/sharding/shard_axis.h"

#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "transform/sharding/early_splits.h"
#include "transform/sharding/head_groups.h"
#include "transform/sharding/shard_choice.h"
#include "transform/sharding/token_chunks.h"

#include <stdio.h>
#include <string.h>

/* Layout of a row. Equal on all ranks, because it depends on the complete tensor only. */
static weft_layout row_layout(const weft_recipe_row *row, const weft_shape *global, int ranks)
{
    weft_layout l = row->layout;
    if (l.kind != WEFT_S || l.dim != WEFT_ANY_DIM)
        return l;
    if (global->rank == 0)
        return weft_whole;
    l.dim = (int8_t)weft_part_dim(global, ranks);
    return l;
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void emit_source(weft_axis_shard *p, const weft_node *n, weft_layout layout)
{
    const weft_value v = n->out[0];
    weft_attr_source attr = *(const weft_attr_source *)n->attr;
    if (layout.kind == WEFT_S) {
        int64_t start;
        weft_part(attr.shape.dim[layout.dim], p->axis->ranks, p->axis->coordinate, &start,
                  &attr.shape.dim[layout.dim]);
        attr.start[layout.dim] += start;
    }
    p->home[v.id] = layout;
    weft_axis_put(p, v, layout, weft_source(p->to, n->op, weft_axis_info(p, v)->name, &attr));
}

static void shard_source(weft_axis_shard *p, const weft_node *n)
{
    const weft_value v = n->out[0];
    const weft_value_info *info = weft_axis_info(p, v);
    const weft_attr_source *attr = n->attr;
    weft_layout layout = weft_whole;
    const weft_recipe_row *row =
        weft_recipe_row_for(p->axis->recipe, p->axis->name, info->name, n->op == WEFT_OP_PARAM);
    if (!row && attr->slot && !p->consumers[v.id].all)
        return; /* shard_ends emits the slot in the layout of its update */
    if (row) {
        layout = row_layout(row, &attr->global, p->axis->ranks);
        if (!weft_axis_check_row(p, row, layout, info->name, info->shape.rank))
            return;
        p->gather[v.id] = row->gather && n->op == WEFT_OP_PARAM;
    }
    emit_source(p, n, layout);
}

/* Number of portions of the node's exchange. `overlap` NULL: exchanges are undivided. */
static int32_t count_portions(const weft_axis_shard *p, const weft_node *n,
                              const weft_comm_overlap *overlap, const weft_recipe_row *row,
                              const weft_layout_choice *choice)
{
    if (!overlap || choice->expansion)
        return 1;
    if (overlap->heads > 1 && weft_head_groups_can_defer(p, n, choice))
        return WEFT_PORTIONS_DEFERRED;
    int64_t most = 1, wanted = 1;
    if (row && n->op == WEFT_OP_ATTENTION && overlap->heads > 1) {
        most = weft_head_groups_most(p, n, row, choice);
        wanted = overlap->heads;
    } else if (row && n->op == WEFT_OP_LINEAR && overlap->chunks > 1) {
        most = weft_token_chunks_most(p, n, row, choice);
        wanted = overlap->chunks;
    }
    return (int32_t)(most < 2 ? 1 : wanted < most ? wanted : most);
}

static void convert_inputs(weft_axis_shard *p, const weft_node *n, const weft_layout_choice *choice,
                           weft_value *in)
{
    for (int i = 0; i < n->in_count; i++)
        in[i] = weft_axis_operand(p, n, choice, i);
    for (int o = 0; o < n->out_count; o++)
        p->home[n->out[o].id] = choice->out[o];
}

static void set_outputs(weft_axis_shard *p, const weft_expanded *m,
                        const weft_layout_choice *choice)
{
    for (int o = 0; o < m->node->out_count; o++) {
        weft_axis_put(p, m->node->out[o], choice->out[o], m->out[o]);
        weft_axis_check_shape(p, m->node, m->node->out[o], choice->out[o], m->out[o]);
    }
}

/* Converts the result to the layout of the recipe's row. */
static void convert_output(weft_axis_shard *p, const weft_node *n, const weft_recipe_row *row)
{
    if (!row || weft_graph_check(p->to) != WEFT_OK ||
        !weft_axis_check_row(p, row, row->layout, n->scope,
                             weft_axis_info(p, n->out[0])->shape.rank))
        return;
    const weft_comm_overlap *overlap = p->axis->recipe->overlap;
    const weft_comm_position order = {.late = row->held,
                                      .piece = row->piece && overlap &&
                                               overlap->kind != WEFT_COMM_OVERLAP_OFF};
    weft_axis_convert_in_order(p, n->out[0], row->layout, order);
    p->home[n->out[0].id] = row->layout;
}

/* Returns true if node `later` can share the exchange of node `first`: both have the same scope and
 * operands except the first one, which exists before `first`. */
static bool joins(const weft_axis_shard *p, int32_t first, int32_t later)
{
    const weft_node *a = weft_graph_node(p->axis->from, first),
                    *b = weft_graph_node(p->axis->from, later);
    if (a->op != b->op || a->in_count != b->in_count || strcmp(a->scope, b->scope) ||
        weft_axis_info(p, b->in[0])->node >= first)
        return false;
    for (int i = 1; i < a->in_count; i++)
        if (a->in[i].id != b->in[i].id)
            return false;
    return true;
}

/* Expands node `first` and the nodes that join it. */
static void expand_group(weft_axis_shard *p, int32_t first, const weft_layout_choice *choice)
{
    enum { NEAR = 64 }; /* nodes between the attentions of one block */
    weft_expanded member[WEFT_EXPANDED_MOST] = {{.node = weft_graph_node(p->axis->from, first)}};
    const int32_t nodes = weft_graph_node_count(p->axis->from),
                  emitted = weft_graph_node_count(p->to);
    int count = 1;
    convert_inputs(p, member[0].node, choice, member[0].in);
    for (int32_t i = first + 1; i < nodes && i < first + NEAR && count < WEFT_EXPANDED_MOST; i++) {
        if (!joins(p, first, i))
            continue;
        p->plan[i] = (weft_node_plan){.choice = *choice, .portions = 1};
        p->done[i] = true;
        member[count].node = weft_graph_node(p->axis->from, i);
        convert_inputs(p, member[count].node, choice, member[count].in);
        count++;
    }
    choice->expansion->emit(p->to, p->axis->from, member, count, p->axis->number);
    for (int32_t i = emitted; i < weft_graph_node_count(p->to); i++)
        weft_graph_node_mut(p->to, i)->backward = member[0].node->backward;
    for (int m = 0; m < count; m++) {
        set_outputs(p, &member[m], choice);
        if (m)
            convert_output(p, member[m].node, weft_axis_node_row(p, member[m].node));
    }
}

static void emit_plainly(weft_axis_shard *p, const weft_node *n, const weft_layout_choice *choice)
{
    if (choice->expansion) {
        expand_group(p, weft_axis_info(p, n->out[0])->node, choice);
        return;
    }
    convert_inputs(p, n, choice, p->in);
    weft_axis_emit_node(p, n, p->in, choice->out);
}

/* Emits the deferred concats that an undivided node reads. */
static void emit_deferred(weft_axis_shard *p, const weft_node *n)
{
    for (int i = 0; i < n->in_count; i++) {
        if (!weft_value_ok(n->in[i]) || !weft_head_groups_take(p->heads, n->in[i]))
            continue;
        const int32_t at = weft_axis_info(p, n->in[i])->node;
        emit_plainly(p, weft_graph_node(p->axis->from, at), &p->plan[at].choice);
    }
}

static void emit_planned(weft_axis_shard *p, const weft_node *n, const weft_node_plan *plan)
{
    const weft_recipe_row *row = weft_axis_node_row(p, n);
    if (plan->portions == WEFT_PORTIONS_DEFERRED) {
        weft_head_groups_defer(p->heads, n->out[0]);
        p->home[n->out[0].id] = plan->choice.out[0];
    } else if (plan->portions > 1 && n->op == WEFT_OP_ATTENTION) {
        weft_head_groups_emit(p, n, row, &plan->choice, plan->portions);
    } else if (plan->portions > 1) {
        weft_token_chunks_emit(p, n, row, &plan->choice, plan->portions);
    } else {
        emit_deferred(p, n);
        emit_plainly(p, n, &plan->choice);
        convert_output(p, n, row);
    }
}

static void shard_ends(weft_axis_shard *p)
{
    int count;
    const weft_named *outputs = weft_graph_outputs(p->axis->from, &count);
    for (int i = 0; i < count; i++) {
        const weft_recipe_row *row =
            weft_recipe_row_for(p->axis->recipe, p->axis->name, outputs[i].name, false);
        if (row && !weft_axis_check_row(p, row, row->layout, outputs[i].name,
                                        weft_axis_info(p, outputs[i].value)->shape.rank))
            return;
        weft_output(p->to, outputs[i].name,
                    weft_axis_convert(p, outputs[i].value, row ? row->layout : weft_whole));
    }
    const weft_pair *updates = weft_graph_updates(p->axis->from, &count);
    for (int i = 0; i < count; i++) {
        const weft_value source = updates[i].source, value = updates[i].value;
        if (!weft_value_ok(p->version[source.id][weft_layout_slot(p->home[source.id])]))
            emit_source(p, weft_graph_node(p->axis->from, weft_axis_info(p, source)->node),
                        p->home[value.id].kind == WEFT_S ? p->home[value.id] : weft_whole);
        const weft_layout home = p->home[source.id];
        weft_update(p->to, p->version[source.id][weft_layout_slot(home)],
                    weft_axis_convert(p, value, home));
    }
}

/* ---- the axis ------------------------------------------------------------------------------ */

static weft_status begin(weft_axis_shard *p)
{
    const weft_graph *from = p->axis->from;
    const int64_t values = weft_graph_value_count(from);
    p->version = weft_calloc(values, sizeof *p->version);
    p->home = weft_calloc(values, sizeof *p->home);
    p->gather = weft_alloc(values);
    p->in = weft_calloc(weft_graph_most_inputs(from), sizeof *p->in);
    p->consumers = weft_calloc(values, sizeof *p->consumers);
    p->done = weft_alloc((int64_t)weft_graph_node_count(from) + 1);
    WEFT_TRY(WEFT_ALLOCATED(p->version && p->home && p->gather && p->in && p->consumers && p->done,
                            "sharding a graph of %" PRId64 " values", values));
    WEFT_TRY(weft_head_groups_create(values, &p->heads));
    weft_axis_count_consumers(p);
    for (int64_t v = 0; v < values; v++)
        for (int s = 0; s < WEFT_SLOTS; s++)
            p->version[v][s] = WEFT_NONE;
    return WEFT_OK;
}

static void end(weft_axis_shard *p)
{
    weft_free(p->version);
    weft_free(p->home);
    weft_free(p->gather);
    weft_free(p->in);
    weft_free(p->consumers);
    weft_free(p->done);
    weft_head_groups_free(p->heads);
}

/* The next node to emit, from node *i on. Emits the sources before it. NULL: none. */
static const weft_node *next_node(weft_axis_shard *p, int32_t *i)
{
    const weft_graph *from = p->axis->from;
    for (; *i < weft_graph_node_count(from) && weft_graph_check(p->to) == WEFT_OK; ++*i) {
        const weft_node *n = weft_graph_node(from, *i);
        if (weft_op_has(n->op, WEFT_TRAIT_NAMED))
            shard_source(p, n);
        else if (!p->done[*i])
            return n;
    }
    return NULL;
}

/* Plans each node just before it is emitted, because its choice depends on the layouts of its
 * operands. */
static void plan_and_emit(weft_axis_shard *p, const weft_comm_overlap *overlap)
{
    const weft_node *n;
    for (int32_t i = 0; (n = next_node(p, &i)) != NULL; i++) {
        const weft_recipe_row *row = weft_axis_node_row(p, n);
        weft_node_plan *plan = &p->plan[i];
        weft_graph_push(p->to, "%s", n->scope);
        weft_axis_choose(p, n, row ? row->by : NULL, &plan->choice);
        plan->portions = count_portions(p, n, overlap, row, &plan->choice);
        emit_planned(p, n, plan);
        weft_graph_pop(p->to);
    }
}

static void emit_by_plan(weft_axis_shard *p)
{
    const weft_node *n;
    for (int32_t i = 0; (n = next_node(p, &i)) != NULL; i++) {
        weft_graph_push(p->to, "%s", n->scope);
        emit_planned(p, n, &p->plan[i]);
        weft_graph_pop(p->to);
    }
}

static weft_status finish(weft_axis_shard *p)
{
    if (weft_graph_check(p->to) == WEFT_OK)
        shard_ends(p);
    return weft_graph_check(p->to);
}

weft_status weft_shard_axis_plan(const weft_axis *axis, const weft_comm_overlap *overlap,
                                 weft_graph *to, weft_node_plan *plan, bool *changed)
{
    weft_status_code status = WEFT_OK;
    weft_axis_shard p = {.axis = axis, .to = to, .plan = plan};
    WEFT_GO(begin(&p));
    plan_and_emit(&p, overlap);
    WEFT_GO(finish(&p));
    status = weft_early_splits_plan(&p, changed);
out:
    end(&p);
    return status;
}

weft_status weft_shard_axis_emit(const weft_axis *axis, weft_graph *to, weft_node_plan *plan)
{
    weft_status_code status = WEFT_OK;
    weft_axis_shard p = {.axis = axis, .to = to, .plan = plan};
    WEFT_GO(begin(&p));
    emit_by_plan(&p);
    status = finish(&p);
out:
    end(&p);
    return status;
}
