/* Data movement (any dtype, by element size), sums, embedding. */
#include "format/tensors/quant_blocks.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/operands.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

/* ---- one dim: (outer, dim, inner) ------------------------------------------------------------ */

/* Copies `rows` runs of `bytes` with separate distances on both sides. */
static void copy_rows(const char *from, int64_t from_step, char *to, int64_t to_step, int64_t bytes,
                      int64_t rows)
{
    if (bytes == 0)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(rows *bytes / 4))
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * to_step, from + r * from_step, (size_t)bytes);
}

CPU_KERNEL_WITH(slice, .narrow = CPU_ALL)
{
    const weft_attr_slice *attr = args->attr;
    const weft_shape *s = &args->in[0].shape;
    const int64_t inner =
        shape_span(s, attr->dim + 1, s->rank) * weft_dtype_bytes(args->in[0].dtype);
    copy_rows((const char *)args->in[0].data + attr->start * inner, s->dim[attr->dim] * inner,
              args->out[0].data, attr->len * inner, attr->len * inner, shape_span(s, 0, attr->dim));
    return WEFT_OK;
}

CPU_KERNEL_WITH(pad, .narrow = CPU_ALL)
{
    const weft_attr_pad *attr = args->attr;
    const weft_shape *s = &args->in[0].shape;
    const int64_t inner =
        shape_span(s, attr->dim + 1, s->rank) * weft_dtype_bytes(args->in[0].dtype);
    const int64_t len = s->dim[attr->dim] * inner, before = attr->before * inner,
                  after = attr->after * inner;
    const int64_t outer = shape_span(s, 0, attr->dim), step = before + len + after;
    char *to = args->out[0].data;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(outer *step / 4))
    for (int64_t o = 0; o < outer; o++) {
        memset(to + o * step, 0, (size_t)before);
        if (len)
            memcpy(to + o * step + before, (const char *)args->in[0].data + o * len, (size_t)len);
        memset(to + o * step + before + len, 0, (size_t)after);
    }
    return WEFT_OK;
}

CPU_KERNEL_WITH(concat, .narrow = CPU_ALL)
{
    const weft_attr_concat *attr = args->attr;
    const weft_shape *s = &args->out[0].shape;
    const int64_t outer = shape_span(s, 0, attr->dim);
    const int64_t inner =
        shape_span(s, attr->dim + 1, s->rank) * weft_dtype_bytes(args->out[0].dtype);
    int64_t start = 0;
    for (int n = 0; n < args->in_count; n++) {
        const int64_t len = args->in[n].shape.dim[attr->dim];
        copy_rows(args->in[n].data, len * inner, (char *)args->out[0].data + start * inner,
                  s->dim[attr->dim] * inner, len * inner, outer);
        start += len;
    }
    return WEFT_OK;
}

/* ---- strided copies: permute and broadcast --------------------------------------------------- */

/* The dims of the output. Adjacent dims are joined if the input has one stride along both. Strides
 * are in elements. */
typedef struct joined_dims {
    int rank;
    int64_t dim[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
} joined_dims;

static joined_dims join_dims(const weft_shape *out, const int64_t *stride)
{
    joined_dims w = {0};
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] == 1)
            continue;
        if (w.rank && w.stride[w.rank - 1] == stride[d] * out->dim[d]) {
            w.dim[w.rank - 1] *= out->dim[d];
            w.stride[w.rank - 1] = stride[d];
            continue;
        }
        w.dim[w.rank] = out->dim[d];
        w.stride[w.rank++] = stride[d];
    }
    if (w.rank == 0)
        w = (joined_dims){.rank = 1, .dim = {1}, .stride = {1}};
    return w;
}

#define STRIDED(type)                                                                              \
    do {                                                                                           \
        const type *x = (const type *)from + at;                                                   \
        type *y = (type *)to + row * len;                                                          \
        for (int64_t i = 0; i < len; i++)                                                          \
            y[i] = x[i * stride];                                                                  \
    } while (0)

static int64_t row_offset(const joined_dims *w, int64_t row)
{
    int64_t at = 0;
    for (int d = w->rank - 2; d >= 0; d--) {
        at += row % w->dim[d] * w->stride[d];
        row /= w->dim[d];
    }
    return at;
}

