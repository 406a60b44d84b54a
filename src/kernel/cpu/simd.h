/* The vector code, once per instruction set. isa.inc is compiled for the baseline, AVX2 and AVX-512
 * (with and without products of bf16), and cpu_isa_get() returns the widest that the processor has.
 * All functions here run on one thread over a range. Callers cut the work into ranges that do not
 * depend on the number of threads. */
#ifndef WEFT_KERNEL_CPU_SIMD_H
#define WEFT_KERNEL_CPU_SIMD_H

#include "kernel/kernel.h"

/* Operands of attention for one head of one segment. Rows of q, out, dout, dq are `q_stride`
 * elements apart, rows of k, v, dk, dv `k_stride`. Their elements are f32 for `attention` and
 * `attention_grad`, and bf16 for `attention_bf16` and `attention_grad_bf16`. Pointers refer to the
 * first row of the segment. */
typedef struct cpu_attention_head {
    int64_t nq, nk, D;
    int64_t q_stride, k_stride;
    float scale;
    bool causal;
    bool int8; /* attention_bf16: scores from int8 (attention_int8.inc) */
    const void *q, *k, *v;
    const float *bias; /* bias of the keys, added to scale q.k; NULL: 0 */
    void *out;         /* outputs of the forward */
    float *lse;
    const void *out_in, *dout; /* inputs of the backward */
    const float *lse_in;
    const float *dlse;            /* NULL: 0 */
    void *dq, *dk, *dv;           /* outputs of the backward */
    bool add;                     /* add to dk and dv, which have the gradient of other segments */
    int64_t row, sq, heads, head; /* position in lse (B,H,Sq); `row`: first query in B*Sq */
} cpu_attention_head;

/* Keys per block, and maximum queries per call of `attention`. */
enum { CPU_ATTENTION_BK = 96, CPU_ATTENTION_CHUNK = 384 };
/* Queries and keys per tile with operands in bf16; GRAD_BQ: queries of the backward with units for
 * bf16. */
enum { CPU_ATTENTION_BF16_BQ = 96, CPU_ATTENTION_BF16_GRAD_BQ = 192, CPU_ATTENTION_BF16_BK = 192 };
/* Maximum elements of a head's packed queries in the backward with operands in bf16. */
enum { CPU_ATTENTION_PACKED = 1 << 18 };

/* Some rows of one output frame and their packed input rows (conv.inc). Strides in floats. */
typedef struct cpu_conv_block {
    int64_t rows, width;   /* size of the output block */
    int64_t outputs;       /* outputs per position in dy, padded: 4, or a multiple of 8 */
    int64_t window;        /* kx * I padded to 16 */
    int64_t x_row, x_step; /* strides of output rows and of outputs */
} cpu_conv_block;

typedef struct cpu_conv_few {
    int64_t outputs, I, kh, kw, width,
        plane;            /* plane: floats per row, at least a tile more than the outputs */
    const float *weights; /* [ky][i][kx], outputs `w_step` apart */
    int64_t w_step;
} cpu_conv_few;

/* Rows of x rounded to int8, in blocks. */
typedef struct cpu_int8_rows {
    int64_t blocks, elements; /* of a row; a block has a multiple of 4 elements */
    const float *factor;      /* [blocks * elements] multiplies x first; NULL: none */
    void *q;                  /* int8_t, or float without units for bytes */
    float *unit;              /* (rows, blocks): what 1 means */
    int32_t *sum;             /* (rows, blocks): sums of q */
} cpu_int8_rows;

/* Size of the tiles of products of bf16 in pairs, and most columns of a panel. */
enum { CPU_PAIRS_ROWS = 12, CPU_PAIRS_COLUMNS = 32 };

/* Some rows and columns of C = A B + bias from operands in pairs of bf16 (pairs.inc). Strides in
 * elements. */
