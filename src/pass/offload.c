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
    weft_rewrite r;
    const weft_graph *g;
    int32_t nodes, values;
    int32_t begin;           /* the first node of the backward that computes */
    int32_t *root;           /* by value: the one that it is another name of, or itself */
    int32_t *reader;         /* by root: the first node from `begin` on that reads it, or -1 */
    bool *leaves;            /* by root */
    bool *comes;             /* by value: the new value of a state that leaves */
    weft_value *away, *late; /* by value: elsewhere; what nodes from `begin` on read */
    weft_need *needs;
    int64_t count, capacity, room;
} offload;

static int32_t first_of_backward(const weft_graph *g)
{
    const uint32_t cheap = WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS | WEFT_TRAIT_COLLECTIVE;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->backward && !weft_op_has(node->op, cheap))
            return n; /* what ranks exchange may have been put before it */
    }
    return 0;
}

/* Roots, and who reads them late. */
static void look(offload *o)
{
    for (int32_t v = 0; v < o->values; v++)
        o->reader[v] = -1;
    for (int32_t n = 0; n < o->nodes; n++) {
        const weft_node *node = weft_graph_node(o->g, n);
        const bool alias = weft_op_is_alias(node->op);
        for (int k = 0; k < node->out_count; k++)
            if (weft_value_ok(node->out[k]))
                o->root[node->out[k].id] = alias ? o->root[node->in[0].id] : node->out[k].id;
        for (int i = 0; i < node->in_count && n >= o->begin && !alias; i++) {
            int32_t *reader =
                weft_value_ok(node->in[i]) ? &o->reader[o->root[node->in[i].id]] : NULL;
            if (reader && *reader < 0)
                *reader = n;
        }
    }
}

static weft_status add_need(offload *o, int32_t value)
{
    WEFT_TRY(weft_grow((void **)&o->needs, o->count, &o->capacity, sizeof *o->needs));
    o->needs[o->count++] = (weft_need){.value = value,
                                       .reader = o->reader[value],
                                       .bytes = weft_value_bytes(o->g, (weft_value){value})};
    o->leaves[value] = true;
    return WEFT_OK;
}

