/* Products of bf16 by the processor's units for pairs of bf16, with the tiles of pairs.inc.
 *
 * Rates on Zen 4 at 235 GFLOP/s of peak, M and N from 384 to 2048, K from 384 to 3072:
 *
 *     operands            oneDNN        here
 *     a b, a b^T          208 to 226    219 to 230
 *     a^T b               194 to 205    205 to 217
 *
 * B is packed once, and A is read as it is stored. Only a transposed A is packed.
 *
 *     for each group of columns             B packed by all threads, up to 4 MiB
 *       for each block of rows and columns  one thread
 *         A packed if it is transposed
 *         for each panel of 32 columns, for each 12 rows: a tile of C in registers
 *
 * A tile has all terms of its sums, in the order of K. Results therefore do not depend on groups,
 * blocks and threads. */
#include "kernel/cpu/gemm_pairs.h"

#include "kernel/cpu/gemm_parts.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

#include <omp.h>

enum {
    GROUP = 1 << 21,     /* elements of a packed group of B */
    BLOCK_ROWS = 96,     /* complete lines of a transposed A */
    BLOCK_COLUMNS = 512, /* the group's columns if A is transposed and blocks of rows suffice */
    RUN = 64             /* rows of B that one task packs */
};

/* Smaller and deeper products are left to oneDNN. Packing a transposed B takes 8 % of a product of
 * 128 rows. Panels of few columns are partly empty. Packed columns of longer sums do not fit the
 * second-level cache. */
