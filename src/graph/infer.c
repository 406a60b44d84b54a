/* Shape inference, one function per family of ops. Each reports mismatches with op, operands and
 * shapes. */
#include "graph/infer.h"

#include "graph/internal.h"

#include <stdio.h>
#include <string.h>

weft_shape weft_shape_of(int rank, const int64_t *dims)
{
    weft_shape shape = {.rank = rank > WEFT_MAX_RANK ? WEFT_MAX_RANK + 1 : rank};
    for (int i = 0; i < rank && i < WEFT_MAX_RANK; i++)
        shape.dim[i] = dims[i];
    return shape;
}

int64_t weft_shape_count(const weft_shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank && i < WEFT_MAX_RANK; i++)
        count *= shape->dim[i];
    return count;
}

bool weft_shape_equal(const weft_shape *a, const weft_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

const char *weft_format_shape(const weft_shape *shape, char text[96])
{
    int at = snprintf(text, 96, "[");
    for (int i = 0; i < shape->rank && i < WEFT_MAX_RANK; i++)
        at += snprintf(text + at, (size_t)(96 - at), "%s%" PRId64, i ? "," : "", shape->dim[i]);
    snprintf(text + at, (size_t)(96 - at), "]");
    return text;
}

const char *weft_format_value(const weft_graph *g, weft_value v, char text[96])
{
    if (!weft_value_ok(v)) {
        snprintf(text, 96, "none");
        return text;
    }
    char shape[96];
    const weft_value_info *info = &g->value[v.id];
    snprintf(text, 96, "%s%.88s", weft_dtype_name(info->dtype),
             weft_format_shape(&info->shape, shape));
    return text;
}

static bool bad(const weft_inference *node, const char *why)
{
    char text[512] = "", one[96];
    for (int i = 0, at = 0; i < node->in_count && at < 400; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", i ? ", " : "",
                       weft_format_value(node->graph, node->in[i], one));
    weft_graph_fail(node->graph, WEFT_MSG_TENSOR_SHAPE, "%s: %s; operands %s",
                    weft_op_get(node->op)->name, why, text);
    return false;
}

/* False for sizes that no tensor can have: negative, or more bytes than an int64_t holds. */
static bool legal_shape(const weft_inference *node, const weft_shape *shape)
{
    int64_t count = 1;
    bool ok = shape->rank >= 0 && shape->rank <= WEFT_MAX_RANK;
    for (int i = 0; ok && i < shape->rank; i++) {
        ok = shape->dim[i] >= 0 && (shape->dim[i] == 0 || count <= INT64_MAX / 64 / shape->dim[i]);
        count *= shape->dim[i];
    }
    if (!ok) {
        char text[96];
        weft_graph_fail(node->graph, WEFT_MSG_TENSOR_SHAPE,
                        "%s: %s is not a legal shape (rank at most %d, sizes not negative)",
                        weft_op_get(node->op)->name, weft_format_shape(shape, text), WEFT_MAX_RANK);
    }
    return ok;
}

#define INFO(i)  (&node->graph->value[node->in[i].id])
#define SHAPE(i) (&INFO(i)->shape)

/* The dtype of a result. Floats of different widths: f32, or f64 if one is f64. A float and an
 * integer: the float. */
static weft_dtype joint_dtype(weft_dtype a, weft_dtype b)
{
    if (a == b)
        return a;
    if (weft_dtype_is_float(a) && weft_dtype_is_float(b))
        return a == WEFT_F64 || b == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    return weft_dtype_is_float(b) ? b : a;
}

/* ---- sources ------------------------------------------------------------------------------- */

bool weft_infer_source(weft_inference *node)
{
    if (node->op == WEFT_OP_CONSTANT) {
        const weft_attr_constant *a = node->attr;
        node->out[0] = (weft_op_out){a->dtype, a->shape};
    } else {
        const weft_attr_source *a = node->attr;
        node->out[0] = (weft_op_out){a->dtype, a->shape};
    }
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_fill(weft_inference *node)
{
    const weft_attr_fill *a = node->attr;
    node->out[0] = (weft_op_out){a->dtype, a->shape};
    node->count = 1;
    return legal_shape(node, &a->shape);
}

bool weft_infer_random(weft_inference *node)
{
    const weft_attr_random *a = node->attr;
    if (INFO(0)->dtype != WEFT_I64 || SHAPE(0)->rank != 1 || a->shape.rank < 1 ||
        a->shape.dim[0] != SHAPE(0)->dim[0])
        return bad(node, "needs keys i64 (B) and a shape (B, ...)");
    node->out[0] = (weft_op_out){WEFT_F32, a->shape};
    node->count = 1;
    return legal_shape(node, &a->shape);
}

/* ---- elementwise --------------------------------------------------------------------------- */

bool weft_infer_unary(weft_inference *node)
{
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->count = 1;
    return true;
}

bool weft_infer_cast(weft_inference *node)
{
    node->out[0] = (weft_op_out){((const weft_attr_cast *)node->attr)->dtype, *SHAPE(0)};
    node->count = 1;
    return true;
}

bool weft_infer_same2(weft_inference *node)
{
    if (!weft_shape_equal(SHAPE(0), SHAPE(1)))
        return bad(node, "shapes must be equal");
    node->out[0] = (weft_op_out){INFO(1)->dtype, *SHAPE(0)};
    node->count = 1;
    return true;
}

bool weft_infer_binary(weft_inference *node)
{
    const weft_shape *a = SHAPE(0), *b = SHAPE(1);
    if (a->rank != b->rank)
        return bad(node, "ranks differ");
    weft_shape shape = *a;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i] && a->dim[i] != 1 && b->dim[i] != 1)
            return bad(node, "sizes must be equal or 1");
        shape.dim[i] = a->dim[i] == 1 ? b->dim[i] : a->dim[i];
    }
    node->out[0] = (weft_op_out){joint_dtype(INFO(0)->dtype, INFO(1)->dtype), shape};
    node->count = 1;
    return true;
}

