/* Parts of attention on tensor cores: tiles in shared memory, their fragments, segments. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_FLASH_PARTS_H
#define WEFT_KERNEL_CUDA_KERNELS_FLASH_PARTS_H

#include "kernel/cuda/kernels/simt.h"

#ifndef FLASH_TF32
#define FLASH_TF32 0
#endif

/* A tile is rows of `WIDE` (64 or 128) elements of bf16, or with FLASH_TF32 of f32. Columns that
 * heads do not have are zeros. A row's number permutes its pieces of 16 bytes. The eight rows of a
 * matrix are therefore in different banks. Arguments `rows`, `m` and `n` are constants. */
enum {
    ELEMENT = FLASH_TF32 ? 4 : 2, /* bytes */
    IN_PIECE = 16 / ELEMENT,      /* elements of a piece */
    DEEP = 2 * IN_PIECE,          /* of the depth that one instruction multiplies */
    ROW = WIDE * ELEMENT
};

DEV uint32_t piece_at(int row, int piece)
{
    return (uint32_t)(row * ROW + (piece ^ row % 8) * 16);
}

/* Place of the thread's row of the four matrices, for a row and column of 0. */
typedef struct lane_offset {
    uint32_t row, piece; /* bytes to the row, and within it */
} lane_offset;

/* Matrices (0, 0), (8, 0), (0, 1), (8, 1) of rows and pieces: operand a, and b transposed. */
DEV lane_offset down_first(void)
{
    const uint32_t i = LANE / 8, r = LANE % 8;
    const lane_offset l = {(i % 2 * 8 + r) * ROW, (i / 2 ^ r) * 16};
    return l;
}

/* Matrices (0, 0), (0, 1), (8, 0), (8, 1): operand b. */
DEV lane_offset across_first(void)
{
    const uint32_t i = LANE / 8, r = LANE % 8;
    const lane_offset l = {(i / 2 * 8 + r) * ROW, (i % 2 ^ r) * 16};
    return l;
}

DEV shared_at matrices_at(shared_at tile, lane_offset l, int row, int column)
{
    const uint32_t bytes = (uint32_t)(column * ELEMENT);
    return tile + l.row + (bytes % 128 ^ l.piece) + bytes / 128 * 128 + (uint32_t)(row * ROW);
}

/* ---- global memory --------------------------------------------------------------------------- */

/* A run of queries and its run of keys. */
typedef struct segment {
    int32_t q0, q1, k0, k1;
} segment;

DEV segment segment_at(const attention_args *a, int32_t n)
{
    segment s;
    if (a->segments) {
        const int32_t *row = a->segments + 4 * n;
        const int32_t item = a->item_segments ? n / (int32_t)a->item_segments : 0;
        const int32_t q = item * (int32_t)a->queries, k = item * (int32_t)a->keys;
        s.q0 = row[0] + q, s.q1 = row[1] + q, s.k0 = row[2] + k, s.k1 = row[3] + k;
    } else {
        s.q0 = n * (int32_t)a->queries, s.q1 = s.q0 + (int32_t)a->queries;
        s.k0 = n * (int32_t)a->keys, s.k1 = s.k0 + (int32_t)a->keys;
    }
    return s;
}

/* A causal query i sees key j if j - i <= seen_ahead. */
DEV int32_t seen_ahead(const attention_args *a, segment s)
{
    return a->causal ? s.k1 - s.q1 : 0x40000000;
}

DEV int sees(segment s, int32_t ahead, int32_t i, int32_t j)
{
    return i >= s.q0 && i < s.q1 && j >= s.k0 && j < s.k1 && j - i <= ahead;
}

/* Whether the queries [i, i_end) all see all keys [j, j_end). */
DEV int all_seen(segment s, int32_t ahead, int32_t i, int32_t i_end, int32_t j, int32_t j_end)
{
    return i >= s.q0 && i_end <= s.q1 && j >= s.k0 && j_end <= s.k1 && j_end - 1 - i <= ahead;
}

/* Index of the log-sum-exp (B,H,S) of a query of (B*S). */
DEV int64_t lse_of_row(const attention_args *a, int32_t row)
{
    const uint32_t b = divide((uint32_t)row, a->by_queries);
    return ((int64_t)b * a->heads + BLOCK(1)) * a->queries + (row - (int32_t)b * a->queries);
}

#if FLASH_TF32
typedef float element;
#else
typedef uint16_t element;
#endif

/* A piece from a column of a row, without accesses of 16 bytes. */
DEV quad gather_piece(const element *row, int32_t columns)
{
    quad q;
    UNROLL
    for (int k = 0; k < 4; k++) {
#if FLASH_TF32
        q.x[k] = k < columns ? float_bits(row[k]) : 0u;
#else
        const uint32_t lo = 2 * k < columns ? row[2 * k] : 0u,
                       hi = 2 * k + 1 < columns ? row[2 * k + 1] : 0u;
        q.x[k] = lo | hi << 16;
#endif
    }
    return q;
}

