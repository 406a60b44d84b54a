/* Contractions: matmul, linear, convolution, attention. */
#include "kernel/ref/ref.h"

#include <float.h>
#include <math.h>

REF_KERNEL(matmul)
{
    const weft_attr_matmul *attr = args->attr;
    const weft_view *a = &args->in[0], *b = &args->in[1], *out = &args->out[0];
    const int rank = out->shape.rank;
    const int64_t batch = shape_span(&out->shape, 0, rank - 2);
    const int64_t M = out->shape.dim[rank - 2], N = out->shape.dim[rank - 1];
    const int64_t K = a->shape.dim[a->shape.rank - (attr->trans_a ? 2 : 1)];
    const bool shared = b->shape.rank == 2 && rank > 2; /* one b for all samples */
    for (int64_t g = 0; g < batch; g++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++) {
                double sum = 0;
                for (int64_t k = 0; k < K; k++) {
                    const int64_t ia = g * M * K + (attr->trans_a ? k * M + m : m * K + k);
                    const int64_t ib =
                        (shared ? 0 : g * K * N) + (attr->trans_b ? n * K + k : k * N + n);
                    sum += ref_operand(a, ia, attr->tf32) * ref_operand(b, ib, attr->tf32);
                }
                view_set(out, (g * M + m) * N + n, sum);
            }
    return WEFT_OK;
}

/* Element i of x, times the factor of its channel. The arithmetic is f32, so that every backend
 * rounds alike. */
static float smoothed(const weft_view *x, const weft_view *factor, int64_t i)
{
    const float v = (float)view_get(x, i);
    return factor ? v * (float)view_get(factor, i % view_last(x)) : v;
}

/* Rounds elements [0, count) of x, from `first` on, to at most 127 times a unit.
 * Returns the unit. */
static double round_block(const weft_view *x, const weft_view *factor, int64_t first, int64_t count,
                          double *q)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++) {
        const float v = fabsf(smoothed(x, factor, first + i));
        if (!(v <= FLT_MAX))
            return NAN;
        most = v > most ? v : most;
    }
    const float inverse = most > WEFT_INT8_LEAST ? 127 / most : 0;
    for (int64_t i = 0; i < count; i++)
        q[i] = (double)rintf(smoothed(x, factor, first + i) * inverse);
    return (double)(most > WEFT_INT8_LEAST ? most / 127 : 0);
}

/* Weights of int8: f64 copies of the rounded x and of w, (rows, K) each. */
static int64_t linear_workspace(const weft_kernel_args *args)
{
    const weft_view *x = &args->in[0], *w = &args->in[1];
    return weft_int8_elements(w->dtype, &w->shape)
               ? (view_count(x) + w->shape.dim[0] * view_last(x)) * 8
               : 0;
}

static void round_operands(const weft_kernel_args *args, double *x, double *w)
{
    const weft_view *from = &args->in[0], *blocks = &args->in[1],
                    *factor =
                        args->in_count > 3 && view_present(&args->in[3]) ? &args->in[3] : NULL;
    const int64_t elements = weft_int8_elements(blocks->dtype, &blocks->shape),
                  count = view_count(from), weights = blocks->shape.dim[0] * view_last(from);
    for (int64_t i = 0; i < count; i += elements) {
        const double unit = round_block(from, factor, i, elements, x + i);
        for (int64_t k = 0; k < elements; k++)
            x[i + k] = isnan(unit) ? unit : x[i + k] * unit;
    }
    for (int64_t i = 0; i < weights; i++) {
        const unsigned char *block =
            (const unsigned char *)blocks->data + i / elements * (2 + elements);
        w[i] = (double)weft_f16_to_f32((uint16_t)(block[0] | block[1] << 8)) *
               (int8_t)block[2 + i % elements];
    }
}

