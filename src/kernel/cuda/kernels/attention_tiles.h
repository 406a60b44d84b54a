/* Tiles of attention and its gradients in f32, without a matrix of scores in memory. A block has 32
 * rows (queries, or keys for dk and dv) of one head and takes the other side 32 rows at a time.
 * Columns of the head pass through shared memory 64 at a time, so that any head width fits; a block
 * accumulates at most 128 columns. A thread has 4 rows and 2 columns of the scores, and 4 x 4
 * elements of the result for each 64 columns. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_ATTENTION_TILES_H
#define WEFT_KERNEL_CUDA_KERNELS_ATTENTION_TILES_H

#include "kernel/cuda/kernels/simt.h"

enum { ROWS = 32, PIECE = 64, PITCH = PIECE + 4, SCORE_PITCH = ROWS + 4, PARTS = 2 };

/* Loads rows [row, row + 32) and columns [column, column + 64) of a head; others are zeros. */
DEV void load_piece(float *to, tensor_ref t, const attention_args *a, int64_t row, int64_t end,
                    int64_t column)
{
    const int64_t head = BLOCK(1);
    if (a->vector) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int piece = (int)THREAD(0) + i * ATTENTION_THREADS, r = piece / 8,
                      c = piece % 8 * 8;
            float v[8];
            if (row + r < end && column + c < a->width) {
                load_eight(v, t, ((row + r) * a->heads + head) * a->width + column + c);
            } else {
                UNROLL
                for (int k = 0; k < 8; k++)
                    v[k] = 0;
            }
            UNROLL
            for (int k = 0; k < 8; k++)
                to[r * PITCH + c + k] = v[k];
        }
        return;
    }
    for (int i = (int)THREAD(0); i < ROWS * PIECE; i += ATTENTION_THREADS) {
        const int r = i / PIECE, c = i % PIECE;
        const int inside = row + r < end && column + c < a->width;
        to[r * PITCH + c] =
            inside ? load_float(t, ((row + r) * a->heads + head) * a->width + column + c) : 0.0f;
    }
}

/* s[i][j] += x[row + i] y[column + 16 j] over a piece of 64. */
DEV void multiply_piece(float s[4][2], const float *x, const float *y)
{
    const int row = (int)(THREAD(0) / 16) * 4, column = (int)(THREAD(0) % 16);
    for (int d = 0; d < PIECE; d += 4) {
        UNROLL
        for (int e = 0; e < 4; e++) {
            float p[4], q[2];
            UNROLL
            for (int i = 0; i < 4; i++)
                p[i] = x[(row + i) * PITCH + d + e];
            UNROLL
            for (int j = 0; j < 2; j++)
                q[j] = y[(column + 16 * j) * PITCH + d + e];
            UNROLL
            for (int i = 0; i < 4; i++)
                UNROLL
            for (int j = 0; j < 2; j++)
                s[i][j] = f_fma(p[i], q[j], s[i][j]);
        }
    }
}

