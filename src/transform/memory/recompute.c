/* Recompute by patterns: outputs of chosen forward nodes are not saved for the backward. The same
 * ops compute them again from the same operands, just before the first backward node that reads
 * them. Losses are bitwise identical.
 *
 * A pattern chooses nodes by scope ("blocks.*") or by op ("gelu", "modulate"). Nodes that a scope
 * pattern chooses form groups, one per value of the first '*' up to the next dot: blocks.0,
 * blocks.1, ... A value that another group, or a node outside of all groups, reads in the forward
 * is saved. Recomputation of a group starts from these values, so a backward recomputes one group
 * at a time.
 *
 * For memory.limit, policies are set per node (weft_activation_plan): saved_activations.c lists the
 * nodes, and a planner chooses, equally on all ranks. Results of collectives are saved. */
#include "transform/memory/recompute.h"

#include "graph/rewrite.h"
#include "transform/memory/recompute_nodes.h"

#include <string.h>
#include <xxhash.h>

typedef struct recompute {
    const weft_graph *from;
    bool *chosen;     /* one per node */
    bool *offload;    /* one per node */
    uint64_t *group;  /* per node; 0: none */
    int32_t backward; /* the first node of the backward */
} recompute;

/* Length of the scope's group under a scope pattern: to the end of the component with the first
 * '*'. */
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

/* Rejects patterns without a match. A misspelt pattern would save everything, unnoticed until
 * memory is exhausted. */
static weft_status check_patterns(const recompute *c, const char *const *patterns, int count)
{
    for (int p = 0; p < count; p++) {
        if (!weft_recompute_chooses(c->from, patterns[p]))
            return weft_error(WEFT_MSG_PASS_INVALID,
                              WEFT_AT(.key = "memory.recompute", .value = patterns[p]),
                              "\"%s\" matches no scope (such as \"%s\") and no op (such as "
                              "\"attention\") of the forward",
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

/* Chooses nodes with the policy recompute. Also chooses the nodes between these and saved
 * activations that save nothing. Such nodes are emitted only where a recomputed node needs them. */
static weft_status choose_policies(recompute *c, const weft_activation_plan *activations)
{
    weft_saved_activation *saved;
    int32_t count;
    WEFT_TRY(weft_saved_activations_find(c->from, &saved, &count));
    for (int32_t n = 0; n < count; n++) {
        const weft_op op = weft_graph_node(c->from, n)->op;
        const weft_activation_policy policy = weft_activation_plan_find(activations, saved[n].key);
        if (!saved[n].block || c->chosen[n])
            continue;
        c->group[n] = saved[n].block;
        c->offload[n] = policy == WEFT_ACTIVATION_OFFLOAD;
        c->chosen[n] =
            !saved[n].stays && (weft_op_is_alias(op) || policy == WEFT_ACTIVATION_RECOMPUTE ||
                                (saved[n].key && saved[n].bytes == 0));
    }
    weft_free(saved);
    return WEFT_OK;
}

/* Keeps values that a forward node of another group reads, outputs and updates. */
static void keep_boundaries(recompute *c)
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
                                const weft_activation_plan *activations, weft_graph **out)
{
    recompute c = {.from = g, .backward = weft_rewrite_backward(g)};
    const int64_t nodes = weft_graph_node_count(g);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_graph_check(g));
    c.chosen = weft_alloc(nodes + 1);
    c.group = weft_calloc(nodes + 1, sizeof *c.group);
    c.offload = weft_alloc(nodes + 1);
    WEFT_GO(WEFT_ALLOCATED(c.chosen && c.group && c.offload, "pass recompute"));
    if (c.backward < nodes)
        WEFT_GO(check_patterns(&c, patterns, count));
    choose(&c, patterns, count);
    if (activations)
        WEFT_GO(choose_policies(&c, activations));
    keep_boundaries(&c);
    WEFT_GO(weft_rewrite_recompute(g, c.chosen, c.offload, "recompute", out));
out:
    weft_free(c.offload);
    weft_free(c.chosen);
    weft_free(c.group);
    return status;
}