enum { LINE = 64 }; /* bytes */

/* Copies rows [m0, m1) of N columns to y from x, whose rows are adjacent elements and whose columns
 * are `stride` elements apart. */
#define TRANSPOSE(type)                                                                            \
    do {                                                                                           \
        const type *x = (const type *)from + at;                                                   \
        type *y = (type *)to + row * N;                                                            \
        for (int64_t n0 = 0; n0 < N; n0 += tile)                                                   \
            for (int64_t m = m0; m < m1; m++)                                                      \
                for (int64_t n = n0; n < (n0 + tile < N ? n0 + tile : N); n++)                     \
                    y[m * N + n] = x[m + n * stride];                                              \
    } while (0)

/* Transposes the last two dims in square tiles of one line, so that both sides use complete cache
 * lines. Elements of 2 or 4 bytes. */
static void transpose(const joined_dims *w, const char *from, char *to, int64_t count,
                      int64_t bytes)
{
    const int64_t M = w->dim[w->rank - 2], N = w->dim[w->rank - 1], stride = w->stride[w->rank - 1];
    const int64_t tile = LINE / bytes, strips = (M + tile - 1) / tile;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *bytes / 4))
    for (int64_t task = 0; task < count / (M * N) * strips; task++) {
        const int64_t m0 = task % strips * tile, m1 = m0 + tile < M ? m0 + tile : M,
                      row = task / strips * M, at = row_offset(w, row);
        if (bytes == 4)
            TRANSPOSE(uint32_t);
        else
            TRANSPOSE(uint16_t);
    }
}

static void strided_copy(const weft_kernel_args *args, const int64_t *strides)
{
    const weft_view *out = &args->out[0];
    const int64_t count = view_count(out), bytes = weft_dtype_bytes(out->dtype);
    if (count == 0)
        return;
    const joined_dims w = join_dims(&out->shape, strides);
    const int64_t len = w.dim[w.rank - 1], stride = w.stride[w.rank - 1], rows = count / len;
    const char *from = args->in[0].data;
    char *to = out->data;
    if ((bytes == 4 || bytes == 2) && w.rank > 1 && stride > 1 && w.stride[w.rank - 2] == 1) {
        transpose(&w, from, to, count, bytes);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *bytes / 4))
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row_offset(&w, row);
        if (stride == 1)
            memcpy(to + row * len * bytes, from + at * bytes, (size_t)(len * bytes));
        else if (bytes == 4)
            STRIDED(uint32_t);
        else if (bytes == 2)
            STRIDED(uint16_t);
        else if (bytes == 8)
            STRIDED(uint64_t);
        else
            STRIDED(uint8_t);
    }
}

