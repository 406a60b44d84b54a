/* Slices of layers (pass/slice.c): defaults, numbers in a graph, and messages. */
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

const weft_slices weft_slices_default = WEFT_SLICES_DEFAULT;

bool weft_slices_open(const weft_slices *slices)
{
    return slices->kind == WEFT_SLICES_AUTO ||
           (slices->kind == WEFT_SLICES_ON && (!slices->heads || !slices->chunks));
}

const char *weft_slices_axis(const weft_recipe *recipe, const weft_mesh *mesh)
{
    for (int i = 0; i < recipe->count; i++) {
        const int axis = weft_mesh_axis(mesh, recipe->row[i].axis);
        if (recipe->row[i].cut && axis >= 0 && mesh->axis[axis].size > 1)
            return recipe->row[i].axis;
    }
    return NULL;
}

const weft_recipe_row *weft_slices_norm_row(const weft_recipe *recipe, const char *axis,
                                            const weft_node *n)
{
    char name[512];
    if (n->op != WEFT_OP_LAYER_NORM)
        return NULL;
    snprintf(name, sizeof name, "%s:%s", n->scope, weft_op_get(n->op)->name);
    return weft_recipe_row_for(recipe, axis, name, false);
}

/* A layer's norms are as often in the rank's graph as it has slices. */
static void count_layers(const weft_graph *whole, const weft_graph *own, const weft_recipe *recipe,
                         int64_t made[WEFT_MADE])
{
    const weft_graph *graph[2] = {whole, own};
    const char *axis = weft_slices_axis(recipe, weft_graph_mesh(own));
    if (!axis)
        return;
    for (int kind = WEFT_CUT_TIME; kind <= WEFT_CUT_SPACE; kind++) {
        const char *layer = NULL;
        int64_t norms[2] = {0};
        for (int k = 0; k < 2; k++)
            for (int32_t i = 0; i < weft_graph_node_count(graph[k]); i++) {
                const weft_node *n = weft_graph_node(graph[k], i);
                const weft_recipe_row *row = weft_slices_norm_row(recipe, axis, n);
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

/* What a portion of work is cut of, as the shard pass cuts it: heads before they are exchanged,
 * tokens, of every rank, before a product or what leads to it; -1: it is none. */
static int32_t cut_of(const weft_graph *g, const weft_node *n, weft_op op)
{
    if (n->backward || n->op != op)
        return -1;
    const weft_node *from = maker(g, n->in[0]);
    if (op == WEFT_OP_ATTENTION && from->op != WEFT_OP_ALL_TO_ALL)
        return -1;
    if (op == WEFT_OP_ATTENTION)
        from = maker(g, from->in[0]);
    while (op == WEFT_OP_LINEAR &&
           (from->op == WEFT_OP_LINEAR || from->op == WEFT_OP_RESHAPE || from->op == WEFT_OP_GELU ||
            from->op == WEFT_OP_SILU || from->op == WEFT_OP_ATTENTION))
        from = maker(g, from->in[0]);
    if (op == WEFT_OP_LINEAR && from->op == WEFT_OP_CONCAT)
        from = maker(g, from->in[0]);
    return from->op == WEFT_OP_SLICE ? from->in[0].id : -1;
}

static bool is_summed(const weft_graph *g, int32_t n)
{
    for (int32_t i = n + 1; i < weft_graph_node_count(g); i++) {
        const weft_node *reader = weft_graph_node(g, i);
        if ((reader->op == WEFT_OP_ALL_REDUCE || reader->op == WEFT_OP_REDUCE_SCATTER) &&
            weft_value_get(g, reader->in[0])->node == n)
            return true;
    }
    return false;
}

/* The most nodes of that kind that are portions of one: they follow one another. */
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

void weft_slices_count(const weft_graph *whole, const weft_graph *own, const weft_recipe *recipe,
                       int64_t made[WEFT_MADE])
{
    memset(made, 0, WEFT_MADE * sizeof *made);
    count_layers(whole, own, recipe, made);
    made[WEFT_MADE_HEADS] = count_portions(own, WEFT_OP_ATTENTION);
    made[WEFT_MADE_CHUNKS] = count_portions(own, WEFT_OP_LINEAR);
}

void weft_slices_tell(const weft_slices *asked, const int64_t made[WEFT_MADE], weft_buf *out)
{
    static const char *const of[] = {"slices of frames", "of places", "groups of heads",
                                     "chunks of tokens"};
    const int64_t wanted[] = {asked->time, asked->space, asked->heads, asked->chunks};
    const bool layers = made[WEFT_MADE_TIME] + made[WEFT_MADE_SPACE] > 0,
               on = asked->kind == WEFT_SLICES_ON;
    const char *between = "";
    for (int k = 0; k < WEFT_MADE; k++) {
        if (k < WEFT_MADE_HEADS ? !layers : !made[k])
            continue;
        weft_buf_printf(out, "%s%lld %s", between, (long long)made[k], of[k]);
        between = ", ";
        if (on && made[k] < wanted[k])
            weft_buf_printf(out, " (%lld asked for: there are no more for each rank)",
                            (long long)wanted[k]);
    }
}

unsigned weft_slices_asked(const weft_slices *s)
{
    const weft_slices *d = &weft_slices_default;
    const bool differs[WEFT_MADE] = {s->time != d->time || s->lift_time != d->lift_time,
                                     s->space != d->space || s->lift_space != d->lift_space,
                                     s->heads != d->heads, s->chunks != d->chunks};
    unsigned asked = s->given;
    for (int k = 0; k < WEFT_MADE; k++)
        asked |= (unsigned)differs[k] << k;
    return asked;
}

weft_status weft_slices_check(const weft_slices *asked, const int64_t made[WEFT_MADE],
                              const char *key, const char *what)
{
    const bool layers = made[WEFT_MADE_TIME] + made[WEFT_MADE_SPACE] > 0;
    static const struct {
        const char *key, *takes;
    } row[] = {
        {"time, lift_time", "layers over frames and places, which cp splits (STDiT3, Latte)"},
        {"space, lift_space", "layers over frames and places, which cp splits (STDiT3, Latte)"},
        {"heads", "attention over all tokens that cp splits (context: ulysses, without ring and "
                  "sequence), with two heads for each of its ranks"},
        {"chunks", "products that tp splits, without cp, and with sequence tokens that its ranks "
                   "divide"}};
    for (int k = 0; k < WEFT_MADE && asked->kind == WEFT_SLICES_ON; k++) {
        const int64_t wanted = k == WEFT_MADE_HEADS    ? asked->heads
                               : k == WEFT_MADE_CHUNKS ? asked->chunks
                                                       : 2;
        if ((asked->given >> k & 1) && wanted > 1 && (k < WEFT_MADE_HEADS ? !layers : !made[k]))
            return weft_fail(
                WEFT_E_CONFIG,
                "%s%s: over these ranks %s has nothing to cut so: that takes %s. Leave "
                "it out, or take auto",
                key, row[k].key, what, row[k].takes);
    }
    return WEFT_OK;
}
