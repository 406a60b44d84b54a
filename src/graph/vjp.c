/* Gradient rules. A rule emits nodes that compute the gradients of a node's inputs from the
 * gradients of its outputs. */
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/internal.h"

#include <string.h>

#define RULE(name)                                                                                 \
    void weft_vjp_##name(weft_graph *g, const weft_node *n, const weft_value *dy,                  \
                         const bool *wanted, weft_value *dx)

static weft_shape shape_of(const weft_graph *g, weft_value v)
{
    return weft_value_ok(v) ? g->value[v.id].shape : WEFT_SCALAR;
}

/* Whether on some axis `out` is split along `dim` and the operand is not. The operand is then
 * broadcast, even if local sizes of 1 do not show it. */
static bool splits_only_result(const weft_graph *g, weft_value out, weft_value operand, int dim)
{
    for (int a = 0; a < g->mesh.axis_count; a++) {
        const weft_layout r = g->value[out.id].layout[a], l = g->value[operand.id].layout[a];
        if (r.kind == WEFT_S && r.dim == dim && !(l.kind == WEFT_S && l.dim == dim))
            return true;
    }
    return false;
}

/* Casts a gradient to the type of its value: operands of different types are computed in the wider
 * type. */
static weft_value as_type_of(weft_graph *g, weft_value grad, weft_value of)
{
    if (!weft_value_ok(grad) || g->value[grad.id].dtype == g->value[of.id].dtype)
        return grad;
    return weft_cast(g, grad, g->value[of.id].dtype);
}

/* Sums over the dims along which operand `i` was broadcast. A shard may have size 1 on this rank
 * only, so the layouts decide, and all ranks get the same nodes. */
static weft_value sum_to(weft_graph *g, weft_value grad, const weft_node *n, int i)
{
    if (!weft_value_ok(grad))
        return grad;
    const weft_shape from = shape_of(g, grad), to = shape_of(g, n->in[i]);
    uint32_t dims = 0;
    for (int d = 0; d < from.rank; d++)
        if (to.dim[d] == 1 && (from.dim[d] != 1 || splits_only_result(g, n->out[0], n->in[i], d)))
            dims |= 1u << d;
    return as_type_of(g, dims ? weft_sum(g, grad, dims) : grad, n->in[i]);
}

static weft_value emit2(weft_graph *g, weft_op op, weft_value a, weft_value b, const void *attr)
{
    return weft_emit(g, op, (weft_value[]){a, b}, 2, attr);
}

RULE(none)
{
    (void)dy, (void)wanted, (void)dx;
    weft_graph_fail(g, WEFT_MSG_PASS_UNSUPPORTED, "%s%s%s has no gradient", n->scope,
                    *n->scope ? ": " : "", weft_op_get(n->op)->name);
}

/* ---- elementwise --------------------------------------------------------------------------- */

RULE(neg)
{
    (void)n, (void)wanted;
    dx[0] = weft_unary(g, WEFT_OP_NEG, dy[0]);
}

RULE(affine)
{
    (void)wanted;
    const double scale = ((const weft_attr_affine *)n->attr)->scale;
    dx[0] = scale == 1 ? dy[0] : weft_affine(g, dy[0], scale, 0);
}

RULE(cast)
{
    (void)wanted;
    dx[0] = weft_cast(g, dy[0], g->value[n->in[0].id].dtype);
}

RULE(exp)
{
    (void)wanted;
    dx[0] = weft_mul(g, dy[0], n->out[0]);
}

RULE(log)
{
    (void)wanted;
    dx[0] = weft_div(g, dy[0], n->in[0]);
}

RULE(sqrt) /* 1 / (2 y) */
{
    (void)wanted;
    dx[0] = weft_affine(g, weft_div(g, dy[0], n->out[0]), 0.5, 0);
}

RULE(rsqrt) /* -y^3 / 2 */
{
    (void)wanted;
    const weft_value cube = weft_mul(g, weft_unary(g, WEFT_OP_SQUARE, n->out[0]), n->out[0]);
    dx[0] = weft_affine(g, weft_mul(g, dy[0], cube), -0.5, 0);
}

RULE(square)
{
    (void)wanted;
    dx[0] = weft_affine(g, weft_mul(g, dy[0], n->in[0]), 2, 0);
}