DEV void scatter_piece(element *row, int32_t columns, quad v)
{
    UNROLL
    for (int k = 0; k < IN_PIECE; k++)
        if (k < columns)
#if FLASH_TF32
            row[k] = bits_float(v.x[k]);
#else
            row[k] = (uint16_t)(v.x[k / 2] >> k % 2 * 16);
#endif
}

/* A thread copies the same piece of every ROWS_APART-th row. */
enum { PIECES = WIDE / IN_PIECE, ROWS_APART = FLASH_THREADS / PIECES };

/* Bytes from the piece of row r to the piece of row r + i, for i in steps of ROWS_APART. */
DEV uint32_t bytes_apart(int r, int i, int piece)
{
    const int swapped = piece ^ r % 8,
              moved = ROWS_APART % 8 && i % 8 ? (swapped ^ ROWS_APART) - swapped : 0;
    return (uint32_t)(i * ROW + moved * 16);
}

/* Starts the copies of rows [row, row + rows) of a head; rows from `end` on are zeros. */
DEV void copy_rows(char *to, tensor_ref t, const attention_args *a, int32_t row, int32_t end,
                   const int rows)
{
    const int r = (int)THREAD(0) / PIECES, piece = (int)THREAD(0) % PIECES, c = piece * IN_PIECE,
              width = (int)a->width;
    const int64_t step = ROWS_APART * a->heads * a->width;
    const element *from =
        (const element *)t.data + ((int64_t)(row + r) * a->heads + BLOCK(1)) * a->width + c;
    const int32_t left = c < width ? end - row - r : 0;
    to += piece_at(r, piece);
    if (!a->vector) {
        for (int i = 0; i < rows; i += ROWS_APART, from += step)
            *(quad *)(to + (int32_t)bytes_apart(r, i, piece)) =
                gather_piece(from, i < left ? width - c : 0);
        return;
    }
    const shared_at shared = shared_address(to);
    UNROLL
    for (int i = 0; i < FLASH_ROWS; i += ROWS_APART) {
        if (i < rows)
            copy_async_at(shared + bytes_apart(r, i, piece), i < left ? (const void *)from : t.data,
                          i < left ? 16 : 0);
        from += step;
    }
}

