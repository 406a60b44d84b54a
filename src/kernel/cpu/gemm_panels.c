/* Products in f32 whose operands are stored narrow, or whose weights are transposed first.
 *
 * B is widened a panel of columns at a time, and a narrow A and C a block of rows at a time. They
 * stay in the cache, and no operand is copied through memory:
 *
 *     for each panel of columns of B             widened or transposed by all threads
 *       for each part of the panel's C           one thread
 *         for each block of the part's rows      A widened, product, bias, activation, C rounded
 *
 * A sum over many rows, as in the gradient of weights, is cut as well: its terms are added in f32.
 * Panels, parts, blocks and terms depend on the shape only. */
#include "kernel/cpu/gemm_panels.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_parts.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

#include <omp.h>

enum { PANEL = 1 << 20, BLOCK = PANEL / 2 }; /* 4 MiB and 2 MiB of f32 */

/* Maximum K of a term. A transposed A and a panel of B have K rows: fewer leave more columns for a
 * panel, for each of which A is packed again. */
enum { DEEP_TRANSPOSED = 640, DEEP = 16384 };

/* Rows of a block. The library packs a panel of B for every block. Blocks of short rows fit the
 * second-level cache. */
enum { FEWEST_ROWS = 192, MOST_ROWS = 2048 };

/* Minimum rows of A for which B is transposed first.
 *
 * The libraries transpose weights while packing, again for every part, which takes 3 to 15 %
 * longer. With fewer rows a separate transposition costs more than it saves, because another core
 * has transposed half of a part's input. Narrow weights are copied in any case. If rows of wide
 * weights are a multiple of 2 KiB apart, the elements of a column share a few cache lines. Packing
 * then takes 10 to 35 % of the product. */
enum { ROWS_TO_TRANSPOSE = 768, FEW_TO_TRANSPOSE = 128, CROWDED = 512 };

static bool transposes(const cpu_product *p)
{
    if (!p->trans_b)
        return false;
    if (p->b_dtype != WEFT_F32)
        return p->M >= FEW_TO_TRANSPOSE;
    return p->may_transpose &&
           p->M >= (p->N <= p->K && p->K % CROWDED == 0 ? FEW_TO_TRANSPOSE : ROWS_TO_TRANSPOSE) &&
           p->N * p->K <= PANEL;
}

bool gemm_needs_panels(const cpu_product *p)
{
    return p->a_dtype != WEFT_F32 || p->b_dtype != WEFT_F32 || p->c_dtype != WEFT_F32 ||
           p->bias_dtype != WEFT_F32 || transposes(p);
}

/* Sizes in elements. 0 columns or floats: the operand is read or written as it is stored. */
typedef struct panel_plan {
    int64_t columns;     /* columns of B per panel */
    gemm_parts parts;    /* parts of a complete panel */
    int64_t rows;        /* rows of a block */
    int64_t bias, whole; /* floats of the bias, and of A if it is widened at once */
    int64_t panel;       /* floats of the panel */
    int64_t a, c;        /* floats of a block of A and C, for each thread */
} panel_plan;

/* Returns the floats from one row of a panel to the next. It is not a power of two, because rows
 * would then share a few cache lines. */
static int64_t stride_of(int64_t n)
{
    return ((n + 15) & ~(int64_t)15) + (n % 64 ? 0 : 16);
}

/* Returns the number of columns of B that are transposed or widened at a time. */
static int64_t panel_columns(int64_t N, int64_t K)
{
    const int64_t fit = PANEL / (K > 0 ? K : 1) & ~(int64_t)15,
                  columns = fit % 64 == 0 ? fit - 16 : fit; /* stride_of() adds nothing */
    return N <= fit ? N : columns < 16 ? 16 : columns;
}

static bool copies_b(const cpu_product *p)
{
    return p->b_dtype != WEFT_F32 || transposes(p);
}