REF_KERNEL_WITH(linear, .workspace = linear_workspace)
{
    if (weft_int8_elements(args->in[1].dtype, &args->in[1].shape)) {
        double *x = args->workspace, *w = x + view_count(&args->in[0]);
        weft_view in[3] = {args->in[0], args->in[1]};
        weft_kernel_args rounded = *args;
        round_operands(args, x, w);
        if (args->in_count > 2)
            in[2] = args->in[2];
        in[0].data = x;
        in[1].data = w;
        in[0].dtype = in[1].dtype = WEFT_F64;
        in[1].shape.rank = 2;
        in[1].shape.dim[1] = view_last(&args->in[0]);
        rounded.in = in;
        return linear_kernel(&rounded);
    }
    const weft_attr_linear *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1], *out = &args->out[0];
    const weft_view *bias = args->in_count > 2 && view_present(&args->in[2]) ? &args->in[2] : NULL;
    const int64_t N = w->shape.dim[0], K = w->shape.dim[1];
    const int64_t M = shape_span(&x->shape, 0, x->shape.rank - 1);
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = bias ? view_get(bias, n) : 0;
            for (int64_t k = 0; k < K; k++)
                sum +=
                    ref_operand(x, m * K + k, attr->tf32) * ref_operand(w, n * K + k, attr->tf32);
            if (attr->act == WEFT_ACT_SILU)
                sum = sum / (1 + exp(-sum));
            else if (attr->act == WEFT_ACT_GELU_TANH)
                sum = 0.5 * sum *
                      (1 + tanh(0.79788456080286535588 * (sum + 0.044715 * sum * sum * sum)));
            view_set(out, m * N + n, sum);
        }
    return WEFT_OK;
}

/* ---- convolution --------------------------------------------------------------------------- */

/* Shapes of a convolution: input (B,T,Y,X,I), output (B,..,O), kernel k. `visit` is called for
 * every output position and tap, for the products y[b,t,y,x,o] += x[b,it,iy,ix,i] w[o,i,kt,ky,kx]
 * of all their channels. */
typedef struct conv_geometry {
    const weft_attr_conv *attr;
    const weft_shape *x, *y;
    int64_t k[3];
} conv_geometry;

/* Returns the input index along dim d that output index `y` reads under tap `k`; -1: padding. */
static int64_t conv_in_index(const conv_geometry *c, int d, int64_t y, int64_t k)
{
    const int64_t in_index = y * c->attr->stride[d] + k - c->attr->before[d];
    return in_index < c->x->dim[1 + d] ? in_index : -1;
}

/* Returns the first input element of all channels for output position (b, p[3]) and tap k[3]; -1:
 * padding. */
static int64_t conv_input(const conv_geometry *c, int64_t b, const int64_t p[3], const int64_t k[3])
{
    int64_t offset = b;
    for (int d = 0; d < 3; d++) {
        const int64_t in_index = conv_in_index(c, d, p[d], k[d]);
        if (in_index < 0)
            return -1;
        offset = offset * c->x->dim[1 + d] + in_index;
    }
    return offset * c->x->dim[4];
}

/* A tap of an output position: element offsets of the first channel in x, w and y, and the counts
 * of channels and taps. Weight (o, i) is w + (o * I + i) * taps. */
typedef struct conv_tap {
    int64_t x, w, y, I, O, taps;
} conv_tap;

static double conv_operand(const weft_kernel_args *args, int i, int64_t at)
{
    return ref_operand(&args->in[i], at, ((const weft_attr_conv *)args->attr)->tf32);
}

typedef void conv_visit(const weft_kernel_args *args, const conv_tap *t);

static void conv_each(const weft_kernel_args *args, const conv_geometry *c, conv_visit *visit)
{
    const int64_t I = c->x->dim[4], O = c->y->dim[4], taps = c->k[0] * c->k[1] * c->k[2];
    const int64_t positions = shape_span(c->y, 0, 4);
    int64_t p[WEFT_MAX_RANK] = {0}; /* b, t, y, x */
    const weft_shape grid = {4, {c->y->dim[0], c->y->dim[1], c->y->dim[2], c->y->dim[3]}};
    for (int64_t at = 0; at < positions; at++, shape_next(&grid, p))
        for (int64_t tap = 0; tap < taps; tap++) {
            const int64_t k[3] = {tap / (c->k[1] * c->k[2]), tap / c->k[2] % c->k[1],
                                  tap % c->k[2]};
            const int64_t from = conv_input(c, p[0], p + 1, k);
            if (from < 0)
                continue;
            visit(args, &(conv_tap){from, tap, at * O, I, O, taps});
        }
}

