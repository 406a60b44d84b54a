/* Graphs whose values lie elsewhere for a while: what the passes offload and stream share.
 *
 * When what lies elsewhere is fetched: as early as `room` bytes allow, just before the node at
 * which what was fetched before it is in use.
 *
 *   readers   . . . a . . b c . . . d         room for two
 *   starts    a b . . c . . d . . . .         c when a is in use, d when b is */
#include "pass/rewrite.h"

#include <stdlib.h>

static int by_reader(const void *a, const void *b)
{
    const weft_need *x = a, *y = b;
    const int order = (x->reader > y->reader) - (x->reader < y->reader);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

/* needs[old .. k) are back or on their way, and not in use yet. */
void weft_needs_start(weft_need *needs, int64_t count, int32_t begin, int64_t *room)
{
    int64_t ahead = 0, old = 0, most = 0;
    int32_t at = begin;
    qsort(needs, (size_t)count, sizeof *needs, by_reader);
    for (int64_t k = 0; k < count; k++)
        most = needs[k].bytes > most ? needs[k].bytes : most;
    *room = *room ? *room : 2 * most;
    for (int64_t k = 0; k < count; k++) {
        while (old < k && (ahead + needs[k].bytes > *room || needs[old].reader <= at)) {
            at = needs[old].reader > at ? needs[old].reader : at;
            ahead -= needs[old++].bytes;
        }
        needs[k].start = at;
        ahead += needs[k].bytes;
    }
}

/* ---- the new graph --------------------------------------------------------------------------- */

static void set_roots(weft_moving *m)
{
    for (int32_t n = 0; n < m->nodes; n++) {
        const weft_node *node = weft_graph_node(m->g, n);
        for (int k = 0; k < node->out_count; k++)
            if (weft_value_ok(node->out[k]))
                m->root[node->out[k].id] =
                    weft_op_is_alias(node->op) ? m->root[node->in[0].id] : node->out[k].id;
    }
}

weft_status weft_moving_begin(const weft_graph *g, const char *pass, int64_t room, weft_moving *out)
{
    weft_moving m = {.g = g,
                     .arena = weft_arena_create(),
                     .nodes = weft_graph_node_count(g),
                     .values = weft_graph_value_count(g),
                     .room = room};
    const int64_t values = m.values + 1;
    if (m.arena) {
        m.root = weft_arena_alloc(m.arena, values * (int64_t)sizeof *m.root);
        m.leaves = weft_arena_alloc(m.arena, values);
        m.late = weft_arena_alloc(m.arena, values * (int64_t)sizeof *m.late);
    }
    weft_status_code status = m.root && m.leaves && m.late
                                  ? weft_rewrite_begin(g, &m.r)
                                  : weft_fail(WEFT_E_MEMORY, "no memory for pass %s", pass);
    if (status != WEFT_OK) {
        weft_moving_free(&m);
        return status;
    }
    for (int64_t v = 0; v < values; v++)
        m.late[v] = WEFT_NONE;
    set_roots(&m);
    *out = m;
    return WEFT_OK;
}

void weft_moving_free(weft_moving *m)
{
    weft_rewrite_abandon(&m->r);
    weft_free(m->needs);
    weft_arena_free(m->arena);
    *m = (weft_moving){0};
}

weft_status weft_moving_need(weft_moving *m, int32_t value, int32_t reader)
{
    WEFT_TRY(weft_grow((void **)&m->needs, m->count, &m->capacity, sizeof *m->needs));
    m->needs[m->count++] = (weft_need){
        .value = value, .reader = reader, .bytes = weft_value_bytes(m->g, (weft_value){value})};
    return WEFT_OK;
}

weft_value weft_moving_emit(weft_moving *m, weft_op op, weft_value in, const weft_node *beside,
                            bool backward)
{
    weft_graph *to = m->r.to;
    const weft_attr_move attr = {m->room};
    weft_graph_push(to, "%s", beside->scope);
    const weft_value out = weft_emit(to, op, &in, 1, &attr);
    weft_graph_pop(to);
    if (!weft_value_ok(out))
        return out;
    weft_graph_set_layout(to, out, weft_value_get(to, in)->layout);
    weft_graph_node_mut(to, weft_value_get(to, out)->node)->backward = backward;
    return out;
}
