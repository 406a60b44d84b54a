/* Experts: choice, dispatch and products.
 *
 * Products are computed expert by expert. The rows of an expert are gathered in order, CHUNK at a
 * time, multiplied by one GEMM and scattered. This moves rows (K + N) elements and computes 2 rows
 * N K FLOPs for the rows that exist, independent of the number of slots. Results do not depend on
 * the number of threads. Rows stay in the type that they are stored in. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>

/* ---- choice -------------------------------------------------------------------------------- */

/* Returns the score of an expert as a double, so that sums and ties are the same as in the
 * reference. */
static double worth(const float *score, const float *bias, int64_t e)
{
    return (double)score[e] + (bias ? (double)bias[e] : 0);
}

static double best_two(const float *score, const float *bias, int64_t from, int64_t each)
{
    double first = -INFINITY, second = -INFINITY;
    for (int64_t e = from; e < from + each; e++) {
        const double w = worth(score, bias, e);
        second = w > first ? first : fmax(second, w);
        first = fmax(first, w);
    }
    return each > 1 ? first + second : first;
}

/* Selects the largest `count` of n values, in descending order. The first of equal values wins. */
static void choose(const double *value, int64_t n, int64_t count, int32_t *best)
{
    int64_t have = 0;
    for (int64_t e = 0; e < n; e++) {
        if (value[e] == -INFINITY || (have == count && !(value[e] > value[best[have - 1]])))
            continue;
        int64_t at = have < count ? have++ : have - 1;
        for (; at > 0 && value[e] > value[best[at - 1]]; at--)
            best[at] = best[at - 1];
        best[at] = (int32_t)e;
    }
}

static int64_t top_k_workspace(const weft_kernel_args *args)
{
    const weft_attr_top_k *attr = args->attr;
    return view_last(&args->in[0]) * 8 + attr->groups * 12;
}

CPU_KERNEL_WITH(top_k, .workspace = top_k_workspace)
{
    const weft_attr_top_k *attr = args->attr;
    const int64_t experts = view_last(&args->in[0]), rows = view_count(&args->out[0]) / attr->count,
                  groups = attr->groups, each = groups ? experts / groups : experts;
    const float *bias = args->in_count > 1 && view_present(&args->in[1]) ? args->in[1].data : NULL;
    double *value = args->workspace, *of_group = value + experts;
    int32_t *top_groups = (int32_t *)(of_group + groups);
    for (int64_t r = 0; r < rows; r++) {
        const float *score = (const float *)args->in[0].data + r * experts;
        for (int64_t e = 0; e < experts; e++)
            value[e] = groups ? -INFINITY : worth(score, bias, e);
        for (int64_t q = 0; q < groups; q++)
            of_group[q] = best_two(score, bias, q * each, each);
        if (groups)
            choose(of_group, groups, attr->top_groups, top_groups);
        for (int64_t i = 0; groups && i < attr->top_groups; i++)
            for (int64_t e = top_groups[i] * each; e < (top_groups[i] + 1) * each; e++)
                value[e] = worth(score, bias, e);
        int32_t *best = (int32_t *)args->out[0].data + r * attr->count;
        for (int64_t i = 0; i < attr->count; i++)
            best[i] = -1; /* NaN scores choose no expert */
        choose(value, experts, attr->count, best);
    }
    return WEFT_OK;
}

CPU_KERNEL(pick)
{
    const int64_t experts = view_last(&args->in[0]), k = view_last(&args->in[1]),
                  count = view_count(&args->in[1]);
    const int32_t *ids = args->in[1].data;
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    WEFT_TRY(experts_check_ids(&args->in[1], experts));
    for (int64_t i = 0; i < count; i++)
        y[i] = ids[i] < 0 ? 0 : x[i / k * experts + ids[i]];
    return WEFT_OK;
}

CPU_KERNEL(pick_grad)
{
    const int64_t experts = view_last(&args->out[0]), k = view_last(&args->in[0]),
                  count = view_count(&args->in[0]);
    const int32_t *ids = args->in[0].data;
    const float *dy = args->in[1].data;
    float *dx = args->out[0].data;
    WEFT_TRY(experts_check_ids(&args->in[0], experts));
    memset(dx, 0, (size_t)view_count(&args->out[0]) * sizeof *dx);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= 0)
            dx[i / k * experts + ids[i]] += dy[i];
    return WEFT_OK;
}

