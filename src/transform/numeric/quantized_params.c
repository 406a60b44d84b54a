/* Quantized weights: matrices stay as the file stores them, and each use dequantizes them.
 *
 *   before   param w f32[N,K]            linear(x, w)
 *   after    param w u8[N,blocks,bytes]  u = unpack(w); linear(x, u)   u lives for this use only
 *
 * For a table only the rows that are looked up are dequantized. Results are bitwise those of
 * matrices that were dequantized at loading.
 *
 *   int8     param w u8[N,blocks,bytes]  linear(x, w)                  computes in int8
 *            constant f32[K]             linear(x, w, bias, constant)  smooths x
 *            attention(q, k, v)                                        scores in int8 */
#include "transform/numeric/quantized_params.h"

#include "graph/rewrite.h"

typedef struct packing {
    weft_rewrite rewrite;
    const weft_graph *from;
    const weft_int8_rules *int8; /* NULL: none */
    void *user;
    float *factor;         /* of a layer; widest matrix */
    weft_attr_unpack *how; /* [values]; elements 0: not quantized */
    weft_value *packed;    /* [values] */
} packing;

/* Emits a parameter (..., K) as u8 (..., K / elements, bytes). */
static void keep_quantized(packing *p, int32_t n)
{
    const weft_value v = weft_graph_node(p->from, n)->out[0];
    const weft_value_info *info = weft_value_get(p->from, v);
    const weft_attr_unpack *how = &p->how[v.id];
    weft_shape shape = info->shape;
    shape.dim[shape.rank - 1] /= how->elements;
    shape.dim[shape.rank++] = how->bytes;
    p->packed[v.id] =
        weft_param(p->rewrite.to, info->name, WEFT_U8, shape, (weft_init){WEFT_INIT_ZERO, 0});
}

static bool is_packed(const packing *p, weft_value v)
{
    return weft_value_ok(v) && p->how[v.id].elements > 0;
}

/* Emits a linear layer of int8. */
static void use_in_int8(packing *p, int32_t n)
{
    enum { SMOOTHING = 3 };
    const weft_node *node = weft_graph_node(p->from, n);
    const weft_value_info *w = weft_value_get(p->from, node->in[1]);
    weft_graph *to = p->rewrite.to;
    weft_value in[SMOOTHING + 1];
    int count = node->in_count;
    for (int i = 0; i <= SMOOTHING; i++)
        in[i] =
            i < count && weft_value_ok(node->in[i]) ? p->rewrite.map[node->in[i].id] : WEFT_NONE;
    in[1] = p->packed[node->in[1].id];
    weft_graph_push(to, "%s", node->scope);
    if (p->int8->smoothing(p->user, w->name, w->shape.dim[1], p->factor)) {
        in[SMOOTHING] = weft_constant(to, WEFT_F32, WEFT_SHAPE(w->shape.dim[1]), p->factor);
        count = SMOOTHING + 1;
    }
    p->rewrite.map[node->out[0].id] = weft_emit(to, WEFT_OP_LINEAR, in, count, node->attr);
    weft_graph_pop(to);
}

/* Emits a node that reads quantized matrices, preceded by an unpack of each. */
static void use(packing *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->from, n);
    weft_graph *to = p->rewrite.to;
    weft_value *map = p->rewrite.map;
    const bool looks_up = node->op == WEFT_OP_EMBED && is_packed(p, node->in[0]);
    weft_graph_push(to, "%s", node->scope);
    for (int i = 0; i < node->in_count && !looks_up; i++)
        if (is_packed(p, node->in[i]))
            map[node->in[i].id] = weft_emit(to, WEFT_OP_UNPACK, &p->packed[node->in[i].id], 1,
                                            &p->how[node->in[i].id]);
    if (looks_up) {
        const weft_value in[2] = {p->packed[node->in[0].id], map[node->in[1].id]};
        map[node->out[0].id] = weft_emit(to, WEFT_OP_UNPACK, in, 2, &p->how[node->in[0].id]);
    }
    weft_graph_pop(to);
    if (!looks_up)
        weft_rewrite_node(&p->rewrite, n, NULL);
}

/* Whether a node is a linear layer of tokens. Layers of few rows embed times and make the scales of
 * all tokens: their error would be everywhere, and they need no time. One to eight rows in int8
 * take 0.7 to 2 times as long as in f32, 16 rows or more less time. Rows of a video count, because
 * programs with and without guidance share weights and have other batches. */