/* Writes the rows [row, row + rows) of a tile to a head. */
DEV void store_rows(tensor_ref t, const char *from, const attention_args *a, int32_t row,
                    int32_t end, const int rows)
{
    const int r = (int)THREAD(0) / PIECES, piece = (int)THREAD(0) % PIECES, c = piece * IN_PIECE,
              width = (int)a->width;
    const int32_t left = c < width ? end - row - r : 0;
    element *to = (element *)t.data + ((int64_t)(row + r) * a->heads + BLOCK(1)) * a->width + c;
    from += piece_at(r, piece);
    for (int i = 0; i < rows && i < left; i += ROWS_APART) {
        const quad v = *(const quad *)(from + (int32_t)bytes_apart(r, i, piece));
        if (a->vector)
            store_quad(to, v);
        else
            scatter_piece(to, width - c, v);
        to += ROWS_APART * a->heads * a->width;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Sums of fragments: `m` x 16 rows, and columns in eights. */
typedef float fragments[16][4];

/* The zero is hidden from the compiler, which would make a memset of the loop and keep the array in
 * local memory. */
DEV void clear(fragments *f, const int m, const int n)
{
    const float zero = bits_float(0);
    UNROLL
    for (int i = 0; i < 2; i++)
        if (i < m)
            UNROLL
    for (int j = 0; j < 16; j++)
        if (j < n)
            UNROLL
    for (int e = 0; e < 4; e++)
        f[i][j][e] = zero;
}

DEV void multiply(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
#if FLASH_TF32
    mma_tf32(acc, a, b0, b1);
#else
    mma_bf16(acc, a, b0, b1);
#endif
}

/* Four matrices; elements of f32 are rounded. */
DEV void load_fragment(uint32_t to[4], shared_at row)
{
    load_matrix4_at(to, row);
#if FLASH_TF32
    UNROLL
    for (int i = 0; i < 4; i++)
        to[i] = tf32_of(to[i]);
#endif
}

/* s[m x 16 rows][columns] = x y^T, from row `row` of tile x. */
DEV void score(fragments *s, shared_at x, shared_at y, int row, const int m)
{
    const lane_offset down = down_first(), across = across_first();
    clear(s, m, TILE / 8);
    x += (uint32_t)(row * ROW);
    UNROLL
    for (int d = 0; d < WIDE; d += DEEP) {
        uint32_t fx[2][4], fy[4];
        UNROLL
        for (int i = 0; i < 2; i++)
            if (i < m)
                load_fragment(fx[i], matrices_at(x, down, i * 16, d));
        UNROLL
        for (int j = 0; j < TILE; j += 16) {
            load_fragment(fy, matrices_at(y, across, j, d));
            UNROLL
            for (int i = 0; i < 2; i++)
                if (i < m) {
                    multiply(s[i][j / 8], fx[i], fy[0], fy[1]);
                    multiply(s[i][j / 8 + 1], fx[i], fy[2], fy[3]);
                }
        }
    }
}

#if !FLASH_TF32
/* Scores with x in registers: fx[d / 16], one fragment of rows. */
DEV void score_kept(fragments *s, const uint32_t fx[8][4], shared_at y)
{
    const lane_offset across = across_first();
    clear(s, 1, TILE / 8);
    UNROLL
    for (int d = 0; d < WIDE; d += 16)
        UNROLL
    for (int j = 0; j < TILE; j += 16) {
        uint32_t fy[4];
        load_matrix4_at(fy, matrices_at(y, across, j, d));
        mma_bf16(s[0][j / 8], fx[d / 16], fy[0], fy[1]);
        mma_bf16(s[0][j / 8 + 1], fx[d / 16], fy[2], fy[3]);
    }
}

/* acc[m x 16 rows][WIDE] += w y, with the weights w (rows x depth) from sums of fragments. */
DEV void accumulate(fragments *acc, fragments *w, shared_at y, const int m)
{
    const lane_offset down = down_first();
    UNROLL
    for (int k = 0; k < TILE; k += 16) {
        uint32_t fw[2][4];
        UNROLL
        for (int i = 0; i < 2; i++)
            if (i < m)
                UNROLL
        for (int e = 0; e < 4; e++) {
            const float *pair = &w[i][k / 8 + e / 2][e % 2 * 2];
            fw[i][e] = pack_bf16(pair[0], pair[1]);
        }
        UNROLL
        for (int n = 0; n < WIDE; n += 16) {
            uint32_t fy[4];
            load_matrix4_transposed_at(fy, matrices_at(y, down, k, n));
            UNROLL
            for (int i = 0; i < 2; i++)
                if (i < m) {
                    mma_bf16(acc[i][n / 8], fw[i], fy[0], fy[1]);
                    mma_bf16(acc[i][n / 8 + 1], fw[i], fy[2], fy[3]);
                }
        }
    }
}

#else
/* Sums of fragments are operands without an exchange between threads: element t of the
 * depth is row 2t of y, and t + 4 is row 2t + 1. */
DEV void accumulate(fragments *acc, fragments *w, shared_at y, const int m)
{
    const uint32_t g = LANE / 4, t = LANE % 4;
    const lane_offset even = {2 * t * ROW + g % 4 * 4, (g / 4 ^ 2 * t) * 16},
                      odd = {(2 * t + 1) * ROW + g % 4 * 4, (g / 4 ^ (2 * t + 1)) * 16};
    UNROLL
    for (int k = 0; k < TILE; k += 8) {
        uint32_t fw[2][4];
        UNROLL
        for (int i = 0; i < 2; i++)
            if (i < m)
                UNROLL
        for (int e = 0; e < 4; e++)
            fw[i][e] = tf32_of(float_bits(w[i][k / 8][e % 2 * 2 + e / 2]));
        UNROLL
        for (int n = 0; n < WIDE; n += 8) {
            const uint32_t b0 = tf32_of(load_shared(matrices_at(y, even, k, n))),
                           b1 = tf32_of(load_shared(matrices_at(y, odd, k, n)));
            UNROLL
            for (int i = 0; i < 2; i++)
                if (i < m)
                    mma_tf32(acc[i][n / 8], fw[i], b0, b1);
        }
    }
}
#endif

/* Writes two neighbouring elements of a tile. */
DEV void write_pair(char *tile, int row, int column, float x, float y)
{
    char *to = tile + piece_at(row, column / IN_PIECE) + column % IN_PIECE * ELEMENT;
#if FLASH_TF32
    ((float *)to)[0] = x;
    ((float *)to)[1] = y;
#else
    *(uint32_t *)to = pack_bf16(x, y);
#endif
}

/* Writes m x 16 rows of sums, from row `row` of the tile; factor: of rows g and g + 8. */
DEV void write_rows(char *tile, fragments *acc, float factor[2][2], int row, const int m)
{
    const int g = (int)LANE / 4, t = (int)LANE % 4;
    UNROLL
    for (int i = 0; i < 2; i++)
        if (i < m)
            UNROLL
    for (int n = 0; n < WIDE / 8; n++)
        UNROLL
    for (int h = 0; h < 2; h++)
        write_pair(tile, row + i * 16 + g + h * 8, n * 8 + t * 2, acc[i][n][2 * h] * factor[i][h],
                   acc[i][n][2 * h + 1] * factor[i][h]);
}

#endif