static void accumulate(const weft_view *v, int64_t i, double value)
{
    view_set(v, i, view_get(v, i) + value);
}

static void visit_forward(const weft_kernel_args *args, const conv_tap *t)
{
    for (int64_t o = 0; o < t->O; o++) {
        double sum = 0;
        for (int64_t i = 0; i < t->I; i++)
            sum += conv_operand(args, 0, t->x + i) *
                   conv_operand(args, 1, t->w + (o * t->I + i) * t->taps);
        accumulate(&args->out[0], t->y + o, sum);
    }
}

static void visit_dx(const weft_kernel_args *args, const conv_tap *t)
{
    for (int64_t i = 0; i < t->I; i++) {
        double sum = 0;
        for (int64_t o = 0; o < t->O; o++)
            sum += conv_operand(args, 0, t->y + o) *
                   conv_operand(args, 1, t->w + (o * t->I + i) * t->taps);
        accumulate(&args->out[0], t->x + i, sum);
    }
}

static void visit_dw(const weft_kernel_args *args, const conv_tap *t)
{
    for (int64_t o = 0; o < t->O; o++)
        for (int64_t i = 0; i < t->I; i++)
            accumulate(&args->out[0], t->w + (o * t->I + i) * t->taps,
                       conv_operand(args, 0, t->x + i) * conv_operand(args, 1, t->y + o));
}

REF_KERNEL(conv3d)
{
    const weft_shape *w = &args->in[1].shape;
    const weft_view *out = &args->out[0];
    const weft_view *bias = args->in_count > 2 && view_present(&args->in[2]) ? &args->in[2] : NULL;
    const int64_t count = view_count(out), O = w->dim[0];
    for (int64_t i = 0; i < count; i++)
        view_set(out, i, bias ? view_get(bias, i % O) : 0);
    const conv_geometry geometry = {
        args->attr, &args->in[0].shape, &out->shape, {w->dim[2], w->dim[3], w->dim[4]}};
    conv_each(args, &geometry, visit_forward);
    return WEFT_OK;
}

/* Computes dx from dy and w. */
REF_KERNEL(conv3d_dx)
{
    const weft_shape *w = &args->in[1].shape;
    const weft_view *out = &args->out[0];
    const int64_t count = view_count(out);
    for (int64_t i = 0; i < count; i++)
        view_set(out, i, 0);
    const conv_geometry geometry = {
        args->attr, &out->shape, &args->in[0].shape, {w->dim[2], w->dim[3], w->dim[4]}};
    conv_each(args, &geometry, visit_dx);
    return WEFT_OK;
}

/* Computes dw from x and dy. */
REF_KERNEL(conv3d_dw)
{
    const weft_view *out = &args->out[0];
    const weft_shape *w = &out->shape;
    const int64_t count = view_count(out);
    for (int64_t i = 0; i < count; i++)
        view_set(out, i, 0);
    const conv_geometry geometry = {
        args->attr, &args->in[0].shape, &args->in[1].shape, {w->dim[2], w->dim[3], w->dim[4]}};
    conv_each(args, &geometry, visit_dw);
    return WEFT_OK;
}

/* ---- attention ----------------------------------------------------------------------------- */

/* A run of queries and its run of keys. Positions are rows of the flattened (B*S, H, D). */
typedef struct segment {
    int64_t q0, q1, k0, k1;
} segment;

static int64_t segment_count(const weft_view *q, const weft_view *segments)
{
    return segments ? view_count(segments) / 4 : q->shape.dim[0];
}

static segment segment_at(const weft_view *q, const weft_view *k, const weft_view *segments,
                          int64_t n)
{
    const int64_t sq = q->shape.dim[1], sk = k->shape.dim[1],
                  item = segments && segments->shape.rank == 3 ? n / segments->shape.dim[1] : 0,
                  q0 = item * sq, k0 = item * sk;
    if (segments)
        return (segment){q0 + view_get_int(segments, n * 4), q0 + view_get_int(segments, n * 4 + 1),
                         k0 + view_get_int(segments, n * 4 + 2),
                         k0 + view_get_int(segments, n * 4 + 3)};
    return (segment){n * sq, (n + 1) * sq, n * sk, (n + 1) * sk};
}