CPU_KERNEL_WITH(permute, .narrow = CPU_ALL)
{
    const weft_attr_permute *attr = args->attr;
    int64_t own[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
    shape_strides(&args->in[0].shape, own);
    for (int d = 0; d < args->in[0].shape.rank; d++)
        stride[d] = own[attr->perm[d]];
    strided_copy(args, stride);
    return WEFT_OK;
}

CPU_KERNEL_WITH(broadcast, .narrow = CPU_ALL)
{
    int64_t stride[WEFT_MAX_RANK];
    shape_strides(&args->in[0].shape, stride);
    strided_copy(args, stride);
    return WEFT_OK;
}

/* ---- sum ----------------------------------------------------------------------------------- */

/* Lists runs of adjacent dims that are all kept or all reduced, outermost first. sizes[0] is
 * kept. */
static int sum_runs(const weft_shape *s, uint32_t dims, int64_t sizes[WEFT_MAX_RANK + 2])
{
    int count = 1;
    sizes[0] = 1;
    for (int d = 0; d < s->rank; d++) {
        if (s->dim[d] == 1)
            continue;
        const bool reduced = dims >> d & 1;
        if (reduced != (count % 2 == 0))
            sizes[count++] = 1;
        sizes[count - 1] *= s->dim[d];
    }
    if (count % 2 == 0)
        sizes[count++] = 1;
    return count; /* odd: kept, reduced, kept, ... , kept */
}

enum { SUM_ROWS = 256, MAX_PARTS = 64 };

static int64_t sum_parts(int64_t rows)
{
    const int64_t parts = (rows + SUM_ROWS - 1) / SUM_ROWS;
    return parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
}

/* Workspace for sums of kept K, reduced R, kept C: a fixed number of partial sums over runs of R,
 * added in order. For other sums in a narrow type: f32 sums. */
static int64_t sum_workspace(const weft_kernel_args *args)
{
    int64_t sizes[WEFT_MAX_RANK + 2];
    const int runs = sum_runs(&args->in[0].shape, ((const weft_attr_sum *)args->attr)->dims, sizes);
    if (runs == 3)
        return sizes[2] > 1 ? sizes[0] * sum_parts(sizes[1]) * sizes[2] * 4 : 0;
    return runs > 3 ? view_count(&args->out[0]) * 4 : 0;
}

static void sum_inner(const weft_kernel_args *args, int64_t K, int64_t R)
{
    const cpu_operands o = cpu_operands_of(args, 1, false);
    const weft_view *x = &args->in[0], *y = &args->out[0];
    if (K >= 16 || R < 65536) {
#pragma omp parallel for schedule(static) num_threads(cpu_threads(K *R))
        for (int64_t k = 0; k < K; k++)
            view_set(y, k, (float)cpu_total(&o, x, k * R, R, false));
        return;
    }
    for (int64_t k = 0; k < K; k++) {
        double part[MAX_PARTS];
#pragma omp parallel for schedule(static) num_threads(cpu_threads(R))
        for (int64_t p = 0; p < MAX_PARTS; p++)
            part[p] = cpu_total(&o, x, k * R + R * p / MAX_PARTS,
                                R * (p + 1) / MAX_PARTS - R * p / MAX_PARTS, false);
        double sum = 0;
        for (int64_t p = 0; p < MAX_PARTS; p++)
            sum += part[p];
        view_set(y, k, (float)sum);
    }
}

/* sums[c] += elements of `rows` rows of C from element `at` */
static void add_rows(const cpu_operands *o, const weft_view *x, int64_t at, int64_t rows, int64_t C,
                     float *sums)
{
    enum { PIECE = 1024 };
    float space[PIECE];
    if (o->direct) {
        o->run->column_sums(cpu_element(x, at), rows, C, sums);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < C; c += PIECE) {
            const int64_t n = C - c < PIECE ? C - c : PIECE;
            o->run->column_sums(cpu_read(o, x, at + r * C + c, n, space), 1, n, sums + c);
        }
}

static void write_f32(const weft_view *y, int64_t at, int64_t n, const float *from)
{
    if (y->dtype == WEFT_F32)
        memcpy(cpu_element(y, at), from, (size_t)n * sizeof *from);
    else
        cpu_narrow_run(y->dtype, from, cpu_element(y, at), n);
}

static void sum_columns(const weft_kernel_args *args, int64_t K, int64_t R, int64_t C)
{
    const int64_t parts = sum_parts(R);
    const cpu_operands o = cpu_operands_of(args, 1, false);
    float *partial = args->workspace;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(K *R *C))
    for (int64_t task = 0; task < K * parts; task++) {
        const int64_t k = task / parts, p = task % parts, from = R * p / parts,
                      to = R * (p + 1) / parts;
        memset(partial + task * C, 0, (size_t)C * sizeof *partial);
        add_rows(&o, &args->in[0], (k * R + from) * C, to - from, C, partial + task * C);
    }
    for (int64_t k = 0; k < K; k++) { /* the other parts are added to the first */
        float *sums = partial + k * parts * C;
        o.isa->f32->column_sums(sums + C, parts - 1, C, sums);
        write_f32(&args->out[0], k * C, C, sums);
    }
}

