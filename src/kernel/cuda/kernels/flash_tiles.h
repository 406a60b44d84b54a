/* Tiles of attention and its gradients on tensor cores: the work of a block for one tile of the
 * side that arrives, and the begin and end of the rows of the block. A warp has m x 16 rows; `g`
 * says which queries see which keys. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_FLASH_TILES_H
#define WEFT_KERNEL_CUDA_KERNELS_FLASH_TILES_H

#include "kernel/cuda/kernels/flash_parts.h"

#define LOG2_E 1.44269504f
#define LN_2   0.693147181f

/* ---- forward --------------------------------------------------------------------------------- */

/* Largest score and sum of rows g and g + 8 of two fragments of 16 rows. Sums are the thread's. */
typedef struct softmax_rows {
    float most[2][2], sum[2][2];
} softmax_rows;

/* Adds the bias of the keys and hides keys that a query does not see, in m x 16 rows of queries.
 * `row`, `key`: of the fragments. */
DEV void adjust_scores(fragments *s, const attention_args *a, segment g, int32_t row, int32_t key,
                       int whole, const int m)
{
    const int32_t ahead = seen_ahead(a, g), i0 = row + (int32_t)LANE / 4,
                  j0 = key + (int32_t)LANE % 4 * 2;
    if (a->bias) {
        const float per_scale = f_reciprocal(a->scale);
        UNROLL
        for (int n = 0; n < TILE / 4; n++) {
            const int32_t j = j0 + n / 2 * 8 + n % 2;
            const float bias = j < g.k1 ? a->bias[j] : 0.0f;
            UNROLL
            for (int i = 0; i < 4; i++)
                if (i / 2 < m) {
                    float *to = &s[i / 2][n / 2][n % 2 + i % 2 * 2];
                    *to = f_fma(bias, per_scale, *to);
                }
        }
    }
    if (whole)
        return;
    UNROLL
    for (int i = 0; i < 2; i++)
        UNROLL
    for (int n = 0; n < TILE / 8; n++)
        UNROLL
    for (int e = 0; e < 4; e++)
        if (i < m && !sees(g, ahead, i0 + i * 16 + e / 2 * 8, j0 + n * 8 + e % 2))
            s[i][n][e] = -F_INFINITY;
}

/* Replaces scores by weights e^(scale (s - most)). The result is scaled only when a largest score
 * of the warp has changed: otherwise the factors are 1. */
DEV void soften(fragments *s, softmax_rows *r, fragments *acc, float scale, const int m)
{
    float keep[2][2];
    int changed = 0;
    UNROLL
    for (int i = 0; i < 2; i++)
        if (i < m)
            UNROLL
    for (int h = 0; h < 2; h++) {
        float most = r->most[i][h];
        UNROLL
        for (int n = 0; n < TILE / 8; n++)
            most = f_max(most, f_max(s[i][n][2 * h], s[i][n][2 * h + 1]));
        most = f_max(most, warp_read(most, LANE ^ 1));
        most = f_max(most, warp_read(most, LANE ^ 2));
        const float base = most == -F_INFINITY ? 0.0f : most * scale;
        float sum = 0;
        UNROLL
        for (int n = 0; n < TILE / 8; n++)
            UNROLL
        for (int e = 2 * h; e < 2 * h + 2; e++) {
            s[i][n][e] = f_exp2(f_fma(s[i][n][e], scale, -base));
            sum += s[i][n][e];
        }
        keep[i][h] = f_exp2(f_fma(r->most[i][h], scale, -base));
        changed |= most != r->most[i][h];
        r->sum[i][h] = f_fma(r->sum[i][h], keep[i][h], sum);
        r->most[i][h] = most;
    }
    if (!warp_any(changed))
        return;
    UNROLL
    for (int i = 0; i < 2; i++)
        if (i < m)
            UNROLL
    for (int n = 0; n < WIDE / 8; n++)
        UNROLL
    for (int e = 0; e < 4; e++)
        acc[i][n][e] *= keep[i][e / 2];
}