static weft_status_code segment_check(const segment *s, int64_t q_rows, int64_t k_rows, int64_t n)
{
    if (s->q0 < 0 || s->q0 > s->q1 || s->q1 > q_rows || s->k0 < 0 || s->k0 > s->k1 ||
        s->k1 > k_rows)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(n)),
                          "attention: segment %" PRId64 " {%" PRId64 ", %" PRId64 ", %" PRId64
                          ", %" PRId64 "} is outside %" PRId64 " "
                          "queries and %" PRId64 " keys",
                          n, s->q0, s->q1, s->k0, s->k1, q_rows, k_rows);
    return WEFT_OK;
}

/* Returns the number of keys that query i of a segment sees: a prefix. */
static int64_t visible_keys(const segment *s, int64_t i, bool causal)
{
    const int64_t nq = s->q1 - s->q0, nk = s->k1 - s->k0;
    if (!causal)
        return nk;
    const int64_t n = i + (nk - nq) + 1;
    return n < 0 ? 0 : n > nk ? nk : n;
}

/* Returns the element of q, k, v or out at a row of the flattened sequence, a head and a
 * channel. */
static int64_t at(const weft_view *v, int64_t row, int64_t head, int64_t d)
{
    return (row * v->shape.dim[2] + head) * v->shape.dim[3] + d;
}

static int64_t lse_at(const weft_view *q, int64_t row, int64_t head)
{
    const int64_t sq = q->shape.dim[1], heads = q->shape.dim[2];
    return (row / sq * heads + head) * sq + row % sq;
}

static double dot(const weft_view *a, int64_t ia, const weft_view *b, int64_t ib, int64_t n,
                  bool tf32)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++)
        sum += ref_operand(a, ia + d, tf32) * ref_operand(b, ib + d, tf32);
    return sum;
}

static int64_t attention_workspace(const weft_kernel_args *args)
{
    const weft_shape *k = &args->in[1].shape;
    return k->dim[0] * k->dim[1] * 8; /* the scores of one query */
}

REF_KERNEL_WITH(attention, .workspace = attention_workspace)
{
    const weft_attr_attention *attr = args->attr;
    const weft_view *q = &args->in[0], *k = &args->in[1], *v = &args->in[2];
    const weft_view *segments =
        args->in_count > 3 && view_present(&args->in[3]) ? &args->in[3] : NULL;
    const weft_view *bias = args->in_count > 4 && view_present(&args->in[4]) ? &args->in[4] : NULL;
    const weft_view *out = &args->out[0], *lse = &args->out[1];
    const int64_t heads = q->shape.dim[2], D = q->shape.dim[3];
    const bool tf32 = attr->tf32;
    double *p = args->workspace;
    for (int64_t i = 0, n = view_count(out); i < n; i++)
        view_set(out, i, 0);
    for (int64_t i = 0, n = view_count(lse); i < n; i++)
        view_set(lse, i, -INFINITY); /* a query without visible keys */
    for (int64_t g = 0; g < segment_count(q, segments); g++) {
        const segment s = segment_at(q, k, segments, g);
        WEFT_TRY(segment_check(&s, shape_span(&q->shape, 0, 2), shape_span(&k->shape, 0, 2), g));
        for (int64_t i = s.q0; i < s.q1; i++)
            for (int64_t h = 0; h < heads; h++) {
                const int64_t keys = visible_keys(&s, i - s.q0, attr->causal);
                if (keys == 0)
                    continue;
                double most = -INFINITY, sum = 0;
                for (int64_t j = 0; j < keys; j++) {
                    p[j] = attr->scale * dot(q, at(q, i, h, 0), k, at(k, s.k0 + j, h, 0), D, tf32) +
                           (bias ? view_get(bias, s.k0 + j) : 0);
                    most = fmax(most, p[j]);
                }
                for (int64_t j = 0; j < keys; j++)
                    sum += p[j] = exp(p[j] - most);
                for (int64_t d = 0; d < D; d++) {
                    double o = 0;
                    for (int64_t j = 0; j < keys; j++)
                        o += (tf32 ? ref_tf32(p[j]) : p[j]) *
                             ref_operand(v, at(v, s.k0 + j, h, d), tf32);
                    view_set(out, at(out, i, h, d), o / sum);
                }
                view_set(lse, lse_at(q, i, h), most + log(sum));
            }
    }
    return WEFT_OK;
}

