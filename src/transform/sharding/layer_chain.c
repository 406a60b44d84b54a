/* Represents a graph as a chain of blocks, from which pipeline stages are cut. */
#include "transform/sharding/layer_chain.h"

#include "graph/rewrite.h"
#include "transform/sharding/pp_stages.h"

#include <string.h>

typedef struct finder {
    const weft_graph *g;
    weft_layer_chain *c;
    const char *trunk;
    bool *fed;    /* per node: depends on an input */
    int capacity; /* units allocated */
    bool found;   /* true after the first block */
} finder;

static weft_status no_memory(const weft_graph *g)
{
    return weft_no_memory("finding the blocks of a graph of %d nodes",
                          (int)weft_graph_node_count(g));
}

/* Length of ".N" at the beginning of a name. 0: no number */
static size_t number_length(const char *name)
{
    const size_t digits = *name == '.' ? strspn(name + 1, "0123456789") : 0;
    return digits > 0 && (name[1 + digits] == '.' || !name[1 + digits]) ? 1 + digits : 0;
}

/* Length of the unit's name at the beginning of a scope below the trunk: a component and its
 * number, if any, or two numbers: a stage and a block of the stage. */
static size_t unit_length(const char *name, bool *numbered)
{
    const size_t first = strcspn(name, "."), number = number_length(name + first);
    *numbered = number > 0;
    return first + number + (number ? number_length(name + first + number) : 0);
}

/* The name of node n's unit, in the chain's arena. */
static const char *unit_name(const finder *f, const weft_node *node, bool *numbered)
{
    const size_t length = strlen(f->trunk);
    const char *scope = node->scope;
    *numbered = false;
    if (length && (strncmp(scope, f->trunk, length) || scope[length] != '.'))
        return "";
    const char *below = scope + (length ? length + 1 : 0);
    return weft_arena_printf(f->c->arena, "%.*s", (int)unit_length(below, numbered), below);
}

static int unit_index(const weft_layer_chain *c, const char *name)
{
    for (int u = c->units - 1; u >= 0; u--)
        if (!strcmp(c->unit[u].name, name))
            return u;
    return -1;
}

/* Assigns a node to the unit of its name, or to a later unit if an operand belongs to one. */
static weft_status assign_node(finder *f, int32_t n)
{
    const weft_node *node = weft_graph_node(f->g, n);
    weft_layer_chain *c = f->c;
    bool numbered;
    int32_t min_unit = -1;
    c->unit_of[n] = -1;
    f->fed[n] = node->op == WEFT_OP_INPUT;
    for (int i = 0; i < node->in_count; i++) {
        if (!weft_value_ok(node->in[i]))
            continue;
        const int32_t made = weft_value_get(f->g, node->in[i])->node;
        f->fed[n] = f->fed[n] || f->fed[made];
        min_unit = c->unit_of[made] > min_unit ? c->unit_of[made] : min_unit;
    }
    const char *name = unit_name(f, node, &numbered);
    if (!name)
        return no_memory(f->g);
    /* blocks begin with work on inputs; layout conversions do not count */
    if (min_unit < 0 && !(numbered && f->fed[n] && node->in_count > 0 &&
                          !weft_op_has(node->op, WEFT_TRAIT_CONVERTS | WEFT_TRAIT_ALIAS)))
        return WEFT_OK;
    f->found = f->found || numbered;
    int unit = unit_index(c, name);
    if (unit < 0) {
        unit = c->units++;
        c->unit[unit] = (weft_layer_chain_block){.name = name};
    }
    c->unit_of[n] = unit > min_unit ? unit : min_unit;
    return WEFT_OK;
}

static void add_cost(weft_layer_chain_block *unit, weft_cost cost)
{
    unit->cost.flops += cost.flops;
    unit->cost.bytes += cost.bytes;
    unit->cost.wire_bytes += cost.wire_bytes;
}

/* Adds the costs of nodes. A node without a unit counts for the first unit that reads it. `first`:
 * by node. */
