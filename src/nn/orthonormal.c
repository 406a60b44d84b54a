/* The orthonormal factor of a matrix, by Householder reflections (Golub and Van Loan, Matrix
 * Computations, 5.2). Reflection i moves column i below row i to the first axis:
 *
 *   x = A[i:, i];  v = x + sign(x[0]) ||x|| e1;  A[i:, i+1:] -= v (2 / v'v) (v' A[i:, i+1:])
 *
 * Q is the product of the reflections, applied in reverse to the first N columns of the identity.
 * The last column of a square matrix is not reflected, as in LAPACK. The products are elementwise
 * ops and sums, which no pass computes in fewer bits. */
#include "nn/orthonormal.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

/* (K,N) from row `row` and column `column` on. */
static weft_value below(weft_graph *g, weft_value a, int64_t row, int64_t column)
{
    const weft_value rows = weft_slice(g, a, 0, row, weft_dim(g, a, 0) - row);
    return weft_slice(g, rows, 1, column, weft_dim(g, a, 1) - column);
}

/* 1 or -1, a constant for autodiff. Zero counts as positive. */
static weft_value sign_of(weft_graph *g, weft_value x)
{
    const double huge = 1e38, tiny = 1e-30; /* tiny: only zero becomes another number */
    const weft_value sign = weft_clamp(g, weft_affine(g, x, huge, tiny * huge), -1, 1);
    return weft_unary(g, WEFT_OP_STOP, sign);
}

/* The vector v (K,1) of the reflection that moves column x (K,1) to the first axis. */
static weft_value vector_of(weft_graph *g, weft_value x)
{
    const int64_t rows = weft_dim(g, x, 0);
    const weft_value first = weft_slice(g, x, 0, 0, 1), rest = weft_slice(g, x, 0, 1, rows - 1),
                     norm = weft_unary(g, WEFT_OP_SQRT,
                                       weft_sum(g, weft_unary(g, WEFT_OP_SQUARE, x), 1u << 0)),
                     moved = weft_add(g, first, weft_mul(g, sign_of(g, first), norm));
    return weft_concat(g, (weft_value[]){moved, rest}, 2, 0);
}

/* a (K,N) reflected by v (K,1). */
static weft_value reflect(weft_graph *g, weft_value a, weft_value v)
{
    const weft_value length = weft_sum(g, weft_unary(g, WEFT_OP_SQUARE, v), 1u << 0),
                     along = weft_sum(g, weft_mul(g, v, a), 1u << 0),
                     share = weft_div(g, weft_affine(g, along, 2, 0), length);
    return weft_sub(g, a, weft_mul(g, v, share));
}

weft_value weft_nn_orthonormal(weft_graph *g, weft_value w)
{
    const int64_t rows = weft_dim(g, w, 0), columns = weft_dim(g, w, 1),
                  steps = rows > columns ? columns : columns - 1;
    weft_value *v = weft_arena_calloc(weft_graph_arena(g), columns + 1, sizeof *v);
    if (!weft_value_ok(w) || !v)
        return WEFT_NONE;
    weft_value a = weft_cast(g, w, WEFT_F32); /* what follows the cast stays in f32 */
    for (int64_t i = 0; i < steps; i++) {
        v[i] = vector_of(g, weft_slice(g, a, 1, 0, 1));
        if (i + 1 < columns)
            a = below(g, reflect(g, below(g, a, 0, 1), v[i]), 1, 0);
    }
    const weft_value one = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1), 1);
    weft_value q = WEFT_NONE; /* (rows - i, columns - i): the product of the reflections from i */
    for (int64_t i = columns - 1; i >= 0; i--) {
        weft_value corner = weft_pad(g, one, 0, 0, rows - i - 1);
        if (weft_value_ok(q))
            corner = weft_concat(g, (weft_value[]){corner, weft_pad(g, q, 0, 1, 0)}, 2, 1);
        q = i < steps ? reflect(g, corner, v[i]) : corner;
    }
    return q;
}