bool weft_infer_pointwise(weft_inference *node)
{
    const weft_attr_pointwise *attr = node->attr;
    weft_shape shape = *SHAPE(0);
    for (int i = 1; i < node->in_count; i++) {
        if (SHAPE(i)->rank != shape.rank)
            return bad(node, "ranks differ");
        for (int d = 0; d < shape.rank; d++) {
            const int64_t size = SHAPE(i)->dim[d];
            if (size != shape.dim[d] && size != 1 && shape.dim[d] != 1)
                return bad(node, "sizes must be equal or 1");
            shape.dim[d] = shape.dim[d] == 1 ? size : shape.dim[d];
        }
    }
    node->count = 0;
    for (int s = 0; s < attr->count; s++)
        if (attr->step[s].out >= 0) {
            if (attr->step[s].out != node->count || node->count == WEFT_MAX_OUTPUTS)
                return bad(node, "outputs must be in the order of steps");
            node->out[node->count++] = (weft_op_out){attr->step[s].dtype, shape};
        }
    return node->count > 0 || bad(node, "no step has an output");
}

/* ---- reductions and shapes ----------------------------------------------------------------- */

bool weft_infer_sum(weft_inference *node)
{
    const uint32_t dims = ((const weft_attr_sum *)node->attr)->dims;
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    if (dims >> SHAPE(0)->rank)
        return bad(node, "a dim to reduce does not exist");
    for (int i = 0; i < SHAPE(0)->rank; i++)
        if (dims >> i & 1)
            node->out[0].shape.dim[i] = 1;
    node->count = 1;
    return true;
}

bool weft_infer_broadcast(weft_inference *node)
{
    const weft_shape *to = &((const weft_attr_shape *)node->attr)->shape;
    if (to->rank != SHAPE(0)->rank)
        return bad(node, "ranks differ");
    for (int i = 0; i < to->rank; i++)
        if (SHAPE(0)->dim[i] != to->dim[i] && SHAPE(0)->dim[i] != 1)
            return bad(node, "only sizes of 1 grow");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *to};
    node->count = 1;
    return legal_shape(node, to);
}

bool weft_infer_reshape(weft_inference *node)
{
    const weft_shape *to = &((const weft_attr_shape *)node->attr)->shape;
    if (!legal_shape(node, to))
        return false;
    if (weft_shape_count(to) != weft_shape_count(SHAPE(0))) {
        char text[96], why[160];
        snprintf(why, sizeof why, "cannot become %s: the number of elements differs",
                 weft_format_shape(to, text));
        return bad(node, why);
    }
    node->out[0] = (weft_op_out){INFO(0)->dtype, *to};
    node->count = 1;
    return true;
}

bool weft_infer_permute(weft_inference *node)
{
    const int *perm = ((const weft_attr_permute *)node->attr)->perm;
    uint32_t seen = 0;
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    for (int i = 0; i < SHAPE(0)->rank; i++) {
        if (perm[i] < 0 || perm[i] >= SHAPE(0)->rank || seen >> perm[i] & 1)
            return bad(node, "not a permutation of the dims");
        seen |= 1u << perm[i];
        node->out[0].shape.dim[i] = SHAPE(0)->dim[perm[i]];
    }
    node->count = 1;
    return true;
}

bool weft_infer_slice(weft_inference *node)
{
    const weft_attr_slice *a = node->attr;
    if (a->dim < 0 || a->dim >= SHAPE(0)->rank || a->start < 0 || a->len < 0 ||
        a->start > SHAPE(0)->dim[a->dim] - a->len) {
        char why[128];
        snprintf(why, sizeof why, "[%" PRId64 ", %" PRId64 ") of dim %d is outside", a->start,
                 a->start + a->len, a->dim);
        return bad(node, why);
    }
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[0].shape.dim[a->dim] = a->len;
    node->count = 1;
    return true;
}