static void add_costs(const finder *f, int32_t *first)
{
    const int32_t nodes = weft_graph_node_count(f->g);
    for (int32_t n = 0; n < nodes; n++)
        first[n] = f->c->unit_of[n] >= 0 ? f->c->unit_of[n] : f->c->units;
    for (int32_t n = nodes - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(f->g, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t made = weft_value_get(f->g, node->in[i])->node;
            if (f->c->unit_of[made] < 0 && first[n] < first[made])
                first[made] = first[n];
        }
    }
    for (int32_t n = 0; n < nodes; n++)
        if (first[n] < f->c->units)
            add_cost(&f->c->unit[first[n]], weft_node_cost(f->g, n));
}

/* Adds the bytes of values that later units read: once for the next unit, and once for the last
 * later consumer. `last` and `next`: by value. */
static weft_status add_bytes(const finder *f, int32_t *last, bool *next)
{
    const weft_graph *g = f->g;
    weft_layer_chain *c = f->c;
    int64_t skip_count = 0;
    for (int32_t v = 0; v < weft_graph_value_count(g); v++)
        last[v] = -1;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            const int32_t v = node->in[i].id,
                          made = c->unit_of[weft_value_get(g, node->in[i])->node];
            if (made < 0 || c->unit_of[n] <= made)
                continue;
            next[v] = next[v] || c->unit_of[n] == made + 1;
            last[v] = c->unit_of[n] > last[v] ? c->unit_of[n] : last[v];
        }
    }
    for (int32_t v = 0; v < weft_graph_value_count(g); v++)
        skip_count += last[v] >= 0;
    WEFT_TRY(WEFT_ARENA_NEW(c->arena, c->skip, skip_count + 1,
                            "finding the blocks of a graph of %d nodes",
                            (int)weft_graph_node_count(g)));
    for (int32_t v = 0; v < weft_graph_value_count(g); v++) {
        const weft_value value = {v};
        const int32_t made = last[v] < 0 ? -1 : c->unit_of[weft_value_get(g, value)->node];
        if (made < 0)
            continue;
        if (next[v])
            c->unit[made].output_bytes += weft_value_bytes(g, value);
        if (last[v] > made + 1)
            c->skip[c->skips++] =
                (weft_layer_chain_skip){made, last[v], weft_value_bytes(g, value)};
    }
    return WEFT_OK;
}

weft_status weft_layer_chain_make(const weft_graph *g, const char *trunk, weft_layer_chain *out)
{
    weft_layer_chain c = {.arena = weft_arena_create()};
    finder f = {.g = g, .c = &c, .trunk = trunk};
    const int64_t nodes = weft_graph_node_count(g) + 1, values = weft_graph_value_count(g) + 1;
    weft_status_code status = WEFT_OK;
    if (c.arena) {
        c.unit_of = weft_arena_calloc(c.arena, nodes, sizeof *c.unit_of);
        c.unit = weft_arena_calloc(c.arena, nodes, sizeof *c.unit);
    }
    int32_t *first = weft_calloc(nodes + values, sizeof *first);
    bool *marks = weft_alloc(nodes + values);
    if (!c.unit_of || !c.unit || !first || !marks)
        WEFT_GO(no_memory(g));
    f.fed = marks;
    for (int32_t n = 0; n + 1 < nodes; n++)
        WEFT_GO(assign_node(&f, n));
    if (!f.found)
        WEFT_GO(weft_error(WEFT_MSG_PASS_UNSUPPORTED, WEFT_AT(.value = trunk),
                           "the model has no blocks to divide among pipeline stages: \"%s\" has no "
                           "numbered scopes such as %s.blocks.0",
                           trunk, trunk));
    add_costs(&f, first);
    WEFT_GO(add_bytes(&f, first + nodes, marks + nodes));
    *out = c;
    c.arena = NULL;
out:
    weft_free(first);
    weft_free(marks);
    weft_arena_free(c.arena);
    return status;
}

void weft_layer_chain_free(weft_layer_chain *chain)
{
    weft_arena_free(chain->arena);
    *chain = (weft_layer_chain){0};
}
