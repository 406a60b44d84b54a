/* Norms over the last dim, their gradients, softmax. A row is computed by a warp up to 4,096
 * columns, else by a block. It is read again from the first-level cache for every pass over it. */
#include "kernel/cuda/kernels/simt.h"

/* The threads of a row: index, number, and the row. */
typedef struct team {
    int64_t row;
    int32_t index, size, by_warp;
} team;

DEV team own_team(int by_warp, int64_t block)
{
    team t;
    t.by_warp = by_warp;
    t.row = by_warp ? block * (NORM_THREADS / 32) + THREAD(0) / 32 : block;
    t.index = (int32_t)(by_warp ? LANE : THREAD(0));
    t.size = by_warp ? 32 : NORM_THREADS;
    return t;
}

DEV float team_sum(team t, float x, float *shared)
{
    return t.by_warp ? warp_sum(x) : block_sum(x, shared);
}

DEV float team_max(team t, float x, float *shared)
{
    return t.by_warp ? warp_max(x) : block_max(x, shared);
}

/* Eight elements, or the one at i. */
DEV void load_some(float v[8], tensor_ref t, int64_t i, int vector)
{
    if (vector) {
        load_eight(v, t, i);
        return;
    }
    v[0] = load_float(t, i);
    UNROLL
    for (int k = 1; k < 8; k++)
        v[k] = 0;
}

DEV void store_some(tensor_ref t, int64_t i, const float v[8], int vector)
{
    if (vector)
        store_eight(t, i, v);
    else
        store_float(t, i, v[0]);
}

/* Runs the statement for each c of the thread: the columns c, or c to c + 7. */
#define EACH_COLUMN(t, a)                                                                          \
    for (int64_t c = (a.vector ? 8 : 1) * (t).index; c < a.columns;                                \
         c += (a.vector ? 8 : 1) * (t).size)
#define EACH_ELEMENT(k, a)                                                                         \
    UNROLL                                                                                         \
    for (int k = 0; k < 8; k++)                                                                    \
        if (k == 0 || a.vector)

/* y = (x - shift - mean) scale gamma + beta. `mean` belongs to x - shift, where the shift is
 * the row's first element: sums about 0 would cancel where the mean is far from 0. */
typedef struct statistics {
    float shift, mean, scale;
    float slope; /* rms: derivative of the scale by x, over x */
} statistics;

DEV statistics row_statistics(team t, tensor_ref x, const norm_args a, float *shared)
{
    const float columns = (float)a.columns;
    const int64_t at = t.row * a.columns;
    statistics s = {0, 0, 0, 0};
    float sum = 0, square = 0;
    if (a.kind == NORM_LAYER) {
        s.shift = load_float(x, at);
        EACH_COLUMN(t, a)
        {
            float v[8];
            load_some(v, x, at + c, a.vector);
            EACH_ELEMENT(k, a)
            sum += v[k] - s.shift;
        }
        s.mean = team_sum(t, sum, shared) / columns;
    }
    EACH_COLUMN(t, a)
    {
        float v[8];
        load_some(v, x, at + c, a.vector);
        EACH_ELEMENT(k, a)
        {
            const float d = v[k] - s.shift - s.mean;
            square = f_fma(d, d, square);
        }
    }
    square = team_sum(t, square, shared);
    if (a.kind == NORM_L2) {
        const float norm = f_sqrt(square);
        s.scale = f_sqrt(columns) / (norm > a.eps ? norm : a.eps);
        s.slope = norm > a.eps ? -s.scale / square : 0.0f;
    } else {
        s.scale = 1.0f / f_sqrt(square / columns + a.eps);
        s.slope = -s.scale * s.scale * s.scale / columns;
    }
    return s;
}

WEFT_KERNEL_LISTED(weft_norm, norm_args, NORM_THREADS)
{
    WEFT_SHARED(float, shared, 32);
    const team t = own_team(a.by_warp, block.x);
    if (t.row >= a.rows)
        return;
    const int64_t at = t.row * a.columns;
    const statistics s = row_statistics(t, a.x, a, shared);
    EACH_COLUMN(t, a)
    {
        float v[8], g[8], b[8];
        load_some(v, a.x, at + c, a.vector);
        if (a.gamma.data)
            load_some(g, a.gamma, c, a.vector);
        if (a.beta.data)
            load_some(b, a.beta, c, a.vector);
        UNROLL
        for (int k = 0; k < 8; k++) {
            v[k] = (v[k] - s.shift - s.mean) * s.scale;
            v[k] = a.gamma.data ? v[k] * g[k] : v[k];
            v[k] = a.beta.data ? v[k] + b[k] : v[k];
        }
        store_some(a.out, at + c, v, a.vector);
    }
}