/* ---- there and back ------------------------------------------------------------------------ */

/* Sets row[choice] of each choice in (B,S,k) to its row of (E,B,slots); -1: none. `taken`: [E]. */
static weft_status find_rows(const weft_view *ids, const weft_attr_experts *attr, int64_t *taken,
                             int64_t *row)
{
    const int64_t B = ids->shape.dim[0], S = ids->shape.dim[1], k = ids->shape.dim[2],
                  slots = attr->slots ? attr->slots : S;
    const int32_t *id = ids->data;
    WEFT_TRY(experts_check_ids(ids, attr->experts));
    for (int64_t b = 0; b < B; b++) {
        memset(taken, 0, (size_t)attr->experts * sizeof *taken);
        for (int64_t i = b * S * k; i < (b + 1) * S * k; i++) {
            const int64_t e = id[i];
            const int64_t slot = e < 0 ? slots : attr->slots ? taken[e]++ : i / k - b * S;
            row[i] = slot < slots ? (e * B + b) * slots + slot : -1;
        }
    }
    return WEFT_OK;
}

static int64_t rows_bytes(const weft_kernel_args *args, int ids)
{
    return 8 * (((const weft_attr_experts *)args->attr)->experts + view_count(&args->in[ids]));
}

static int64_t slots_workspace(const weft_kernel_args *args)
{
    return rows_bytes(args, 0);
}

CPU_KERNEL_WITH(expert_slots, .workspace = slots_workspace)
{
    const weft_attr_experts *attr = args->attr;
    const int64_t count = view_count(&args->in[0]);
    int64_t *taken = args->workspace, *row = taken + attr->experts;
    const int32_t *ids = args->in[0].data;
    int32_t *out = args->out[0].data;
    WEFT_TRY(find_rows(&args->in[0], attr, taken, row));
    memset(out, -1, (size_t)view_count(&args->out[0]) * sizeof *out);
    for (int64_t i = 0; i < count; i++)
        if (row[i] >= 0)
            out[row[i]] = ids[i];
    return WEFT_OK;
}

static int64_t routing_workspace(const weft_kernel_args *args)
{
    return rows_bytes(args, 1);
}

CPU_KERNEL_WITH(dispatch, .workspace = routing_workspace)
{
    const weft_attr_experts *attr = args->attr;
    const weft_view *ids = &args->in[1];
    const int64_t count = view_count(ids), k = ids->shape.dim[2], C = view_last(&args->out[0]),
                  shared = args->in[0].shape.dim[2] == 1 ? k : 1;
    int64_t *taken = args->workspace, *row = taken + attr->experts;
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    WEFT_TRY(find_rows(ids, attr, taken, row));
    memset(y, 0, (size_t)view_count(&args->out[0]) * sizeof *y);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *C))
    for (int64_t i = 0; i < count; i++)
        if (row[i] >= 0)
            memcpy(y + row[i] * C, x + i / shared * C, (size_t)C * sizeof *y);
    return WEFT_OK;
}

CPU_KERNEL_WITH(collect, .workspace = routing_workspace)
{
    const weft_attr_experts *attr = args->attr;
    const weft_view *ids = &args->in[1];
    const int64_t count = view_count(ids), C = view_last(&args->out[0]);
    int64_t *taken = args->workspace, *row = taken + attr->experts;
    const float *rows = args->in[0].data;
    float *y = args->out[0].data;
    WEFT_TRY(find_rows(ids, attr, taken, row));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *C))
    for (int64_t i = 0; i < count; i++)
        if (row[i] >= 0)
            memcpy(y + i * C, rows + row[i] * C, (size_t)C * sizeof *y);
        else
            memset(y + i * C, 0, (size_t)C * sizeof *y);
    return WEFT_OK;
}

/* ---- products ------------------------------------------------------------------------------ */

enum { CHUNK = 1024 };

/* Rows of ids by expert. Expert e has list[first[e]] to list[first[e + 1]]. */
typedef struct by_expert {
    int64_t *first; /* [experts + 1] */
    int64_t *list;  /* [rows] */
} by_expert;

