/* Recomputation by names: values of chosen forward nodes are not kept for the backward but made
 * again just before the first node there that reads them, by the same ops from the same operands:
 * bitwise the same losses.
 *
 * A pattern chooses nodes by scope ("blocks.*") or by op ("gelu", "modulate"). The nodes that a
 * scope pattern chooses fall into groups, one per value of its first '*' up to the next dot:
 * blocks.0, blocks.1, ... What another group or any node outside reads in the forward is kept: it
 * is where a group starts again, so a backward never goes further back than one group. */
#include "pass/rewrite.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct recompute {
    weft_rewrite r;
    const weft_graph *from;
    bool *chosen;    /* by node */
    uint64_t *group; /* by node: 0 none */
    weft_value
        *again; /* by value of `from`: what backward nodes read; WEFT_NONE: to be made again */
    int32_t *stack;
    int32_t backward; /* the first node of the backward */
} recompute;

/* Length of the scope's group under a scope pattern: through the end of the component that the
 * first '*' is in. */
static size_t group_length(const char *pattern, const char *scope)
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return strlen(scope);
    const size_t fixed = (size_t)(star - pattern);
    if (*scope == 0 || fixed > strlen(scope))
        return strlen(scope);
    const char *dot = strchr(scope + fixed, '.');
    return dot ? (size_t)(dot - scope) : strlen(scope);
}

static bool matches(const char *pattern, const weft_node *node)
{
    return !weft_op_has(node->op, WEFT_TRAIT_GIVEN) &&
           (weft_name_matches(pattern, node->scope) ||
            weft_name_matches(pattern, weft_op_get(node->op)->name));
}

/* A misspelt pattern would keep everything, and nobody would notice before memory runs out. */
static weft_status check_patterns(const recompute *c, const char *const *patterns, int count)
{
    for (int p = 0; p < count; p++) {
        bool found = false;
        for (int32_t n = 0; n < c->backward && !found; n++)
            found = matches(patterns[p], weft_graph_node(c->from, n));
        if (!found)
            return weft_fail(WEFT_E_ARG,
                             "recompute: \"%s\" matches no scope (such as \"%s\") and no op (such "
                             "as \"attention\") of the forward",
                             patterns[p], weft_graph_node(c->from, c->backward / 2)->scope);
    }
    return WEFT_OK;
}

static void choose(recompute *c, const char *const *patterns, int count)
{
    for (int32_t n = 0; n < c->backward; n++) {
        const weft_node *node = weft_graph_node(c->from, n);
        if (weft_op_has(node->op, WEFT_TRAIT_GIVEN))
            continue;
        for (int p = 0; p < count && !c->chosen[n]; p++) {
            if (weft_name_matches(patterns[p], node->scope)) {
                c->chosen[n] = true;
                c->group[n] = XXH3_64bits(node->scope, group_length(patterns[p], node->scope)) | 1;
            } else if (weft_name_matches(patterns[p], weft_op_get(node->op)->name)) {
                c->chosen[n] = true;
            }
        }
    }
}

/* What a forward node of another group reads is kept, and so is what is an output or an update. */
static void keep_borders(recompute *c)
{
    int count;
    for (int32_t n = 0; n < c->backward; n++) {
        const weft_node *node = weft_graph_node(c->from, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t made = weft_value_get(c->from, node->in[i])->node;
            if (c->group[made] && c->group[made] != c->group[n])
                c->chosen[made] = false;
        }
    }
    const weft_named *output = weft_graph_outputs(c->from, &count);
    for (int i = 0; i < count; i++)
        c->chosen[weft_value_get(c->from, output[i].value)->node] = false;
    const weft_pair *update = weft_graph_updates(c->from, &count);
    for (int i = 0; i < count; i++)
        c->chosen[weft_value_get(c->from, update[i].value)->node] = false;
}

/* Makes again what node n of the backward reads, operands first, without recursion (chains can be
 * long). */
static void make_again(recompute *c, int32_t n)
{
    int32_t depth = 0;
    c->stack[depth++] = n;
    while (depth) {
        const weft_node *node = weft_graph_node(c->from, c->stack[depth - 1]);
        int32_t missing = -1;
        for (int i = 0; i < node->in_count && missing < 0; i++)
            if (weft_value_ok(node->in[i]) && !weft_value_ok(c->again[node->in[i].id]))
                missing = weft_value_get(c->from, node->in[i])->node;
        if (missing >= 0) {
            c->stack[depth++] = missing;
            continue;
        }
        depth--;
        if (c->stack[depth] == n || weft_graph_check(c->r.to) != WEFT_OK)
            return;
        weft_rewrite_node(&c->r, c->stack[depth], c->again);
        const weft_value made = c->again[node->out[0].id];
        if (!weft_value_ok(made))
            return;
        weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, made)->node)->backward = true;
    }
}

static void copy_nodes(recompute *c)
{
    for (int32_t n = 0; n < weft_graph_node_count(c->from) && weft_graph_check(c->r.to) == WEFT_OK;
         n++) {
        const weft_node *node = weft_graph_node(c->from, n);
        if (n >= c->backward)
            make_again(c, n);
        weft_rewrite_node(&c->r, n, n >= c->backward ? c->again : NULL);
        for (int o = 0; o < node->out_count; o++) {
            if (!weft_value_ok(node->out[o]))
                continue;
            const int32_t v = node->out[o].id;
            if (n >= c->backward)
                c->r.map[v] = c->again[v];
            else if (!c->chosen[n])
                c->again[v] = c->r.map[v];
            else if (weft_value_ok(c->r.map[v]))
                weft_graph_node_mut(c->r.to, weft_value_get(c->r.to, c->r.map[v])->node)
                    ->recompute = true;
        }
    }
}

weft_status weft_pass_recompute(const weft_graph *g, const char *const *patterns, int count,
                                weft_graph **out)
{
    recompute c = {.from = g};
    const int64_t nodes = weft_graph_node_count(g), values = weft_graph_value_count(g);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_rewrite_begin(g, &c.r));
    c.chosen = weft_alloc(nodes + 1);
    c.group = weft_alloc((nodes + 1) * (int64_t)sizeof *c.group);
    c.again = weft_alloc((values + 1) * (int64_t)sizeof *c.again);
    c.stack = weft_alloc((nodes + 1) * (int64_t)sizeof *c.stack);
    if (!c.chosen || !c.group || !c.again || !c.stack) {
        weft_rewrite_abandon(&c.r);
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass recompute");
        goto out;
    }
    for (int64_t v = 0; v < values; v++)
        c.again[v] = WEFT_NONE;
    while (c.backward < nodes && !weft_graph_node(g, c.backward)->backward)
        c.backward++;
    if (c.backward < nodes && (status = check_patterns(&c, patterns, count)) != WEFT_OK) {
        weft_rewrite_abandon(&c.r);
        goto out;
    }
    choose(&c, patterns, count);
    keep_borders(&c);
    copy_nodes(&c);
    status = weft_rewrite_finish(&c.r, "recompute", out);
out:
    weft_free(c.chosen);
    weft_free(c.group);
    weft_free(c.again);
    weft_free(c.stack);
    return status;
}
