/* matmul and linear on the products of gemm.c. FLOPs 2 M N K per product. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/gemm_pairs.h"
#include "kernel/cpu/int8.h"
#include "kernel/cpu/repeats.h"
#include "kernel/cpu/table.h"

#include <omp.h>

/* Products of a batch: operands of product g are g steps after the first's. */
typedef struct product_batch {
    cpu_product first;
    int64_t count, a_step, b_step;
    int64_t space; /* bytes of a product on one thread */
    bool at_once;  /* threads compute products at the same time */
} product_batch;

/* Returns the batch of a matmul. `args` of workspace() have no data. */
static product_batch batch_of(const weft_kernel_args *args)
{
    const weft_attr_matmul *attr = args->attr;
    const weft_view *a = &args->in[0], *b = &args->in[1], *out = &args->out[0];
    const int rank = out->shape.rank;
    int64_t batch = shape_span(&out->shape, 0, rank - 2), M = out->shape.dim[rank - 2];
    const int64_t N = out->shape.dim[rank - 1], K = a->shape.dim[rank - (attr->trans_a ? 2 : 1)];
    const bool shared = b->shape.rank == 2;
    if (shared && !attr->trans_a) { /* one product of all rows */
        M *= batch;
        batch = 1;
    }
    product_batch all = {
        .first = {.trans_a = attr->trans_a,
                  .trans_b = attr->trans_b,
                  .M = M,
                  .N = N,
                  .K = K,
                  .lda = attr->trans_a ? M : K,
                  .ldb = attr->trans_b ? K : N,
                  .ldc = N,
                  .A = a->data,
                  .B = b->data,
                  .C = out->data,
                  .a_dtype = a->dtype,
                  .b_dtype = b->dtype,
                  .c_dtype = out->dtype,
                  .threads = args->threads,
                  .space = args->workspace},
        .count = batch,
        .a_step = M * K,
        .b_step = shared ? 0 : K * N,
    };
    /* Many products: one thread each, so that no product has a barrier. Products that are cut
     * themselves are never inside a parallel region of one thread: libgomp creates new threads for
     * nested regions, 3 ms per product. */
    all.at_once = batch >= args->threads && M * N * K < (int64_t)1 << 26;
    all.space = (cpu_gemm_workspace(&all.first, 1) + 63) & ~(int64_t)63;
    return all;
}

/* Computes product `g` of the batch. `thread`: -1 if all threads compute the product. */
static dnnl_status_t multiply(const product_batch *all, int64_t g, int thread)
{
    cpu_product p = all->first;
    p.A = (const char *)p.A + g * all->a_step * weft_dtype_bytes(p.a_dtype);
    p.B = (const char *)p.B + g * all->b_step * weft_dtype_bytes(p.b_dtype);
    p.C = (char *)p.C + g * p.M * p.N * weft_dtype_bytes(p.c_dtype);
    if (thread >= 0) {
        p.threads = 1;
        p.space = (char *)p.space + thread * all->space;
    }
    return cpu_gemm(&p);
}

static int64_t matmul_workspace(const weft_kernel_args *args)
{
    const product_batch all = batch_of(args);
    return all.at_once ? args->threads * all.space : cpu_gemm_workspace(&all.first, args->threads);
}

static int64_t matmul_prepared(const weft_kernel_args *args)
{
    const product_batch all = batch_of(args);
    return cpu_gemm_prepared(&all.first);
}

CPU_KERNEL_WITH(matmul, .kernel.prepared = matmul_prepared, .workspace = matmul_workspace,
                .narrow = CPU_ALL)
{
    const product_batch all = batch_of(args);
    int failed = dnnl_success;
    if (all.at_once && !omp_in_parallel()) {
#pragma omp parallel for schedule(static) num_threads(args->threads) reduction(max : failed)
        for (int64_t g = 0; g < all.count; g++) {
            const int status = (int)multiply(&all, g, omp_get_thread_num());
            failed = status > failed ? status : failed;
        }
        return cpu_gemm_check((dnnl_status_t)failed);
    }
    for (int64_t g = 0; g < all.count && failed == dnnl_success; g++)
        failed = (int)multiply(&all, g, all.at_once ? 0 : -1);
    return cpu_gemm_check((dnnl_status_t)failed);
}

/* Returns the product of a linear layer. `args` of workspace() have no data. */
static cpu_product linear_product(const weft_kernel_args *args)
{
    const weft_attr_linear *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1], *out = &args->out[0];
    const bool biased = args->in_count > 2 && view_present(&args->in[2]);
    const int64_t N = w->shape.dim[0], K = w->shape.dim[1];
    return (cpu_product){
        .trans_b = true,
        .may_transpose = true,
        .M = shape_span(&x->shape, 0, x->shape.rank - 1),
        .N = N,
        .K = K,
        .lda = K,
        .ldb = K,
        .ldc = N,
        .A = x->data,
        .B = w->data,
        .C = out->data,
        .bias = biased ? args->in[2].data : NULL,
        .a_dtype = x->dtype,
        .b_dtype = w->dtype,
        .c_dtype = out->dtype,
        .bias_dtype = biased ? args->in[2].dtype : WEFT_F32,
        .act = attr->act,
        .round = attr->round,
        .threads = args->threads,
        .space = args->workspace,
    };
}