static int64_t list_bytes(const weft_view *ids, int64_t experts)
{
    return 8 * (experts + 2 + view_count(ids));
}

static int64_t expert_at(const int32_t *id, bool by_position, int64_t each, int64_t i)
{
    return id[i] < 0 || !by_position ? id[i] : i / each;
}

static weft_status sort_rows(const weft_kernel_args *args, int64_t experts, by_expert *out)
{
    const bool by_position = ((const weft_attr_expert_matmul *)args->attr)->by_expert;
    const weft_view *ids = &args->in[2];
    const int64_t rows = view_count(ids), each = ids->shape.dim[1] * ids->shape.dim[2];
    const int32_t *id = ids->data;
    if (!by_position)
        WEFT_TRY(experts_check_ids(ids, experts));
    int64_t *next = args->workspace; /* [e + 1]: index of the next row of e */
    *out = (by_expert){next, next + experts + 2};
    memset(next, 0, (size_t)(experts + 2) * sizeof *next);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t e = expert_at(id, by_position, each, i);
        if (e >= 0)
            next[e + 2]++;
    }
    for (int64_t e = 2; e < experts + 2; e++)
        next[e] += next[e - 1];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t e = expert_at(id, by_position, each, i);
        if (e >= 0)
            out->list[next[e + 1]++] = i;
    }
    return WEFT_OK;
}

/* Copies the listed rows of `x` to contiguous rows. A row has C elements and belongs to `shared`
 * ids. */
static void gather(const weft_view *x, int64_t C, int64_t shared, const int64_t *list,
                   int64_t count, char *to)
{
    const int64_t bytes = C * weft_dtype_bytes(x->dtype);
    const char *from = x->data;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *C))
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * bytes, from + list[i] / shared * bytes, (size_t)bytes);
}

static int64_t shared_by(const weft_view *x, const weft_view *ids)
{
    return x->shape.dim[2] == ids->shape.dim[2] ? 1 : ids->shape.dim[2];
}

/* Returns the rows of a product of `count` rows. oneDNN compiles a product of bf16 for its shape,
 * and every batch has other counts, so counts are rounded up. The added rows are zero; they change
 * no sum. */
static int64_t padded(const cpu_product *p, int64_t count)
{
    const int64_t step = count <= 128 ? 16 : 64;
    return cpu_gemm_has_units(p) ? (count + step - 1) / step * step : count;
}

/* Returns the rows of the largest chunk. */
static int64_t chunk_of(const cpu_product *p, const weft_view *ids)
{
    return padded(p, view_count(ids) < CHUNK ? view_count(ids) : CHUNK);
}

static void clear_rows(char *rows, weft_dtype dtype, int64_t C, int64_t from, int64_t to)
{
    const int64_t bytes = C * weft_dtype_bytes(dtype);
    memset(rows + from * bytes, 0, (size_t)((to - from) * bytes));
}

static int64_t aligned_bytes(weft_dtype dtype, int64_t count)
{
    return (count * weft_dtype_bytes(dtype) + 63) & ~(int64_t)63;
}

/* Workspace of a product of experts, in order. */
typedef struct expert_space {
    int64_t list, a, b, made, sum, product; /* bytes */
} expert_space;

static int64_t space_total(const expert_space *s)
{
    return s->list + s->a + s->b + s->made + s->sum + s->product;
}

/* Returns the product of a chunk without rows and data. */
static cpu_product chunk_product(const weft_kernel_args *args)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *w = &args->in[1];
    const int64_t N = w->shape.dim[1], K = w->shape.dim[2], deep = attr->trans_b ? K : N,
                  wide = attr->trans_b ? N : K;
    return (cpu_product){.trans_b = attr->trans_b,
                         .N = wide,
                         .K = deep,
                         .lda = deep,
                         .ldb = K,
                         .ldc = wide,
                         .a_dtype = args->in[0].dtype,
                         .b_dtype = w->dtype,
                         .c_dtype = args->out[0].dtype,
                         .threads = args->threads};
}

/* Returns the workspace of a product for up to `most` rows, which are M or K of `p`. */
static int64_t product_space(cpu_product *p, int64_t *rows, int64_t most)
{
    int64_t space = 0;
    for (*rows = 1; *rows <= most; ++*rows) { /* not monotonic in the rows */
        const int64_t bytes = cpu_gemm_workspace(p, p->threads);
        space = bytes > space ? bytes : space;
    }
    return space;
}