/* Gradients of attention. P = softmax(S) with S = scale q k^T is recomputed from the log-sum-exp:
 *
 *   dv = P^T dout; dP = dout v^T; dS = P (dP - sum_d dout out + dlse);
 *   dq = scale dS k; dk = scale dS^T q */
REF_KERNEL(attention_grad)
{
    const weft_attr_attention *attr = args->attr;
    const weft_view *q = &args->in[0], *k = &args->in[1], *v = &args->in[2], *out = &args->in[3];
    const weft_view *lse = &args->in[4], *dout = &args->in[5];
    const weft_view *segments =
        args->in_count > 6 && view_present(&args->in[6]) ? &args->in[6] : NULL;
    const weft_view *dlse = args->in_count > 7 && view_present(&args->in[7]) ? &args->in[7] : NULL;
    const weft_view *bias = args->in_count > 8 && view_present(&args->in[8]) ? &args->in[8] : NULL;
    const weft_view *dq = &args->out[0], *dk = &args->out[1], *dv = &args->out[2];
    const int64_t heads = q->shape.dim[2], D = q->shape.dim[3];
    const bool tf32 = attr->tf32;
    for (int o = 0; o < 3; o++)
        for (int64_t i = 0, n = view_count(&args->out[o]); i < n; i++)
            view_set(&args->out[o], i, 0);
    for (int64_t g = 0; g < segment_count(q, segments); g++) {
        const segment s = segment_at(q, k, segments, g);
        WEFT_TRY(segment_check(&s, shape_span(&q->shape, 0, 2), shape_span(&k->shape, 0, 2), g));
        for (int64_t i = s.q0; i < s.q1; i++)
            for (int64_t h = 0; h < heads; h++) {
                const int64_t keys = visible_keys(&s, i - s.q0, attr->causal), qi = at(q, i, h, 0);
                const double delta =
                    dot(out, qi, dout, qi, D, false) - (dlse ? view_get(dlse, lse_at(q, i, h)) : 0);
                for (int64_t j = s.k0; j < s.k0 + keys; j++) {
                    const int64_t kj = at(k, j, h, 0);
                    double p = exp(attr->scale * dot(q, qi, k, kj, D, tf32) +
                                   (bias ? view_get(bias, j) : 0) - view_get(lse, lse_at(q, i, h)));
                    double ds = p * (dot(dout, qi, v, kj, D, tf32) - delta);
                    p = tf32 ? ref_tf32(p) : p;
                    ds = attr->scale * (tf32 ? ref_tf32(ds) : ds);
                    for (int64_t d = 0; d < D; d++) {
                        accumulate(dv, kj + d, p * ref_operand(dout, qi + d, tf32));
                        accumulate(dq, qi + d, ds * ref_operand(k, kj + d, tf32));
                        accumulate(dk, kj + d, ds * ref_operand(q, qi + d, tf32));
                    }
                }
            }
    }
    return WEFT_OK;
}

/* Returns whether query i of a batch item and a head attends to key j. */
static bool is_chosen(const weft_view *chosen, const int64_t tokens[2], int64_t item, int64_t head,
                      int64_t i, int64_t j)
{
    const int64_t *dim = chosen->shape.dim, m = i / (tokens[0] / dim[2]),
                  n = j / (tokens[1] / dim[3]);
    return view_get(chosen, ((item * dim[1] + head) * dim[2] + m) * dim[3] + n) > 0;
}