/* acc[i][c] += sum over k of weights[row + i][k] y[k][4 column + c], y a piece. */
DEV void accumulate_piece(float acc[4][4], const float *weights, const float *y)
{
    const int row = (int)(THREAD(0) / 16) * 4, column = (int)(THREAD(0) % 16) * 4;
    for (int k = 0; k < ROWS; k++) {
        float p[4], q[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            p[i] = weights[(row + i) * SCORE_PITCH + k];
        UNROLL
        for (int c = 0; c < 4; c++)
            q[c] = y[k * PITCH + column + c];
        UNROLL
        for (int i = 0; i < 4; i++)
            UNROLL
        for (int c = 0; c < 4; c++)
            acc[i][c] = f_fma(p[i], q[c], acc[i][c]);
    }
}

DEV void clear(float acc[PARTS][4][4])
{
    UNROLL
    for (int p = 0; p < PARTS; p++)
        UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
    for (int c = 0; c < 4; c++)
        acc[p][i][c] = 0;
}

DEV void store_rows(tensor_ref t, const attention_args *a, int64_t row, int64_t end, int part,
                    const float acc[4][4], const float factor[4])
{
    const int64_t first = row + (THREAD(0) / 16) * 4,
                  column = ((int64_t)BLOCK(2) * PARTS + part) * PIECE + THREAD(0) % 16 * 4;
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
    for (int c = 0; c < 4; c++)
        if (first + i < end && column + c < a->width)
            store_float(t, ((first + i) * a->heads + BLOCK(1)) * a->width + column + c,
                        acc[i][c] * factor[i]);
}

/* A run of queries and its run of keys. */
typedef struct segment {
    int64_t q0, q1, k0, k1;
} segment;

DEV segment segment_at(const attention_args *a, int64_t n)
{
    segment s;
    if (a->segments) {
        const int32_t *row = a->segments + 4 * n;
        const int64_t item = a->item_segments ? n / a->item_segments : 0;
        s.q0 = row[0] + item * a->queries, s.q1 = row[1] + item * a->queries;
        s.k0 = row[2] + item * a->keys, s.k1 = row[3] + item * a->keys;
    } else {
        s.q0 = n * a->queries, s.q1 = s.q0 + a->queries;
        s.k0 = n * a->keys, s.k1 = s.k0 + a->keys;
    }
    return s;
}

/* Whether query i sees key j. */
DEV int sees(const attention_args *a, segment s, int64_t i, int64_t j)
{
    return i >= s.q0 && i < s.q1 && j >= s.k0 && j < s.k1 &&
           (!a->causal || j - s.k0 <= i - s.q0 + (s.k1 - s.k0) - (s.q1 - s.q0));
}

/* Index of the log-sum-exp (B,H,S) of a row of (B*S). */
DEV int64_t lse_of_row(const attention_args *a, int64_t row)
{
    const int64_t b = row / a->queries;
    return (b * a->heads + BLOCK(1)) * a->queries + row - b * a->queries;
}

DEV float sixteen_sum(float x)
{
    UNROLL
    for (uint32_t step = 8; step > 0; step >>= 1)
        x += warp_read(x, LANE ^ step);
    return x;
}

DEV float sixteen_max(float x)
{
    UNROLL
    for (uint32_t step = 8; step > 0; step >>= 1)
        x = f_max(x, warp_read(x, LANE ^ step));
    return x;
}

/* s = the scores of 32 queries and 32 keys, through the pieces x and y. */
DEV void score_tile(float s[4][2], float *x, float *y, const attention_args *a, tensor_ref first,
                    int64_t first_row, int64_t first_end, tensor_ref second, int64_t second_row,
                    int64_t second_end)
{
    UNROLL
    for (int i = 0; i < 4; i++)
        s[i][0] = s[i][1] = 0;
    for (int64_t d = 0; d < a->width; d += PIECE) {
        block_barrier();
        load_piece(x, first, a, first_row, first_end, d);
        load_piece(y, second, a, second_row, second_end, d);
        block_barrier();
        multiply_piece(s, x, y);
    }
}

DEV void write_scores(float *to, const float s[4][2])
{
    const int row = (int)(THREAD(0) / 16) * 4, column = (int)(THREAD(0) % 16);
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
    for (int j = 0; j < 2; j++)
        to[(row + i) * SCORE_PITCH + column + 16 * j] = s[i][j];
}

/* acc += weights y for the columns of the block. */
DEV void accumulate_tile(float acc[PARTS][4][4], const float *weights, float *y,
                         const attention_args *a, tensor_ref t, int64_t row, int64_t end)
{
    UNROLL
    for (int p = 0; p < PARTS; p++) {
        const int64_t column = ((int64_t)BLOCK(2) * PARTS + p) * PIECE;
        if (column >= a->width)
            continue;
        block_barrier();
        load_piece(y, t, a, row, end, column);
        block_barrier();
        accumulate_piece(acc[p], weights, y);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Shared memory of a block: pieces of both sides, weights, and of dk and dv also slopes. */
typedef struct tile_space {
    float *x, *y, *weights, *slopes;
} tile_space;

typedef struct forward_sums {
    float acc[PARTS][4][4], most[4], sum[4];
} forward_sums;

DEV void forward_begin(forward_sums *f)
{
    clear(f->acc);
    UNROLL
    for (int i = 0; i < 4; i++) {
        f->most[i] = -F_INFINITY;
        f->sum[i] = 0;
    }
}

/* Adds a tile of keys from `key`, for the queries [row, end). Softmax while keys arrive (Milakov &
 * Gimelshein; Dao): the sum and the result are scaled when a larger score comes. */
DEV void forward_tile(forward_sums *f, tile_space sp, const attention_args *a, segment g,
                      int64_t row, int64_t end, int64_t key)
{
    const int64_t own = row + (THREAD(0) / 16) * 4;
    float s[4][2];
    score_tile(s, sp.x, sp.y, a, a->q, row, end, a->k, key, g.k1);
    UNROLL
    for (int i = 0; i < 4; i++) {
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int64_t to = key + THREAD(0) % 16 + 16 * j;
            const int seen = sees(a, g, own + i, to);
            s[i][j] = seen ? f_fma(a->scale, s[i][j], a->bias ? a->bias[to] : 0.0f) : -F_INFINITY;
        }
        const float next = f_max(f->most[i], sixteen_max(f_max(s[i][0], s[i][1])));
        const float base = next == -F_INFINITY ? 0.0f : next;
        const float keep = f_exp(f->most[i] - base);
        s[i][0] = f_exp(s[i][0] - base);
        s[i][1] = f_exp(s[i][1] - base);
        f->sum[i] = f_fma(f->sum[i], keep, sixteen_sum(s[i][0] + s[i][1]));
        f->most[i] = next;
        UNROLL
        for (int p = 0; p < PARTS; p++)
            UNROLL
        for (int c = 0; c < 4; c++)
            f->acc[p][i][c] *= keep;
    }
    write_scores(sp.weights, s);
    accumulate_tile(f->acc, sp.weights, sp.y, a, a->v, key, g.k1);
}

DEV void forward_end(const forward_sums *f, const attention_args *a, int64_t row, int64_t end)
{
    const int64_t own = row + (THREAD(0) / 16) * 4;
    float factor[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        factor[i] = f->sum[i] > 0.0f ? 1.0f / f->sum[i] : 0.0f;
    UNROLL
    for (int p = 0; p < PARTS; p++)
        store_rows(a->out, a, row, end, p, f->acc[p], factor);
    if (THREAD(0) % 16 == 0 && BLOCK(2) == 0)
        UNROLL
    for (int i = 0; i < 4; i++)
        if (own + i < end)
            a->lse[lse_of_row(a, own + i)] =
                f->most[i] + (f->sum[i] > 0.0f ? f_log(f->sum[i]) : 0.0f);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* P = e^(S - lse) of query i and key j. */
DEV float weight_of_score(const attention_args *a, segment g, int64_t i, int64_t j, float s)
{
    if (!sees(a, g, i, j))
        return 0;
    const float lse = a->lse[lse_of_row(a, i)];
    return lse == -F_INFINITY ? 0.0f : f_exp(f_fma(a->scale, s, a->bias ? a->bias[j] : 0.0f) - lse);
}

/* Sums of the rows whose delta is replaced (attention.cu, weft_attention_delta_few). */
typedef struct few_sums {
    float weights[4], sum[4], base[4];
} few_sums;

DEV void few_begin(few_sums *f)
{
    UNROLL
    for (int i = 0; i < 4; i++)
        f->weights[i] = f->sum[i] = f->base[i] = 0;
}

/* Adds a tile of keys; `is_first`: of a row's keys. */
DEV void few_tile(few_sums *f, tile_space sp, const attention_args *a, segment g, int64_t row,
                  int64_t end, int64_t key, int is_first)
{
    const int64_t own = row + (THREAD(0) / 16) * 4;
    float s[4][2], dp[4][2];
    score_tile(s, sp.x, sp.y, a, a->q, row, end, a->k, key, g.k1);
    score_tile(dp, sp.x, sp.y, a, a->dout, row, end, a->v, key, g.k1);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float first = warp_read(dp[i][0], LANE & 16);
        if (is_first && own + i >= g.q0 && own + i < g.q1)
            f->base[i] = first;
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int64_t to = key + THREAD(0) % 16 + 16 * j;
            const float weight = weight_of_score(a, g, own + i, to, s[i][j]);
            f->weights[i] += weight;
            f->sum[i] = f_fma(weight, dp[i][j] - f->base[i], f->sum[i]);
        }
    }
}

DEV void few_end(const few_sums *f, const attention_args *a, int64_t row, int64_t end)
{
    const int64_t own = row + (THREAD(0) / 16) * 4;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float total = sixteen_sum(f->weights[i]), mean = sixteen_sum(f->sum[i]) / total;
        const int whole = total > 1 - 8e-6f && total < 1 + 8e-6f;
        if (THREAD(0) % 16 != 0 || own + i >= end)
            continue;
        const int64_t at = lse_of_row(a, own + i);
        a->base[at] = whole ? f->base[i] : 0.0f;
        if (whole)
            a->delta[at] = mean - (a->dlse ? a->dlse[at] : 0.0f);
    }
}

/* P, and dS = scale P (dP - base - delta), of query i and key j. */
DEV void gradient_of_score(const attention_args *a, segment g, int64_t i, int64_t j, float s,
                           float dp, float *weight, float *ds)
{
    *weight = *ds = 0;
    if (!sees(a, g, i, j))
        return;
    const int64_t at = lse_of_row(a, i);
    *weight = weight_of_score(a, g, i, j, s);
    if (*weight != 0.0f) /* also of a NaN */
        *ds = a->scale * *weight * (dp - (a->base ? a->base[at] : 0.0f) - a->delta[at]);
}

/* Adds a tile of keys to dq of the queries [row, end). */
DEV void dq_tile(float dq[PARTS][4][4], tile_space sp, const attention_args *a, segment g,
                 int64_t row, int64_t end, int64_t key)
{
    const int64_t own = row + (THREAD(0) / 16) * 4;
    float s[4][2], dp[4][2], unused;
    score_tile(s, sp.x, sp.y, a, a->q, row, end, a->k, key, g.k1);
    score_tile(dp, sp.x, sp.y, a, a->dout, row, end, a->v, key, g.k1);
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
    for (int j = 0; j < 2; j++)
        gradient_of_score(a, g, own + i, key + THREAD(0) % 16 + 16 * j, s[i][j], dp[i][j], &unused,
                          &s[i][j]);
    write_scores(sp.weights, s);
    accumulate_tile(dq, sp.weights, sp.y, a, a->k, key, g.k1);
}

/* Adds a tile of queries to dk and dv of the keys [row, end). */
DEV void dkv_tile(float dk[PARTS][4][4], float dv[PARTS][4][4], tile_space sp,
                  const attention_args *a, segment g, int64_t row, int64_t end, int64_t query)
{
    const int64_t own = row + (THREAD(0) / 16) * 4;
    float s[4][2], dp[4][2];
    score_tile(s, sp.x, sp.y, a, a->k, row, end, a->q, query, g.q1);
    score_tile(dp, sp.x, sp.y, a, a->v, row, end, a->dout, query, g.q1);
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
    for (int j = 0; j < 2; j++) {
        float weight, ds;
        gradient_of_score(a, g, query + THREAD(0) % 16 + 16 * j, own + i, s[i][j], dp[i][j],
                          &weight, &ds);
        s[i][j] = weight;
        dp[i][j] = ds;
    }
    write_scores(sp.weights, s);
    write_scores(sp.slopes, dp);
    accumulate_tile(dv, sp.weights, sp.y, a, a->dout, query, g.q1);
    accumulate_tile(dk, sp.slopes, sp.y, a, a->q, query, g.q1);
}

/* Stores sums of all columns of the block. */
DEV void store_sums(tensor_ref t, const attention_args *a, int64_t row, int64_t end,
                    const float acc[PARTS][4][4])
{
    const float one[4] = {1, 1, 1, 1};
    UNROLL
    for (int p = 0; p < PARTS; p++)
        store_rows(t, a, row, end, p, acc[p], one);
}

#endif