/* Returns true if the panel has B's rows, as B is stored. */
static bool keeps_rows(const cpu_product *p)
{
    return p->trans_b && !transposes(p);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the rows whose `each` floats fit a block. */
static int64_t rows_of(int64_t each)
{
    const int64_t fit = BLOCK / (each > 0 ? each : 1) & ~(int64_t)15;
    return fit < FEWEST_ROWS ? FEWEST_ROWS : least(fit, MOST_ROWS);
}

/* Returns true if A is widened at once: A fits four panels, every part needs all rows, or widening
 * takes long. f16 and f8 have no vector code. A larger A is widened again for each panel of B,
 * which takes 6 % of a product of 512 rows and 5,120 columns. */
static bool widens_whole(const cpu_product *p, gemm_parts parts)
{
    return p->a_dtype != WEFT_F32 &&
           (p->a_dtype != WEFT_BF16 || parts.columns > 1 || p->M * p->K <= 4 * PANEL);
}

static int64_t aligned(int64_t floats)
{
    return (floats + 15) & ~(int64_t)15;
}

static panel_plan plan_of(const cpu_product *p)
{
    panel_plan plan = {.columns = copies_b(p) ? panel_columns(p->N, p->K) : p->N};
    plan.parts = gemm_cut(p->M, plan.columns, p->K, 1);
    const int64_t high = gemm_part_size(p->M, plan.parts.rows),
                  wide = gemm_part_size(plan.columns, plan.parts.columns);
    plan.rows = high;
    plan.bias = p->bias_dtype != WEFT_F32 ? aligned(p->N) : 0;
    if (widens_whole(p, plan.parts))
        plan.whole = aligned(p->M * p->K);
    else if (p->a_dtype != WEFT_F32)
        plan.rows = least(plan.rows, rows_of(p->K));
    if (p->c_dtype != WEFT_F32)
        plan.rows = least(plan.rows, rows_of(wide));
    if (p->a_dtype != WEFT_F32 && !plan.whole)
        plan.a = aligned(p->trans_a ? p->K * stride_of(plan.rows) : plan.rows * p->K);
    if (p->c_dtype != WEFT_F32)
        plan.c = aligned(plan.rows * wide);
    if (copies_b(p))
        plan.panel = keeps_rows(p) ? aligned(plan.columns * p->K) : stride_of(plan.columns) * p->K;
    return plan;
}

static int64_t term_workspace(const cpu_product *p)
{
    const panel_plan plan = plan_of(p);
    return 4 *
           (plan.bias + plan.whole + plan.panel + gemm_threads(p, plan.parts) * (plan.a + plan.c));
}

static int64_t deepest(const cpu_product *p)
{
    return p->trans_a ? DEEP_TRANSPOSED : DEEP;
}

static bool has_terms(const cpu_product *p)
{
    return p->K > deepest(p) && (p->a_dtype != WEFT_F32 || copies_b(p));
}

/* Returns the K of all terms but the last, which may have less. */
static int64_t deep(const cpu_product *p)
{
    const int64_t terms = (p->K + deepest(p) - 1) / deepest(p);
    return aligned((p->K + terms - 1) / terms);
}

/* Returns the floats of a sum of terms. */
static int64_t sum_floats(const cpu_product *p)
{
    return p->c_dtype == WEFT_F32 ? 0 : aligned(p->M * p->N);
}

/* Returns the term of rows [k, k + K) of op(B), which is written or added to `sum`. The last term
 * adds the bias and applies the activation. */
static cpu_product term_of(const cpu_product *p, int64_t k, int64_t K, float *sum)
{
    cpu_product term = *p;
    term.K = K;
    term.A = gemm_at(p->A, p->a_dtype, p->trans_a ? k * p->lda : k);
    term.B = gemm_at(p->B, p->b_dtype, p->trans_b ? k : k * p->ldb);
    term.add = p->add || k > 0;
    if (p->c_dtype != WEFT_F32) {
        term.C = sum;
        term.c_dtype = WEFT_F32;
        term.ldc = p->N;
    }
    if (k + K < p->K) {
        term.bias = NULL;
        term.act = WEFT_ACT_NONE;
    }
    return term;
}

int64_t gemm_panels_workspace(const cpu_product *p)
{
    if (!has_terms(p))
        return term_workspace(p);
    const cpu_product first = term_of(p, 0, deep(p), NULL),
                      last = term_of(p, 0, (p->K - 1) % deep(p) + 1, NULL);
    const int64_t most = term_workspace(&first), least_deep = term_workspace(&last);
    return 4 * sum_floats(p) + (most > least_deep ? most : least_deep);
}

/* Widens `rows` rows of `columns` elements, `stride` apart, to rows `to_stride` apart. `threads`: 1
 * in a part, because libgomp creates new threads for nested regions. */
static void widen_rows(int threads, weft_dtype dtype, const void *from, int64_t stride,
                       int64_t rows, int64_t columns, float *to, int64_t to_stride)
{
    enum { RUN = 8192 };
    const cpu_isa *isa = cpu_isa_get();
    const bool dense = stride == columns && to_stride == columns;
    const int64_t each = dense && columns < RUN ? RUN / (columns > 0 ? columns : 1) : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; r += each) {
        const int64_t n = least(rows - r, each) * columns;
        if (dtype == WEFT_BF16) /* cpu_widen_run reads the environment in every call */
            isa->widen_bf16(gemm_at(from, dtype, r * stride), to + r * to_stride, n);
        else
            cpu_widen_run(dtype, gemm_at(from, dtype, r * stride), to + r * to_stride, n);
    }
}

/* Transposes `rows` rows of B (N,K), from row `from` on, to f32 (K,rows). */
static void transpose_rows(const cpu_product *p, int64_t from, int64_t rows, float *to,
                           int64_t stride)
{
    enum { HIGH = 16, WIDE = 256 }; /* tile size: complete cache lines on both sides */
    const cpu_isa *isa = cpu_isa_get();
    const int64_t K = p->K;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(rows *K))
    for (int64_t n = 0; n < rows; n += HIGH) {
        const int64_t high = least(rows - n, HIGH), first = (from + n) * p->ldb;
        if (p->b_dtype == WEFT_F32) {
            isa->transpose((const float *)p->B + first, p->ldb, high, K, to + n, stride);
            continue;
        }
        for (int64_t k = 0; k < K; k += WIDE) {
            float tile[HIGH * (WIDE + 16)];
            const int64_t wide = least(K - k, WIDE);
            for (int64_t r = 0; r < high; r++)
                cpu_widen_run(p->b_dtype, gemm_at(p->B, p->b_dtype, first + r * p->ldb + k),
                              tile + r * (WIDE + 16), wide);
            isa->transpose(tile, WIDE + 16, high, wide, to + k * stride + n, stride);
        }
    }
}