/* Computes row i of B*Sq queries in head h. p: space for the scores. */
static void block_attention_row(const weft_kernel_args *args, int64_t i, int64_t h, double *p)
{
    const weft_view *q = &args->in[0], *k = &args->in[1], *v = &args->in[2];
    const weft_attr_attention *attr = args->attr;
    const int64_t tokens[2] = {q->shape.dim[1], k->shape.dim[1]}, D = q->shape.dim[3],
                  item = i / tokens[0], k0 = item * tokens[1];
    const bool tf32 = attr->tf32;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < tokens[1]; j++) {
        const bool chosen = is_chosen(&args->in[3], tokens, item, h, i % tokens[0], j);
        p[j] = chosen ? attr->scale * dot(q, at(q, i, h, 0), k, at(k, k0 + j, h, 0), D, tf32)
                      : -INFINITY;
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < tokens[1]; j++)
        sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
    for (int64_t d = 0; d < D; d++) {
        double o = 0;
        for (int64_t j = 0; j < tokens[1]; j++)
            o += p[j] == 0
                     ? 0
                     : (tf32 ? ref_tf32(p[j]) : p[j]) * ref_operand(v, at(v, k0 + j, h, d), tf32);
        view_set(&args->out[0], at(q, i, h, d), sum == 0 ? 0 : o / sum);
    }
    view_set(&args->out[1], lse_at(q, i, h), most + log(sum));
}

REF_KERNEL_WITH(block_attention, .workspace = attention_workspace)
{
    const weft_shape *q = &args->in[0].shape;
    for (int64_t i = 0; i < q->dim[0] * q->dim[1]; i++)
        for (int64_t h = 0; h < q->dim[2]; h++)
            block_attention_row(args, i, h, args->workspace);
    return WEFT_OK;
}

/* Adds the gradients of row i of the queries, as attention_grad does, from its chosen keys. */
static void block_gradient(const weft_kernel_args *args, int64_t i, int64_t h)
{
    const weft_view *q = &args->in[0], *k = &args->in[1], *v = &args->in[2], *dout = &args->in[5];
    const weft_view *dlse = args->in_count > 7 && view_present(&args->in[7]) ? &args->in[7] : NULL;
    const weft_attr_attention *attr = args->attr;
    const double scale = attr->scale;
    const bool tf32 = attr->tf32;
    const int64_t tokens[2] = {q->shape.dim[1], k->shape.dim[1]}, D = q->shape.dim[3],
                  item = i / tokens[0], qi = at(q, i, h, 0), row = lse_at(q, i, h);
    const double delta =
        dot(&args->in[3], qi, dout, qi, D, false) - (dlse ? view_get(dlse, row) : 0);
    for (int64_t j = 0; j < tokens[1]; j++) {
        if (!is_chosen(&args->in[6], tokens, item, h, i % tokens[0], j))
            continue;
        const int64_t kj = at(k, item * tokens[1] + j, h, 0);
        double p = exp(scale * dot(q, qi, k, kj, D, tf32) - view_get(&args->in[4], row)),
               ds = p * (dot(dout, qi, v, kj, D, tf32) - delta);
        p = tf32 ? ref_tf32(p) : p;
        ds = scale * (tf32 ? ref_tf32(ds) : ds);
        for (int64_t d = 0; d < D; d++) {
            accumulate(&args->out[0], qi + d, ds * ref_operand(k, kj + d, tf32));
            accumulate(&args->out[1], kj + d, ds * ref_operand(q, qi + d, tf32));
            accumulate(&args->out[2], kj + d, p * ref_operand(dout, qi + d, tf32));
        }
    }
}

REF_KERNEL(block_attention_grad)
{
    const weft_shape *q = &args->in[0].shape;
    for (int o = 0; o < 3; o++)
        for (int64_t i = 0, n = view_count(&args->out[o]); i < n; i++)
            view_set(&args->out[o], i, 0);
    for (int64_t i = 0; i < q->dim[0] * q->dim[1]; i++)
        for (int64_t h = 0; h < q->dim[2]; h++)
            block_gradient(args, i, h);
    return WEFT_OK;
}

/* Sums in ascending order, so that kernels with the same order have the same sums. */
REF_KERNEL(top_p)
{
    const double least = 1 - ((const weft_attr_top_p *)args->attr)->mass;
    const weft_view *x = &args->in[0];
    const int64_t n = view_last(x), rows = n ? view_count(x) / n : 0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        int64_t last = -1;
        for (int64_t e = 0; e < n; e++)
            view_set(&args->out[0], r * n + e, 0); /* NaN is neither summed nor chosen */
        for (int64_t step = 0; step < n; step++) { /* the next element in ascending order */
            int64_t next = -1;
            for (int64_t e = 0; e < n; e++) {
                const double own = view_get(x, r * n + e),
                             before = last < 0 ? -INFINITY : view_get(x, r * n + last);
                const bool after = last < 0 || own > before || (own == before && e > last);
                if (!isnan(own) && after && (next < 0 || own < view_get(x, r * n + next)))
                    next = e;
            }
            if (next < 0)
                break;
            sum += view_get(x, r * n + next);
            view_set(&args->out[0], r * n + next, sum >= least);
            last = next;
        }
    }
    return WEFT_OK;
}

