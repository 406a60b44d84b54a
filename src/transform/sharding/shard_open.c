/* First step of the shard pass: rewrites nodes that a recipe splits internally, so that the layout
 * rules of the new nodes apply. */
#include "transform/sharding/shard_open.h"

#include "graph/builder_helpers.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

enum { TOKENS_DIM = 1 };

bool weft_recipe_keeps_split(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                             weft_value param, int dim)
{
    const char *name = weft_value_ok(param) ? weft_value_get(g, param)->name : NULL;
    for (int a = 0; name && a < mesh->axis_count; a++) {
        const weft_recipe_row *row =
            mesh->axis[a].size > 1 ? weft_recipe_row_for(recipe, mesh->axis[a].name, name, true)
                                   : NULL;
        if (row && row->layout.kind == WEFT_S && row->layout.dim == dim && !row->gather)
            return true;
    }
    return false;
}

/* Reshapes (C) to (1, ..., 1, C). */
static weft_value as_row(weft_graph *g, weft_value v, int rank, int64_t size)
{
    weft_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++)
        shape.dim[i] = i == rank - 1 ? size : 1;
    return weft_reshape(g, v, shape);
}

/* Returns true for a linear or conv3d whose weight is split along its inputs (dim 1). Its result is
 * a partial sum, to which only one rank may add the bias. So the bias becomes a separate
 * addition. */
static bool bias_goes_after(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                            const weft_node *n)
{
    const bool plain =
        n->op == WEFT_OP_CONV3D ||
        (n->op == WEFT_OP_LINEAR && ((const weft_attr_linear *)n->attr)->act == WEFT_ACT_NONE);
    return plain && n->in_count >= 3 && weft_value_ok(n->in[2]) &&
           weft_recipe_keeps_split(g, mesh, recipe, n->in[1], 1);
}

static weft_value emit_bias_after(weft_graph *to, const weft_graph *from, const weft_node *n,
                                  const weft_value *map)
{
    const bool smooths = n->in_count > 3 && weft_value_ok(n->in[3]);
    const weft_value in[4] = {map[n->in[0].id], map[n->in[1].id], WEFT_NONE,
                              smooths ? map[n->in[3].id] : WEFT_NONE};
    const weft_shape *out = &weft_value_get(from, n->out[0])->shape;
    const weft_value y = weft_emit(to, n->op, in, smooths ? 4 : 2, n->attr);
    return weft_add(to, y, as_row(to, map[n->in[2].id], out->rank, out->dim[out->rank - 1]));
}

/* Returns true for an rms_norm over a dim that is split with its weight. It becomes x
 * rsqrt(sum(x^2) / C + eps) gamma, with the sum over ranks. */
static bool norm_opens(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                       const weft_node *n)
{
    return n->op == WEFT_OP_RMS_NORM && !((const weft_attr_norm *)n->attr)->l2 && n->in_count > 1 &&
           weft_recipe_keeps_split(g, mesh, recipe, n->in[1], 0);
}

static weft_value emit_open_norm(weft_graph *to, const weft_graph *from, const weft_node *n,
                                 const weft_value *map)
{
    const weft_value x = map[n->in[0].id];
    const weft_shape *shape = &weft_value_get(from, n->in[0])->shape;
    const int last = shape->rank - 1;
    const double eps = ((const weft_attr_norm *)n->attr)->eps;
    weft_value scale = weft_mean(to, weft_unary(to, WEFT_OP_SQUARE, x), 1u << last);
    scale = weft_unary(to, WEFT_OP_RSQRT, weft_affine(to, scale, 1, eps));
    return weft_mul(to, weft_mul(to, x, scale),
                    as_row(to, map[n->in[1].id], shape->rank, shape->dim[last]));
}

/* Returns true for a reshape of (B,G,S,C) to rows of G S, or back, if the recipe has a row
 * "scope:turned". It is transposed to rows of S G, in which shards of S are contiguous. */
static bool is_turned(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                      const weft_node *n, bool *back)
{
    char name[512];
    bool asked = false;
    if (n->op != WEFT_OP_RESHAPE)
        return false;
    snprintf(name, sizeof name, "%s:turned", n->scope);
    for (int a = 0; a < mesh->axis_count; a++)
        asked = asked || (mesh->axis[a].size > 1 &&
                          weft_recipe_row_for(recipe, mesh->axis[a].name, name, false));
    const weft_shape *in = &weft_value_get(g, n->in[0])->shape,
                     *out = &weft_value_get(g, n->out[0])->shape;
    *back = out->dim[1] < in->dim[1];
    const weft_shape *rows = *back ? in : out, *groups = *back ? out : in;
    return asked && in->rank == 4 && out->rank == 4 && in->dim[0] == out->dim[0] &&
           rows->dim[1] == groups->dim[1] * groups->dim[2];
}