typedef struct cpu_pairs_block {
    int64_t rows, columns, pairs;
    const uint16_t *a; /* complete tiles of rows */
    int64_t a_row, a_pair;
    const void *next; /* operands of the next block, which tiles start to load; bytes */
    int64_t next_bytes;
    const uint16_t *b; /* panels: [pair][CPU_PAIRS_COLUMNS][2] */
    const float *bias; /* complete panels; NULL: 0 */
    void *c;           /* narrow: bf16, otherwise f32 */
    int64_t c_row;
    bool narrow;
} cpu_pairs_block;

/* Functions on cells, which are f32 or bf16. bf16 cells are computed in f32 and rounded once when
 * they are stored. Operands of type void are cells, operands of type float are f32 for both. An
 * output may be one of the inputs where the op's row allows it (`over` of op.def). */
typedef struct cpu_cells {
    weft_dtype dtype;
    void (*unary[9])(const void *x, void *y, int64_t n); /* index: cpu_unary */
    void (*silu_grad)(const void *x, const void *dy, void *dx, int64_t n);
    void (*gelu_grad)(const void *x, const void *dy, void *dx, int64_t n);
    void (*gelu_exact_grad)(const void *x, const void *dy, void *dx, int64_t n);
    void (*affine)(const void *x, void *y, int64_t n, float scale, float offset);
    void (*clamp)(const void *x, void *y, int64_t n, float lo, float hi);
    void (*clamp_grad)(const void *x, const void *dy, void *dx, int64_t n, float lo, float hi);
    /* index: cpu_binary. a_step and b_step are 0 or 1. */
    void (*binary[4])(const void *a, int a_step, const void *b, int b_step, void *y, int64_t n);
    /* sums[c] += x[r][c] over `rows` rows */
    void (*column_sums)(const void *x, int64_t rows, int64_t C, float *sums);
    double (*total)(const void *x, int64_t n);
    double (*sum_squares)(const void *x, int64_t n);
    void (*layer_norm)(const void *x, const float *gamma, const float *beta, void *y, int64_t rows,
                       int64_t C, float eps);
    /* dgamma[c] += ..., dbeta[c] += ...; NULL: not computed */
    void (*layer_norm_grad)(const void *x, const void *dy, const float *gamma, void *dx,
                            float *dgamma, float *dbeta, int64_t rows, int64_t C, float eps);
    void (*rms_norm)(const void *x, const float *gamma, void *y, int64_t rows, int64_t C, float eps,
                     bool l2);
    void (*rms_norm_grad)(const void *x, const void *dy, const float *gamma, void *dx,
                          float *dgamma, int64_t rows, int64_t C, float eps, bool l2);
    void (*modulate)(const void *x, const float *scale, const float *shift, void *y, int64_t rows,
                     int64_t C);
    void (*modulate_grad)(const void *x, const float *scale, const void *dy, void *dx,
                          float *dscale, float *dshift, int64_t rows, int64_t C);
    void (*gated_add)(const void *x, const void *y, const float *gate, void *out, int64_t rows,
                      int64_t C);
    void (*gated_add_grad)(const void *y, const float *gate, const void *dout, void *dy,
                           float *dgate, int64_t rows, int64_t C);
    /* Rotates `rows` rows of D/2 angles, each for `heads` heads. */
    void (*rope)(const void *x, const float *cosine, const float *sine, float sign, void *y,
                 int64_t rows, int64_t heads, int64_t D);
    void (*rope_half)(const void *x, const float *cosine, const float *sine, float sign, void *y,
                      int64_t rows, int64_t heads, int64_t D);
} cpu_cells;

