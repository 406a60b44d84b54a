/* Rewrites of graphs with offloaded values, for the passes offload and weight_streaming.
 *
 * Each fetch starts as early as prefetch_bytes allows, just before the node at which an earlier
 * fetched value comes into use.
 *
 *   consumers   . . . a . . b c . . . d         prefetch_bytes for two
 *   starts      a b . . c . . d . . . .         c when a comes into use, d when b does */
#include "transform/memory/prefetch.h"

#include "graph/rewrite.h"

#include <stdlib.h>

static int by_consumer(const void *a, const void *b)
{
    const weft_prefetch *x = a, *y = b;
    const int order = (x->consumer > y->consumer) - (x->consumer < y->consumer);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

/* needs[old .. k) are fetched or in flight, and not in use yet. */
void weft_prefetch_schedule(weft_prefetch *needs, int64_t count, int32_t begin,
                            int64_t *prefetch_bytes)
{
    int64_t in_flight = 0, old = 0, most = 0;
    int32_t at = begin;
    qsort(needs, (size_t)count, sizeof *needs, by_consumer);
    for (int64_t k = 0; k < count; k++)
        most = needs[k].bytes > most ? needs[k].bytes : most;
    *prefetch_bytes = *prefetch_bytes ? *prefetch_bytes : 2 * most;
    for (int64_t k = 0; k < count; k++) {
        while (old < k &&
               (in_flight + needs[k].bytes > *prefetch_bytes || needs[old].consumer <= at)) {
            at = needs[old].consumer > at ? needs[old].consumer : at;
            in_flight -= needs[old++].bytes;
        }
        needs[k].start = at;
        in_flight += needs[k].bytes;
    }
}

/* ---- the new graph --------------------------------------------------------------------------- */

static void set_roots(weft_offload_rewrite *m)
{
    for (int32_t n = 0; n < m->nodes; n++) {
        const weft_node *node = weft_graph_node(m->g, n);
        for (int k = 0; k < node->out_count; k++)
            if (weft_value_ok(node->out[k]))
                m->root[node->out[k].id] =
                    weft_op_is_alias(node->op) ? m->root[node->in[0].id] : node->out[k].id;
    }
}

weft_status weft_offload_rewrite_begin(const weft_graph *g, const char *pass,
                                       int64_t prefetch_bytes, weft_offload_rewrite *out)
{
    weft_offload_rewrite m = {.g = g,
                              .arena = weft_arena_create(),
                              .nodes = weft_graph_node_count(g),
                              .values = weft_graph_value_count(g),
                              .prefetch_bytes = prefetch_bytes};
    const int64_t values = m.values + 1;
    if (m.arena) {
        m.root = weft_arena_calloc(m.arena, values, sizeof *m.root);
        m.leaves = weft_arena_alloc(m.arena, values);
        m.late = weft_arena_calloc(m.arena, values, sizeof *m.late);
    }
    weft_status_code status = m.root && m.leaves && m.late ? weft_rewrite_begin(g, &m.r)
                                                           : weft_no_memory("pass %s", pass);
    if (status != WEFT_OK) {
        weft_offload_rewrite_free(&m);
        return status;
    }
    for (int64_t v = 0; v < values; v++)
        m.late[v] = WEFT_NONE;
    set_roots(&m);
    *out = m;
    return WEFT_OK;
}

void weft_offload_rewrite_free(weft_offload_rewrite *m)
{
    weft_rewrite_abandon(&m->r);
    weft_free(m->needs);
    weft_arena_free(m->arena);
    *m = (weft_offload_rewrite){0};
}

weft_status weft_offload_rewrite_need(weft_offload_rewrite *m, int32_t value, int32_t consumer)
{
    WEFT_TRY(weft_grow((void **)&m->needs, m->count, &m->capacity, sizeof *m->needs));
    m->needs[m->count++] = (weft_prefetch){
        .value = value, .consumer = consumer, .bytes = weft_value_bytes(m->g, (weft_value){value})};
    return WEFT_OK;
}

weft_value weft_offload_rewrite_emit(weft_offload_rewrite *m, weft_op op, weft_value in,
                                     const weft_node *scope_node, bool backward)
{
    weft_graph *to = m->r.to;
    const weft_attr_move attr = {m->prefetch_bytes};
    weft_graph_push(to, "%s", scope_node->scope);
    const weft_value out = weft_emit(to, op, &in, 1, &attr);
    weft_graph_pop(to);
    if (!weft_value_ok(out))
        return out;
    weft_graph_set_layout(to, out, weft_value_get(to, in)->layout);
    weft_graph_node_mut(to, weft_value_get(to, out)->node)->backward = backward;
    return out;
}