/* Gradients. h = (x - mean) scale, g = dy gamma:
 *
 *   layer norm   dx = scale (g - mean(g) - h mean(g h))
 *   rms norm     dx = scale g + slope x sum(g x) */
WEFT_KERNEL_LISTED_BLOCKS(weft_norm_grad, norm_grad_args, NORM_THREADS, 2)
{
    WEFT_SHARED(float, shared, 32);
    const team t = own_team(a.by_warp, block.x);
    if (t.row >= a.rows)
        return;
    const int64_t at = t.row * a.columns;
    const norm_args n = {a.x,       a.gamma, {NULL, 0}, a.dx,     a.rows,
                         a.columns, a.eps,   a.kind,    a.vector, a.by_warp};
    const statistics s = row_statistics(t, a.x, n, shared);
    float sum_g = 0, sum_gx = 0;
    EACH_COLUMN(t, a)
    {
        float x[8], d[8], g[8];
        load_some(x, a.x, at + c, a.vector);
        load_some(d, a.dy, at + c, a.vector);
        if (a.gamma.data)
            load_some(g, a.gamma, c, a.vector);
        EACH_ELEMENT(k, a)
        {
            const float gk = a.gamma.data ? d[k] * g[k] : d[k];
            sum_g += gk;
            sum_gx = f_fma(gk, x[k] - s.shift - s.mean, sum_gx);
        }
    }
    const int layer = a.kind == NORM_LAYER;
    sum_g = team_sum(t, layer ? sum_g : 0.0f, shared) / (float)a.columns;
    sum_gx = team_sum(t, sum_gx, shared);
    const float along =
        layer ? -s.scale * s.scale * s.scale * sum_gx / (float)a.columns : s.slope * sum_gx;
    EACH_COLUMN(t, a)
    {
        float x[8], d[8], g[8];
        load_some(x, a.x, at + c, a.vector);
        load_some(d, a.dy, at + c, a.vector);
        if (a.gamma.data)
            load_some(g, a.gamma, c, a.vector);
        UNROLL
        for (int k = 0; k < 8; k++) {
            const float gk = a.gamma.data ? d[k] * g[k] : d[k];
            d[k] = f_fma(along, x[k] - s.shift - s.mean, s.scale * (gk - sum_g));
        }
        store_some(a.dx, at + c, d, a.vector);
    }
    if (a.statistics && t.index == 0) {
        a.statistics[4 * t.row] = s.shift;
        a.statistics[4 * t.row + 1] = s.mean;
        a.statistics[4 * t.row + 2] = s.scale;
    }
}

WEFT_KERNEL(weft_softmax, norm_args, NORM_THREADS)
{
    WEFT_SHARED(float, shared, 32);
    const team t = own_team(a.by_warp, BLOCK(0));
    if (t.row >= a.rows)
        return;
    const int64_t at = t.row * a.columns;
    float most = -F_INFINITY, sum = 0;
    EACH_COLUMN(t, a)
    {
        float v[8];
        load_some(v, a.x, at + c, a.vector);
        EACH_ELEMENT(k, a)
        most = f_max(most, v[k]);
    }
    most = team_max(t, most, shared);
    EACH_COLUMN(t, a)
    {
        float v[8];
        load_some(v, a.x, at + c, a.vector);
        EACH_ELEMENT(k, a)
        sum += f_exp(v[k] - most);
    }
    const float factor = 1.0f / team_sum(t, sum, shared);
    EACH_COLUMN(t, a)
    {
        float v[8];
        load_some(v, a.x, at + c, a.vector);
        UNROLL
        for (int k = 0; k < 8; k++)
            v[k] = f_exp(v[k] - most) * factor;
        store_some(a.out, at + c, v, a.vector);
    }
}