RULE(sin)
{
    (void)wanted;
    dx[0] = weft_mul(g, dy[0], weft_unary(g, WEFT_OP_COS, n->in[0]));
}

RULE(cos)
{
    (void)wanted;
    dx[0] = weft_unary(g, WEFT_OP_NEG, weft_mul(g, dy[0], weft_unary(g, WEFT_OP_SIN, n->in[0])));
}

RULE(tanh) /* 1 - y^2 */
{
    (void)wanted;
    dx[0] = weft_mul(g, dy[0], weft_affine(g, weft_unary(g, WEFT_OP_SQUARE, n->out[0]), -1, 1));
}

RULE(stop)
{
    (void)g, (void)n, (void)dy, (void)wanted;
    dx[0] = WEFT_NONE;
}

RULE(sigmoid) /* y (1 - y) */
{
    (void)wanted;
    dx[0] = weft_mul(g, dy[0], weft_mul(g, n->out[0], weft_affine(g, n->out[0], -1, 1)));
}

RULE(silu)
{
    (void)wanted;
    dx[0] = emit2(g, WEFT_OP_SILU_GRAD, n->in[0], dy[0], NULL);
}

RULE(gelu)
{
    (void)wanted;
    dx[0] = emit2(g, WEFT_OP_GELU_GRAD, n->in[0], dy[0], n->attr);
}

RULE(clamp)
{
    (void)wanted;
    dx[0] = emit2(g, WEFT_OP_CLAMP_GRAD, n->in[0], dy[0], n->attr);
}

RULE(add)
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = sum_to(g, dy[0], n, i);
}

RULE(sub)
{
    if (wanted[0])
        dx[0] = sum_to(g, dy[0], n, 0);
    if (wanted[1])
        dx[1] = weft_unary(g, WEFT_OP_NEG, sum_to(g, dy[0], n, 1));
}

RULE(mul)
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = sum_to(g, weft_mul(g, dy[0], n->in[1 - i]), n, i);
}

RULE(div) /* da = dy / b; db = -dy y / b */
{
    const weft_value quotient = weft_div(g, dy[0], n->in[1]);
    if (wanted[0])
        dx[0] = sum_to(g, quotient, n, 0);
    if (wanted[1])
        dx[1] = weft_unary(g, WEFT_OP_NEG, sum_to(g, weft_mul(g, quotient, n->out[0]), n, 1));
}

/* ---- reductions and shapes ----------------------------------------------------------------- */

RULE(sum)
{
    (void)wanted;
    dx[0] = weft_broadcast(g, dy[0], shape_of(g, n->in[0]));
}

RULE(broadcast)
{
    (void)wanted;
    dx[0] = sum_to(g, dy[0], n, 0);
}

RULE(reshape)
{
    (void)wanted;
    dx[0] = weft_reshape(g, dy[0], shape_of(g, n->in[0]));
}

RULE(permute)
{
    (void)wanted;
    const weft_attr_permute *a = n->attr;
    int inverse[WEFT_MAX_RANK] = {0};
    for (int i = 0; i < shape_of(g, n->in[0]).rank; i++)
        inverse[a->perm[i]] = i;
    dx[0] = weft_permute(g, dy[0], inverse);
}

RULE(slice)
{
    (void)wanted;
    const weft_attr_slice *a = n->attr;
    dx[0] =
        weft_pad(g, dy[0], a->dim, a->start, shape_of(g, n->in[0]).dim[a->dim] - a->start - a->len);
}

RULE(pad)
{
    (void)wanted;
    const weft_attr_pad *a = n->attr;
    dx[0] = weft_slice(g, dy[0], a->dim, a->before, shape_of(g, n->in[0]).dim[a->dim]);
}

RULE(concat)
{
    const int dim = ((const weft_attr_concat *)n->attr)->dim;
    int64_t start = 0;
    for (int i = 0; i < n->in_count; i++) {
        const int64_t len = shape_of(g, n->in[i]).dim[dim];
        if (wanted[i])
            dx[i] = weft_slice(g, dy[0], dim, start, len);
        start += len;
    }
}

/* ---- contractions -------------------------------------------------------------------------- */

/* Sets the layout after a reshape that merged or removed the dims before the last. A split of the
 * last dim stays one of the last dim; other splits become splits of the rows. */
