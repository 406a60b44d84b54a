/* Offload: values that are not read for a while are copied to the offload buffer, in host memory or
 * in a file.
 *
 *   before   x = a(..)                 b(x)   ...   loss   ...            c(x)
 *   after    x = a(..)  h = offload x  b(x)   ...   loss   ...  y = fetch h   ...   c(y)
 *                       `-- until its wait, then x is free        `-- start by prefetch_bytes
 *
 * Outputs of nodes marked `offload` are offloaded when they are computed, and fetched before the
 * first backward node that reads them. Chosen states are offloaded between runs: they are fetched
 * before their update, and the new values are offloaded at once.
 *
 * Copies in both directions overlap with kernels. The bytes in flight, or fetched before their use,
 * are at most prefetch_bytes, or the bytes of the two largest (transform/memory/prefetch.c). */
#include "transform/memory/offload.h"

#include "graph/rewrite.h"
#include "transform/memory/prefetch.h"

#include <string.h>

typedef struct offload {
    weft_offload_rewrite m; /* late: values that nodes from `begin` on read */
    int32_t begin;          /* first backward node that computes */
    int32_t *consumer;      /* per root: first node from `begin` on that reads it; -1: none */
    bool *comes;            /* per value: new value of an offloaded state */
    weft_value *offloaded;  /* per value: its offloaded copy */
} offload;

static const weft_node *maker(const offload *o, int32_t value)
{
    return weft_graph_node(o->m.g, weft_value_get(o->m.g, (weft_value){value})->node);
}

static bool is_offloaded_slot(const weft_node *node)
{
    const weft_attr_source *source = node->attr;
    return node->op == WEFT_OP_STATE && source->slot && source->offloaded;
}

/* The first node of the backward, collectives excluded, which may have been moved before it. In the
 * program of a pipeline stage's backward: the first node that reads an offloaded slot. */
static int32_t first_of_backward(const offload *o)
{
    const uint32_t cheap = WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS | WEFT_TRAIT_COLLECTIVE;
    for (int32_t n = 0; n < o->m.nodes; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        if (node->backward && !weft_op_has(node->op, cheap))
            return n;
        for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++)
            if (weft_value_ok(node->in[i]) &&
                is_offloaded_slot(maker(o, o->m.root[node->in[i].id])))
                return n;
    }
    return 0;
}

/* Finds for each root the first consumer from `begin` on. */
static void find_consumers(offload *o)
{
    for (int32_t v = 0; v < o->m.values; v++)
        o->consumer[v] = -1;
    for (int32_t n = o->begin; n < o->m.nodes; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        for (int i = 0; i < node->in_count && !weft_op_is_alias(node->op); i++) {
            int32_t *consumer =
                weft_value_ok(node->in[i]) ? &o->consumer[o->m.root[node->in[i].id]] : NULL;
            if (consumer && *consumer < 0)
                *consumer = n;
        }
    }
}

static weft_status add_need(offload *o, int32_t value)
{
    o->m.leaves[value] = true;
    return weft_offload_rewrite_need(&o->m, value, o->consumer[value]);
}

/* Chooses forward values to offload. Outputs and updates stay resident. */
static weft_status choose_values(offload *o)
{
    int outputs, updates;
    const weft_named *output = weft_graph_outputs(o->m.g, &outputs);
    const weft_pair *update = weft_graph_updates(o->m.g, &updates);
    bool *stays = weft_alloc(o->m.values + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(stays, "pass offload"));
    for (int i = 0; i < outputs; i++)
        stays[o->m.root[output[i].value.id]] = true;
    for (int i = 0; i < updates; i++)
        stays[o->m.root[update[i].value.id]] = true;
    for (int32_t n = 0; n < o->begin; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        for (int k = 0; k < node->out_count && node->offload; k++) {
            const int32_t v = node->out[k].id;
            if (v >= 0 && o->m.root[v] == v && o->consumer[v] >= 0 && !stays[v])
                WEFT_GO(add_need(o, v));
        }
    }
out:
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
        if (weft_graph_node(o->m.g, info->node)->op != WEFT_OP_STATE || o->consumer[s] < 0 ||
            o->comes[v] || weft_op_has(made->op, WEFT_TRAIT_GIVEN | WEFT_TRAIT_ALIAS) ||
            !weft_offload_state(patterns, count, info->name,
                                weft_value_bytes(o->m.g, update[i].source)))
            continue;
        WEFT_TRY(add_need(o, s));
        o->comes[v] = true;
    }
    return WEFT_OK;
}