typedef struct cpu_isa {
    const char *name;
    bool wide;       /* vectors of 16 floats */
    bool bf16_units; /* the processor multiplies bf16 without widening it */
    const cpu_cells *f32, *bf16;
    /* y = act(y + bias). bias may be NULL. */
    void (*bias_act)(const float *bias, float *y, int64_t n, int act);
    /* Transposes x (rows, columns) to (columns, rows). Strides in floats. */
    void (*transpose)(const float *x, int64_t stride, int64_t rows, int64_t columns, float *to,
                      int64_t to_stride);
    void (*adamw)(const float *p, const float *g, const float *m, const float *v, float *p2,
                  float *m2, float *v2, int64_t n, const float c[8]);
    void (*ema)(const float *e, const float *p, float *out, int64_t n, float rate);
    void (*narrow_bf16)(const float *x, uint16_t *y, int64_t n);
    void (*widen_bf16)(const uint16_t *x, float *y, int64_t n);
    /* Sets to (rows, n) to x + bias, rounded to bf16. bias may be NULL. */
    void (*narrow_rows)(const float *bias, const float *x, int64_t x_row, int64_t rows, int64_t n,
                        uint16_t *to, int64_t to_row);
    void (*attention)(const cpu_attention_head *h, int64_t q0, int64_t q1, void *scratch);
    void (*attention_grad)(const cpu_attention_head *h, void *scratch);
    void (*attention_bf16)(const cpu_attention_head *h, int64_t q0, int64_t q1, void *scratch);
    void (*attention_grad_bf16)(const cpu_attention_head *h, void *scratch);
    void (*conv_dw)(const cpu_conv_block *b, const float *dy, const float *x, float *C);
    void (*conv_planes)(const float *x, int64_t width, int64_t I, int64_t before, int64_t plane,
                        float *to);
    void (*conv_few)(const cpu_conv_few *f, const float *planes, float *C);
    /* Like conv_dw and conv_few, for elements of dy, x, weights and planes that are pairs of bf16.
     * NULL without bf16_units. */
    void (*conv_dw_pairs)(const cpu_conv_block *b, const float *dy, const float *x, float *C);
    void (*conv_few_pairs)(const cpu_conv_few *f, const float *planes, float *C);
    /* Sets to[i] to the pair a[i], b[i]. */
    void (*conv_pairs)(const uint16_t *a, const uint16_t *b, int64_t n, uint32_t *to);
    /* Products of int8 (int8.inc): columns of a panel, and bytes of an element of q. */
    int int8_columns, int8_bytes;
    void (*int8_round)(const float *x, const cpu_int8_rows *to, int64_t row);
    /* Packs `columns` rows of weights (graph/op.h), `row` bytes apart, as a panel. */
    void (*int8_pack)(const unsigned char *w, int64_t row, int64_t columns, int64_t blocks,
                      int64_t elements, void *panel);
    /* C (rows, int8_columns) = rows of x from `first` on, times the panel. */
    void (*int8_panel)(const cpu_int8_rows *x, int64_t first, int64_t rows, const void *panel,
                       float *C);
    /* Products of bf16 in pairs; NULL without bf16_units. Packed operands end with zeros. */
    void (*pairs_block)(const cpu_pairs_block *block);
    /* Copies x (rows, columns) to complete tiles of rows, `to_row` elements apart. */
    void (*pairs_rows)(const uint16_t *x, int64_t stride, int64_t rows, int64_t columns,
                       uint16_t *to, int64_t to_row);
    /* Sets to[row / 2][column][2], with `to_row` columns, from x (rows, columns). */
    void (*pairs_transposed)(const uint16_t *x, int64_t stride, int64_t rows, int64_t columns,
                             uint16_t *to, int64_t to_row);
    /* Packs one or more panels of a transposed B (columns, K). */
    void (*pairs_panel)(const uint16_t *x, int64_t stride, int64_t K, int64_t columns,
                        uint16_t *to);
    /* Packs K rows of all columns of B (K, columns) to panels, which begin `panel` elements
     * apart. */
    void (*pairs_panels)(const uint16_t *x, int64_t stride, int64_t K, int64_t columns,
                         uint16_t *to, int64_t panel);
} cpu_isa;

enum cpu_unary {
    CPU_EXP,
    CPU_TANH,
    CPU_SIGMOID,
    CPU_SILU,
    CPU_GELU,
    CPU_GELU_EXACT,
    CPU_SQRT,
    CPU_RSQRT,
    CPU_SQUARE
};
enum cpu_binary { CPU_ADD, CPU_SUB, CPU_MUL, CPU_DIV };

extern const cpu_isa cpu_isa_base;
#if defined(__x86_64__)
extern const cpu_isa cpu_isa_avx2, cpu_isa_avx512, cpu_isa_avx512_bf16;
#endif

#endif