static weft_value emit_turned(weft_graph *to, const weft_graph *from, const weft_node *n, bool back,
                              const weft_value *map)
{
    static const int perm[] = {0, 2, 1, 3};
    const weft_shape *out = &weft_value_get(from, n->out[0])->shape;
    const weft_value x = map[n->in[0].id];
    return back ? weft_permute(
                      to,
                      weft_reshape(to, x,
                                   WEFT_SHAPE(out->dim[0], out->dim[2], out->dim[1], out->dim[3])),
                      perm)
                : weft_reshape(to, weft_permute(to, x, perm), *out);
}

/* ---- attention to keys of several streams ---- */

/* The node that concatenates keys or values along tokens; NULL: another node computes them. */
static const weft_node *joined(const weft_graph *g, weft_value v)
{
    const weft_node *n = weft_graph_node(g, weft_value_get(g, v)->node);
    return n->op == WEFT_OP_CONCAT && ((const weft_attr_concat *)n->attr)->dim == TOKENS_DIM &&
                   n->in_count > 1
               ? n
               : NULL;
}

/* Returns true if a row requests ring attention on an axis of more than one rank. */
static bool goes_round(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                       const weft_node *n)
{
    char name[512];
    (void)g;
    snprintf(name, sizeof name, "%s:%s", n->scope, weft_op_get(n->op)->name);
    for (int a = 0; a < mesh->axis_count; a++) {
        const weft_recipe_row *row =
            mesh->axis[a].size > 1 ? weft_recipe_row_for(recipe, mesh->axis[a].name, name, false)
                                   : NULL;
        if (row && row->by && !strcmp(row->by, "ring"))
            return true;
    }
    return false;
}

/* Returns true for ring attention to keys of several concatenated streams. A rank's tokens of
 * several streams are not its shard of their concat. So the attention becomes one attention per
 * stream, and a merge. */
static bool streams_open(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                         const weft_node *n)
{
    if (n->op != WEFT_OP_ATTENTION || ((const weft_attr_attention *)n->attr)->causal ||
        (n->in_count > 3 && weft_value_ok(n->in[3])) || !goes_round(g, mesh, recipe, n))
        return false;
    const weft_node *k = joined(g, n->in[1]), *v = joined(g, n->in[2]);
    if (!k || !v || k->in_count != v->in_count)
        return false;
    for (int i = 0; i < k->in_count; i++)
        if (weft_value_get(g, k->in[i])->shape.dim[TOKENS_DIM] !=
            weft_value_get(g, v->in[i])->shape.dim[TOKENS_DIM])
            return false;
    return true;
}

/* Emits attention to stream i and merges it with made[], unless made[] is empty. */
static void attend_stream(weft_graph *to, const weft_graph *from, const weft_node *n, int i,
                          const weft_value *map, weft_value made[WEFT_MAX_OUTPUTS])
{
    const weft_node *k = joined(from, n->in[1]), *v = joined(from, n->in[2]);
    const bool biased = n->in_count > 4 && weft_value_ok(n->in[4]);
    int64_t start = 0;
    for (int s = 0; s < i; s++)
        start += weft_value_get(from, k->in[s])->shape.dim[TOKENS_DIM];
    const weft_value bias = biased
                                ? weft_slice(to, map[n->in[4].id], 1, start,
                                             weft_value_get(from, k->in[i])->shape.dim[TOKENS_DIM])
                                : WEFT_NONE;
    const weft_value in[5] = {map[n->in[0].id], map[k->in[i].id], map[v->in[i].id], WEFT_NONE,
                              bias};
    weft_value part[WEFT_MAX_OUTPUTS];
    weft_emit_all(to, WEFT_OP_ATTENTION, in, biased ? 5 : 3, n->attr, part);
    if (!weft_value_ok(made[0]))
        memcpy(made, part, sizeof part);
    else
        weft_emit_all(to, WEFT_OP_ATTENTION_MERGE,
                      (weft_value[]){made[0], made[1], part[0], part[1]}, 4, NULL, made);
}

/* The keys of the longest stream use the ring. The keys of the others, in the scope "kept", are
 * gathered. */
