/* Layer slices (layer_slices.c): defaults, counts in a graph, and messages. */

#include "transform/sharding/slices.h"

#include "graph/conversion.h"
#include "graph/graph.h"
#include "transform/sharding/recipes.h"

#include <stdio.h>
#include <string.h>

const weft_comm_overlap weft_comm_overlap_default = WEFT_COMM_OVERLAP_DEFAULT;

bool weft_comm_overlap_has_auto(const weft_comm_overlap *overlap)
{
    return overlap->kind == WEFT_COMM_OVERLAP_AUTO ||
           (overlap->kind == WEFT_COMM_OVERLAP_ON && (!overlap->heads || !overlap->chunks));
}

const char *weft_comm_overlap_axis(const weft_recipe *recipe, const weft_mesh *mesh)
{
    for (int i = 0; i < recipe->count; i++) {
        const int axis = weft_mesh_axis(mesh, recipe->row[i].axis);
        if (recipe->row[i].cut && axis >= 0 && mesh->axis[axis].size > 1)
            return recipe->row[i].axis;
    }
    return NULL;
}

const weft_recipe_row *weft_comm_overlap_norm_row(const weft_recipe *recipe, const char *axis,
                                                  const weft_node *n)
{
    char name[512];
    if (n->op != WEFT_OP_LAYER_NORM)
        return NULL;
    snprintf(name, sizeof name, "%s:%s", n->scope, weft_op_get(n->op)->name);
    return weft_recipe_row_for(recipe, axis, name, false);
}

/* Counts slices: a layer's norm occurs once per slice in the rank's graph. */
static void count_layers(const weft_graph *whole, const weft_graph *own, const weft_recipe *recipe,
                         int64_t made[WEFT_MADE])
{
    const weft_graph *graph[2] = {whole, own};
    const char *axis = weft_comm_overlap_axis(recipe, weft_graph_mesh(own));
    if (!axis)
        return;
    for (int kind = WEFT_CUT_TIME; kind <= WEFT_CUT_SPACE; kind++) {
        const char *layer = NULL;
        int64_t norms[2] = {0};
        for (int k = 0; k < 2; k++)
            for (int32_t i = 0; i < weft_graph_node_count(graph[k]); i++) {
                const weft_node *n = weft_graph_node(graph[k], i);
                const weft_recipe_row *row = weft_comm_overlap_norm_row(recipe, axis, n);
                if (!row || row->cut != kind || n->backward || (layer && strcmp(layer, n->scope)))
                    continue;
                layer = n->scope;
                norms[k]++;
            }
        if (norms[0])
            made[kind - WEFT_CUT_TIME + WEFT_MADE_TIME] = norms[1] / norms[0];
    }
}

static const weft_node *maker(const weft_graph *g, weft_value v)
{
    const weft_node *n = weft_graph_node(g, weft_value_get(g, v)->node);
    while (n->op == WEFT_OP_CAST)
        n = weft_graph_node(g, weft_value_get(g, n->in[0])->node);
    return n;
}

/* The value that the shard pass cut into portions, of which `n` computes one; -1: none. Attention:
 * the value before its heads were exchanged. Linear: the operand, cut by tokens, of the product or
 * of the nodes before it. */
static int32_t cut_of(const weft_graph *g, const weft_node *n, weft_op op)
{
    if (n->backward || n->op != op)
        return -1;
    const weft_node *from = maker(g, n->in[0]);
    if (op == WEFT_OP_ATTENTION && from->op != WEFT_OP_ALL_TO_ALL)
        return -1;
    if (op == WEFT_OP_ATTENTION)
        from = maker(g, from->in[0]);
    while (op == WEFT_OP_LINEAR && weft_op_get(from->op)->chunk == WEFT_CHUNK_leads)
        from = maker(g, from->in[0]);
    if (op == WEFT_OP_LINEAR && from->op == WEFT_OP_CONCAT)
        from = maker(g, from->in[0]);
    return from->op == WEFT_OP_SLICE ? from->in[0].id : -1;
}

static bool is_summed(const weft_graph *g, int32_t n)
{
    for (int32_t i = n + 1; i < weft_graph_node_count(g); i++) {
        const weft_node *consumer = weft_graph_node(g, i);
        const weft_conversion *conversion = weft_conversion_get(consumer->op);
        if (conversion && conversion->from == WEFT_P &&
            weft_value_get(g, consumer->in[0])->node == n)
            return true;
    }
    return false;
}

