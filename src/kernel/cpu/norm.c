/* Norms, modulation, rope: rows of C elements on threads. Gradients of operands shared by many rows
 * are summed in a fixed number of row chunks, with partial sums in the workspace. The chunks are
 * added in order, so the result does not depend on the number of threads.
 *
 * Large operands have a row for each row of the result. Large operands of one type, f32 or bf16,
 * are read and written in place. Other combinations of types pass through buffers of a few rows.
 * Small operands (gamma, scale, angles) are read in f32, a row at a time. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/operands.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>
#include <omp.h>

enum { MAX_CHUNKS = 64, MIN_ROWS = 16, LARGE = 3, SMALL = 2, SUMS = 2 };
/* Ranges of rows per thread where no sums depend on the ranges. */
enum { THREAD_CHUNKS = 4 };

static int64_t chunk_count(int64_t rows)
{
    const int64_t chunks = (rows + MIN_ROWS - 1) / MIN_ROWS;
    return chunks < 1 ? 1 : chunks < MAX_CHUNKS ? chunks : MAX_CHUNKS;
}

/* Rows of one call. in, out: large operands. small: f32; NULL: absent. sums: partial sums; NULL:
 * not computed. */
typedef struct row_piece {
    const weft_kernel_args *args;
    const cpu_operands *o;
    const void *in[LARGE - 1];
    const float *small[SMALL];
    void *out;
    float *sums[SUMS];
    int64_t rows, C;
} row_piece;

/* The operands of a kernel as (groups, rows, C). */
typedef struct row_kernel {
    void (*compute)(const row_piece *p);
    /* Computes element i of the large operands, with element `at` of the small operands, for
     * broadcasts that are not groups of rows. */
    void (*element)(const weft_kernel_args *args, int64_t i, int64_t at);
    int large[LARGE - 1], small[SMALL]; /* inputs; -1: none. Output 0 is large */
    int64_t groups, rows, C, chunks;    /* chunks per group */
    int sums;                           /* outputs after output 0, which are sums over rows */
    bool f32;                           /* compute needs f32 cells */
    /* Distances in a small operand between groups, which repeat after `alike` groups (0: all
     * different), and between rows (0: a row of C elements is shared by the group). */
    int64_t group_step, alike, row_step;
} row_kernel;

static row_kernel rows_of(const weft_view *x)
{
    row_kernel k = {.large = {0, -1}, .small = {-1, -1}, .groups = 1, .C = view_last(x)};
    k.rows = k.C ? view_count(x) / k.C : 0;
    k.chunks = chunk_count(k.rows);
    return k;
}

static int present(const weft_kernel_args *args, int i)
{
    return args->in_count > i && view_present(&args->in[i]) ? i : -1;
}

/* ---- pieces -------------------------------------------------------------------------------- */

static cpu_operands operands_of(const weft_kernel_args *args, const row_kernel *k)
{
    uint32_t large = CPU_OUTPUT;
    for (int i = 0; i < LARGE - 1; i++)
        large |= k->large[i] >= 0 ? 1u << k->large[i] : 0;
    return cpu_operands_of(args, large, k->f32);
}

/* Rows of a piece that has buffers: 4 or another multiple of 4, because functions on cells combine
 * rows in pairs or fours. */
static int64_t buffered_rows(int64_t C)
{
    enum { FLOATS = 2048 };
    const int64_t rows = C ? FLOATS / C / 4 * 4 : 4;
    return rows < 4 ? 4 : rows;
}

/* Floats of the buffers of one thread. Angles of a row are at most half of the row's elements. */
static int64_t buffer_floats(const weft_kernel_args *args, const row_kernel *k)
{
    bool direct = operands_of(args, k).direct;
    for (int i = 0; i < SMALL; i++)
        direct &= k->small[i] < 0 || cpu_is_cells(&args->in[k->small[i]], WEFT_F32);
    return direct ? 0 : (buffered_rows(k->C) * (2 * LARGE + SMALL) / 2 * k->C + 15) / 16 * 16;
}

static int64_t partial_floats(const row_kernel *k)
{
    return k->sums ? (k->groups * k->chunks * SUMS * k->C + 15) / 16 * 16 : 0;
}

