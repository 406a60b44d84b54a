/* Products c = a b^T: matmul, linear, experts, and convolutions as implicit products. */
#include "kernel/cuda/kernels/gemm_operand.h"

/* ---- f32 -------------------------------------------------------------------------------------- */

/* Eight elements along the dim with stride 1, from (row, k): all eight exist, or none. */
DEV void load_operand(float v[8], const gemm_args *a, const gemm_operand *o, int64_t base,
                      int64_t row, int64_t k, int64_t rows, int64_t end)
{
    const int64_t at = o->vector && row < rows && k < end ? operand_offset(a, o, row, k) : -1;
    if (at >= 0) {
        load_eight(v, o->t, base + at);
        return;
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = 0;
}

/* A tile in shared memory is [k][row], with rows 16 bytes longer: threads that write a column then
 * use different banks. */
enum { GEMM_PITCH = GEMM_TILE + 4 };

/* The part of a tile that a thread loads: eight elements from (row, k). */
DEV int own_row(const gemm_operand *o)
{
    return (int)(o->depth_stride == 1 ? THREAD(0) / 2 : THREAD(0) % 8 * 8);
}

DEV int own_depth(const gemm_operand *o)
{
    return (int)(o->depth_stride == 1 ? THREAD(0) % 2 * 8 : THREAD(0) / 8);
}

/* Writes the eight elements of the thread. Without vectors they are loaded here. */
DEV void write_tile(float *tile, const float v[8], const gemm_args *a, const gemm_operand *o,
                    int64_t base, int64_t row, int64_t k, int64_t rows, int64_t end)
{
    const int along_depth = o->depth_stride == 1;
    float *to = tile + own_depth(o) * GEMM_PITCH + own_row(o);
    if (o->vector) {
        UNROLL
        for (int i = 0; i < 8; i++)
            to[along_depth ? i * GEMM_PITCH : i] = v[i];
        return;
    }
    row += own_row(o);
    k += own_depth(o);
    for (int i = 0; i < 8; i++) {
        const int64_t r = along_depth ? row : row + i, d = along_depth ? k + i : k;
        const int64_t at = r < rows && d < end ? operand_offset(a, o, r, d) : -1;
        to[along_depth ? i * GEMM_PITCH : i] = at >= 0 ? load_float(o->t, base + at) : 0.0f;
    }
}

/* A block computes 64 x 64 in f32, a thread 8 x 4: for each k 12 elements are read from shared
 * memory for 32 multiply-adds. The next tiles are loaded to registers meanwhile. Sums are folded
 * every 512 k, so that the rounding of long sums does not grow with the depth. */
WEFT_KERNEL(weft_gemm_f32, gemm_args, GEMM_THREADS)
{
    WEFT_SHARED(float, tile_a, GEMM_DEPTH *GEMM_PITCH);
    WEFT_SHARED(float, tile_b, GEMM_DEPTH *GEMM_PITCH);
    const gemm_part p = own_part(&a, GEMM_TILE);
    if (p.none)
        return;
    const int m = (int)(THREAD(0) / 16) * 8, n = (int)(THREAD(0) % 16) * 4;
    float sum[8][4], total[8][4], va[8], vb[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        UNROLL
    for (int j = 0; j < 4; j++)
        sum[i][j] = total[i][j] = 0;
    load_operand(va, &a, &a.a, p.a_base, p.row + own_row(&a.a), p.begin + own_depth(&a.a), a.rows,
                 p.end);
    load_operand(vb, &a, &a.b, p.b_base, p.column + own_row(&a.b), p.begin + own_depth(&a.b),
                 a.columns, p.end);
    int since = 0;
    for (int64_t k = p.begin; k < p.end; k += GEMM_DEPTH) {
        write_tile(tile_a, va, &a, &a.a, p.a_base, p.row, k, a.rows, p.end);
        write_tile(tile_b, vb, &a, &a.b, p.b_base, p.column, k, a.columns, p.end);
        block_barrier();
        if (k + GEMM_DEPTH < p.end) {
            const int64_t next = k + GEMM_DEPTH;
            load_operand(va, &a, &a.a, p.a_base, p.row + own_row(&a.a), next + own_depth(&a.a),
                         a.rows, p.end);
            load_operand(vb, &a, &a.b, p.b_base, p.column + own_row(&a.b), next + own_depth(&a.b),
                         a.columns, p.end);
        }
        UNROLL
        for (int d = 0; d < GEMM_DEPTH; d++) {
            float x[8], y[4];
            UNROLL
            for (int i = 0; i < 8; i++)
                x[i] = tile_a[d * GEMM_PITCH + m + i];
            UNROLL
            for (int j = 0; j < 4; j++)
                y[j] = tile_b[d * GEMM_PITCH + n + j];
            UNROLL
            for (int i = 0; i < 8; i++)
                UNROLL
            for (int j = 0; j < 4; j++)
                sum[i][j] = f_fma(x[i], y[j], sum[i][j]);
        }
        if (++since == GEMM_FOLD || k + GEMM_DEPTH >= p.end) {
            since = 0;
            UNROLL
            for (int i = 0; i < 8; i++)
                UNROLL
            for (int j = 0; j < 4; j++) {
                total[i][j] += sum[i][j];
                sum[i][j] = 0;
            }
        }
        block_barrier();
    }
    /* The results pass through shared memory, two of the eight rows of a thread at a time, so that
     * threads write to neighbours. */
    const int r = (int)THREAD(0) / 8, c = (int)THREAD(0) % 8 * 8;
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        UNROLL
        for (int e = 0; e < 2; e++)
            UNROLL
        for (int j = 0; j < 4; j++)
            tile_a[(m / 4 + e) * GEMM_TILE + n + j] = total[i + e][j];
        block_barrier();
        store_results(&a, &p, p.row + r / 2 * 8 + i + r % 2, p.column + c,
                      tile_a + r * GEMM_TILE + c);
        block_barrier();
    }
}

/* ---- bf16 on tensor cores ---------------------------------------------------------------------- */

/* A tile in shared memory is rows of 32 k (64 bytes), or k of 128 rows (256 bytes). Pieces of 16
 * bytes are exchanged within it, so that the eight rows of a matrix are in different banks. */
DEV int piece_of(int along_depth, int row, int k)
{
    if (along_depth)
        return row * 4 + ((k / 8) ^ (row / 2 % 4));
    return k * 16 + ((row / 8) ^ (k % 8));
}

/* Starts the copies of one tile: 512 pieces, two a thread. */
DEV void copy_tile(quad *tile, const gemm_args *a, const gemm_operand *o, int64_t base, int64_t row,
                   int64_t k, int64_t rows, int64_t end)
{
    const int along_depth = o->depth_stride == 1;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int piece = (int)THREAD(0) + i * MMA_THREADS;
        const int r = along_depth ? piece / 4 : piece % 16 * 8,
                  d = along_depth ? piece % 4 * 8 : piece / 16;
        const int64_t at =
            row + r < rows && k + d < end ? operand_offset(a, o, row + r, k + d) : -1;
        copy_async(tile + piece_of(along_depth, r, d),
                   (const uint16_t *)o->t.data + (at >= 0 ? base + at : 0), at >= 0 ? 16 : 0);
    }
}

