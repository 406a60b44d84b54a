/* Offload: what is not needed for long lies elsewhere meanwhile, in the host's memory or in a file.
 *
 *   before   x = a(..)                 b(x)   ...   loss   ...            c(x)
 *   after    x = a(..)  h = offload x  b(x)   ...   loss   ...  y = fetch h   ...   c(y)
 *                       `------------- until it is waited for: x goes  `---- room: y begins
 *
 * Values that nodes marked `away` make leave as soon as they are there, and are back before the
 * first node of the backward that reads them. States that are chosen stay elsewhere between runs:
 * fetched before what updates them, and their new values leave at once.
 *
 * Both directions are under way beside the kernels. How much may be under way, or back before its
 * time, is bounded in bytes: `room`, or what the two largest need (pass/ahead.c). */
#include "pass/rewrite.h"

#include <string.h>

typedef struct offload {
    weft_moving m;    /* late: what nodes from `begin` on read */
    int32_t begin;    /* the first node of the backward that computes */
    int32_t *reader;  /* by root: the first node from `begin` on that reads it, or -1 */
    bool *comes;      /* by value: the new value of a state that leaves */
    weft_value *away; /* by value: elsewhere */
} offload;

static const weft_node *maker(const offload *o, int32_t value)
{
    return weft_graph_node(o->m.g, weft_value_get(o->m.g, (weft_value){value})->node);
}

static bool is_away_slot(const weft_node *node)
{
    const weft_attr_source *source = node->attr;
    return node->op == WEFT_OP_STATE && source->slot && source->away;
}

/* What ranks exchange may have been put before it; in a program of a stage, which is a part of the
 * backward, that may read what lies elsewhere. */
static int32_t first_of_backward(const offload *o)
{
    const uint32_t cheap = WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS | WEFT_TRAIT_COLLECTIVE;
    for (int32_t n = 0; n < o->m.nodes; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        if (node->backward && !weft_op_has(node->op, cheap))
            return n;
        for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++)
            if (weft_value_ok(node->in[i]) && is_away_slot(maker(o, o->m.root[node->in[i].id])))
                return n;
    }
    return 0;
}

/* Who reads what late. */
static void look(offload *o)
{
    for (int32_t v = 0; v < o->m.values; v++)
        o->reader[v] = -1;
    for (int32_t n = o->begin; n < o->m.nodes; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
            int32_t *reader =
                weft_value_ok(node->in[i]) ? &o->reader[o->m.root[node->in[i].id]] : NULL;
            if (reader && *reader < 0)
                *reader = n;
        }
    }
}

static weft_status add_need(offload *o, int32_t value)
{
    o->m.leaves[value] = true;
    return weft_moving_need(&o->m, value, o->reader[value]);
}

/* Values of the forward; outputs and updates are wanted where they are. */
static weft_status choose_values(offload *o)
{
    int outputs, updates;
    const weft_named *output = weft_graph_outputs(o->m.g, &outputs);
    const weft_pair *update = weft_graph_updates(o->m.g, &updates);
    bool *stays = weft_alloc(o->m.values + 1);
    weft_status_code status =
        stays ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for pass offload");
    for (int i = 0; i < outputs && stays; i++)
        stays[o->m.root[output[i].value.id]] = true;
    for (int i = 0; i < updates && stays; i++)
        stays[o->m.root[update[i].value.id]] = true;
    for (int32_t n = 0; n < o->begin && status == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        for (int k = 0; k < node->out_count && node->away && status == WEFT_OK; k++) {
            const int32_t v = node->out[k].id;
            if (v >= 0 && o->m.root[v] == v && o->reader[v] >= 0 && !stays[v])
                status = add_need(o, v);
        }
    }
    weft_free(stays);
    return status;
}

bool weft_offload_state(const char *const *patterns, int count, const char *name, int64_t bytes)
{
    for (int i = 0; i < count && bytes >= WEFT_OFFLOAD_LEAST; i++)
        if (weft_name_matches(patterns[i], name))
            return true;
    return false;
}

static weft_status choose_states(offload *o, const char *const *patterns, int count)
{
    int updates;
    const weft_pair *update = weft_graph_updates(o->m.g, &updates);
    for (int i = 0; i < updates; i++) {
        const int32_t s = update[i].source.id, v = update[i].value.id;
        const weft_value_info *info = weft_value_get(o->m.g, update[i].source);
        const weft_node *made =
            weft_graph_node(o->m.g, weft_value_get(o->m.g, update[i].value)->node);
        if (weft_graph_node(o->m.g, info->node)->op != WEFT_OP_STATE || o->reader[s] < 0 ||
            o->comes[v] || weft_op_has(made->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) ||
            !weft_offload_state(patterns, count, info->name,
                                weft_value_bytes(o->m.g, update[i].source)))
            continue;
        WEFT_TRY(add_need(o, s));
        o->comes[v] = true;
    }
    return WEFT_OK;
}