/* Workspace: partial sums [group][chunk][2][C], and the buffers of each thread. */
static int64_t row_workspace(const weft_kernel_args *args, const row_kernel *k)
{
    return 4 * (partial_floats(k) + args->threads * buffer_floats(args, k));
}

/* Computes rows [row, row + p->rows) of a group. */
static void compute_piece(const row_kernel *k, row_piece *p, int64_t group, int64_t row,
                          float *buffer)
{
    const weft_kernel_args *args = p->args;
    const int64_t large = buffered_rows(k->C) * k->C, at = (group * k->rows + row) * k->C;
    for (int i = 0; i < LARGE - 1; i++, buffer += large)
        if (k->large[i] >= 0)
            p->in[i] = cpu_read(p->o, &args->in[k->large[i]], at, p->rows * k->C, buffer);
    p->out = cpu_write(p->o, &args->out[0], at, buffer);
    buffer += large;
    for (int i = 0; i < SMALL; i++, buffer += large / 2) {
        const int64_t first = (k->alike ? group % k->alike : group) * k->group_step;
        if (k->small[i] < 0)
            continue;
        p->small[i] = cpu_read_f32(p->o, &args->in[k->small[i]], first + row * k->row_step,
                                   k->row_step ? p->rows * k->row_step : k->C, buffer);
    }
    k->compute(p);
    cpu_written(p->o, &args->out[0], at, p->rows * k->C, p->out);
}

static void gather_partials(const float *partial, int64_t chunks, int64_t C, float *out)
{
    memset(out, 0, (size_t)C * sizeof *out);
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        for (int64_t c = 0; c < C; c++)
            out[c] += partial[chunk * SUMS * C + c];
}

static weft_status_code compute_rows(const weft_kernel_args *args, const row_kernel *k)
{
    const cpu_operands o = operands_of(args, k);
    const int64_t space = buffer_floats(args, k);
    const bool by_piece = !o.direct || (space && k->row_step);
    const int64_t most = by_piece ? buffered_rows(k->C) : INT64_MAX;
    const int wanted = cpu_threads(k->groups * k->rows * k->C),
              threads = space && wanted > args->threads ? args->threads : wanted;
    const int64_t chunks =
        k->sums || k->chunks < THREAD_CHUNKS * threads ? k->chunks : THREAD_CHUNKS * threads;
    float *partial = args->workspace, *buffers = partial + partial_floats(k);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t task = 0; task < k->groups * chunks; task++) {
        const int64_t chunk = task % chunks, stop = k->rows * (chunk + 1) / chunks;
        row_piece p = {.args = args, .o = &o, .C = k->C};
        for (int i = 0; i < k->sums; i++) {
            p.sums[i] = partial + (task * SUMS + i) * k->C;
            memset(p.sums[i], 0, (size_t)k->C * sizeof *p.sums[i]);
        }
        for (int64_t row = k->rows * chunk / chunks; row < stop; row += p.rows) {
            p.rows = stop - row < most ? stop - row : most;
            compute_piece(k, &p, task / chunks, row, buffers + omp_get_thread_num() * space);
        }
    }
    for (int i = 0; i < k->sums; i++)
        for (int64_t group = 0; group < k->groups; group++)
            gather_partials(partial + (group * k->chunks * SUMS + i) * k->C, k->chunks, k->C,
                            (float *)args->out[i + 1].data + group * k->C);
    return WEFT_OK;
}