/* The fragment of 16 rows of a and 16 k. */
DEV void load_a(uint32_t to[4], const quad *tile, int along_depth, int row, int k)
{
    const int i = (int)LANE / 8, r = (int)LANE % 8;
    if (along_depth)
        load_matrix4(to, tile + piece_of(1, row + i % 2 * 8 + r, k + i / 2 * 8));
    else
        load_matrix4_transposed(to, tile + piece_of(0, row + i % 2 * 8, k + i / 2 * 8 + r));
}

/* The fragments of 16 columns (rows of b) and 16 k: [0], [1] of the first 8, [2], [3]. */
DEV void load_b(uint32_t to[4], const quad *tile, int along_depth, int row, int k)
{
    const int i = (int)LANE / 8, r = (int)LANE % 8;
    if (along_depth)
        load_matrix4(to, tile + piece_of(1, row + i / 2 * 8 + r, k + i % 2 * 8));
    else
        load_matrix4_transposed(to, tile + piece_of(0, row + i / 2 * 8, k + i % 2 * 8 + r));
}

enum { TILE_DEPTH = MMA_DEPTH, FRAGMENT_DEPTH = 16 };

DEV void multiply(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    mma_bf16(acc, a, b0, b1);
}

#include "kernel/cuda/kernels/gemm_loop.h"

WEFT_KERNEL(weft_gemm_bf16, gemm_args, MMA_THREADS)
{
    WEFT_SHARED(quad, tiles, MMA_STAGES * 2 * 512);
    gemm_blocks(&a, tiles);
}

/* ---- rows of experts --------------------------------------------------------------------------- */

DEV int is_of_expert(const expert_list_args *a, int64_t i, int64_t e)
{
    return i < a->count && (a->each ? a->ids[i] >= 0 && i / a->each == e : a->ids[i] == e);
}

/* A warp an expert. */
WEFT_KERNEL(weft_expert_counts, expert_list_args, 32)
{
    const int64_t e = BLOCK(0);
    int32_t count = 0;
    for (int64_t first = 0; first < a.count; first += 32) {
        const int64_t i = first + LANE;
        count += (int32_t)count_bits(warp_ballot(is_of_expert(&a, i, e)));
        if (e == 0 && !a.each && i < a.count && a.ids[i] >= a.experts)
            report_id(a.report, a.ids[i]);
    }
    if (LANE == 0)
        a.counts[e] = count;
}

/* One thread: experts are few. */
WEFT_KERNEL(weft_expert_starts, expert_list_args, 32)
{
    if (THREAD(0) != 0)
        return;
    int32_t at = 0;
    for (int64_t e = 0; e < a.experts; e++) {
        a.starts[e] = at;
        const int32_t tiles = (a.counts[e] + a.tile - 1) / a.tile;
        for (int32_t t = 0; t < tiles; t++)
            a.tile_expert[at / a.tile + t] = (int32_t)e;
        at += tiles * a.tile;
    }
    a.starts[a.experts] = at;
    for (int64_t t = at / a.tile; t < a.tiles; t++)
        a.tile_expert[t] = -1;
}

/* A warp an expert writes its rows in their order, and -1 to the end of its last tile. */
WEFT_KERNEL(weft_expert_lists, expert_list_args, 32)
{
    const int64_t e = BLOCK(0);
    int32_t at = a.starts[e];
    for (int64_t first = 0; first < a.count; first += 32) {
        const int own = is_of_expert(&a, first + LANE, e);
        const uint32_t chosen = warp_ballot(own);
        if (own)
            a.list[at + (int32_t)count_bits(chosen & ((1u << LANE) - 1u))] =
                (int32_t)(first + LANE);
        at += (int32_t)count_bits(chosen);
    }
    for (int32_t i = at + (int32_t)LANE; i < a.starts[e + 1]; i += 32)
        a.list[i] = -1;
}
