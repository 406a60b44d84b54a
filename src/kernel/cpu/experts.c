/* Experts: choice, dispatch and products.
 *
 * Products are computed expert by expert. The rows of an expert are gathered in order, CHUNK at a
 * time, multiplied by one GEMM and scattered. This moves rows (K + N) floats and computes 2 rows N
 * K FLOPs for the rows that exist, independent of the number of slots. Results do not depend on the
 * number of threads. */
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

/* Copies the listed rows of `x` to contiguous rows. A row has C floats and belongs to `shared`
 * ids. */
static void gather(const float *x, int64_t C, int64_t shared, const int64_t *list, int64_t count,
                   float *to)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *C))
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * C, x + list[i] / shared * C, (size_t)C * sizeof *to);
}

static int64_t shared_by(const weft_view *x, const weft_view *ids)
{
    return x->shape.dim[2] == ids->shape.dim[2] ? 1 : ids->shape.dim[2];
}

static int64_t chunk_of(const weft_view *ids)
{
    return view_count(ids) < CHUNK ? view_count(ids) : CHUNK;
}

static int64_t matmul_workspace(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1], *ids = &args->in[2];
    const int64_t N = w->shape.dim[1], K = w->shape.dim[2];
    return list_bytes(ids, w->shape.dim[0]) +
           4 * (chunk_of(ids) * (N + K) + (w->dtype == WEFT_F32 ? 0 : N * K));
}

CPU_KERNEL_WITH(expert_matmul, .workspace = matmul_workspace, .narrow = 1 << 1)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1], *ids = &args->in[2];
    const int64_t experts = w->shape.dim[0], N = w->shape.dim[1], K = w->shape.dim[2],
                  rows = view_count(ids), wide = attr->trans_b ? N : K,
                  deep = attr->trans_b ? K : N, shared = shared_by(x, ids);
    const int64_t each = N * K * weft_dtype_bytes(w->dtype);
    float *pack = (float *)((char *)args->workspace + list_bytes(ids, experts)),
          *made = pack + chunk_of(ids) * deep, *panel = made + chunk_of(ids) * wide,
          *y = args->out[0].data;
    by_expert by;
    WEFT_TRY(sort_rows(args, experts, &by));
    for (int64_t i = 0; i < rows; i++)
        if (((const int32_t *)ids->data)[i] < 0)
            memset(y + i * wide, 0, (size_t)wide * sizeof *y);
    for (int64_t e = 0; e < experts; e++) {
        const float *weight = (const float *)(const void *)((const char *)w->data + e * each);
        if (w->dtype != WEFT_F32 && by.first[e + 1] > by.first[e]) {
            cpu_widen(w->dtype, weight, panel, N * K);
            weight = panel;
        }
        for (int64_t at = by.first[e]; at < by.first[e + 1]; at += CHUNK) {
            const int64_t left = by.first[e + 1] - at, count = left < CHUNK ? left : CHUNK;
            const int64_t *list = by.list + at;
            gather(x->data, deep, shared, list, count, pack);
            cpu_gemm(&(cpu_product){.trans_b = attr->trans_b,
                                    .M = count,
                                    .N = wide,
                                    .K = deep,
                                    .lda = deep,
                                    .ldb = K,
                                    .ldc = wide,
                                    .A = pack,
                                    .B = weight,
                                    .C = made});
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *wide))
            for (int64_t i = 0; i < count; i++)
                memcpy(y + list[i] * wide, made + i * wide, (size_t)wide * sizeof *y);
        }
    }
    return WEFT_OK;
}

static int64_t dw_workspace(const weft_kernel_args *args)
{
    const weft_shape *w = &args->out[0].shape;
    return list_bytes(&args->in[2], w->dim[0]) +
           4 * (chunk_of(&args->in[2]) * (w->dim[1] + w->dim[2]) + w->dim[1] * w->dim[2]);
}

static void add_to(float *to, const float *from, int64_t count)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* Writes the first chunk of an expert to the output and adds the other chunks. */
CPU_KERNEL_WITH(expert_matmul_dw, .workspace = dw_workspace)
{
    const weft_view *a = &args->in[0], *b = &args->in[1], *ids = &args->in[2];
    const weft_shape *w = &args->out[0].shape;
    const int64_t experts = w->dim[0], N = w->dim[1], K = w->dim[2];
    float *pack_a = (float *)((char *)args->workspace + list_bytes(ids, experts)),
          *pack_b = pack_a + chunk_of(ids) * N, *more = pack_b + chunk_of(ids) * K;
    by_expert by;
    WEFT_TRY(sort_rows(args, experts, &by));
    for (int64_t e = 0; e < experts; e++) {
        float *out = (float *)args->out[0].data + e * N * K;
        if (by.first[e + 1] == by.first[e])
            memset(out, 0, (size_t)(N * K) * sizeof *out);
        for (int64_t at = by.first[e]; at < by.first[e + 1]; at += CHUNK) {
            const int64_t left = by.first[e + 1] - at, count = left < CHUNK ? left : CHUNK;
            const bool begins = at == by.first[e];
            gather(a->data, N, shared_by(a, ids), by.list + at, count, pack_a);
            gather(b->data, K, shared_by(b, ids), by.list + at, count, pack_b);
            cpu_gemm(&(cpu_product){.trans_a = true,
                                    .M = N,
                                    .N = K,
                                    .K = count,
                                    .lda = N,
                                    .ldb = K,
                                    .ldc = K,
                                    .A = pack_a,
                                    .B = pack_b,
                                    .C = begins ? out : more});
            if (!begins)
                add_to(out, more, N * K);
        }
    }
    return WEFT_OK;
}