static int64_t linear_workspace(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1];
    if (weft_int8_elements(w->dtype, &w->shape))
        return cpu_linear_int8_workspace(args);
    const cpu_product p = linear_product(args);
    return cpu_gemm_workspace(&p, args->threads);
}

static int64_t linear_prepared(const weft_kernel_args *args)
{
    static const char some_bias = 0;
    const weft_view *w = &args->in[1];
    cpu_product p = linear_product(args);
    if (args->in_count > 2 && view_present(&args->in[2]))
        p.bias = &some_bias; /* `args` have no data */
    return weft_int8_elements(w->dtype, &w->shape) ? 0 : cpu_gemm_prepared(&p);
}

static weft_status_code compute_linear(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1];
    if (weft_int8_elements(w->dtype, &w->shape))
        return cpu_linear_int8(args);
    const cpu_product p = linear_product(args);
    return cpu_gemm_check(cpu_gemm(&p));
}

/* The rows of a linear layer by item of the batch. */
typedef struct linear_items {
    const weft_kernel_args *args;
    int64_t count, rows;  /* rows of an item */
    int64_t x_row, y_row; /* bytes of a row */
} linear_items;
enum { MOST_ITEMS = 64 };

/* Returns true if rows of x can be computed alone, bitwise as with all rows, and in the same
 * workspace. */
static bool computes_rows_alone(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1];
    const cpu_product p = linear_product(args);
    return weft_int8_elements(w->dtype, &w->shape) || gemm_pairs_fits(&p);
}

/* Computes the first `count` rows of item n. */
static weft_status_code compute_rows(const linear_items *l, int64_t n, int64_t count)
{
    const weft_view *w = &l->args->in[1];
    const int64_t first = n * l->rows;
    weft_view in[WEFT_MAX_INPUTS], out = l->args->out[0];
    weft_kernel_args part = *l->args;
    memcpy(in, part.in, (size_t)part.in_count * sizeof *in);
    in[0].data = (char *)in[0].data + first * l->x_row;
    in[0].shape = (weft_shape){2, {count, view_last(&part.in[0])}};
    out.data = (char *)out.data + first * l->y_row;
    out.shape = (weft_shape){2, {count, view_last(&out)}};
    part.in = in;
    part.out = &out;
    if (weft_int8_elements(w->dtype, &w->shape))
        return cpu_linear_int8(&part);
    const cpu_product p = linear_product(&part);
    gemm_pairs(&p);
    return WEFT_OK;
}

/* Sets the rows of each item that differ from rows before them, and returns their sum. 0: the item
 * is equal to the item before it. */
static int64_t find_different(const linear_items *l, int64_t different[MOST_ITEMS])
{
    const char *x = l->args->in[0].data;
    int64_t sum = 0;
    for (int64_t n = 0; n < l->count; n++) {
        const int64_t equal =
            cpu_equal_rows(x + n * l->rows * l->x_row, l->rows, l->x_row, l->x_row);
        different[n] = cpu_repeats_item(x, n, l->rows * l->x_row) ? 0
                       : equal < CPU_FEWEST_REPEATS               ? l->rows
                                                                  : l->rows - equal + 1;
        sum += different[n];
    }
    return sum;
}

/* Computes the rows of item n that differ, and copies the others. */
static weft_status_code compute_item(const linear_items *l, int64_t n, int64_t different)
{
    char *y = (char *)l->args->out[0].data + n * l->rows * l->y_row;
    if (different == 0) {
        memcpy(y, y - l->rows * l->y_row, (size_t)(l->rows * l->y_row));
        return WEFT_OK;
    }
    WEFT_TRY(compute_rows(l, n, different));
    for (int64_t i = different; i < l->rows; i++)
        memcpy(y + i * l->y_row, y + (different - 1) * l->y_row, (size_t)l->y_row);
    return WEFT_OK;
}

CPU_KERNEL_WITH(linear, .kernel.prepared = linear_prepared, .workspace = linear_workspace,
                .narrow = CPU_ALL)
{
    const weft_view *x = &args->in[0], *y = &args->out[0];
    linear_items l = {.args = args,
                      .count = x->shape.rank > 2 ? x->shape.dim[0] : 1,
                      .x_row = view_last(x) * weft_dtype_bytes(x->dtype),
                      .y_row = view_last(y) * weft_dtype_bytes(y->dtype)};
    int64_t different[MOST_ITEMS];
    l.rows = l.count ? shape_span(&x->shape, 0, x->shape.rank - 1) / l.count : 0;
    if (l.rows < CPU_FEWEST_REPEATS || l.count > MOST_ITEMS || !computes_rows_alone(args))
        return compute_linear(args);
    /* Each item packs the weights again, which fewer equal rows do not repay. */
    if (4 * find_different(&l, different) > 3 * l.count * l.rows)
        return compute_linear(args);
    for (int64_t n = 0; n < l.count; n++)
        WEFT_TRY(compute_item(&l, n, different[n]));
    return WEFT_OK;
}