/* Returns the product with columns [n, n + N) of B, copied to `panel` if B is not read as it is
 * stored. */
static cpu_product with_panel(const cpu_product *p, int64_t n, int64_t N, float *panel)
{
    cpu_product own = gemm_box_of(p, &(gemm_box){0, p->M, n, n + N});
    if (!copies_b(p))
        return own;
    if (transposes(p)) {
        own.ldb = stride_of(N);
        own.trans_b = false;
        transpose_rows(p, n, N, panel, own.ldb);
    } else {
        own.ldb = p->trans_b ? p->K : stride_of(N);
        widen_rows(cpu_threads(N * p->K), p->b_dtype, own.B, p->ldb, p->trans_b ? N : p->K,
                   p->trans_b ? p->K : N, panel, own.ldb);
    }
    own.B = panel;
    own.b_dtype = WEFT_F32;
    return own;
}

/* What parts share. */
typedef struct panel_space {
    const panel_plan *plan;
    float *blocks; /* plan->a + plan->c floats for each thread */
} panel_space;

static void block(const cpu_product *p, const gemm_box *box, const panel_plan *plan, float *space)
{
    cpu_product own = gemm_box_of(p, box);
    void *to = own.C;
    float *made = space + plan->a;
    if (own.a_dtype != WEFT_F32) {
        const int64_t lda = p->trans_a ? stride_of(own.M) : p->K;
        widen_rows(1, own.a_dtype, own.A, own.lda, p->trans_a ? p->K : own.M,
                   p->trans_a ? own.M : p->K, space, lda);
        own.A = space;
        own.a_dtype = WEFT_F32;
        own.lda = lda;
    }
    if (p->c_dtype != WEFT_F32) {
        own.C = made;
        own.ldc = own.N;
    }
    gemm_f32(&own);
    if (p->c_dtype == WEFT_F32)
        return;
    own.C = to;
    own.ldc = p->ldc;
    gemm_narrow(&own, made, own.N);
}

static dnnl_status_t blocks_of_part(const cpu_product *p, const gemm_box *box, const void *user,
                                    int thread)
{
    const panel_space *s = user;
    float *space = s->blocks + thread * (s->plan->a + s->plan->c);
    for (int64_t m = box->m0; m < box->m1; m += s->plan->rows)
        block(p, &(gemm_box){m, least(box->m1, m + s->plan->rows), box->n0, box->n1}, s->plan,
              space);
    return dnnl_success;
}

static void run_term(const cpu_product *p)
{
    const panel_plan plan = plan_of(p);
    float *bias = p->space, *whole = bias + plan.bias, *panel = whole + plan.whole;
    const panel_space space = {&plan, panel + plan.panel};
    cpu_product wide = *p;
    if (plan.bias) {
        cpu_widen_run(p->bias_dtype, p->bias, bias, p->N);
        wide.bias = bias;
        wide.bias_dtype = WEFT_F32;
    }
    if (plan.whole) {
        wide.lda = p->trans_a ? p->M : p->K;
        widen_rows(cpu_threads(p->M * p->K), p->a_dtype, p->A, p->lda, p->trans_a ? p->K : p->M,
                   wide.lda, whole, wide.lda);
        wide.A = whole;
        wide.a_dtype = WEFT_F32;
    }
    for (int64_t n = 0; n < p->N; n += plan.columns) {
        const int64_t N = least(plan.columns, p->N - n);
        const cpu_product part = with_panel(&wide, n, N, panel);
        gemm_run(&part, plan.parts, blocks_of_part, &space);
    }
}

/* Rounds a part of the sum of terms to the type of C. */
static dnnl_status_t narrow_part(const cpu_product *p, const gemm_box *box, const void *sum,
                                 int thread)
{
    const cpu_product part = gemm_box_of(p, box);
    (void)thread;
    gemm_narrow(&part, (const float *)sum + box->m0 * p->N + box->n0, p->N);
    return dnnl_success;
}

dnnl_status_t gemm_panels(const cpu_product *p)
{
    if (!has_terms(p)) {
        run_term(p);
        return dnnl_success;
    }
    float *sum = p->space;
    for (int64_t k = 0; k < p->K; k += deep(p)) {
        cpu_product term = term_of(p, k, least(deep(p), p->K - k), sum);
        term.space = sum + sum_floats(p);
        run_term(&term);
    }
    return p->c_dtype == WEFT_F32 ? dnnl_success
                                  : gemm_run(p, gemm_cut(p->M, p->N, p->K, 1), narrow_part, sum);
}