static weft_value last_stays(weft_graph *g, weft_value v, weft_value from, int last)
{
    const int was_last = shape_of(g, from).rank - 1;
    for (int a = 0; weft_value_ok(v) && v.id != from.id && a < g->mesh.axis_count; a++) {
        const weft_layout l = g->value[from.id].layout[a];
        const bool splits = l.kind == WEFT_S;
        g->value[v.id].layout[a] =
            (weft_layout){l.kind, splits && l.dim == was_last ? (int8_t)last : 0};
    }
    return v;
}

/* Reshapes (..., C) to a matrix (rows, C). */
static weft_value as_rows(weft_graph *g, weft_value v)
{
    const weft_shape s = shape_of(g, v);
    int64_t rows = 1;
    if (s.rank == 2)
        return v;
    for (int i = 0; i < s.rank - 1; i++)
        rows *= s.dim[i];
    return last_stays(g, weft_reshape(g, v, WEFT_SHAPE(rows, s.dim[s.rank - 1])), v, 1);
}

/* Sums over all but the last dim: (C). */
static weft_value sum_rows(weft_graph *g, weft_value v)
{
    const weft_shape s = shape_of(g, v);
    if (s.rank <= 1)
        return v;
    const weft_value sum = weft_sum(g, v, (1u << (s.rank - 1)) - 1);
    return last_stays(g, weft_reshape(g, sum, WEFT_SHAPE(s.dim[s.rank - 1])), sum, 0);
}

static void matmul_rule(weft_graph *g, const weft_node *n, const weft_value *dy, const bool *wanted,
                        weft_value *dx)
{
    const weft_attr_matmul *t = n->attr;
    const weft_value a = n->in[0], b = n->in[1];
    const weft_shape sa = shape_of(g, a), sb = shape_of(g, b);
    if (wanted[0])
        dx[0] = t->trans_a ? weft_matmul(g, b, dy[0], t->trans_b, true)
                           : weft_matmul(g, dy[0], b, false, !t->trans_b);
    if (t->trans_a && wanted[0] && sb.rank != sa.rank) {
        weft_graph_fail(g, WEFT_MSG_PASS_UNSUPPORTED,
                        "matmul: no gradient for a transposed batch against one matrix");
        return;
    }
    if (!wanted[1])
        return;
    if (sb.rank == sa.rank) {
        dx[1] = t->trans_b ? weft_matmul(g, dy[0], a, true, t->trans_a)
                           : weft_matmul(g, a, dy[0], !t->trans_a, false);
        return;
    }
    if (t->trans_a) {
        weft_graph_fail(g, WEFT_MSG_PASS_UNSUPPORTED,
                        "matmul: no gradient for a transposed batch against one matrix");
        return;
    }
    const weft_value rows_a = as_rows(g, a), rows_y = as_rows(g, dy[0]);
    dx[1] = t->trans_b ? weft_matmul(g, rows_y, rows_a, true, false)
                       : weft_matmul(g, rows_a, rows_y, true, false);
}

RULE(matmul)
{
    matmul_rule(g, n, dy, wanted, dx);
    for (int i = 0; i < 2; i++)
        dx[i] = as_type_of(g, dx[i], n->in[i]);
}

RULE(linear)
{
    if (((const weft_attr_linear *)n->attr)->act != WEFT_ACT_NONE) {
        weft_graph_fail(g, WEFT_MSG_PASS_UNSUPPORTED,
                        "%s: linear with a fused activation has no gradient; fuse after autodiff",
                        n->scope);
        return;
    }
    if (wanted[0])
        dx[0] = weft_matmul(g, dy[0], n->in[1], false, false);
    if (wanted[1])
        dx[1] = weft_matmul(g, as_rows(g, dy[0]), as_rows(g, n->in[0]), true, false);
    if (n->in_count > 2 && wanted[2])
        dx[2] = sum_rows(g, dy[0]);
    for (int i = 0; i < n->in_count; i++)
        dx[i] = as_type_of(g, dx[i], n->in[i]);
}

RULE(conv3d)
{
    weft_attr_conv attr = *(const weft_attr_conv *)n->attr;
    const weft_shape w = shape_of(g, n->in[1]);
    attr.x_shape = shape_of(g, n->in[0]);
    for (int i = 0; i < 3; i++)
        attr.kernel[i] = w.dim[2 + i];
    if (wanted[0])
        dx[0] = emit2(g, WEFT_OP_CONV3D_DX, dy[0], n->in[1], &attr);
    if (wanted[1])
        dx[1] = emit2(g, WEFT_OP_CONV3D_DW, n->in[0], dy[0], &attr);
    if (n->in_count > 2 && wanted[2])
        dx[2] = sum_rows(g, dy[0]);
    for (int i = 0; i < n->in_count; i++)
        dx[i] = as_type_of(g, dx[i], n->in[i]);
}