static void emit_open_streams(weft_graph *to, const weft_graph *from, const weft_node *n,
                              weft_value *map)
{
    const weft_node *k = joined(from, n->in[1]);
    weft_value made[WEFT_MAX_OUTPUTS] = {WEFT_NONE, WEFT_NONE, WEFT_NONE};
    int longest = 0;
    for (int i = 1; i < k->in_count; i++)
        if (weft_value_get(from, k->in[i])->shape.dim[TOKENS_DIM] >
            weft_value_get(from, k->in[longest])->shape.dim[TOKENS_DIM])
            longest = i;
    attend_stream(to, from, n, longest, map, made);
    weft_graph_push(to, "kept");
    for (int i = 0; i < k->in_count; i++)
        if (i != longest)
            attend_stream(to, from, n, i, map, made);
    weft_graph_pop(to);
    for (int o = 0; o < n->out_count; o++)
        map[n->out[o].id] = made[o];
}

/* ---- slices of products ---- */

/* The linear layer whose output columns `n` slices, if the recipe has a row "scope:columns": q, k
 * and v of one layer, whose heads are split over ranks. NULL: not such a slice. */
static const weft_node *taken_of(const weft_graph *g, const weft_mesh *mesh,
                                 const weft_recipe *recipe, const weft_node *n)
{
    char name[512];
    if (n->op != WEFT_OP_SLICE)
        return NULL;
    const weft_node *layer = weft_graph_node(g, weft_value_get(g, n->in[0])->node);
    if (layer->op != WEFT_OP_LINEAR ||
        ((const weft_attr_slice *)n->attr)->dim != weft_value_get(g, n->in[0])->shape.rank - 1)
        return NULL;
    snprintf(name, sizeof name, "%s:columns", layer->scope);
    for (int a = 0; a < mesh->axis_count; a++)
        if (mesh->axis[a].size > 1 && weft_recipe_row_for(recipe, mesh->axis[a].name, name, false))
            return layer;
    return NULL;
}

/* Emits the product with the weight rows of these columns only. */
static weft_value emit_taken(weft_graph *to, const weft_node *n, const weft_node *layer,
                             const weft_value *map)
{
    const weft_attr_slice *a = n->attr;
    enum { SMOOTHING = 3 }; /* of all columns */
    weft_value in[4] = {map[layer->in[0].id]};
    for (int i = 1; i < layer->in_count; i++)
        in[i] = !weft_value_ok(layer->in[i]) ? WEFT_NONE
                : i == SMOOTHING             ? map[layer->in[i].id]
                                 : weft_slice(to, map[layer->in[i].id], 0, a->start, a->len);
    return weft_emit(to, WEFT_OP_LINEAR, in, layer->in_count, layer->attr);
}

/* Emits the node in another form. Returns false if it stays unchanged. */
static bool take_apart(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                       const weft_node *n, weft_graph *to, weft_value *map)
{
    bool back = false;
    const weft_node *layer = taken_of(g, mesh, recipe, n);
    const bool bias = bias_goes_after(g, mesh, recipe, n),
               turned = is_turned(g, mesh, recipe, n, &back),
               streams = streams_open(g, mesh, recipe, n);
    if (!bias && !turned && !streams && !layer && !norm_opens(g, mesh, recipe, n))
        return false;
    weft_graph_push(to, "%s", layer ? layer->scope : n->scope);
    if (streams)
        emit_open_streams(to, g, n, map);
    else
        map[n->out[0].id] = bias     ? emit_bias_after(to, g, n, map)
                            : turned ? emit_turned(to, g, n, back, map)
                            : layer  ? emit_taken(to, n, layer, map)
                                     : emit_open_norm(to, g, n, map);
    weft_graph_pop(to);
    return true;
}

weft_status weft_shard_open(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph *to)
{
    weft_value *map;
    WEFT_TRY(WEFT_NEW(map, (int64_t)weft_graph_value_count(g), "copying a graph"));
    weft_graph_set_mesh(to, mesh, rank);
    for (int32_t i = 0; i < weft_graph_node_count(g); i++) {
        if (!take_apart(g, mesh, recipe, weft_graph_node(g, i), to, map))
            weft_graph_copy_node(to, g, i, map);
    }
    int count;
    const weft_named *outputs = weft_graph_outputs(g, &count);
    for (int i = 0; i < count; i++)
        weft_output(to, outputs[i].name, map[outputs[i].value.id]);
    const weft_pair *updates = weft_graph_updates(g, &count);
    for (int i = 0; i < count; i++)
        weft_update(to, map[updates[i].source.id], map[updates[i].value.id]);
    weft_free(map);
    return weft_graph_check(to);
}