/* What a stage of a pipeline keeps for its backward in a record elsewhere. */
static weft_status choose_slots(offload *o)
{
    int updates;
    const weft_pair *update = weft_graph_updates(o->m.g, &updates);
    for (int32_t n = 0; n < o->m.nodes; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        if (is_away_slot(node) && o->reader[node->out[0].id] >= 0)
            WEFT_TRY(add_need(o, node->out[0].id));
    }
    for (int i = 0; i < updates; i++)
        if (is_away_slot(maker(o, update[i].source.id)))
            o->comes[update[i].value.id] = true;
    return WEFT_OK;
}

/* ---- the new graph --------------------------------------------------------------------------- */

/* Other names of what was fetched, made in the forward: given to it anew. */
static void name_again(offload *o, int32_t v)
{
    if (weft_value_ok(o->m.late[v]))
        return;
    const int32_t n = weft_value_get(o->m.g, (weft_value){v})->node;
    const weft_node *node = weft_graph_node(o->m.g, n);
    name_again(o, node->in[0].id); /* names of names: a few */
    weft_rewrite_node(&o->m.r, n, o->m.late);
    if (weft_value_ok(o->m.late[v]))
        weft_graph_node_mut(o->m.r.to, weft_value_get(o->m.r.to, o->m.late[v])->node)->backward =
            true;
}

static void copy_node(offload *o, int32_t n)
{
    const weft_node *node = weft_graph_node(o->m.g, n);
    const bool late = n >= o->begin;
    if (late && weft_op_is_alias(node->op) && o->m.leaves[o->m.root[node->in[0].id]])
        return; /* when somebody asks for it */
    for (int i = 0; i < node->in_count && late; i++)
        if (weft_value_ok(node->in[i]) && !weft_value_ok(o->m.late[node->in[i].id]))
            name_again(o, node->in[i].id);
    weft_rewrite_node(&o->m.r, n, late ? o->m.late : NULL);
    for (int k = 0; k < node->out_count; k++) {
        const int32_t v = node->out[k].id;
        if (v < 0)
            continue;
        if (late)
            o->m.r.map[v] = o->m.late[v];
        if (o->m.leaves[v] && !weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            o->away[v] = weft_moving_emit(&o->m, WEFT_OP_OFFLOAD, o->m.r.map[v], node, false);
        else if (o->m.leaves[v])
            o->away[v] = o->m.r.map[v];
        else if (!late && !o->m.leaves[o->m.root[v]])
            o->m.late[v] = o->m.r.map[v];
        if (o->comes[v]) /* what the state is after the run */
            o->m.r.map[v] =
                weft_moving_emit(&o->m, WEFT_OP_OFFLOAD, o->m.r.map[v], node, node->backward);
    }
}

/* States stand first, so that a fetch finds them. */
static void copy_states(offload *o)
{
    for (int32_t n = o->begin; n < o->m.nodes && weft_graph_check(o->m.r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        if (!weft_op_has(node->op, WEFT_TRAIT_GIVEN) || !o->m.leaves[node->out[0].id])
            continue;
        weft_rewrite_node(&o->m.r, n, NULL);
        o->away[node->out[0].id] = o->m.r.map[node->out[0].id];
    }
}

static void copy_nodes(offload *o)
{
    int64_t k = 0;
    copy_states(o);
    for (int32_t n = 0; n < o->m.nodes && weft_graph_check(o->m.r.to) == WEFT_OK; n++) {
        if (n >= o->begin)
            for (; k < o->m.count && o->m.needs[k].start == n; k++) {
                const weft_need *at = &o->m.needs[k];
                o->m.late[at->value] = weft_moving_emit(&o->m, WEFT_OP_FETCH, o->away[at->value],
                                                        weft_graph_node(o->m.g, at->reader), true);
            }
        if (!weft_value_ok(o->away[weft_graph_node(o->m.g, n)->out[0].id]))
            copy_node(o, n);
    }
}

static weft_status rewrite(offload *o, const char *const *states, int count, weft_graph **out)
{
    o->begin = first_of_backward(o);
    look(o);
    WEFT_TRY(choose_values(o));
    WEFT_TRY(choose_states(o, states, count));
    WEFT_TRY(choose_slots(o));
    weft_needs_start(o->m.needs, o->m.count, o->begin, &o->m.room);
    copy_nodes(o);
    return weft_rewrite_finish(&o->m.r, "offload", out);
}

weft_status weft_pass_offload(const weft_graph *g, const char *const *states, int count,
                              int64_t room, weft_graph **out)
{
    offload o;
    WEFT_TRY(weft_moving_begin(g, "offload", room, &o.m));
    const int64_t values = o.m.values + 1;
    o.reader = weft_arena_alloc(o.m.arena, values * (int64_t)sizeof *o.reader);
    o.comes = weft_arena_alloc(o.m.arena, values);
    o.away = weft_arena_alloc(o.m.arena, values * (int64_t)sizeof *o.away);
    for (int64_t v = 0; o.away && v < values; v++)
        o.away[v] = WEFT_NONE;
    const weft_status_code status = o.reader && o.comes && o.away
                                        ? rewrite(&o, states, count, out)
                                        : weft_fail(WEFT_E_MEMORY, "no memory for pass offload");
    weft_moving_free(&o.m);
    return status;
}