/* The maximum number of consecutive nodes of `op` that are portions of one value. */
static int64_t count_portions(const weft_graph *own, weft_op op)
{
    int64_t count = 0, most = 0;
    int32_t of = -1;
    for (int32_t i = 0; i < weft_graph_node_count(own); i++) {
        const weft_node *n = weft_graph_node(own, i);
        const int32_t from = cut_of(own, n, op);
        if (from < 0 || (op == WEFT_OP_LINEAR && !is_summed(own, i)))
            continue;
        count = from == of ? count + 1 : 1;
        of = from;
        most = count > most ? count : most;
    }
    return most;
}

void weft_comm_overlap_count(const weft_graph *whole, const weft_graph *own,
                             const weft_recipe *recipe, int64_t made[WEFT_MADE])
{
    memset(made, 0, WEFT_MADE * sizeof *made);
    count_layers(whole, own, recipe, made);
    made[WEFT_MADE_HEADS] = count_portions(own, WEFT_OP_ATTENTION);
    made[WEFT_MADE_CHUNKS] = count_portions(own, WEFT_OP_LINEAR);
}

void weft_comm_overlap_format(const weft_comm_overlap *asked, const int64_t made[WEFT_MADE],
                              weft_buf *out)
{
    static const char *const of[] = {"slices of frames", "of places", "groups of heads",
                                     "chunks of tokens"};
    const int64_t wanted[] = {asked->time, asked->space, asked->heads, asked->chunks};
    const bool layers = made[WEFT_MADE_TIME] + made[WEFT_MADE_SPACE] > 0,
               on = asked->kind == WEFT_COMM_OVERLAP_ON;
    const char *between = "";
    for (int k = 0; k < WEFT_MADE; k++) {
        if (k < WEFT_MADE_HEADS ? !layers : !made[k])
            continue;
        weft_buf_printf(out, "%s%" PRId64 " %s", between, made[k], of[k]);
        between = ", ";
        if (on && made[k] < wanted[k])
            weft_buf_printf(out, " (%" PRId64 " requested; a rank has no more)", wanted[k]);
    }
}

unsigned weft_comm_overlap_explicit_keys(const weft_comm_overlap *s)
{
    const weft_comm_overlap *d = &weft_comm_overlap_default;
    const bool differs[WEFT_MADE] = {s->time != d->time || s->lift_time != d->lift_time,
                                     s->space != d->space || s->lift_space != d->lift_space,
                                     s->heads != d->heads, s->chunks != d->chunks};
    unsigned asked = s->explicit_keys;
    for (int k = 0; k < WEFT_MADE; k++)
        asked |= (unsigned)differs[k] << k;
    return asked;
}

static weft_status cannot_split(const char *prefix, const char *name, const char *what,
                                const char *needs)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key),
                      "%s has nothing to split this way over these ranks: this needs %s. Remove "
                      "the key, or use auto",
                      what, needs);
}

weft_status weft_comm_overlap_check(const weft_comm_overlap *asked, const int64_t made[WEFT_MADE],
                                    const char *key, const char *what)
{
    const bool layers = made[WEFT_MADE_TIME] + made[WEFT_MADE_SPACE] > 0;
    static const struct {
        const char *key, *takes;
    } row[] = {
        {"time, early_time", "layers over frames and places, which cp splits (STDiT3, Latte)"},
        {"space, early_space", "layers over frames and places, which cp splits (STDiT3, Latte)"},
        {"heads", "attention over all tokens that cp splits (context: ulysses, without ring and "
                  "sequence), with two heads for each of its ranks"},
        {"chunks", "products that tp splits, without cp, and with sequence tokens that its ranks "
                   "divide"}};
    for (int k = 0; k < WEFT_MADE && asked->kind == WEFT_COMM_OVERLAP_ON; k++) {
        const int64_t wanted = k == WEFT_MADE_HEADS    ? asked->heads
                               : k == WEFT_MADE_CHUNKS ? asked->chunks
                                                       : 2;
        if ((asked->explicit_keys >> k & 1) && wanted > 1 &&
            (k < WEFT_MADE_HEADS ? !layers : !made[k]))
            return cannot_split(key, row[k].key, what, row[k].takes);
    }
    return WEFT_OK;
}