/* Returns whether element e of a row comes before element d: it is larger, or equal and earlier. */
static bool comes_before(const weft_view *x, int64_t e, int64_t d)
{
    const double own = view_get(x, e), other = view_get(x, d);
    return own > other || (own == other && e < d);
}

REF_KERNEL(top_share)
{
    const double share = ((const weft_attr_top_share *)args->attr)->share;
    const weft_view *x = &args->in[0];
    const int64_t n = view_last(x), rows = n ? view_count(x) / n : 0;
    for (int64_t first = 0; first < rows * n; first += n) {
        int64_t seen = 0;
        for (int64_t e = first; e < first + n; e++)
            seen += view_get(x, e) >= -1e29;
        const double count = fmax(1, floor(share * (double)seen));
        for (int64_t e = first; e < first + n; e++) {
            int64_t before = 0;
            for (int64_t d = first; d < first + n; d++)
                before += comes_before(x, d, e);
            view_set(&args->out[0], e, view_get(x, e) >= -1e29 && (double)before < count);
        }
    }
    return WEFT_OK;
}

/* Returns the weight of a part with log-sum-exp `part` in the merged row; 0 if no part sees a
 * key. */
static double share(double part, double whole)
{
    return whole == -INFINITY ? 0 : exp(part - whole);
}

/* The weights are normalised to add up to 1. As e^(lse_part - lse) their sum would be off by a
 * rounding of lse. Gradients that are nearly 0, of a query that sees one key, would have the same
 * error. */
REF_KERNEL(attention_merge)
{
    const weft_view *a = &args->in[0], *lse_a = &args->in[1], *b = &args->in[2],
                    *lse_b = &args->in[3];
    const int64_t rows = shape_span(&a->shape, 0, 2), heads = a->shape.dim[2], D = a->shape.dim[3];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t at_lse = lse_at(a, i, h);
            const double la = view_get(lse_a, at_lse), lb = view_get(lse_b, at_lse);
            const double most = fmax(la, lb);
            double wa = share(la, most), wb = share(lb, most);
            const double sum = wa + wb, lse = most == -INFINITY ? most : most + log(sum);
            wa /= sum > 0 ? sum : 1;
            wb /= sum > 0 ? sum : 1;
            for (int64_t d = 0; d < D; d++) {
                const int64_t e = at(a, i, h, d);
                view_set(&args->out[0], e, wa * view_get(a, e) + wb * view_get(b, e));
            }
            view_set(&args->out[1], at_lse, lse);
        }
    return WEFT_OK;
}

/* w = e^(lse_part - lse): dout_part = w dout,
 *                         dlse_part = w (sum_d dout (out_part - out) + dlse). */
REF_KERNEL(attention_merge_grad)
{
    const weft_view *part = &args->in[0], *out = &args->in[2], *dout = &args->in[4];
    const weft_view *dlse = args->in_count > 5 && view_present(&args->in[5]) ? &args->in[5] : NULL;
    const int64_t rows = shape_span(&part->shape, 0, 2), heads = part->shape.dim[2],
                  D = part->shape.dim[3];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t e = at(part, i, h, 0), at_lse = lse_at(part, i, h);
            const double w = share(view_get(&args->in[1], at_lse), view_get(&args->in[3], at_lse));
            double slope = dlse ? view_get(dlse, at_lse) : 0;
            for (int64_t d = 0; d < D; d++)
                slope += view_get(dout, e + d) * (view_get(part, e + d) - view_get(out, e + d));
            for (int64_t d = 0; d < D; d++)
                view_set(&args->out[0], e + d, w * view_get(dout, e + d));
            view_set(&args->out[1], at_lse, w * slope);
        }
    return WEFT_OK;
}