/* Two or more separate runs of reduced dims, which are rare. */
static void sum_separate(const weft_kernel_args *args)
{
    const weft_view *in = &args->in[0], *out = &args->out[0];
    float *sums = args->workspace;
    int64_t index[WEFT_MAX_RANK] = {0}, stride[WEFT_MAX_RANK];
    memset(sums, 0, (size_t)view_count(out) * sizeof *sums);
    shape_strides(&out->shape, stride);
    for (int64_t i = 0, n = view_count(in); i < n; i++, shape_next(&in->shape, index)) {
        int64_t at = 0;
        for (int d = 0; d < in->shape.rank; d++)
            at += index[d] * stride[d];
        sums[at] += (float)view_get(in, i);
    }
    write_f32(out, 0, view_count(out), sums);
}

CPU_KERNEL_WITH(sum, .workspace = sum_workspace, .narrow = CPU_ALL)
{
    const weft_view *in = &args->in[0], *out = &args->out[0];
    int64_t sizes[WEFT_MAX_RANK + 2];
    const int runs = sum_runs(&in->shape, ((const weft_attr_sum *)args->attr)->dims, sizes);
    if (view_count(in) == 0)
        memset(out->data, 0, (size_t)(view_count(out) * weft_dtype_bytes(out->dtype)));
    else if (runs == 1)
        memmove(out->data, in->data, (size_t)(sizes[0] * weft_dtype_bytes(out->dtype)));
    else if (runs == 3 && sizes[2] == 1)
        sum_inner(args, sizes[0], sizes[1]);
    else if (runs == 3)
        sum_columns(args, sizes[0], sizes[1], sizes[2]);
    else
        sum_separate(args);
    return WEFT_OK;
}

/* ---- embedding ------------------------------------------------------------------------------- */

/* A thread copies complete rows, which may have a few floats each. */
CPU_KERNEL_WITH(embed, .narrow = CPU_ALL)
{
    const weft_view *table = &args->in[0], *ids = &args->in[1];
    const int64_t count = view_count(ids), width = table->shape.dim[1],
                  bytes = weft_dtype_bytes(table->dtype);
    float *y = args->out[0].data;
    WEFT_TRY(embed_check_ids(ids, table->shape.dim[0]));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *width))
    for (int64_t i = 0; i < count; i++)
        cpu_widen_run(table->dtype,
                      (const char *)table->data + view_get_int(ids, i) * width * bytes,
                      y + i * width, width);
    return WEFT_OK;
}

/* Reads each byte once and writes 4 bytes per element. A thread takes one row at a time. */
CPU_KERNEL_WITH(unpack, .narrow = CPU_ALL)
{
    const weft_attr_unpack *a = args->attr;
    const weft_packing *p = weft_packing_gguf(a->type);
    const weft_view *in = &args->in[0], *out = &args->out[0];
    const bool picks = args->in_count > 1 && view_present(&args->in[1]);
    const int64_t width = view_last(out), rows = width ? view_count(out) / width : 0,
                  bytes = width / a->elements * a->bytes; /* bytes of a row */
    float *y = out->data;
    if (picks)
        WEFT_TRY(embed_check_ids(&args->in[1], in->shape.dim[0]));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(rows *width))
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = picks ? view_get_int(&args->in[1], r) : r;
        weft_packing_expand(p, (const char *)in->data + row * bytes, 0, width, y + r * width);
    }
    return WEFT_OK;
}

/* Adds in the order of the ids. A thread owns columns, so no two threads write one element. */
CPU_KERNEL_WITH(embed_grad, .narrow = CPU_ALL)
{
    const weft_view *ids = &args->in[0], *out = &args->out[0];
    const int64_t count = view_count(ids), rows = out->shape.dim[0], width = out->shape.dim[1];
    const cpu_operands o = cpu_operands_of(args, 1 << 1, false);
    float *y = out->data;
    WEFT_TRY(embed_check_ids(ids, rows));
    memset(y, 0, (size_t)(rows * width) * sizeof *y);
    const int64_t strips = (width + 63) / 64;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count *width))
    for (int64_t strip = 0; strip < strips; strip++) {
        const int64_t c0 = strip * 64, c1 = c0 + 64 < width ? c0 + 64 : width;
        for (int64_t i = 0; i < count; i++)
            add_rows(&o, &args->in[1], i * width + c0, 1, c1 - c0,
                     y + view_get_int(ids, i) * width + c0);
    }
    return WEFT_OK;
}