/* Returns the bytes of code for products of 1 to `most` rows, which are M or K of `p`. The rows of
 * an expert depend on the data, so the code of all row counts is counted. */
static int64_t product_code(cpu_product *p, int64_t *rows, int64_t most)
{
    int64_t bytes = 0;
    *rows = 1; /* has_units() needs rows */
    if (!cpu_gemm_has_units(p))
        return 0;
    for (int64_t count = 1; count <= most; count = *rows + 1) {
        *rows = count;
        *rows = padded(p, count);
        bytes += cpu_gemm_prepared(p);
    }
    return bytes;
}

static expert_space matmul_space(const weft_kernel_args *args)
{
    const weft_view *ids = &args->in[2];
    cpu_product p = chunk_product(args);
    const int64_t most = chunk_of(&p, ids);
    return (expert_space){.list = (list_bytes(ids, args->in[1].shape.dim[0]) + 63) & ~(int64_t)63,
                          .a = aligned_bytes(p.a_dtype, most * p.K),
                          .made = aligned_bytes(p.c_dtype, most * p.N),
                          .product = product_space(&p, &p.M, most)};
}

static int64_t matmul_workspace(const weft_kernel_args *args)
{
    const expert_space space = matmul_space(args);
    return space_total(&space);
}

static int64_t matmul_code(const weft_kernel_args *args)
{
    cpu_product p = chunk_product(args);
    p.M = 1;
    return product_code(&p, &p.M, chunk_of(&p, &args->in[2]));
}

CPU_KERNEL_WITH(expert_matmul, .kernel.prepared = matmul_code, .workspace = matmul_workspace,
                .narrow = CPU_ALL)
{
    const weft_view *x = &args->in[0], *w = &args->in[1], *ids = &args->in[2];
    const int64_t experts = w->shape.dim[0], rows = view_count(ids), shared = shared_by(x, ids);
    const expert_space space = matmul_space(args);
    cpu_product p = chunk_product(args);
    const int64_t wide = p.N * weft_dtype_bytes(p.c_dtype);
    char *pack = (char *)args->workspace + space.list, *made = pack + space.a,
         *y = args->out[0].data;
    by_expert by;
    WEFT_TRY(sort_rows(args, experts, &by));
    for (int64_t i = 0; i < rows; i++)
        if (((const int32_t *)ids->data)[i] < 0)
            memset(y + i * wide, 0, (size_t)wide);
    p.A = pack;
    p.C = made;
    p.space = made + space.made;
    for (int64_t e = 0; e < experts; e++) {
        p.B = (const char *)w->data + e * p.N * p.K * weft_dtype_bytes(p.b_dtype);
        for (int64_t at = by.first[e]; at < by.first[e + 1]; at += CHUNK) {
            const int64_t left = by.first[e + 1] - at, count = left < CHUNK ? left : CHUNK;
            const int64_t *list = by.list + at;
            p.M = padded(&p, count);
            gather(x, p.K, shared, list, count, pack);
            clear_rows(pack, p.a_dtype, p.K, count, p.M);
            WEFT_TRY(cpu_gemm_check(cpu_gemm(&p)));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *p.N))
            for (int64_t i = 0; i < count; i++)
                memcpy(y + list[i] * wide, made + i * wide, (size_t)wide);
        }
    }
    return WEFT_OK;
}

/* Returns the product a^T b of a chunk without rows and data. An expert with several chunks adds
 * them in f32. */
static cpu_product dw_product(const weft_kernel_args *args, bool several)
{
    const weft_shape *w = &args->out[0].shape;
    return (cpu_product){.trans_a = true,
                         .M = w->dim[1],
                         .N = w->dim[2],
                         .lda = w->dim[1],
                         .ldb = w->dim[2],
                         .ldc = w->dim[2],
                         .a_dtype = args->in[0].dtype,
                         .b_dtype = args->in[1].dtype,
                         .c_dtype = several ? WEFT_F32 : args->out[0].dtype,
                         .threads = args->threads};
}