/* The kernel `name`, whose operands are `shape`. */
#define ROW_KERNEL(name, shape)                                                                    \
    static int64_t name##_workspace(const weft_kernel_args *args)                                  \
    {                                                                                              \
        const row_kernel k = shape;                                                                \
        return row_workspace(args, &k);                                                            \
    }                                                                                              \
    CPU_KERNEL_WITH(name, .workspace = name##_workspace, .narrow = CPU_ALL)                        \
    {                                                                                              \
        const row_kernel k = shape;                                                                \
        return compute_rows(args, &k);                                                             \
    }

/* ---- norms --------------------------------------------------------------------------------- */

static float eps_of(const row_piece *p)
{
    return (float)((const weft_attr_norm *)p->args->attr)->eps;
}

static bool is_l2(const row_piece *p)
{
    return ((const weft_attr_norm *)p->args->attr)->l2;
}

static row_kernel norm_rows(const weft_kernel_args *args, void (*compute)(const row_piece *p))
{
    row_kernel k = rows_of(&args->in[0]);
    k.compute = compute;
    k.small[0] = present(args, 1);
    k.small[1] = present(args, 2);
    return k;
}

static row_kernel norm_grad_rows(const weft_kernel_args *args, void (*compute)(const row_piece *p))
{
    row_kernel k = rows_of(&args->in[0]);
    k.compute = compute;
    k.large[1] = 1;
    k.small[0] = present(args, 2);
    k.sums = args->out_count - 1;
    return k;
}

static void layer_norm(const row_piece *p)
{
    p->o->run->layer_norm(p->in[0], p->small[0], p->small[1], p->out, p->rows, p->C, eps_of(p));
}

static void layer_norm_grad(const row_piece *p)
{
    p->o->run->layer_norm_grad(p->in[0], p->in[1], p->small[0], p->out, p->sums[0], p->sums[1],
                               p->rows, p->C, eps_of(p));
}

static void rms_norm(const row_piece *p)
{
    p->o->run->rms_norm(p->in[0], p->small[0], p->out, p->rows, p->C, eps_of(p), is_l2(p));
}

static void rms_norm_grad(const row_piece *p)
{
    p->o->run->rms_norm_grad(p->in[0], p->in[1], p->small[0], p->out, p->sums[0], p->rows, p->C,
                             eps_of(p), is_l2(p));
}

ROW_KERNEL(layer_norm, norm_rows(args, layer_norm))
ROW_KERNEL(layer_norm_grad, norm_grad_rows(args, layer_norm_grad))
ROW_KERNEL(rms_norm, norm_rows(args, rms_norm))
ROW_KERNEL(rms_norm_grad, norm_grad_rows(args, rms_norm_grad))

/* Needs f32 cells: the exponentials of a row are stored in the row of the result. */
static void softmax(const row_piece *p)
{
    const cpu_cells *run = p->o->run;
    for (int64_t row = 0; row < p->rows; row++) {
        const float *from = (const float *)p->in[0] + row * p->C;
        float *to = (float *)p->out + row * p->C, most = from[0];
        for (int64_t c = 1; c < p->C; c++)
            most = from[c] > most ? from[c] : most;
        run->affine(from, to, p->C, 1, -most);
        run->unary[CPU_EXP](to, to, p->C);
        run->affine(to, to, p->C, (float)(1 / run->total(to, p->C)), 0);
    }
}

static row_kernel softmax_rows(const weft_kernel_args *args)
{
    row_kernel k = rows_of(&args->in[0]);
    k.compute = softmax;
    k.f32 = true;
    return k;
}

ROW_KERNEL(softmax, softmax_rows(args))

/* ---- modulation ------------------------------------------------------------------------------ */

/* Sets x as (groups, rows, C) with small operands of (groups, 1, C): (B,1,C) on (B,S,C), (1,1,C),
 * or the complete size with rows = 1. False for other broadcasts, which the loops below compute. */
static bool groups_in(const weft_shape *x, const weft_shape *small, row_kernel *k)
{
    if (x->rank == 0)
        return false;
    int shared = 0;
    while (shared < x->rank - 1 && small->dim[shared] == x->dim[shared])
        shared++;
    for (int d = shared; d < x->rank - 1; d++)
        if (small->dim[d] != 1)
            return false;
    if (small->dim[x->rank - 1] != x->dim[x->rank - 1])
        return false;
    k->groups = shape_span(x, 0, shared);
    k->rows = shape_span(x, shared, x->rank - 1);
    k->C = k->group_step = x->dim[x->rank - 1];
    k->chunks = chunk_count(k->rows);
    return true;
}

static int64_t view_offset(const weft_view *v, const int64_t *index)
{
    int64_t stride[WEFT_MAX_RANK], sum = 0;
    shape_strides(&v->shape, stride);
    for (int d = 0; d < v->shape.rank; d++)
        sum += index[d] * stride[d];
    return sum;
}

static bool grouped(const weft_kernel_args *args, row_kernel *k)
{
    return groups_in(&args->in[0].shape, &args->in[k->small[0]].shape, k);
}

static int64_t group_workspace(const weft_kernel_args *args, row_kernel k)
{
    return grouped(args, &k) ? row_workspace(args, &k) : 0;
}

static weft_status_code compute_groups(const weft_kernel_args *args, row_kernel k)
{
    if (grouped(args, &k))
        return compute_rows(args, &k);
    for (int o = 1; o <= k.sums; o++)
        memset(args->out[o].data, 0, (size_t)view_count(&args->out[o]) * sizeof(float));
    int64_t index[WEFT_MAX_RANK] = {0};
    const weft_view *x = &args->in[0];
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index))
        k.element(args, i, view_offset(&args->in[k.small[0]], index));
    return WEFT_OK;
}