/* A zero gradient with the layout of gradients of `v`. */
static weft_value zero_for(weft_graph *g, weft_value v)
{
    const weft_value_info info = g->value[v.id];
    const weft_value zero = weft_fill(g, info.dtype, info.shape, 0);
    weft_grad_set_layout(g, zero, v);
    return zero;
}

RULE(attention)
{
    const weft_value segments = n->in_count > 3 ? n->in[3] : WEFT_NONE;
    const weft_value dout = weft_value_ok(dy[0]) ? dy[0] : zero_for(g, n->out[0]);
    const weft_value bias = n->in_count > 4 ? n->in[4] : WEFT_NONE;
    const weft_value in[9] = {n->in[0], n->in[1], n->in[2], n->out[0], n->out[1],
                              dout,     segments, dy[1],    bias};
    const int count = weft_value_ok(bias)       ? 9
                      : weft_value_ok(dy[1])    ? 8
                      : weft_value_ok(segments) ? 7
                                                : 6;
    if (weft_value_ok(bias) && wanted[4]) {
        weft_graph_fail(g, WEFT_MSG_PASS_UNSUPPORTED, "attention has no gradient for its bias");
        return;
    }
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_ATTENTION_GRAD, in, count, n->attr, out);
    for (int i = 0; i < 3; i++)
        if (wanted[i])
            dx[i] = out[i];
}

RULE(block_attention) /* the choice of blocks is treated as a constant */
{
    const weft_value in[8] = {n->in[0],  n->in[1],
                              n->in[2],  n->out[0],
                              n->out[1], weft_value_ok(dy[0]) ? dy[0] : zero_for(g, n->out[0]),
                              n->in[3],  dy[1]};
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_BLOCK_ATTENTION_GRAD, in, weft_value_ok(dy[1]) ? 8 : 7, n->attr, out);
    for (int i = 0; i < 3; i++)
        if (wanted[i])
            dx[i] = out[i];
    dx[3] = WEFT_NONE;
}

/* out = wa out_a + wb out_b with wa = e^(lse_a - lse): the gradient of one block needs that block
 * and the result, not the other block. */
RULE(attention_merge)
{
    const weft_value dout = weft_value_ok(dy[0]) ? dy[0] : zero_for(g, n->out[0]);
    for (int part = 0; part < 4; part += 2) {
        if (!wanted[part] && !wanted[part + 1])
            continue;
        const weft_value in[6] = {n->in[part], n->in[part + 1], n->out[0], n->out[1], dout, dy[1]};
        weft_value out[WEFT_MAX_OUTPUTS];
        weft_emit_all(g, WEFT_OP_ATTENTION_MERGE_GRAD, in, weft_value_ok(dy[1]) ? 6 : 5, NULL, out);
        dx[part] = out[0];
        dx[part + 1] = out[1];
    }
}

/* ---- normalisation and modulation ---------------------------------------------------------- */

/* Computes the gradients of x, gamma and beta together. Without gamma, the gradient of beta is a
 * plain sum. */
static void norm_rule(weft_graph *g, weft_op op, const weft_node *n, weft_value dy,
                      const bool *wanted, weft_value *dx)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    const bool affine = n->in_count > 1 && weft_value_ok(n->in[1]);
    weft_emit_all(g, op, (weft_value[]){n->in[0], dy, n->in[1]}, affine ? 3 : 2, n->attr, out);
    for (int i = 0; i < n->in_count; i++)
        dx[i] = as_type_of(g, out[i], n->in[i]);
    if (!affine && n->in_count > 2 && wanted[2])
        dx[2] = as_type_of(g, sum_rows(g, dy), n->in[2]);
}

RULE(layer_norm)
{
    norm_rule(g, WEFT_OP_LAYER_NORM_GRAD, n, dy[0], wanted, dx);
}

RULE(rms_norm)
{
    norm_rule(g, WEFT_OP_RMS_NORM_GRAD, n, dy[0], wanted, dx);
}