/* Chooses activations that a pipeline stage saves in offloaded slots. */
static weft_status choose_slots(offload *o)
{
    int updates;
    const weft_pair *update = weft_graph_updates(o->m.g, &updates);
    for (int32_t n = 0; n < o->m.nodes; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        if (is_offloaded_slot(node) && o->consumer[node->out[0].id] >= 0)
            WEFT_TRY(add_need(o, node->out[0].id));
    }
    for (int i = 0; i < updates; i++)
        if (is_offloaded_slot(maker(o, update[i].source.id)))
            o->comes[update[i].value.id] = true;
    return WEFT_OK;
}

/* ---- the new graph --------------------------------------------------------------------------- */

/* Emits a forward alias of a fetched value again, with the fetched value as its input. */
static void reemit_alias(offload *o, int32_t v)
{
    if (weft_value_ok(o->m.late[v]))
        return;
    const int32_t n = weft_value_get(o->m.g, (weft_value){v})->node;
    const weft_node *node = weft_graph_node(o->m.g, n);
    reemit_alias(o, node->in[0].id); /* chains of aliases are short */
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
        return; /* emitted when a consumer needs it */
    for (int i = 0; i < node->in_count && late; i++)
        if (weft_value_ok(node->in[i]) && !weft_value_ok(o->m.late[node->in[i].id]))
            reemit_alias(o, node->in[i].id);
    weft_rewrite_node(&o->m.r, n, late ? o->m.late : NULL);
    for (int k = 0; k < node->out_count; k++) {
        const int32_t v = node->out[k].id;
        if (v < 0)
            continue;
        if (late)
            o->m.r.map[v] = o->m.late[v];
        if (o->m.leaves[v] && !weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            o->offloaded[v] =
                weft_offload_rewrite_emit(&o->m, WEFT_OP_OFFLOAD, o->m.r.map[v], node, false);
        else if (o->m.leaves[v])
            o->offloaded[v] = o->m.r.map[v];
        else if (!late && !o->m.leaves[o->m.root[v]])
            o->m.late[v] = o->m.r.map[v];
        if (o->comes[v]) /* value of the state after the run */
            o->m.r.map[v] = weft_offload_rewrite_emit(&o->m, WEFT_OP_OFFLOAD, o->m.r.map[v], node,
                                                      node->backward);
    }
}

/* Copies states first, so that fetches can refer to them. */
static void copy_states(offload *o)
{
    for (int32_t n = o->begin; n < o->m.nodes && weft_graph_check(o->m.r.to) == WEFT_OK; n++) {
        const weft_node *node = weft_graph_node(o->m.g, n);
        if (!weft_op_has(node->op, WEFT_TRAIT_GIVEN) || !o->m.leaves[node->out[0].id])
            continue;
        weft_rewrite_node(&o->m.r, n, NULL);
        o->offloaded[node->out[0].id] = o->m.r.map[node->out[0].id];
    }
}

static void copy_nodes(offload *o)
{
    int64_t k = 0;
    copy_states(o);
    for (int32_t n = 0; n < o->m.nodes && weft_graph_check(o->m.r.to) == WEFT_OK; n++) {
        if (n >= o->begin)
            for (; k < o->m.count && o->m.needs[k].start == n; k++) {
                const weft_prefetch *at = &o->m.needs[k];
                o->m.late[at->value] =
                    weft_offload_rewrite_emit(&o->m, WEFT_OP_FETCH, o->offloaded[at->value],
                                              weft_graph_node(o->m.g, at->consumer), true);
            }
        if (!weft_value_ok(o->offloaded[weft_graph_node(o->m.g, n)->out[0].id]))
            copy_node(o, n);
    }
}

static weft_status rewrite(offload *o, const char *const *states, int count, weft_graph **out)
{
    o->begin = first_of_backward(o);
    find_consumers(o);
    WEFT_TRY(choose_values(o));
    WEFT_TRY(choose_states(o, states, count));
    WEFT_TRY(choose_slots(o));
    weft_prefetch_schedule(o->m.needs, o->m.count, o->begin, &o->m.prefetch_bytes);
    copy_nodes(o);
    return weft_rewrite_finish(&o->m.r, "offload", out);
}

weft_status weft_pass_offload(const weft_graph *g, const char *const *states, int count,
                              int64_t prefetch_bytes, weft_graph **out)
{
    offload o;
    WEFT_TRY(weft_offload_rewrite_begin(g, "offload", prefetch_bytes, &o.m));
    const int64_t values = o.m.values + 1;
    o.consumer = weft_arena_calloc(o.m.arena, values, sizeof *o.consumer);
    o.comes = weft_arena_alloc(o.m.arena, values);
    o.offloaded = weft_arena_calloc(o.m.arena, values, sizeof *o.offloaded);
    for (int64_t v = 0; o.offloaded && v < values; v++)
        o.offloaded[v] = WEFT_NONE;
    const weft_status_code status = o.consumer && o.comes && o.offloaded
                                        ? rewrite(&o, states, count, out)
                                        : weft_no_memory("pass offload");
    weft_offload_rewrite_free(&o.m);
    return status;
}