/* Values of the forward; outputs and updates are wanted where they are. */
static weft_status choose_values(offload *o)
{
    int outputs, updates;
    const weft_named *output = weft_graph_outputs(o->g, &outputs);
    const weft_pair *update = weft_graph_updates(o->g, &updates);
    bool *stays = weft_alloc(o->values + 1);
    weft_status_code status =
        stays ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for pass offload");
    for (int i = 0; i < outputs && stays; i++)
        stays[o->root[output[i].value.id]] = true;
    for (int i = 0; i < updates && stays; i++)
        stays[o->root[update[i].value.id]] = true;
    for (int32_t n = 0; n < o->begin && status == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(o->g, n);
        for (int k = 0; k < node->out_count && node->away && status == WEFT_OK; k++) {
            const int32_t v = node->out[k].id;
            if (v >= 0 && o->root[v] == v && o->reader[v] >= 0 && !stays[v])
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
    const weft_pair *update = weft_graph_updates(o->g, &updates);
    for (int i = 0; i < updates; i++) {
        const int32_t s = update[i].source.id, v = update[i].value.id;
        const weft_value_info *info = weft_value_get(o->g, update[i].source);
        const weft_node *made = weft_graph_node(o->g, weft_value_get(o->g, update[i].value)->node);
        if (weft_graph_node(o->g, info->node)->op != WEFT_OP_STATE || o->reader[s] < 0 ||
            o->comes[v] || weft_op_has(made->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) ||
            !weft_offload_state(patterns, count, info->name,
                                weft_value_bytes(o->g, update[i].source)))
            continue;
        WEFT_TRY(add_need(o, s));
        o->comes[v] = true;
    }
    return WEFT_OK;
}

/* ---- the new graph --------------------------------------------------------------------------- */

static weft_value emit(offload *o, weft_op op, weft_value in, const weft_node *beside, bool late)
{
    weft_graph *to = o->r.to;
    const weft_attr_move attr = {o->room};
    weft_graph_push(to, "%s", beside->scope);
    const weft_value out = weft_emit(to, op, &in, 1, &attr);
    weft_graph_pop(to);
    if (!weft_value_ok(out))
        return out;
    weft_graph_set_layout(to, out, weft_value_get(to, in)->layout);
    weft_graph_node_mut(to, weft_value_get(to, out)->node)->backward = late;
    return out;
}

/* Other names of what was fetched, made in the forward: given to it anew. */
static void name_again(offload *o, int32_t v)
{
    if (weft_value_ok(o->late[v]))
        return;
    const int32_t n = weft_value_get(o->g, (weft_value){v})->node;
    const weft_node *node = weft_graph_node(o->g, n);
    name_again(o, node->in[0].id); /* names of names: a few */
    weft_rewrite_node(&o->r, n, o->late);
    if (weft_value_ok(o->late[v]))
        weft_graph_node_mut(o->r.to, weft_value_get(o->r.to, o->late[v])->node)->backward = true;
}

static void copy_node(offload *o, int32_t n)
{
    const weft_node *node = weft_graph_node(o->g, n);
    const bool late = n >= o->begin;
    if (late && weft_op_is_alias(node->op) && o->leaves[o->root[node->in[0].id]])
        return; /* when somebody asks for it */
    for (int i = 0; i < node->in_count && late; i++)
        if (weft_value_ok(node->in[i]) && !weft_value_ok(o->late[node->in[i].id]))
            name_again(o, node->in[i].id);
    weft_rewrite_node(&o->r, n, late ? o->late : NULL);
    for (int k = 0; k < node->out_count; k++) {
        const int32_t v = node->out[k].id;
        if (v < 0)
            continue;
        if (late)
            o->r.map[v] = o->late[v];
        if (o->leaves[v] && !weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            o->away[v] = emit(o, WEFT_OP_OFFLOAD, o->r.map[v], node, false);
        else if (o->leaves[v])
            o->away[v] = o->r.map[v];
        else if (!late && !o->leaves[o->root[v]])
            o->late[v] = o->r.map[v];
        if (o->comes[v]) /* what the state is after the run */
            o->r.map[v] = emit(o, WEFT_OP_OFFLOAD, o->r.map[v], node, node->backward);
    }
}

/* States stand first, so that a fetch finds them. */
static void copy_states(offload *o)
{
    for (int32_t n = o->begin; n < o->nodes && weft_graph_check(o->r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(o->g, n);
        if (!weft_op_has(node->op, WEFT_TRAIT_GIVEN) || !o->leaves[node->out[0].id])
            continue;
        weft_rewrite_node(&o->r, n, NULL);
        o->away[node->out[0].id] = o->r.map[node->out[0].id];
    }
}

static void copy_nodes(offload *o)
{
    int64_t k = 0;
    copy_states(o);
    for (int32_t n = 0; n < o->nodes && weft_graph_check(o->r.to) == WEFT_OK; n++) {
        if (n >= o->begin)
            for (; k < o->count && o->needs[k].start == n; k++) {
                const weft_need *at = &o->needs[k];
                o->late[at->value] = emit(o, WEFT_OP_FETCH, o->away[at->value],
                                          weft_graph_node(o->g, at->reader), true);
            }
        if (!weft_value_ok(o->away[weft_graph_node(o->g, n)->out[0].id]))
            copy_node(o, n);
    }
}

weft_status weft_pass_offload(const weft_graph *g, const char *const *states, int count,
                              int64_t room, weft_graph **out)
{
    offload o = {.g = g,
                 .nodes = weft_graph_node_count(g),
                 .values = weft_graph_value_count(g),
                 .begin = first_of_backward(g),
                 .room = room};
    const int64_t word = (int64_t)sizeof(int32_t), values = o.values + 1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &o.r));
    o.root = weft_alloc(values * word);
    o.reader = weft_alloc(values * word);
    o.leaves = weft_alloc(values);
    o.comes = weft_alloc(values);
    o.away = weft_alloc(values * (int64_t)sizeof *o.away);
    o.late = weft_alloc(values * (int64_t)sizeof *o.late);
    if (!o.root || !o.reader || !o.leaves || !o.comes || !o.away || !o.late) {
        weft_rewrite_abandon(&o.r);
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass offload");
        goto out;
    }
    for (int64_t v = 0; v < values; v++)
        o.away[v] = o.late[v] = WEFT_NONE;
    look(&o);
    status = choose_values(&o);
    if (status == WEFT_OK)
        status = choose_states(&o, states, count);
    if (status != WEFT_OK) {
        weft_rewrite_abandon(&o.r);
        goto out;
    }
    weft_needs_start(o.needs, o.count, o.begin, &o.room);
    copy_nodes(&o);
    status = weft_rewrite_finish(&o.r, "offload", out);
out:
    weft_free(o.root);
    weft_free(o.reader);
    weft_free(o.leaves);
    weft_free(o.comes);
    weft_free(o.away);
    weft_free(o.late);
    weft_free(o.needs);
    return status;
}