RULE(softmax) /* y (dy - sum of dy y) */
{
    (void)wanted;
    const int last = weft_value_get(g, n->out[0])->shape.rank - 1;
    const weft_value along = weft_sum(g, weft_mul(g, dy[0], n->out[0]), 1u << last);
    dx[0] = weft_mul(g, n->out[0], weft_sub(g, dy[0], along));
}

RULE(modulate)
{
    (void)wanted;
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_MODULATE_GRAD, (weft_value[]){n->in[0], n->in[1], dy[0]}, 3, NULL,
                  out);
    for (int i = 0; i < 3; i++)
        dx[i] = as_type_of(g, out[i], n->in[i]);
}

RULE(gated_add)
{
    (void)wanted;
    weft_value out[WEFT_MAX_OUTPUTS];
    weft_emit_all(g, WEFT_OP_GATED_ADD_GRAD, (weft_value[]){n->in[1], n->in[2], dy[0]}, 3, NULL,
                  out);
    dx[0] = dy[0];
    dx[1] = as_type_of(g, out[0], n->in[1]);
    dx[2] = as_type_of(g, out[1], n->in[2]);
}

/* Maps (B,S,H,D) to the sums of its pairs (B,S,H,D/2), or with `rotate` each pair (a, b) to (b,
 * -a). Multiplies with matrices of 0 and 1, so that splits of the other dims stay. */
static weft_value pick_columns(weft_graph *g, weft_value x, const weft_attr_rope *attr, bool rotate)
{
    const int64_t d = shape_of(g, x).dim[3], pairs = d / 2, columns = rotate ? d : pairs;
    float *matrix = weft_calloc(d * columns, sizeof *matrix);
    if (!matrix)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "no memory for the gradient of angles");
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t a = attr->rotate_half ? p : 2 * p, b = attr->rotate_half ? p + pairs : a + 1;
        const float sign = attr->inverse ? -1 : 1;
        if (rotate) {
            matrix[b * columns + a] = sign;
            matrix[a * columns + b] = -sign;
        } else {
            matrix[a * columns + p] = matrix[b * columns + p] = 1;
        }
    }
    const weft_value m = weft_constant(g, WEFT_F32, WEFT_SHAPE(d, columns), matrix);
    weft_free(matrix);
    return weft_matmul(g, x, m, false, false);
}

/* y0 = a c - b s, y1 = a s + b c: dc = a dy0 + b dy1, ds = a dy1 - b dy0. */
static void grad_of_angles(weft_graph *g, const weft_node *n, weft_value dy, weft_value *dx)
{
    const weft_attr_rope *attr = n->attr;
    const weft_value turned = pick_columns(g, dy, attr, true); /* (dy1, -dy0) */
    dx[1] = sum_to(g, pick_columns(g, weft_mul(g, n->in[0], dy), attr, false), n, 1);
    dx[2] = sum_to(g, pick_columns(g, weft_mul(g, n->in[0], turned), attr, false), n, 2);
}

RULE(rope)
{
    weft_attr_rope attr = *(const weft_attr_rope *)n->attr;
    attr.inverse = !attr.inverse;
    if (wanted[0])
        dx[0] = weft_emit(g, WEFT_OP_ROPE, (weft_value[]){dy[0], n->in[1], n->in[2]}, 3, &attr);
    if (!wanted[1] && !wanted[2])
        return;
    if (shape_of(g, n->in[1]).rank == 2)
        weft_graph_fail(g, WEFT_MSG_PASS_UNSUPPORTED,
                        "rope has no gradient for cos and sin (S,D/2); make them (1,S,1,D/2)");
    else
        grad_of_angles(g, n, dy[0], dx);
}

RULE(embed)
{
    (void)wanted;
    const weft_attr_embed attr = {.rows = shape_of(g, n->in[0]).dim[0]};
    dx[0] = as_type_of(g, emit2(g, WEFT_OP_EMBED_GRAD, n->in[1], dy[0], &attr), n->in[0]);
}

/* Linear in dy: each token gets the gradient of its table row. */
RULE(embed_grad)
{
    if (wanted[1])
        dx[1] = emit2(g, WEFT_OP_EMBED, dy[0], n->in[0], NULL);
}

/* ---- experts ------------------------------------------------------------------------------- */