enum { FEWEST_ROWS = 96, FEWEST_ROWS_TRANSPOSED = 256, FEWEST_COLUMNS = 48, DEEPEST = 4096 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

bool gemm_pairs_fits(const cpu_product *p)
{
    const bool direct = p->c_dtype == WEFT_F32 || gemm_rounds_first(p);
    return direct && !p->add && p->M >= (p->trans_b ? FEWEST_ROWS_TRANSPOSED : FEWEST_ROWS) &&
           p->N >= FEWEST_COLUMNS && p->K > 0 && p->K <= DEEPEST && p->a_dtype == WEFT_BF16 &&
           p->b_dtype == WEFT_BF16 && cpu_isa_get()->pairs_block && !cpu_has_tiles();
}

/* Bytes of the workspace, in order. */
typedef struct pairs_plan {
    int64_t columns;      /* columns of a group */
    int64_t depth;        /* elements of a packed row or column */
    int64_t a_row;        /* elements between rows of a packed A that is not transposed */
    int64_t bias, b, a;   /* bytes; `a` for each thread */
    int64_t down, across; /* blocks of a group */
    int64_t block;        /* columns of a block */
} pairs_plan;

/* Returns true if A is copied: pairs of a transposed A are not contiguous, and the last pair of an
 * odd K needs a zero. Rows whose distance is a multiple of 2 KiB share lines of the first-level
 * cache. */
static bool copies_all(const cpu_product *p)
{
    return p->trans_a || p->K % 2 || p->lda % 1024 == 0;
}

static pairs_plan plan_of(const cpu_product *p)
{
    const int64_t depth = round_up(p->K, 2);
    pairs_plan plan = {.depth = depth, .a_row = round_up(p->K, 32) + 32};
    plan.columns = least(round_up(p->N, CPU_PAIRS_COLUMNS),
                         GROUP / depth / CPU_PAIRS_COLUMNS * CPU_PAIRS_COLUMNS);
    plan.bias = round_up(p->N, CPU_PAIRS_COLUMNS) * 4;
    plan.b = plan.columns * depth * 2;
    plan.a = p->trans_a ? depth * BLOCK_ROWS * 2 : BLOCK_ROWS * plan.a_row * 2;
    plan.down = (p->M + BLOCK_ROWS - 1) / BLOCK_ROWS;
    /* A transposed A is packed again for every block of columns. */
    plan.block = p->trans_a && plan.down >= 2 * p->threads ? plan.columns : BLOCK_COLUMNS;
    plan.across = (plan.columns + plan.block - 1) / plan.block;
    return plan;
}

static int threads_of(const cpu_product *p, const pairs_plan *plan)
{
    return gemm_threads(p, (gemm_parts){plan->down, plan->across});
}

int64_t gemm_pairs_workspace(const cpu_product *p)
{
    const pairs_plan plan = plan_of(p);
    return plan.bias + plan.b + threads_of(p, &plan) * plan.a;
}

/* A group of columns [from, to), and its operands. */
typedef struct pairs_group {
    const cpu_product *p;
    const pairs_plan *plan;
    int64_t from, to;
    const float *bias;
    uint16_t *b, *a;
} pairs_group;

/* Returns the number of tasks that pack B: a panel of columns of a transposed B, otherwise some
 * rows. */
static int64_t pack_tasks(const pairs_group *g)
{
    return g->p->trans_b ? (g->to - g->from + CPU_PAIRS_COLUMNS - 1) / CPU_PAIRS_COLUMNS
                         : (g->p->K + RUN - 1) / RUN;
}

static void pack_part(const pairs_group *g, int64_t task)
{
    const cpu_product *p = g->p;
    const uint16_t *B = p->B;
    if (p->trans_b) {
        const int64_t n = task * CPU_PAIRS_COLUMNS, at = g->from + n;
        cpu_isa_get()->pairs_panel(B + at * p->ldb, p->ldb, p->K,
                                   least(CPU_PAIRS_COLUMNS, g->to - at), g->b + n * g->plan->depth);
        return;
    }
    const int64_t k = task * RUN;
    cpu_isa_get()->pairs_panels(B + k * p->ldb + g->from, p->ldb, least(RUN, p->K - k),
                                g->to - g->from, g->b + k * CPU_PAIRS_COLUMNS,
                                g->plan->depth * CPU_PAIRS_COLUMNS);
}

/* Sets A of a block, packed to the space of `thread` if necessary. */
static void read_rows(const pairs_group *g, int64_t row, int thread, cpu_pairs_block *b)
{
    const cpu_product *p = g->p;
    const pairs_plan *plan = g->plan;
    const cpu_isa *isa = cpu_isa_get();
    const uint16_t *from = (const uint16_t *)p->A + (p->trans_a ? row : row * p->lda);
    uint16_t *own = g->a + thread * plan->a / 2;
    if (!copies_all(p) && b->rows % CPU_PAIRS_ROWS == 0) {
        const int64_t after = least(BLOCK_ROWS, p->M - row - b->rows);
        b->next = from + b->rows * p->lda;
        b->next_bytes = after > 0 ? ((after - 1) * p->lda + p->K) * 2 : 0;
        b->a = from;
        b->a_row = p->lda;
        b->a_pair = 2;
        return;
    }
    b->a = own;
    b->a_row = p->trans_a ? 2 : plan->a_row;
    b->a_pair = p->trans_a ? 2 * BLOCK_ROWS : 2;
    if (p->trans_a)
        isa->pairs_transposed(from, p->lda, p->K, b->rows, own, BLOCK_ROWS);
    else
        isa->pairs_rows(from, p->lda, b->rows, p->K, own, plan->a_row);
}

static void compute_block(const pairs_group *g, int64_t block, int thread)
{
    const cpu_product *p = g->p;
    const int64_t row = block / g->plan->across * BLOCK_ROWS,
                  column = g->from + block % g->plan->across * g->plan->block;
    const gemm_box box = {row, least(p->M, row + BLOCK_ROWS), column,
                          least(g->to, column + g->plan->block)};
    const cpu_product part = gemm_box_of(p, &box);
    cpu_pairs_block b = {.rows = part.M,
                         .columns = part.N,
                         .pairs = g->plan->depth / 2,
                         .b = g->b + (column - g->from) * g->plan->depth,
                         .bias = g->bias ? g->bias + column : NULL,
                         .c = part.C,
                         .c_row = part.ldc,
                         .narrow = p->c_dtype == WEFT_BF16};
    if (part.M <= 0 || part.N <= 0)
        return;
    read_rows(g, row, thread, &b);
    cpu_isa_get()->pairs_block(&b);
    if (b.narrow)
        gemm_act_bf16(&part);
    else
        gemm_finish(&part, NULL, part.C, part.ldc);
}

static void run_group(const pairs_group *g, int threads)
{
    const int64_t packed = pack_tasks(g), blocks = g->plan->down * g->plan->across;
    if (threads == 1) { /* may be inside a parallel region */
        for (int64_t i = 0; i < packed; i++)
            pack_part(g, i);
        for (int64_t i = 0; i < blocks; i++)
            compute_block(g, i, 0);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < packed; i++)
            pack_part(g, i);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < blocks; i++)
            compute_block(g, i, omp_get_thread_num());
    }
}

void gemm_pairs(const cpu_product *p)
{
    const pairs_plan plan = plan_of(p);
    char *at = p->space;
    float *bias = p->bias ? (float *)(void *)at : NULL;
    pairs_group g = {.p = p, .plan = &plan, .bias = bias};
    g.b = (uint16_t *)(void *)(at + plan.bias);
    g.a = (uint16_t *)(void *)(at + plan.bias + plan.b);
    if (bias) {
        cpu_widen_run(p->bias_dtype, p->bias, bias, p->N);
        memset(bias + p->N, 0, (size_t)plan.bias - (size_t)p->N * sizeof *bias);
    }
    for (g.from = 0; g.from < p->N; g.from += plan.columns) {
        g.to = least(p->N, g.from + plan.columns);
        run_group(&g, threads_of(p, &plan));
    }
}