/* The kernel `name`, with name_rows and name_element. The initializer sets other members of
 * row_kernel. */
#define GROUP_KERNEL(name, ...)                                                                    \
    static const row_kernel name##_kernel_rows = {                                                 \
        .compute = name##_rows, .element = name##_element, __VA_ARGS__};                           \
    static int64_t name##_workspace(const weft_kernel_args *args)                                  \
    {                                                                                              \
        return group_workspace(args, name##_kernel_rows);                                          \
    }                                                                                              \
    CPU_KERNEL_WITH(name, .workspace = name##_workspace, .narrow = CPU_ALL)                        \
    {                                                                                              \
        return compute_groups(args, name##_kernel_rows);                                           \
    }

static float in(const weft_kernel_args *args, int input, int64_t i)
{
    return (float)view_get(&args->in[input], i);
}

static void add_to(const weft_view *sums, int64_t i, float term)
{
    ((float *)sums->data)[i] += term;
}

static void modulate_rows(const row_piece *p)
{
    p->o->run->modulate(p->in[0], p->small[0], p->small[1], p->out, p->rows, p->C);
}

static void modulate_element(const weft_kernel_args *args, int64_t i, int64_t at)
{
    view_set(&args->out[0], i, in(args, 0, i) * (1 + in(args, 1, at)) + in(args, 2, at));
}

static void gated_add_rows(const row_piece *p)
{
    p->o->run->gated_add(p->in[0], p->in[1], p->small[0], p->out, p->rows, p->C);
}

static void gated_add_element(const weft_kernel_args *args, int64_t i, int64_t at)
{
    view_set(&args->out[0], i, in(args, 0, i) + in(args, 2, at) * in(args, 1, i));
}

static void modulate_grad_rows(const row_piece *p)
{
    p->o->run->modulate_grad(p->in[0], p->small[0], p->in[1], p->out, p->sums[0], p->sums[1],
                             p->rows, p->C);
}

static void modulate_grad_element(const weft_kernel_args *args, int64_t i, int64_t at)
{
    const float dy = in(args, 2, i);
    add_to(&args->out[1], at, dy * in(args, 0, i));
    add_to(&args->out[2], at, dy);
    view_set(&args->out[0], i, dy * (1 + in(args, 1, at)));
}

static void gated_add_grad_rows(const row_piece *p)
{
    p->o->run->gated_add_grad(p->in[0], p->small[0], p->in[1], p->out, p->sums[0], p->rows, p->C);
}

static void gated_add_grad_element(const weft_kernel_args *args, int64_t i, int64_t at)
{
    const float dout = in(args, 2, i);
    add_to(&args->out[1], at, dout * in(args, 0, i));
    view_set(&args->out[0], i, dout * in(args, 1, at));
}

GROUP_KERNEL(modulate, .large = {0, -1}, .small = {1, 2})
GROUP_KERNEL(gated_add, .large = {0, 1}, .small = {2, -1})
GROUP_KERNEL(modulate_grad, .large = {0, 2}, .small = {1, -1}, .sums = 2)
GROUP_KERNEL(gated_add_grad, .large = {0, 2}, .small = {1, -1}, .sums = 1)

/* ---- rope ------------------------------------------------------------------------------------ */

static void rope(const row_piece *p)
{
    const weft_attr_rope *attr = p->args->attr;
    const int64_t H = p->args->in[0].shape.dim[2], D = p->args->in[0].shape.dim[3];
    const weft_shape *c = &p->args->in[1].shape;
    const bool each = c->rank == 4 && c->dim[2] > 1; /* heads have angles of their own */
    (attr->rotate_half ? p->o->run->rope_half : p->o->run->rope)(
        p->in[0], p->small[0], p->small[1], attr->inverse ? -1.0f : 1.0f, p->out,
        each ? p->rows * H : p->rows, each ? 1 : H, D);
}

static row_kernel rope_rows(const weft_kernel_args *args)
{
    const weft_shape *s = &args->in[0].shape, *c = &args->in[1].shape;
    const int64_t S = s->dim[1], H = s->dim[2], D = s->dim[3];
    const int64_t row = (c->rank == 4 ? c->dim[2] : 1) * (D / 2);
    return (row_kernel){.compute = rope,
                        .large = {0, -1},
                        .small = {1, 2},
                        .groups = s->dim[0],
                        .rows = S,
                        .C = H * D,
                        .chunks = chunk_count(S),
                        .group_step = S * row,
                        .alike = c->rank == 4 ? c->dim[0] : 1,
                        .row_step = row};
}

ROW_KERNEL(rope, rope_rows(args))

/* Workspace of cos and sin for every position of each dim of the grid, [position][pair], dim after
 * dim. */
static int64_t rope_table_floats(const weft_attr_rope_table *a)
{
    int64_t floats = 0;
    for (int d = 0; d < 3; d++)
        floats += a->grid[d] * a->pairs[d];
    return floats;
}

static int64_t rope_table_workspace(const weft_kernel_args *args)
{
    return 2 * rope_table_floats(args->attr) * (int64_t)sizeof(float);
}

/* The angles of a token are the angles of its row, column and frame. cos and sin are computed once
 * per position of a dim, and a token copies three runs. */
CPU_KERNEL_WITH(rope_table, .workspace = rope_table_workspace)
{
    const weft_attr_rope_table *a = args->attr;
    float *cosine = args->workspace, *sine = cosine + rope_table_floats(a);
    int64_t first[3] = {0}, at = 0;
    for (int d = 0; d < 3; d++) {
        first[d] = at;
        for (int64_t position = 0; position < a->grid[d]; position++)
            for (int64_t i = 0; i < a->pairs[d]; i++, at++) {
                const double frequency = 1.0 / pow(a->theta[d], (double)i / (double)a->pairs[d]);
                const double where = a->origin[d] + (double)position * a->step[d];
                cosine[at] = (float)cos(where * frequency);
                sine[at] = (float)sin(where * frequency);
            }
    }
    const int64_t pairs = a->pairs[0] + a->pairs[1] + a->pairs[2], grid_x = a->grid[2],
                  grid_yx = a->grid[1] * grid_x;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(a->len *pairs))
    for (int64_t t = 0; t < a->len; t++) {
        const int64_t s = a->start + t - a->before;
        float *c = (float *)args->out[0].data + t * pairs,
              *o = (float *)args->out[1].data + t * pairs;
        if (s < 0 || s >= a->grid[0] * grid_yx) { /* a token without rotation */
            for (int64_t i = 0; i < pairs; i++) {
                c[i] = 1;
                o[i] = 0;
            }
            continue;
        }
        const int64_t position[3] = {s / grid_yx, s / grid_x % a->grid[1], s % grid_x};
        for (int d = 0; d < 3; d++) {
            const int64_t run = first[d] + position[d] * a->pairs[d];
            memcpy(c, cosine + run, (size_t)a->pairs[d] * sizeof *c);
            memcpy(o, sine + run, (size_t)a->pairs[d] * sizeof *o);
            c += a->pairs[d];
            o += a->pairs[d];
        }
    }
    return WEFT_OK;
}