RULE(pick)
{
    (void)wanted;
    const weft_shape x = shape_of(g, n->in[0]);
    const weft_attr_experts attr = {.experts = x.dim[x.rank - 1]};
    dx[0] = emit2(g, WEFT_OP_PICK_GRAD, n->in[1], dy[0], &attr);
}

RULE(pick_grad)
{
    if (wanted[1])
        dx[1] = emit2(g, WEFT_OP_PICK, dy[0], n->in[0], NULL);
}

/* If x has one row per token for all its experts, sums (B,S,k,C) to (B,S,1,C). */
static weft_value sum_of_experts(weft_graph *g, weft_value grad, weft_value of)
{
    const weft_value_info *x = &g->value[of.id];
    if (weft_value_ok(grad) && !weft_shape_equal(&g->value[grad.id].shape, &x->shape))
        grad = weft_sum(g, grad, 1u << 2);
    return as_type_of(g, grad, of);
}

RULE(dispatch)
{
    if (wanted[0])
        dx[0] = sum_of_experts(g, emit2(g, WEFT_OP_COLLECT, dy[0], n->in[1], n->attr), n->in[0]);
}

RULE(collect)
{
    if (wanted[0])
        dx[0] = emit2(g, WEFT_OP_DISPATCH, dy[0], n->in[1], n->attr);
}

RULE(expert_matmul)
{
    weft_attr_expert_matmul attr = *(const weft_attr_expert_matmul *)n->attr;
    const bool trans_b = attr.trans_b;
    attr.trans_b = !trans_b;
    if (wanted[0])
        dx[0] = sum_of_experts(g,
                               weft_emit(g, WEFT_OP_EXPERT_MATMUL,
                                         (weft_value[]){dy[0], n->in[1], n->in[2]}, 3, &attr),
                               n->in[0]);
    attr.trans_b = false;
    attr.experts = shape_of(g, n->in[1]).dim[0];
    const weft_value a = trans_b ? dy[0] : n->in[0], b = trans_b ? n->in[0] : dy[0];
    if (wanted[1])
        dx[1] = as_type_of(
            g, weft_emit(g, WEFT_OP_EXPERT_MATMUL_DW, (weft_value[]){a, b, n->in[2]}, 3, &attr),
            n->in[1]);
}

/* ---- layout conversions: the backward is the inverse conversion ---------------------------- */

static weft_value convert(weft_graph *g, weft_op op, weft_value v, const weft_attr_comm *attr)
{
    return weft_emit(g, op, &v, 1, attr);
}

RULE(vary)
{
    (void)wanted;
    dx[0] = convert(g, WEFT_OP_ALL_REDUCE, dy[0], n->attr);
}

RULE(all_reduce)
{
    (void)wanted;
    dx[0] = convert(g, WEFT_OP_VARY, dy[0], n->attr);
}

RULE(all_gather)
{
    (void)wanted;
    /* The gradient of an R result is the same on all ranks. For a V result each rank has its own
     * term. */
    const bool invariant = ((const weft_attr_comm *)n->attr)->invariant;
    dx[0] = convert(g, invariant ? WEFT_OP_SLICE_OWN : WEFT_OP_REDUCE_SCATTER, dy[0], n->attr);
}

RULE(reduce_scatter)
{
    (void)wanted;
    dx[0] = convert(g, WEFT_OP_ALL_GATHER, dy[0], n->attr);
}

RULE(slice_own)
{
    (void)wanted;
    weft_attr_comm attr = *(const weft_attr_comm *)n->attr;
    attr.invariant = true; /* the gradient of an R value is R */
    dx[0] = convert(g, WEFT_OP_ALL_GATHER, dy[0], &attr);
}

RULE(all_to_all)
{
    (void)wanted;
    const weft_attr_comm *a = n->attr;
    const weft_attr_comm back = {.axis = a->axis,
                                 .dim = a->dim2,
                                 .dim2 = a->dim,
                                 .global = a->global2,
                                 .global2 = a->global};
    dx[0] = convert(g, WEFT_OP_ALL_TO_ALL, dy[0], &back);
}

RULE(ring_shift)
{
    (void)wanted;
    weft_attr_comm back = *(const weft_attr_comm *)n->attr;
    back.held += back.shift;
    back.shift = -back.shift;
    dx[0] = convert(g, WEFT_OP_RING_SHIFT, dy[0], &back);
}
