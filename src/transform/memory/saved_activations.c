/* Forward values that the backward reads, per node: each can be kept, recomputed or offloaded.
 *
 *   block 3   norm ── modulate ── to_q ── rms_norm ── rope ── attention ...
 *   saved        x         x          x                   x         x            bytes > 0
 *
 * Nodes between two saved ones save nothing, such as rms_norm here. Recomputing rope also
 * recomputes rms_norm. */
#include "transform/memory/saved_activations.h"

#include "graph/rewrite.h"
#include "transform/memory/recompute_nodes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct finder {
    const weft_graph *g;
    weft_saved_activation *saved; /* one per forward node */
    int32_t count;
    int32_t *root;  /* per value: node that owns its bytes, through aliases */
    bool *is_param; /* per node: a parameter, also through alias, gather or cast */
} finder;

size_t weft_scope_block(const char *scope)
{
    for (const char *c = scope; *c; c++)
        if (isdigit((unsigned char)*c) && (c == scope || c[-1] == '.')) {
            const size_t digits = strspn(c, "0123456789");
            if (!c[digits] || c[digits] == '.')
                return (size_t)(c - scope) + digits;
        }
    return 0;
}

/* Hash of scope and op, to which the ordinal among equal nodes is added. */
static uint64_t key_of(const weft_node *node)
{
    return XXH3_64bits_withSeed(node->scope, strlen(node->scope), 2 * (uint64_t)node->op + 1);
}

/* Like key_of, without the block number. */
static uint64_t like_key_of(const weft_node *node)
{
    const size_t length = weft_scope_block(node->scope);
    size_t stem = length;
    while (stem && isdigit((unsigned char)node->scope[stem - 1]))
        stem--;
    return XXH3_64bits_withSeed(node->scope + length, strlen(node->scope + length),
                                XXH3_64bits(node->scope, stem) + node->op);
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

typedef struct entry {
    uint64_t key;
    int32_t node;
} entry;

static int by_key_and_node(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int order = by_key(&x->key, &y->key);
    return order ? order : (x->node > y->node) - (x->node < y->node);
}

/* Sets the keys. Equal nodes of one scope are distinguished by their order. */
static weft_status set_keys(finder *f)
{
    int64_t count = 0;
    entry *all;
    WEFT_TRY(WEFT_NEW(all, f->count + 1, "the saved activations"));
    for (int32_t n = 0; n < f->count; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        const size_t length = weft_scope_block(node->scope);
        if (length == 0 || weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            continue;
        f->saved[n].block = XXH3_64bits(node->scope, length) | 1;
        if (!weft_op_is_alias(node->op) && !f->is_param[n])
            all[count++] = (entry){key_of(node), n};
    }
    qsort(all, (size_t)count, sizeof *all, by_key_and_node);
    const uint64_t step = 0x9e3779b97f4a7c15u;
    uint64_t ordinal = 0;
    for (int64_t i = 0; i < count; i++) {
        ordinal = i && all[i - 1].key == all[i].key ? ordinal + 1 : 0;
        weft_saved_activation *saved = &f->saved[all[i].node];
        saved->key = (all[i].key + ordinal * step) | 1;
        saved->like = like_key_of(weft_graph_node(f->g, all[i].node)) + ordinal * step;
    }
    weft_free(all);
    return WEFT_OK;
}

/* Sets the node that owns each value's bytes, and marks parameters. */
static void set_roots(finder *f)
{
    for (int32_t n = 0; n < weft_graph_node_count(f->g); n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int o = 0; o < node->out_count; o++)
            if (weft_value_ok(node->out[o]))
                f->root[node->out[o].id] = weft_op_is_alias(node->op) ? f->root[node->in[0].id] : n;
        if (node->op == WEFT_OP_PARAM)
            f->is_param[n] = true;
        else if (weft_op_has(node->op, WEFT_TRAIT_FORWARDS))
            f->is_param[n] = f->is_param[weft_value_get(f->g, node->in[0])->node];
    }
}

static void stay(finder *f, weft_value v)
{
    const int32_t made = weft_value_get(f->g, v)->node;
    if (made < f->count)
        f->saved[made].stays = true;
    if (f->root[v.id] < f->count)
        f->saved[f->root[v.id]].stays = true;
}

static void find_borders(finder *f)
{
    int count;
    for (int32_t n = 0; n < f->count; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (weft_op_is_collective(node->op))
            f->saved[n].stays = true;
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) &&
                f->saved[weft_value_get(f->g, node->in[i])->node].block != f->saved[n].block)
                stay(f, node->in[i]);
    }
    const weft_named *output = weft_graph_outputs(f->g, &count);
    for (int i = 0; i < count; i++)
        stay(f, output[i].value);
    const weft_pair *update = weft_graph_updates(f->g, &count);
    for (int i = 0; i < count; i++)
        stay(f, update[i].value);
}

/* Adds the bytes of each value that the backward reads, directly or through an alias, once. */
static weft_status count_bytes(finder *f)
{
    const int64_t values = weft_graph_value_count(f->g);
    bool *read;
    WEFT_TRY(WEFT_NEW(read, values + 1, "the saved activations"));
    for (int32_t n = weft_graph_node_count(f->g) - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (n < f->count && weft_op_is_alias(node->op) && read[node->out[0].id])
            read[node->in[0].id] = true;
        for (int i = 0; i < node->in_count && n >= f->count; i++)
            if (weft_value_ok(node->in[i]))
                read[node->in[i].id] = true;
    }
    for (int32_t n = 0; n < f->count; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int o = 0; o < node->out_count && f->saved[n].key; o++)
            if (weft_value_ok(node->out[o]) && read[node->out[o].id])
                f->saved[n].bytes += weft_value_bytes(f->g, node->out[o]);
    }
    weft_free(read);
    return WEFT_OK;
}

weft_status weft_saved_activations_find(const weft_graph *g, weft_saved_activation **saved,
                                        int32_t *count)
{
    finder f = {.g = g, .count = weft_rewrite_backward(g)};
    const int64_t nodes = weft_graph_node_count(g), values = weft_graph_value_count(g);
    weft_status_code status = WEFT_OK;
    f.saved = weft_calloc(f.count + 1, sizeof *f.saved);
    f.root = weft_calloc(values + 1, sizeof *f.root);
    f.is_param = weft_alloc(nodes + 1);
    WEFT_GO(WEFT_ALLOCATED(f.saved && f.root && f.is_param, "the saved activations"));
    set_roots(&f);
    WEFT_GO(set_keys(&f));
    find_borders(&f);
    WEFT_GO(count_bytes(&f));
    *saved = f.saved;
    *count = f.count;
    f.saved = NULL;
out:
    weft_free(f.saved);
    weft_free(f.root);
    weft_free(f.is_param);
    return status;
}

void weft_activation_plan_sort(weft_activation_plan *activations)
{
    qsort(activations->row, (size_t)activations->count, sizeof *activations->row, by_key);
}

weft_activation_policy weft_activation_plan_find(const weft_activation_plan *activations,
                                                 uint64_t key)
{
    const struct weft_activation_policy_row *row =
        activations && activations->count && key
            ? bsearch(&key, activations->row, (size_t)activations->count, sizeof *activations->row,
                      by_key)
            : NULL;
    return row ? row->policy : WEFT_ACTIVATION_KEEP;
}