static bool is_token_layer(const weft_graph *g, const weft_node *node)
{
    enum { LEAST_ROWS = 8 };
    const weft_shape *x = &weft_value_get(g, node->in[0])->shape;
    return node->op == WEFT_OP_LINEAR && x->rank > 2 &&
           weft_shape_count(x) / x->dim[0] / x->dim[x->rank - 1] >= LEAST_ROWS;
}

/* Clears `only` of each value that some node reads other than as weights of a layer of tokens. */
static void find_other_uses(const weft_graph *g, bool *only)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        for (int i = 0; i < node->in_count; i++)
            if (weft_value_ok(node->in[i]) && (i != 1 || !is_token_layer(g, node)))
                only[node->in[i].id] = false;
    }
}

/* Whether scores in int8 take less time: each key is rounded for 384 queries, and each query for
 * all keys. Shapes of complete tensors decide, so that ranks agree. */
static bool gains_from_int8(const weft_graph *g, const weft_node *node)
{
    enum { LEAST = 128 };
    return node->op == WEFT_OP_ATTENTION && weft_value_get(g, node->in[0])->shape.dim[1] >= LEAST &&
           weft_value_get(g, node->in[1])->shape.dim[1] >= LEAST;
}

/* Copies an attention whose scores may be computed from int8. */
static void attend_in_int8(packing *p, int32_t n)
{
    const weft_node *node = weft_graph_node(p->from, n);
    weft_attr_attention attr = *(const weft_attr_attention *)node->attr;
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    attr.int8 = true;
    for (int i = 0; i < node->in_count; i++)
        in[i] = weft_value_ok(node->in[i]) ? p->rewrite.map[node->in[i].id] : WEFT_NONE;
    weft_graph_push(p->rewrite.to, "%s", node->scope);
    weft_emit_all(p->rewrite.to, WEFT_OP_ATTENTION, in, node->in_count, &attr, out);
    weft_graph_pop(p->rewrite.to);
    for (int o = 0; o < node->out_count; o++)
        p->rewrite.map[node->out[o].id] = out[o];
}

/* The most columns of a matrix. */
static int64_t widest(const weft_graph *g)
{
    int64_t most = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_shape *w = &weft_value_get(g, node->out[0])->shape;
        if (node->op == WEFT_OP_PARAM && w->rank == 2 && w->dim[1] > most)
            most = w->dim[1];
    }
    return most;
}

weft_status weft_pass_quantized_params(const weft_graph *g, weft_pack_fn *of,
                                       const weft_int8_rules *int8, void *user, weft_graph **out)
{
    const int64_t values = weft_graph_value_count(g);
    packing p = {.from = g,
                 .int8 = int8,
                 .user = user,
                 .factor = weft_alloc((widest(g) + 1) * (int64_t)sizeof *p.factor),
                 .how = weft_calloc(values + 1, sizeof *p.how),
                 .packed = weft_calloc(values + 1, sizeof *p.packed)};
    bool *quantizes = weft_alloc(values + 1);
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(p.how && p.packed && p.factor && quantizes, "pass pack"));
    memset(quantizes, true, (size_t)values + 1);
    if (int8)
        find_other_uses(g, quantizes);
    WEFT_GO(weft_rewrite_begin(g, &p.rewrite));
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const weft_value v = node->out[0];
        bool reads = false;
        if (node->op == WEFT_OP_PARAM && quantizes[v.id] &&
            of(user, weft_value_get(g, v)->name, &weft_value_get(g, v)->shape, &p.how[v.id])) {
            keep_quantized(&p, n);
            continue;
        }
        for (int i = 0; i < node->in_count && !reads; i++)
            reads = is_packed(&p, node->in[i]);
        if (reads && int8)
            use_in_int8(&p, n);
        else if (reads)
            use(&p, n);
        else if (int8 && gains_from_int8(g, node) && int8->scores(user, node->scope))
            attend_in_int8(&p, n);
        else
            weft_rewrite_node(&p.rewrite, n, NULL);
    }
    status = weft_rewrite_finish(&p.rewrite, "pack", out);
out:
    weft_free(p.how);
    weft_free(p.packed);
    weft_free(p.factor);
    weft_free(quantizes);
    return status;
}