bool weft_infer_pad(weft_inference *node)
{
    const weft_attr_pad *a = node->attr;
    if (a->dim < 0 || a->dim >= SHAPE(0)->rank || a->before < 0 || a->after < 0)
        return bad(node, "no such dim, or a negative padding");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[0].shape.dim[a->dim] += a->before + a->after;
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_concat(weft_inference *node)
{
    const int dim = ((const weft_attr_concat *)node->attr)->dim;
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    if (dim < 0 || dim >= SHAPE(0)->rank)
        return bad(node, "no such dim");
    for (int i = 1; i < node->in_count; i++) {
        weft_shape expected = *SHAPE(0);
        if (!weft_value_ok(node->in[i]) || SHAPE(i)->rank != expected.rank ||
            INFO(i)->dtype != INFO(0)->dtype)
            return bad(node, "ranks or types differ");
        expected.dim[dim] = SHAPE(i)->dim[dim];
        if (!weft_shape_equal(&expected, SHAPE(i)))
            return bad(node, "the operands differ in another dim than the joined one");
        node->out[0].shape.dim[dim] += SHAPE(i)->dim[dim];
    }
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

/* ---- contractions -------------------------------------------------------------------------- */

bool weft_infer_matmul(weft_inference *node)
{
    const weft_attr_matmul *t = node->attr;
    const weft_shape *a = SHAPE(0), *b = SHAPE(1);
    if (a->rank < 2 || b->rank < 2 || (b->rank != a->rank && b->rank != 2))
        return bad(node, "ranks must be 2 or more, and equal or the second 2");
    const int64_t m = a->dim[a->rank - (t->trans_a ? 1 : 2)],
                  ka = a->dim[a->rank - (t->trans_a ? 2 : 1)];
    const int64_t n = b->dim[b->rank - (t->trans_b ? 2 : 1)],
                  kb = b->dim[b->rank - (t->trans_b ? 1 : 2)];
    if (ka != kb)
        return bad(node, "contracted sizes differ");
    for (int i = 0; b->rank == a->rank && i < a->rank - 2; i++)
        if (a->dim[i] != b->dim[i])
            return bad(node, "leading sizes differ");
    node->out[0] = (weft_op_out){joint_dtype(INFO(0)->dtype, INFO(1)->dtype), *a};
    node->out[0].shape.dim[a->rank - 2] = m;
    node->out[0].shape.dim[a->rank - 1] = n;
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_linear(weft_inference *node)
{
    const weft_shape *x = SHAPE(0), *w = SHAPE(1);
    const int64_t elements = weft_int8_elements(INFO(1)->dtype, w);
    if (x->rank < 1 || w->rank != (elements ? 3 : 2) ||
        x->dim[x->rank - 1] != w->dim[1] * (elements ? elements : 1))
        return bad(node, elements ? "needs x (..., K), w of int8 (N, blocks, 2 + K / blocks)"
                                  : "needs x (..., K), w (N, K)");
    if (node->in_count > 2 && weft_value_ok(node->in[2]) &&
        (SHAPE(2)->rank != 1 || SHAPE(2)->dim[0] != w->dim[0]))
        return bad(node, "needs a bias (N)");
    if (node->in_count > 3 && weft_value_ok(node->in[3]) &&
        (!elements || SHAPE(3)->rank != 1 || SHAPE(3)->dim[0] != x->dim[x->rank - 1] ||
         INFO(3)->dtype != WEFT_F32))
        return bad(node, "needs smoothing f32 (K), with w of int8");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *x};
    node->out[0].shape.dim[x->rank - 1] = w->dim[0];
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_conv3d(weft_inference *node)
{
    const weft_attr_conv *a = node->attr;
    const weft_shape *x = SHAPE(0), *w = SHAPE(1);
    if (x->rank != 5 || w->rank != 5 || x->dim[4] != w->dim[1])
        return bad(node, "needs x (B,T,Y,X,I), w (O,I,kt,ky,kx)");
    if (node->in_count > 2 && weft_value_ok(node->in[2]) &&
        (SHAPE(2)->rank != 1 || SHAPE(2)->dim[0] != w->dim[0]))
        return bad(node, "needs a bias (O)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *x};
    node->out[0].shape.dim[4] = w->dim[0];
    for (int i = 0; i < 3; i++) {
        const int64_t padded = x->dim[1 + i] + a->before[i] + a->after[i];
        if (a->stride[i] < 1 || a->before[i] < 0 || a->after[i] < 0 || padded < w->dim[2 + i])
            return bad(node,
                       "the kernel is larger than the padded input, or a stride is not positive");
        node->out[0].shape.dim[1 + i] = (padded - w->dim[2 + i]) / a->stride[i] + 1;
    }
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_conv3d_dx(weft_inference *node)
{
    const weft_attr_conv *a = node->attr;
    if (SHAPE(0)->rank != 5 || SHAPE(1)->rank != 5 || a->x_shape.rank != 5 ||
        SHAPE(0)->dim[4] != SHAPE(1)->dim[0] || a->x_shape.dim[4] != SHAPE(1)->dim[1])
        return bad(node, "needs dy (B,T',Y',X',O), w (O,I,kt,ky,kx)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, a->x_shape};
    node->count = 1;
    return true;
}

bool weft_infer_conv3d_dw(weft_inference *node)
{
    const weft_attr_conv *a = node->attr;
    if (SHAPE(0)->rank != 5 || SHAPE(1)->rank != 5 || SHAPE(0)->dim[0] != SHAPE(1)->dim[0])
        return bad(node, "needs x (B,T,Y,X,I), dy (B,T',Y',X',O)");
    node->out[0] = (weft_op_out){WEFT_F32, WEFT_SHAPE(SHAPE(1)->dim[4], SHAPE(0)->dim[4],
                                                      a->kernel[0], a->kernel[1], a->kernel[2])};
    node->count = 1;
    return true;
}

static bool is_key_bias(const weft_graph *g, weft_value v, const weft_shape *k)
{
    const weft_shape *s = &g->value[v.id].shape;
    return weft_dtype_is_float(g->value[v.id].dtype) && s->rank == 2 && s->dim[0] == k->dim[0] &&
           s->dim[1] == k->dim[1];
}

static bool are_segments(const weft_value_info *v, int64_t batch)
{
    const weft_shape *s = &v->shape;
    return v->dtype == WEFT_I32 && (s->rank == 2 || (s->rank == 3 && s->dim[0] == batch)) &&
           s->dim[s->rank - 1] == 4;
}

/* Sets the outputs of attention of q (B,Sq,H,D) to k and v (B,Sk,H,D). */
static bool infer_heads(weft_inference *node)
{
    const weft_shape *q = SHAPE(0), *k = SHAPE(1);
    if (q->rank != 4 || k->rank != 4 || !weft_shape_equal(k, SHAPE(2)) || q->dim[2] != k->dim[2] ||
        q->dim[3] != k->dim[3])
        return bad(node, "needs q (B,Sq,H,D), k and v (B,Sk,H,D)");
    if (q->dim[0] != k->dim[0])
        return bad(node, "batches differ");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *q};
    node->out[1] = (weft_op_out){WEFT_F32, WEFT_SHAPE(q->dim[0], q->dim[2], q->dim[1])};
    node->count = 2;
    return true;
}

bool weft_infer_attention(weft_inference *node)
{
    const weft_shape *q = SHAPE(0), *k = SHAPE(1);
    if (!infer_heads(node))
        return false;
    const bool packed = node->in_count > 3 && weft_value_ok(node->in[3]);
    if (packed && !are_segments(INFO(3), q->dim[0]))
        return bad(node, "segments are i32 (N,4) or (B,N,4)");
    if (node->in_count > 4 && weft_value_ok(node->in[4]) &&
        (packed || !is_key_bias(node->graph, node->in[4], k)))
        return bad(node, "a bias is f32 (B,Sk), without segments");
    return true;
}

/* lse (B,H,S) for out (B,S,H,D) */
static bool is_lse_of(const weft_shape *lse, const weft_shape *out)
{
    return lse->rank == 3 && lse->dim[0] == out->dim[0] && lse->dim[1] == out->dim[2] &&
           lse->dim[2] == out->dim[1];
}

bool weft_infer_attention_grad(weft_inference *node)
{
    if (SHAPE(0)->rank != 4 || !weft_shape_equal(SHAPE(0), SHAPE(3)) ||
        !weft_shape_equal(SHAPE(0), SHAPE(5)) || !weft_shape_equal(SHAPE(1), SHAPE(2)) ||
        !is_lse_of(SHAPE(4), SHAPE(0)) ||
        (node->in_count > 6 && weft_value_ok(node->in[6]) &&
         !are_segments(INFO(6), SHAPE(0)->dim[0])) ||
        (node->in_count > 7 && weft_value_ok(node->in[7]) && !is_lse_of(SHAPE(7), SHAPE(0))) ||
        (node->in_count > 8 && weft_value_ok(node->in[8]) &&
         !is_key_bias(node->graph, node->in[8], SHAPE(1))))
        return bad(node, "needs q, k, v, out, lse, dout, segments, dlse, bias");
    for (int i = 0; i < 3; i++)
        node->out[i] = (weft_op_out){INFO(i)->dtype, *SHAPE(i)};
    node->count = 3;
    return true;
}

/* chosen (B,H,M,N): M divides the queries, N the keys */
static bool are_chosen_blocks(const weft_value_info *v, const weft_shape *q, const weft_shape *k)
{
    const weft_shape *s = &v->shape;
    return v->dtype == WEFT_F32 && s->rank == 4 && s->dim[0] == q->dim[0] &&
           s->dim[1] == q->dim[2] && s->dim[2] > 0 && s->dim[3] > 0 && q->dim[1] % s->dim[2] == 0 &&
           k->dim[1] % s->dim[3] == 0;
}

bool weft_infer_block_attention(weft_inference *node)
{
    const weft_attr_attention *a = node->attr;
    if (!infer_heads(node))
        return false;
    if (a->causal || a->int8)
        return bad(node, "is neither causal nor in int8");
    if (!are_chosen_blocks(INFO(3), SHAPE(0), SHAPE(1)))
        return bad(node, "needs f32 (B,H,M,N), whose M divides the queries and N the keys");
    return true;
}

bool weft_infer_block_attention_grad(weft_inference *node)
{
    if (SHAPE(0)->rank != 4 || !weft_shape_equal(SHAPE(0), SHAPE(3)) ||
        !weft_shape_equal(SHAPE(0), SHAPE(5)) || !weft_shape_equal(SHAPE(1), SHAPE(2)) ||
        SHAPE(1)->rank != 4 || !is_lse_of(SHAPE(4), SHAPE(0)) ||
        !are_chosen_blocks(INFO(6), SHAPE(0), SHAPE(1)) ||
        (node->in_count > 7 && weft_value_ok(node->in[7]) && !is_lse_of(SHAPE(7), SHAPE(0))))
        return bad(node, "needs q, k, v, out, lse, dout, chosen, dlse");
    for (int i = 0; i < 3; i++)
        node->out[i] = (weft_op_out){INFO(i)->dtype, *SHAPE(i)};
    node->count = 3;
    return true;
}

/* Elements are chosen by their values, by a part of all above 0. */
static bool infer_choice(weft_inference *node, const char *what, double part)
{
    if (SHAPE(0)->rank < 1 || !weft_dtype_is_float(INFO(0)->dtype))
        return bad(node, "needs x (..., N)");
    if (!(part > 0 && part <= 1))
        return bad(node, what);
    node->out[0] = (weft_op_out){WEFT_F32, *SHAPE(0)};
    node->count = 1;
    return true;
}

bool weft_infer_top_p(weft_inference *node)
{
    return infer_choice(node, "needs a mass above 0 and at most 1",
                        ((const weft_attr_top_p *)node->attr)->mass);
}

bool weft_infer_top_share(weft_inference *node)
{
    return infer_choice(node, "needs a share above 0 and at most 1",
                        ((const weft_attr_top_share *)node->attr)->share);
}

bool weft_infer_attention_merge(weft_inference *node)
{
    if (SHAPE(0)->rank != 4 || !weft_shape_equal(SHAPE(0), SHAPE(2)) ||
        !is_lse_of(SHAPE(1), SHAPE(0)) || !weft_shape_equal(SHAPE(1), SHAPE(3)))
        return bad(node, "needs out (B,S,H,D) and lse (B,H,S) of two parts");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[1] = (weft_op_out){WEFT_F32, *SHAPE(1)};
    node->count = 2;
    return true;
}

bool weft_infer_attention_merge_grad(weft_inference *node)
{
    if (!weft_infer_attention_merge(node))
        return false;
    if (!weft_shape_equal(SHAPE(4), SHAPE(0)) ||
        (node->in_count > 5 && weft_value_ok(node->in[5]) && !weft_shape_equal(SHAPE(5), SHAPE(1))))
        return bad(node, "needs out, lse of a part and of both, dout, dlse");
    return true;
}

/* ---- normalisation and modulation ---------------------------------------------------------- */

static bool is_row(const weft_graph *g, weft_value v, const weft_shape *x)
{
    if (!weft_value_ok(v))
        return true;
    const weft_shape *s = &g->value[v.id].shape;
    return s->rank == 1 && s->dim[0] == x->dim[x->rank - 1];
}

bool weft_infer_norm(weft_inference *node)
{
    if (SHAPE(0)->rank < 1)
        return bad(node, "needs x (..., C)");
    for (int i = 1; i < node->in_count; i++)
        if (!is_row(node->graph, node->in[i], SHAPE(0)))
            return bad(node, "gamma and beta are (C)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->count = 1;
    return true;
}

bool weft_infer_norm_grad(weft_inference *node)
{
    const bool affine = node->in_count > 2 && weft_value_ok(node->in[2]);
    if (!weft_shape_equal(SHAPE(0), SHAPE(1)) || SHAPE(0)->rank < 1 ||
        (affine && !is_row(node->graph, node->in[2], SHAPE(0))))
        return bad(node, "needs x and dy (..., C), gamma (C)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->count = affine ? (node->op == WEFT_OP_LAYER_NORM_GRAD ? 3 : 2) : 1;
    for (int i = 1; i < node->count; i++)
        node->out[i] = (weft_op_out){WEFT_F32, *SHAPE(2)};
    return true;
}

static bool broadcasts_to(const weft_shape *small, const weft_shape *x)
{
    if (small->rank != x->rank)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (small->dim[i] != x->dim[i] && small->dim[i] != 1)
            return false;
    return true;
}

bool weft_infer_modulate(weft_inference *node)
{
    if (!broadcasts_to(SHAPE(1), SHAPE(0)) || !broadcasts_to(SHAPE(2), SHAPE(0)) ||
        (node->op == WEFT_OP_GATED_ADD && !weft_shape_equal(SHAPE(0), SHAPE(1))) ||
        (node->op == WEFT_OP_MODULATE && !weft_shape_equal(SHAPE(1), SHAPE(2))))
        return bad(node, "operands do not broadcast to the first");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->count = 1;
    return true;
}

bool weft_infer_modulate_grad(weft_inference *node)
{
    if (!broadcasts_to(SHAPE(1), SHAPE(0)) || !weft_shape_equal(SHAPE(0), SHAPE(2)))
        return bad(node, "needs x, scale, dy");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[1] = node->out[2] = (weft_op_out){WEFT_F32, *SHAPE(1)};
    node->count = 3;
    return true;
}

bool weft_infer_gated_add_grad(weft_inference *node)
{
    if (!broadcasts_to(SHAPE(1), SHAPE(0)) || !weft_shape_equal(SHAPE(0), SHAPE(2)))
        return bad(node, "needs y, gate, dout");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[1] = (weft_op_out){WEFT_F32, *SHAPE(1)};
    node->count = 2;
    return true;
}

bool weft_infer_rope(weft_inference *node)
{
    const weft_shape *x = SHAPE(0), *c = SHAPE(1);
    bool fits = x->rank == 4 && x->dim[3] % 2 == 0 && (c->rank == 2 || c->rank == 4) &&
                weft_shape_equal(c, SHAPE(2)) && c->dim[c->rank - 1] * 2 == x->dim[3] &&
                c->dim[c->rank == 2 ? 0 : 1] == x->dim[1];
    for (int d = 0; fits && c->rank == 4 && d < 3; d += 2)
        fits = c->dim[d] == 1 || c->dim[d] == x->dim[d];
    if (!fits)
        return bad(node, "needs x (B,S,H,D), cos and sin (S,D/2) or (B or 1,S,H or 1,D/2)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *x};
    node->count = 1;
    return true;
}

bool weft_infer_rope_table(weft_inference *node)
{
    const weft_attr_rope_table *a = node->attr;
    const int64_t tokens = a->before + a->grid[0] * a->grid[1] * a->grid[2] + a->after;
    for (int d = 0; d < 3; d++)
        if (a->grid[d] < 0 || a->pairs[d] < 0)
            return bad(node, "sizes and pairs are not negative");
    if (a->before < 0 || a->after < 0 || a->start < 0 || a->len < 0 || a->start + a->len > tokens)
        return bad(node, "the tokens are outside the grid");
    node->out[0] = node->out[1] =
        (weft_op_out){WEFT_F32, WEFT_SHAPE(a->len, a->pairs[0] + a->pairs[1] + a->pairs[2])};
    node->count = 2;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_embed(weft_inference *node)
{
    if (SHAPE(0)->rank != 2 || INFO(1)->dtype != WEFT_I32 || SHAPE(1)->rank >= WEFT_MAX_RANK)
        return bad(node, "needs a table (R,C) and ids i32");
    node->out[0] = (weft_op_out){WEFT_F32, *SHAPE(1)};
    node->out[0].shape.dim[node->out[0].shape.rank++] = SHAPE(0)->dim[1];
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_unpack(weft_inference *node)
{
    const weft_attr_unpack *a = node->attr;
    const weft_shape *from = SHAPE(0);
    const bool picks = node->in_count > 1 && weft_value_ok(node->in[1]);
    if (INFO(0)->dtype != WEFT_U8 || from->rank < 2 || from->dim[from->rank - 1] != a->bytes)
        return bad(node, "needs u8 (..., blocks, bytes of a block)");
    if (picks && (from->rank != 3 || INFO(1)->dtype != WEFT_I32 || SHAPE(1)->rank >= WEFT_MAX_RANK))
        return bad(node, "needs u8 (R, blocks, bytes) and ids i32");
    const int64_t elements = from->dim[from->rank - 2] * a->elements;
    node->out[0] = (weft_op_out){WEFT_F32, picks ? *SHAPE(1) : *from};
    node->out[0].shape.rank += picks ? 1 : -1;
    node->out[0].shape.dim[node->out[0].shape.rank - 1] = elements;
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_embed_grad(weft_inference *node)
{
    if (INFO(0)->dtype != WEFT_I32 || SHAPE(1)->rank != SHAPE(0)->rank + 1)
        return bad(node, "needs ids i32 and dy (..., C)");
    node->out[0] = (weft_op_out){WEFT_F32, WEFT_SHAPE(((const weft_attr_embed *)node->attr)->rows,
                                                      SHAPE(1)->dim[SHAPE(1)->rank - 1])};
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

/* ---- experts ------------------------------------------------------------------------------- */

/* All dims of `ids` but the last are those of `x`. */
static bool same_leading_dims(const weft_shape *ids, const weft_shape *x)
{
    bool same = ids->rank == x->rank && ids->rank > 0;
    for (int d = 0; same && d < ids->rank - 1; d++)
        same = ids->dim[d] == x->dim[d];
    return same;
}

bool weft_infer_top_k(weft_inference *node)
{
    const weft_attr_top_k *a = node->attr;
    const weft_shape *x = SHAPE(0);
    const int64_t experts = x->rank > 0 ? x->dim[x->rank - 1] : 0;
    const bool biased = node->in_count > 1 && weft_value_ok(node->in[1]);
    if (x->rank < 1 || (biased && (SHAPE(1)->rank != 1 || SHAPE(1)->dim[0] != experts)))
        return bad(node, "needs scores (..., E), bias (E)");
    if (a->groups < 0 ||
        (a->groups && (experts % a->groups || a->top_groups < 1 || a->top_groups > a->groups)))
        return bad(node, "needs a number of groups that divides the experts, and 1 to all groups");
    if (a->count < 1 || a->count > (a->groups ? experts / a->groups * a->top_groups : experts))
        return bad(node, "needs a count from 1 to the number of allowed experts");
    node->out[0] = (weft_op_out){WEFT_I32, *x};
    node->out[0].shape.dim[x->rank - 1] = a->count;
    node->count = 1;
    return true;
}

bool weft_infer_pick(weft_inference *node)
{
    if (INFO(1)->dtype != WEFT_I32 || !same_leading_dims(SHAPE(1), SHAPE(0)))
        return bad(node, "needs x (..., E) and ids i32 (..., k)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(1)};
    node->count = 1;
    return true;
}

bool weft_infer_pick_grad(weft_inference *node)
{
    const weft_attr_experts *a = node->attr;
    if (INFO(0)->dtype != WEFT_I32 || !weft_shape_equal(SHAPE(0), SHAPE(1)) || SHAPE(0)->rank < 1 ||
        a->experts < 1)
        return bad(node, "needs ids i32 (..., k) and dy (..., k)");
    node->out[0] = (weft_op_out){INFO(1)->dtype, *SHAPE(1)};
    node->out[0].shape.dim[SHAPE(1)->rank - 1] = a->experts;
    node->count = 1;
    return true;
}

bool weft_infer_expert_slots(weft_inference *node)
{
    const weft_attr_experts *a = node->attr;
    if (INFO(0)->dtype != WEFT_I32 || SHAPE(0)->rank != 3 || a->experts < 1 || a->slots < 0)
        return bad(node, "needs ids i32 (B,S,k)");
    node->out[0] = (weft_op_out){
        WEFT_I32, WEFT_SHAPE(a->experts, SHAPE(0)->dim[0], a->slots ? a->slots : SHAPE(0)->dim[1])};
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

/* x (B,S,1 or k,C) for ids (B,S,k) */
static bool is_tokens(const weft_shape *x, const weft_shape *ids)
{
    return x->rank == 4 && ids->rank == 3 && x->dim[0] == ids->dim[0] && x->dim[1] == ids->dim[1] &&
           (x->dim[2] == 1 || x->dim[2] == ids->dim[2]);
}

bool weft_infer_dispatch(weft_inference *node)
{
    const weft_attr_experts *a = node->attr;
    if (INFO(1)->dtype != WEFT_I32 || !is_tokens(SHAPE(0), SHAPE(1)) || a->experts < 1 ||
        a->slots < 0)
        return bad(node, "needs x (B,S,1 or k,C) and ids i32 (B,S,k)");
    node->out[0] = (weft_op_out){INFO(0)->dtype, WEFT_SHAPE(a->experts, SHAPE(0)->dim[0],
                                                            a->slots ? a->slots : SHAPE(0)->dim[1],
                                                            SHAPE(0)->dim[3])};
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_collect(weft_inference *node)
{
    const weft_attr_experts *a = node->attr;
    const weft_shape *rows = SHAPE(0), *ids = SHAPE(1);
    if (INFO(1)->dtype != WEFT_I32 || rows->rank != 4 || ids->rank != 3 ||
        rows->dim[0] != a->experts || rows->dim[1] != ids->dim[0] ||
        rows->dim[2] != (a->slots ? a->slots : ids->dim[1]))
        return bad(node, "needs rows (E,B,slots,C) and ids i32 (B,S,k)");
    node->out[0] = (weft_op_out){INFO(0)->dtype,
                                 WEFT_SHAPE(ids->dim[0], ids->dim[1], ids->dim[2], rows->dim[3])};
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

/* Whether `ids` gives the experts of the rows `x`, in either form. */
static bool has_experts(const weft_shape *x, const weft_shape *ids, bool by_expert)
{
    return is_tokens(x, ids) && (!by_expert || x->dim[2] == ids->dim[2]);
}

bool weft_infer_expert_matmul(weft_inference *node)
{
    const weft_attr_expert_matmul *a = node->attr;
    const weft_shape *x = SHAPE(0), *w = SHAPE(1), *ids = SHAPE(2);
    if (INFO(2)->dtype != WEFT_I32 || w->rank != 3 || !has_experts(x, ids, a->by_expert) ||
        x->dim[3] != w->dim[a->trans_b ? 2 : 1] || (a->by_expert && x->dim[0] != w->dim[0]))
        return bad(node,
                   "needs rows with a last dim of the weights (E,N,K), and ids i32 of the rows");
    node->out[0] = (weft_op_out){INFO(0)->dtype, WEFT_SHAPE(ids->dim[0], ids->dim[1], ids->dim[2],
                                                            w->dim[a->trans_b ? 1 : 2])};
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

bool weft_infer_expert_matmul_dw(weft_inference *node)
{
    const weft_attr_expert_matmul *a = node->attr;
    const weft_shape *ids = SHAPE(2);
    if (INFO(2)->dtype != WEFT_I32 || !has_experts(SHAPE(0), ids, a->by_expert) ||
        !has_experts(SHAPE(1), ids, a->by_expert) || a->experts < (a->by_expert ? 0 : 1) ||
        (a->by_expert && SHAPE(0)->dim[0] != a->experts))
        return bad(node, "needs two operands with the same rows, and ids i32 of the rows");
    node->out[0] =
        (weft_op_out){WEFT_F32, WEFT_SHAPE(a->experts, SHAPE(0)->dim[3], SHAPE(1)->dim[3])};
    node->count = 1;
    return legal_shape(node, &node->out[0].shape);
}

/* ---- optimizer ----------------------------------------------------------------------------- */

bool weft_infer_sum_squares(weft_inference *node)
{
    node->out[0] = (weft_op_out){WEFT_F32, WEFT_SCALAR};
    node->count = 1;
    return true;
}

bool weft_infer_clip_scale(weft_inference *node)
{
    for (int i = 0; i < node->in_count; i++)
        if (SHAPE(i)->rank != 0)
            return bad(node, "needs scalars");
    node->out[0] = node->out[1] = (weft_op_out){WEFT_F32, WEFT_SCALAR};
    node->count = 2;
    return true;
}

bool weft_infer_adamw(weft_inference *node)
{
    for (int i = 1; i < 4; i++)
        if (!weft_shape_equal(SHAPE(0), SHAPE(i)))
            return bad(node, "p, g, m and v have one shape");
    for (int i = 4; i < 7; i++)
        if (SHAPE(i)->rank != 0)
            return bad(node, "lr, step and scale are scalars");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[1] = (weft_op_out){INFO(2)->dtype, *SHAPE(0)};
    node->out[2] = (weft_op_out){INFO(3)->dtype, *SHAPE(0)};
    node->count = 3;
    return true;
}

bool weft_infer_ema(weft_inference *node)
{
    if (!weft_shape_equal(SHAPE(0), SHAPE(1)) || SHAPE(2)->rank != 0 || SHAPE(3)->rank != 0)
        return bad(node, "needs e and p of one shape, scalars decay and scale");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->count = 1;
    return true;
}

/* ---- layout conversions -------------------------------------------------------------------- */

bool weft_infer_same_part(weft_inference *node)
{
    const int axis = ((const weft_attr_comm *)node->attr)->axis;
    if (axis < 0 || axis >= node->graph->mesh.axis_count)
        return bad(node, "no such mesh axis");
    return weft_infer_unary(node);
}

static bool check_comm(const weft_inference *node, const weft_attr_comm *a)
{
    if (a->axis < 0 || a->axis >= node->graph->mesh.axis_count)
        return bad(node, "no such mesh axis");
    if (a->dim < 0 || a->dim >= SHAPE(0)->rank)
        return bad(node, "no such dim");
    return true;
}

/* Size of the part of n of the rank `distance` positions before this one on the axis, as a ring. */
static int64_t part_length(const weft_graph *g, int axis, int64_t n, int distance)
{
    const int ranks = g->mesh.axis[axis].size;
    int coordinate[WEFT_MAX_AXES];
    int64_t start, len;
    weft_mesh_coordinates(&g->mesh, g->rank, coordinate);
    weft_part(n, ranks, ((coordinate[axis] - distance) % ranks + ranks) % ranks, &start, &len);
    return len;
}

static int64_t own_length(const weft_graph *g, int axis, int64_t n)
{
    return part_length(g, axis, n, 0);
}

bool weft_infer_all_gather(weft_inference *node)
{
    const weft_attr_comm *a = node->attr;
    if (!check_comm(node, a))
        return false;
    if (SHAPE(0)->dim[a->dim] != own_length(node->graph, a->axis, a->global))
        return bad(node, "the size is not that of this rank's shard");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[0].shape.dim[a->dim] = a->global;
    node->count = 1;
    return true;
}

bool weft_infer_own_part(weft_inference *node)
{
    const weft_attr_comm *a = node->attr;
    if (!check_comm(node, a))
        return false;
    if (SHAPE(0)->dim[a->dim] != a->global)
        return bad(node, "the size is not the unsharded size");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[0].shape.dim[a->dim] = own_length(node->graph, a->axis, a->global);
    node->count = 1;
    return true;
}

bool weft_infer_all_to_all(weft_inference *node)
{
    const weft_attr_comm *a = node->attr;
    if (!check_comm(node, a))
        return false;
    if (a->dim2 < 0 || a->dim2 >= SHAPE(0)->rank || a->dim2 == a->dim ||
        SHAPE(0)->dim[a->dim2] != a->global2 ||
        SHAPE(0)->dim[a->dim] != own_length(node->graph, a->axis, a->global))
        return bad(node, "needs this rank's shard of one dim and the unsharded size of the other");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[0].shape.dim[a->dim] = a->global;
    node->out[0].shape.dim[a->dim2] = own_length(node->graph, a->axis, a->global2);
    node->count = 1;
    return true;
}

bool weft_infer_ring_shift(weft_inference *node)
{
    const weft_attr_comm *a = node->attr;
    if (!check_comm(node, a))
        return false;
    if (SHAPE(0)->dim[a->dim] != part_length(node->graph, a->axis, a->global, a->held))
        return bad(node, "the size is not that of this rank's current block");
    node->out[0] = (weft_op_out){INFO(0)->dtype, *SHAPE(0)};
    node->out[0].shape.dim[a->dim] =
        part_length(node->graph, a->axis, a->global, a->held + a->shift);
    node->count = 1;
    return true;
}