typedef struct forward_sums {
    fragments acc[2];
    softmax_rows rows;
} forward_sums;

DEV void forward_begin(forward_sums *f, const int m)
{
    clear(f->acc, m, WIDE / 8);
    UNROLL
    for (int i = 0; i < 4; i++) {
        f->rows.most[i / 2][i % 2] = -F_INFINITY;
        f->rows.sum[i / 2][i % 2] = 0;
    }
}

/* Adds a tile of keys and its values after it. `q`: tile of the queries [row, end). */
DEV void forward_tile(forward_sums *f, const char *q, const char *k, const attention_args *a,
                      segment g, int32_t row, int32_t end, int32_t key, const int m)
{
    const int own = (int)THREAD(0) / 32 * 16 * m;
    const int32_t first = row + own, i_end = first + 16 * m < end ? first + 16 * m : end;
    fragments s[2];
    score(s, shared_address(q), shared_address(k), own, m);
    adjust_scores(s, a, g, first, key, all_seen(g, seen_ahead(a, g), first, i_end, key, key + TILE),
                  m);
    soften(s, &f->rows, f->acc, a->scale * LOG2_E, m);
    accumulate(f->acc, s, shared_address(k + TILE * ROW), m);
}

/* Stores the queries [row, end) and their log-sum-exp; `shared` has room for the queries. */
DEV void forward_end(forward_sums *f, char *shared, const attention_args *a, int32_t row,
                     int32_t end, const int m)
{
    const int own = (int)THREAD(0) / 32 * 16 * m;
    float factor[2][2];
    UNROLL
    for (int i = 0; i < 2; i++)
        if (i < m)
            UNROLL
    for (int h = 0; h < 2; h++) {
        float sum = f->rows.sum[i][h];
        sum += warp_read(sum, LANE ^ 1);
        sum += warp_read(sum, LANE ^ 2);
        factor[i][h] = sum > 0.0f ? 1.0f / sum : 0.0f;
        const int32_t own_row = row + own + i * 16 + h * 8 + (int32_t)LANE / 4;
        if (LANE % 4 == 0 && own_row < end)
            a->lse[lse_of_row(a, own_row)] =
                sum > 0.0f ? f_fma(f->rows.most[i][h], a->scale, f_log(sum)) : -F_INFINITY;
    }
    write_rows(shared, f->acc, factor, own, m);
    block_barrier();
    store_rows(a->out, shared, a, row, end, FLASH_THREADS / 32 * 16 * m);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* A log-sum-exp as exponent of 2. Rows without keys get infinity, which makes their weights 0. */
DEV float exponent_of(float lse)
{
    return lse == -F_INFINITY ? F_INFINITY : lse * LOG2_E;
}

/* The rows of a block of dq. Fragments of bf16 are in registers. Fragments of f32 need twice as
 * many, and stay in the tiles `q` and `dout` instead. */
typedef struct query_rows {
#if FLASH_TF32
    shared_at q, dout;
#else
    uint32_t q[8][4], dout[8][4]; /* of the warp's rows */
#endif
    float exponent[2], delta[2]; /* of rows g and g + 8 */
} query_rows;

/* dq: queries stay. s becomes dS / scale = P (dP - delta). */
DEV void slopes_of_queries(fragments *s, fragments *dp, float scale, const query_rows *r)
{
    UNROLL
    for (int n = 0; n < TILE / 8; n++)
        UNROLL
    for (int e = 0; e < 4; e++)
        s[0][n][e] =
            f_exp2(f_fma(s[0][n][e], scale, -r->exponent[e / 2])) * (dp[0][n][e] - r->delta[e / 2]);
}

/* Loads the rows of a block through shared memory. */
DEV void load_query_rows(query_rows *r, char *shared, const attention_args *a, int32_t row,
                         int32_t end)
{
    const int own = (int)THREAD(0) / 32 * 16, tile = FLASH_GRAD_ROWS * ROW;
    copy_rows(shared, a->q, a, row, end, FLASH_GRAD_ROWS);
    copy_rows(shared + tile, a->dout, a, row, end, FLASH_GRAD_ROWS);
    copy_commit();
    COPY_WAIT(0);
    block_barrier();
#if FLASH_TF32
    r->q = shared_address(shared);
    r->dout = shared_address(shared + tile);
#else
    const lane_offset down = down_first();
    UNROLL
    for (int d = 0; d < WIDE; d += 16) {
        load_matrix4_at(r->q[d / 16], matrices_at(shared_address(shared), down, own, d));
        load_matrix4_at(r->dout[d / 16], matrices_at(shared_address(shared + tile), down, own, d));
    }
#endif
    UNROLL
    for (int h = 0; h < 2; h++) {
        const int32_t i = row + own + h * 8 + (int32_t)LANE / 4;
        const int64_t at = lse_of_row(a, i < end ? i : row);
        r->exponent[h] = i < end ? exponent_of(a->lse[at]) : F_INFINITY;
        r->delta[h] = i < end ? a->delta[at] : 0.0f;
    }
}

/* Start of the stages of dq: on the tiles of queries, or after the tiles if they stay. */
enum { DQ_STAGES = FLASH_TF32 ? 2 * FLASH_GRAD_ROWS * ROW : 0 };

/* Adds a tile of keys and its values after it to dq of the queries [row, end). */
DEV void dq_tile(fragments *dq, const query_rows *r, const char *k, const attention_args *a,
                 segment g, int32_t row, int32_t end, int32_t key)
{
    const int own = (int)THREAD(0) / 32 * 16;
    const int32_t first = row + own, i_end = first + 16 < end ? first + 16 : end;
    fragments s[1], dp[1];
#if FLASH_TF32
    score(s, r->q, shared_address(k), own, 1);
    score(dp, r->dout, shared_address(k + TILE * ROW), own, 1);
#else
    score_kept(s, r->q, shared_address(k));
    score_kept(dp, r->dout, shared_address(k + TILE * ROW));
#endif
    adjust_scores(s, a, g, first, key, all_seen(g, seen_ahead(a, g), first, i_end, key, key + TILE),
                  1);
    slopes_of_queries(s, dp, a->scale * LOG2_E, r);
    accumulate(dq, s, shared_address(k), 1);
}

DEV void dq_end(fragments *dq, char *shared, const attention_args *a, int32_t row, int32_t end)
{
    float factor[2][2] = {{a->scale, a->scale}};
    block_barrier();
    write_rows(shared, dq, factor, (int)THREAD(0) / 32 * 16, 1);
    block_barrier();
    store_rows(a->dq, shared, a, row, end, FLASH_GRAD_ROWS);
}

/* Hides queries that do not see a key: s is (keys, queries). */
DEV void hide_queries(fragments *s, const attention_args *a, segment g, int32_t row, int32_t query)
{
    const int32_t ahead = seen_ahead(a, g), j0 = row + (int32_t)LANE / 4,
                  i0 = query + (int32_t)LANE % 4 * 2;
    UNROLL
    for (int n = 0; n < TILE / 8; n++)
        UNROLL
    for (int e = 0; e < 4; e++)
        if (!sees(g, ahead, i0 + n * 8 + e % 2, j0 + e / 2 * 8))
            s[0][n][e] = -F_INFINITY;
}

/* dk, dv: keys stay. s becomes P, dp becomes dS / scale. `rows`: exponent and delta of the tile's
 * queries. */
DEV void slopes_of_keys(fragments *s, fragments *dp, const attention_args *a, int32_t row,
                        const float *rows)
{
    const int32_t j = row + (int32_t)LANE / 4;
    const int t = (int)LANE % 4 * 2;
    const float scale = a->scale * LOG2_E;
    float bias[2];
    UNROLL
    for (int h = 0; h < 2; h++)
        bias[h] = a->bias && j + h * 8 < a->batch * a->keys ? a->bias[j + h * 8] * LOG2_E : 0.0f;
    UNROLL
    for (int n = 0; n < TILE / 8; n++)
        UNROLL
    for (int e = 0; e < 4; e++) {
        const int i = n * 8 + t + e % 2;
        s[0][n][e] = f_exp2(f_fma(s[0][n][e], scale, bias[e / 2] - rows[i]));
        dp[0][n][e] = s[0][n][e] * (dp[0][n][e] - rows[TILE + i]);
    }
}

/* Loads a tile of queries, dout, and their exponents and deltas after them. */
DEV void copy_queries(char *to, const attention_args *a, int32_t query, int32_t end)
{
    const int tile = TILE * ROW;
    float *rows = (float *)(to + 2 * tile);
    copy_rows(to, a->q, a, query, end, TILE);
    copy_rows(to + tile, a->dout, a, query, end, TILE);
    const int32_t i = query + (int32_t)THREAD(0);
    if (THREAD(0) < (uint32_t)TILE) {
        const int64_t at = lse_of_row(a, i < end ? i : query);
        rows[THREAD(0)] = i < end ? exponent_of(a->lse[at]) : F_INFINITY;
        rows[TILE + (int)THREAD(0)] = i < end ? a->delta[at] : 0.0f;
    }
}

/* Bytes of a stage of dk and dv: queries, dout, and their scalars. */
enum { DKV_STAGE = 2 * TILE * ROW + TILE * 8 };

/* The sums, and the tiles of keys and values at the start of `shared`. */
DEV void dkv_begin(fragments *dk, fragments *dv, char *shared, const attention_args *a, int32_t row,
                   int32_t end)
{
    clear(dk, 1, WIDE / 8);
    clear(dv, 1, WIDE / 8);
    copy_rows(shared, a->k, a, row, end, FLASH_GRAD_ROWS);
    copy_rows(shared + FLASH_GRAD_ROWS * ROW, a->v, a, row, end, FLASH_GRAD_ROWS);
}

/* Adds a stage of queries to dk and dv of the keys from `row` on. `whole`: all of the stage see
 * all keys; otherwise `g` decides. */
DEV void dkv_tile(fragments *dk, fragments *dv, const char *shared, const char *q,
                  const attention_args *a, segment g, int32_t row, int32_t query, int whole)
{
    const int own = (int)THREAD(0) / 32 * 16, tile = TILE * ROW;
    fragments s[1], dp[1];
    score(s, shared_address(shared), shared_address(q), own, 1);
    score(dp, shared_address(shared + FLASH_GRAD_ROWS * ROW), shared_address(q + tile), own, 1);
    if (!whole)
        hide_queries(s, a, g, row + own, query);
    slopes_of_keys(s, dp, a, row + own, (const float *)(q + 2 * tile));
    accumulate(dv, s, shared_address(q + tile), 1);
    accumulate(dk, dp, shared_address(q), 1);
}

DEV void dkv_end(fragments *dk, fragments *dv, char *shared, const attention_args *a, int32_t row,
                 int32_t end)
{
    const int own = (int)THREAD(0) / 32 * 16, tile = FLASH_GRAD_ROWS * ROW;
    float scale[2][2] = {{a->scale, a->scale}}, one[2][2] = {{1, 1}};
    COPY_WAIT(0);
    block_barrier();
    write_rows(shared, dk, scale, own, 1);
    write_rows(shared + tile, dv, one, own, 1);
    block_barrier();
    store_rows(a->dk, shared, a, row, end, FLASH_GRAD_ROWS);
    store_rows(a->dv, shared + tile, a, row, end, FLASH_GRAD_ROWS);
}

#endif
