/* What the backward reads of the forward, node by node: what can be kept, made again or moved away.
 *
 *   block 3   norm ── modulate ── to_q ── rms_norm ── rope ── attention ...
 *   kept       x         x          x                   x         x            bytes > 0
 *
 * Between two that are kept lie nodes that leave nothing: rms_norm here. Who makes rope again makes
 * rms_norm again, too. */
#include "pass/rewrite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct finder {
    const weft_graph *g;
    weft_kept *kept; /* by node before the backward */
    int32_t count;
    int32_t *root; /* by value: the node whose bytes it is, through aliases */
    bool *handed;  /* by node: a parameter, or one under another name or gathered */
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

/* A number for the scope and the op, which the place among equals is added to; */
static uint64_t key_of(const weft_node *node)
{
    return XXH3_64bits_withSeed(node->scope, strlen(node->scope), 2 * (uint64_t)node->op + 1);
}

/* and without the number of the block. */
static uint64_t likeness_of(const weft_node *node)
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

/* Keys of nodes that one scope has several of are told apart by their order. */
static weft_status set_keys(finder *f)
{
    int64_t count = 0;
    entry *all = weft_alloc((f->count + 1) * (int64_t)sizeof *all);
    if (!all)
        return weft_fail(WEFT_E_MEMORY, "no memory for what the backward reads");
    for (int32_t n = 0; n < f->count; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        const size_t length = weft_scope_block(node->scope);
        if (length == 0 || weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            continue;
        f->kept[n].block = XXH3_64bits(node->scope, length) | 1;
        if (!weft_op_is_alias(node->op) && !f->handed[n])
            all[count++] = (entry){key_of(node), n};
    }
    qsort(all, (size_t)count, sizeof *all, by_key_and_node);
    const uint64_t step = 0x9e3779b97f4a7c15u;
    uint64_t place = 0;
    for (int64_t i = 0; i < count; i++) {
        place = i && all[i - 1].key == all[i].key ? place + 1 : 0;
        weft_kept *kept = &f->kept[all[i].node];
        kept->key = (all[i].key + place * step) | 1;
        kept->like = likeness_of(weft_graph_node(f->g, all[i].node)) + place * step;
    }
    weft_free(all);
    return WEFT_OK;
}

/* Whose bytes a value is, and which of them are a parameter's. */
static void set_roots(finder *f)
{
    for (int32_t n = 0; n < weft_graph_node_count(f->g); n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int o = 0; o < node->out_count; o++)
            if (weft_value_ok(node->out[o]))
                f->root[node->out[o].id] = weft_op_is_alias(node->op) ? f->root[node->in[0].id] : n;
        if (node->op == WEFT_OP_PARAM)
            f->handed[n] = true;
        else if (node->in_count == 1 &&
                 (weft_op_is_alias(node->op) || node->op == WEFT_OP_ALL_GATHER ||
                  node->op == WEFT_OP_CAST))
            f->handed[n] = f->handed[weft_value_get(f->g, node->in[0])->node];
    }
}

static void stay(finder *f, weft_value v)
{
    const int32_t made = weft_value_get(f->g, v)->node;
    if (made < f->count)
        f->kept[made].stays = true;
    if (f->root[v.id] < f->count)
        f->kept[f->root[v.id]].stays = true;
}

static void find_borders(finder *f)
{
    int count;
    for (int32_t n = 0; n < f->count; n++) {
        const weft_node *node = weft_graph_node(f->g, n);
        if (weft_op_is_collective(node->op))
            f->kept[n].stays = true;
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) &&
                f->kept[weft_value_get(f->g, node->in[i])->node].block != f->kept[n].block)
                stay(f, node->in[i]);
    }
    const weft_named *output = weft_graph_outputs(f->g, &count);
    for (int i = 0; i < count; i++)
        stay(f, output[i].value);
    const weft_pair *update = weft_graph_updates(f->g, &count);
    for (int i = 0; i < count; i++)
        stay(f, update[i].value);
}

/* Of each value that a later node reads, itself or by another name, once. */
static weft_status count_bytes(finder *f)
{
    const int64_t values = weft_graph_value_count(f->g);
    bool *read = weft_alloc(values + 1);
    if (!read)
        return weft_fail(WEFT_E_MEMORY, "no memory for what the backward reads");
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
        for (int o = 0; o < node->out_count && f->kept[n].key; o++)
            if (weft_value_ok(node->out[o]) && read[node->out[o].id])
                f->kept[n].bytes += weft_value_bytes(f->g, node->out[o]);
    }
    weft_free(read);
    return WEFT_OK;
}

weft_status weft_kept_find(const weft_graph *g, weft_kept **kept, int32_t *count)
{
    finder f = {.g = g, .count = weft_rewrite_backward(g)};
    const int64_t nodes = weft_graph_node_count(g), values = weft_graph_value_count(g);
    weft_status_code status = WEFT_OK;
    f.kept = weft_alloc((f.count + 1) * (int64_t)sizeof *f.kept);
    f.root = weft_alloc((values + 1) * (int64_t)sizeof *f.root);
    f.handed = weft_alloc(nodes + 1);
    if (!f.kept || !f.root || !f.handed)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory for what the backward reads"));
    set_roots(&f);
    WEFT_GO(set_keys(&f));
    find_borders(&f);
    WEFT_GO(count_bytes(&f));
    *kept = f.kept;
    *count = f.count;
    f.kept = NULL;
out:
    weft_free(f.kept);
    weft_free(f.root);
    weft_free(f.handed);
    return status;
}

weft_fate weft_fates_find(const weft_fates *fates, uint64_t key)
{
    const struct weft_fate_row *row =
        fates && fates->count && key
            ? bsearch(&key, fates->row, (size_t)fates->count, sizeof *fates->row, by_key)
            : NULL;
    return row ? row->fate : WEFT_FATE_KEPT;
}