static expert_space dw_space(const weft_kernel_args *args)
{
    const weft_view *ids = &args->in[2];
    const bool may_repeat = view_count(ids) > CHUNK;
    cpu_product p = dw_product(args, false), several = dw_product(args, true);
    p.K = several.K = 1;
    const int64_t most = chunk_of(&p, ids), more = may_repeat ? p.M * p.N : 0,
                  once = product_space(&p, &p.K, most),
                  again = may_repeat ? product_space(&several, &several.K, most) : 0;
    return (expert_space){.list = (list_bytes(ids, args->out[0].shape.dim[0]) + 63) & ~(int64_t)63,
                          .a = aligned_bytes(p.a_dtype, most * p.M),
                          .b = aligned_bytes(p.b_dtype, most * p.N),
                          .made = aligned_bytes(WEFT_F32, more),
                          .sum = args->out[0].dtype == WEFT_F32 ? 0 : aligned_bytes(WEFT_F32, more),
                          .product = once > again ? once : again};
}

static int64_t dw_workspace(const weft_kernel_args *args)
{
    const expert_space space = dw_space(args);
    return space_total(&space);
}

static int64_t dw_code(const weft_kernel_args *args)
{
    const weft_view *ids = &args->in[2];
    cpu_product p = dw_product(args, false), several = dw_product(args, true);
    p.K = several.K = 1;
    const int64_t most = chunk_of(&p, ids);
    int64_t bytes = product_code(&p, &p.K, most);
    if (view_count(ids) > CHUNK && args->out[0].dtype != WEFT_F32)
        bytes += product_code(&several, &several.K, most);
    return bytes;
}

static void add_to(float *to, const float *from, int64_t count)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* Computes the gradient of expert `e` with the rows `list`. */
static weft_status expert_dw(const weft_kernel_args *args, const expert_space *space,
                             const int64_t *list, int64_t rows, void *out)
{
    const weft_view *a = &args->in[0], *b = &args->in[1], *ids = &args->in[2];
    const weft_dtype dtype = args->out[0].dtype;
    cpu_product p = dw_product(args, rows > CHUNK);
    char *pack_a = (char *)args->workspace + space->list, *pack_b = pack_a + space->a;
    float *more = (float *)(void *)(pack_b + space->b),
          *sum = dtype == WEFT_F32 ? out : (char *)more + space->made;
    p.A = pack_a;
    p.B = pack_b;
    p.space = (char *)more + space->made + space->sum;
    for (int64_t at = 0; at < rows; at += CHUNK) {
        const int64_t count = rows - at < CHUNK ? rows - at : CHUNK;
        p.K = count; /* has_units() needs rows */
        p.K = padded(&p, count);
        gather(a, p.M, shared_by(a, ids), list + at, count, pack_a);
        gather(b, p.N, shared_by(b, ids), list + at, count, pack_b);
        clear_rows(pack_a, p.a_dtype, p.M, count, p.K);
        clear_rows(pack_b, p.b_dtype, p.N, count, p.K);
        p.C = rows <= CHUNK ? out : at == 0 ? sum : more;
        WEFT_TRY(cpu_gemm_check(cpu_gemm(&p)));
        if (at > 0)
            add_to(sum, more, p.M * p.N);
    }
    if (rows > CHUNK && dtype != WEFT_F32)
        cpu_narrow(dtype, sum, out, p.M * p.N);
    return WEFT_OK;
}

/* Writes the first chunk of an expert to the output and adds the other chunks. */
CPU_KERNEL_WITH(expert_matmul_dw, .kernel.prepared = dw_code, .workspace = dw_workspace,
                .narrow = CPU_ALL)
{
    const weft_shape *w = &args->out[0].shape;
    const int64_t experts = w->dim[0],
                  each = w->dim[1] * w->dim[2] * weft_dtype_bytes(args->out[0].dtype);
    const expert_space space = dw_space(args);
    by_expert by;
    WEFT_TRY(sort_rows(args, experts, &by));
    for (int64_t e = 0; e < experts; e++) {
        char *out = (char *)args->out[0].data + e * each;
        const int64_t rows = by.first[e + 1] - by.first[e];
        if (rows == 0)
            memset(out, 0, (size_t)each);
        else
            WEFT_TRY(expert_dw(args, &space, by.list + by.first[e], rows, out));
    }
    return WEFT_OK;
}
