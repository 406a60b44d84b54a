/* Recomputation by names: values of chosen forward nodes are not kept for the backward but made
 * again just before the first node there that reads them, by the same ops from the same operands:
 * bitwise the same losses.
 *
 * A pattern chooses nodes by scope ("blocks.*") or by op ("gelu", "modulate"). The nodes that a
 * scope pattern chooses fall into groups, one per value of its first '*' up to the next dot:
 * blocks.0, blocks.1, ... What another group or any node outside reads in the forward is kept: it
 * is where a group starts again, so a backward never goes further back than one group.
 *
 * What memory.limit asks for comes node by node (weft_fates): pass/kept.c says what there is to
 * decide, a planner decides, and all ranks alike. Results of collectives are kept. */
#include "pass/rewrite.h"

#include <string.h>
#include <xxhash.h>

typedef struct recompute {
    const weft_graph *from;
    bool *chosen;     /* by node */
    bool *away;       /* by node */
    uint64_t *group;  /* by node: 0 none */
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

bool weft_recompute_chooses(const weft_graph *g, const char *pattern)
{
    const int32_t backward = weft_rewrite_backward(g);
    for (int32_t n = 0; n < backward; n++)
        if (matches(pattern, weft_graph_node(g, n)))
            return true;
    return false;
}

/* A misspelt pattern would keep everything, and nobody would notice before memory runs out. */
static weft_status check_patterns(const recompute *c, const char *const *patterns, int count)
{
    for (int p = 0; p < count; p++) {
        if (!weft_recompute_chooses(c->from, patterns[p]))
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

/* What has that fate, and, so that it can be made from what is kept, what lies between the two and
 * would not be kept anyway; made only where something asks for it. */
static weft_status choose_fates(recompute *c, const weft_fates *fates)
{
    weft_kept *kept;
    int32_t count;
    WEFT_TRY(weft_kept_find(c->from, &kept, &count));
    for (int32_t n = 0; n < count; n++) {
        const weft_op op = weft_graph_node(c->from, n)->op;
        const weft_fate fate = weft_fates_find(fates, kept[n].key);
        if (!kept[n].block || c->chosen[n])
            continue;
        c->group[n] = kept[n].block;
        c->away[n] = fate == WEFT_FATE_AWAY;
        c->chosen[n] = !kept[n].stays && (weft_op_is_alias(op) || fate == WEFT_FATE_AGAIN ||
                                          (kept[n].key && kept[n].bytes == 0));
    }
    weft_free(kept);
    return WEFT_OK;
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

weft_status weft_pass_recompute(const weft_graph *g, const char *const *patterns, int count,
                                const weft_fates *fates, weft_graph **out)
{
    recompute c = {.from = g, .backward = weft_rewrite_backward(g)};
    const int64_t nodes = weft_graph_node_count(g);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_graph_check(g));
    c.chosen = weft_alloc(nodes + 1);
    c.group = weft_alloc((nodes + 1) * (int64_t)sizeof *c.group);
    c.away = weft_alloc(nodes + 1);
    if (!c.chosen || !c.group || !c.away) {
        status = weft_fail(WEFT_E_MEMORY, "no memory for pass recompute");
        goto out;
    }
    if (c.backward < nodes)
        WEFT_GO(check_patterns(&c, patterns, count));
    choose(&c, patterns, count);
    if (fates)
        WEFT_GO(choose_fates(&c, fates));
    keep_borders(&c);
    WEFT_GO(weft_rewrite_again(g, c.chosen, c.away, "recompute", out));
out:
    weft_free(c.away);
    weft_free(c.chosen);
    weft_free(c.group);
    return status;
}
