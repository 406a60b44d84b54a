/* Norms, modulation, rope: rows of C floats on threads. Gradients of operands shared by many rows
 * are summed in a fixed number of row chunks, with partial sums in the workspace. The chunks are
 * added in order, so the result does not depend on the number of threads. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>

enum { MAX_CHUNKS = 64, MIN_ROWS = 16 };

static int64_t chunk_count(int64_t rows)
{
    const int64_t chunks = (rows + MIN_ROWS - 1) / MIN_ROWS;
    return chunks < 1 ? 1 : chunks < MAX_CHUNKS ? chunks : MAX_CHUNKS;
}

static const float *optional(const weft_kernel_args *args, int i)
{
    return args->in_count > i && view_present(&args->in[i]) ? args->in[i].data : NULL;
}

typedef struct rows_of {
    int64_t rows, C, chunks;
} rows_of;

static rows_of rows_in(const weft_view *x)
{
    rows_of r = {.C = view_last(x)};
    r.rows = r.C ? view_count(x) / r.C : 0;
    r.chunks = chunk_count(r.rows);
    return r;
}

/* clang-format off */
#define EACH_CHUNK(r)                                                                       \
    _Pragma("omp parallel for schedule(static) num_threads(cpu_threads((r).rows * (r).C))") \
    for (int64_t chunk = 0; chunk < (r).chunks; chunk++)
/* clang-format on */
#define CHUNK_START(r) ((r).rows * chunk / (r).chunks)
#define CHUNK_ROWS(r)  ((r).rows * (chunk + 1) / (r).chunks - (r).rows * chunk / (r).chunks)

CPU_KERNEL(layer_norm)
{
    const weft_attr_norm *attr = args->attr;
    const rows_of r = rows_in(&args->in[0]);
    const float *x = args->in[0].data, *gamma = optional(args, 1), *beta = optional(args, 2);
    float *y = args->out[0].data;
    const cpu_isa *isa = cpu_isa_get();
    EACH_CHUNK(r)
    {
        const int64_t at = CHUNK_START(r) * r.C;
        isa->layer_norm(x + at, gamma, beta, y + at, CHUNK_ROWS(r), r.C, (float)attr->eps);
    }
    return WEFT_OK;
}

CPU_KERNEL(rms_norm)
{
    const weft_attr_norm *attr = args->attr;
    const rows_of r = rows_in(&args->in[0]);
    const float *x = args->in[0].data, *gamma = optional(args, 1);
    float *y = args->out[0].data;
    const cpu_isa *isa = cpu_isa_get();
    EACH_CHUNK(r)
    {
        const int64_t at = CHUNK_START(r) * r.C;
        isa->rms_norm(x + at, gamma, y + at, CHUNK_ROWS(r), r.C, (float)attr->eps, attr->l2);
    }
    return WEFT_OK;
}

CPU_KERNEL(softmax)
{
    const rows_of r = rows_in(&args->in[0]);
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    const cpu_isa *isa = cpu_isa_get();
    EACH_CHUNK(r)
    {
        for (int64_t row = CHUNK_START(r), left = CHUNK_ROWS(r); left > 0; row++, left--) {
            const float *from = x + row * r.C;
            float *to = y + row * r.C, most = from[0];
            for (int64_t c = 1; c < r.C; c++)
                most = from[c] > most ? from[c] : most;
            isa->affine(from, to, r.C, 1, -most);
            isa->unary[CPU_EXP](to, to, r.C);
            isa->affine(to, to, r.C, (float)(1 / isa->total(to, r.C)), 0);
        }
    }
    return WEFT_OK;
}

/* Partial sums: [chunk][2][C], with out[k] = sum over chunks. */
static int64_t norm_grad_workspace(const weft_kernel_args *args)
{
    const rows_of r = rows_in(&args->in[0]);
    return r.chunks * 2 * r.C * 4;
}

static void gather_partials(const float *partial, int64_t chunks, int64_t C, int k, float *out)
{
    memset(out, 0, (size_t)C * sizeof *out);
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        for (int64_t c = 0; c < C; c++)
            out[c] += partial[(chunk * 2 + k) * C + c];
}

static weft_status_code norm_grad(const weft_kernel_args *args, bool layer)
{
    const weft_attr_norm *attr = args->attr;
    const rows_of r = rows_in(&args->in[0]);
    const float *x = args->in[0].data, *dy = args->in[1].data, *gamma = optional(args, 2);
    float *dx = args->out[0].data, *partial = args->workspace;
    const bool weights = args->out_count > 1;
    const cpu_isa *isa = cpu_isa_get();
    EACH_CHUNK(r)
    {
        const int64_t at = CHUNK_START(r) * r.C;
        float *dgamma = weights ? partial + chunk * 2 * r.C : NULL,
              *dbeta = weights ? dgamma + r.C : NULL;
        if (weights)
            memset(dgamma, 0, (size_t)(2 * r.C) * sizeof *dgamma);
        if (layer)
            isa->layer_norm_grad(x + at, dy + at, gamma, dx + at, dgamma, dbeta, CHUNK_ROWS(r), r.C,
                                 (float)attr->eps);
        else
            isa->rms_norm_grad(x + at, dy + at, gamma, dx + at, dgamma, CHUNK_ROWS(r), r.C,
                               (float)attr->eps, attr->l2);
    }
    for (int o = 1; o < args->out_count; o++)
        gather_partials(partial, r.chunks, r.C, o - 1, args->out[o].data);
    return WEFT_OK;
}

CPU_KERNEL_WITH(layer_norm_grad, .workspace = norm_grad_workspace)
{
    return norm_grad(args, true);
}

CPU_KERNEL_WITH(rms_norm_grad, .workspace = norm_grad_workspace)
{
    return norm_grad(args, false);
}

/* ---- modulation ------------------------------------------------------------------------------ */

/* x as (groups, rows, C) with a small operand of (groups, 1, C): (B,1,C) on (B,S,C), (1,1,C), or
 * the complete size with rows = 1. */
typedef struct groups_of {
    int64_t groups, rows, C, chunks; /* chunks per group */
} groups_of;

/* False for other broadcasts. The loops at the end of this file compute these. */
static bool groups_in(const weft_shape *x, const weft_shape *small, groups_of *g)
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
    g->groups = shape_span(x, 0, shared);
    g->rows = shape_span(x, shared, x->rank - 1);
    g->C = x->dim[x->rank - 1];
    g->chunks = chunk_count(g->rows);
    return true;
}

static bool same_shape(const weft_shape *a, const weft_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d])
            return false;
    return true;
}

typedef struct piece {
    int64_t group, row, rows; /* `row`, `rows`: rows of the group */
    int64_t at;               /* first element in x */
} piece;

static piece piece_of(const groups_of *g, int64_t task)
{
    const int64_t group = task / g->chunks, chunk = task % g->chunks;
    const int64_t start = g->rows * chunk / g->chunks, stop = g->rows * (chunk + 1) / g->chunks;
    return (piece){group, start, stop - start, (group * g->rows + start) * g->C};
}

static int group_threads(const groups_of *g)
{
    return cpu_threads(g->groups * g->rows * g->C);
}

/* clang-format off */
#define EACH_TASK(g)                                                                 \
    _Pragma("omp parallel for schedule(static) num_threads(group_threads(&(g)))") \
    for (int64_t task = 0; task < (g).groups * (g).chunks; task++)
/* clang-format on */

static int64_t view_offset(const weft_view *v, const int64_t *index)
{
    int64_t stride[WEFT_MAX_RANK], sum = 0;
    shape_strides(&v->shape, stride);
    for (int d = 0; d < v->shape.rank; d++)
        sum += index[d] * stride[d];
    return sum;
}

CPU_KERNEL(modulate)
{
    const weft_view *x = &args->in[0], *scale = &args->in[1], *shift = &args->in[2];
    const float *px = x->data, *ps = scale->data, *pt = shift->data;
    float *y = args->out[0].data;
    groups_of g;
    if (groups_in(&x->shape, &scale->shape, &g) && same_shape(&scale->shape, &shift->shape)) {
        const cpu_isa *isa = cpu_isa_get();
        EACH_TASK(g)
        {
            const piece p = piece_of(&g, task);
            isa->modulate(px + p.at, ps + p.group * g.C, pt + p.group * g.C, y + p.at, p.rows, g.C);
        }
        return WEFT_OK;
    }
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index))
        y[i] = px[i] * (1 + ps[view_offset(scale, index)]) + pt[view_offset(shift, index)];
    return WEFT_OK;
}

CPU_KERNEL(gated_add)
{
    const weft_view *x = &args->in[0], *gate = &args->in[2];
    const float *px = x->data, *py = args->in[1].data, *pg = gate->data;
    float *out = args->out[0].data;
    groups_of g;
    if (groups_in(&x->shape, &gate->shape, &g)) {
        const cpu_isa *isa = cpu_isa_get();
        EACH_TASK(g)
        {
            const piece p = piece_of(&g, task);
            isa->gated_add(px + p.at, py + p.at, pg + p.group * g.C, out + p.at, p.rows, g.C);
        }
        return WEFT_OK;
    }
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index))
        out[i] = px[i] + pg[view_offset(gate, index)] * py[i];
    return WEFT_OK;
}

/* Workspace of modulate_grad and gated_add_grad: partial sums [group][chunk][2][C]. in[1] is the
 * small operand. */
static int64_t modulate_grad_workspace(const weft_kernel_args *args)
{
    groups_of g;
    return groups_in(&args->in[0].shape, &args->in[1].shape, &g) ? g.groups * g.chunks * 2 * g.C * 4
                                                                 : 0;
}

static void gather_groups(const groups_of *g, const float *partial, int k, float *out)
{
    for (int64_t group = 0; group < g->groups; group++)
        gather_partials(partial + group * g->chunks * 2 * g->C, g->chunks, g->C, k,
                        out + group * g->C);
}

CPU_KERNEL_WITH(modulate_grad, .workspace = modulate_grad_workspace)
{
    const weft_view *x = &args->in[0], *scale = &args->in[1];
    const float *px = x->data, *ps = scale->data, *dy = args->in[2].data;
    float *dx = args->out[0].data, *dscale = args->out[1].data, *dshift = args->out[2].data;
    groups_of g;
    if (groups_in(&x->shape, &scale->shape, &g)) {
        float *partial = args->workspace;
        const cpu_isa *isa = cpu_isa_get();
        EACH_TASK(g)
        {
            const piece p = piece_of(&g, task);
            float *sums = partial + task * 2 * g.C;
            memset(sums, 0, (size_t)(2 * g.C) * sizeof *sums);
            isa->modulate_grad(px + p.at, ps + p.group * g.C, dy + p.at, dx + p.at, sums,
                               sums + g.C, p.rows, g.C);
        }
        gather_groups(&g, partial, 0, dscale);
        gather_groups(&g, partial, 1, dshift);
        return WEFT_OK;
    }
    memset(dscale, 0, (size_t)view_count(&args->out[1]) * sizeof *dscale);
    memset(dshift, 0, (size_t)view_count(&args->out[2]) * sizeof *dshift);
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = view_count(x); i < n; i++, shape_next(&x->shape, index)) {
        const int64_t at = view_offset(scale, index);
        const float d = dy[i];
        dscale[at] += d * px[i];
        dshift[at] += d;
        dx[i] = d * (1 + ps[at]);
    }
    return WEFT_OK;
}

CPU_KERNEL_WITH(gated_add_grad, .workspace = modulate_grad_workspace)
{
    const weft_view *y = &args->in[0], *gate = &args->in[1];
    const float *py = y->data, *pg = gate->data, *dout = args->in[2].data;
    float *dy = args->out[0].data, *dgate = args->out[1].data;
    groups_of g;
    if (groups_in(&y->shape, &gate->shape, &g)) {
        float *partial = args->workspace;
        const cpu_isa *isa = cpu_isa_get();
        EACH_TASK(g)
        {
            const piece p = piece_of(&g, task);
            float *sums = partial + task * 2 * g.C;
            memset(sums, 0, (size_t)g.C * sizeof *sums);
            isa->gated_add_grad(py + p.at, pg + p.group * g.C, dout + p.at, dy + p.at, sums, p.rows,
                                g.C);
        }
        gather_groups(&g, partial, 0, dgate);
        return WEFT_OK;
    }
    memset(dgate, 0, (size_t)view_count(&args->out[1]) * sizeof *dgate);
    int64_t index[WEFT_MAX_RANK] = {0};
    for (int64_t i = 0, n = view_count(y); i < n; i++, shape_next(&y->shape, index)) {
        const int64_t at = view_offset(gate, index);
        const float d = dout[i];
        dgate[at] += d * py[i];
        dy[i] = d * pg[at];
    }
    return WEFT_OK;
}

CPU_KERNEL(rope)
{
    const weft_attr_rope *attr = args->attr;
    const weft_shape *s = &args->in[0].shape, *c = &args->in[1].shape;
    const int64_t S = s->dim[1], H = s->dim[2], D = s->dim[3];
    const float *x = args->in[0].data, *cosine = args->in[1].data, *sine = args->in[2].data;
    float *y = args->out[0].data;
    const int64_t heads = c->rank == 2 ? 1 : c->dim[2], batch = c->rank == 2 ? 1 : c->dim[0];
    /* Rows of angles per token, and heads that share a row of angles. */
    const int64_t apart = heads > 1 ? H : 1, alike = heads > 1 ? 1 : H;
    const cpu_isa *isa = cpu_isa_get();
    const groups_of g = {.groups = s->dim[0], .rows = S, .C = H * D, .chunks = chunk_count(S)};
    EACH_TASK(g)
    {
        const piece p = piece_of(&g, task);
        const int64_t angles = (p.group % batch * S + p.row) * apart * (D / 2);
        (attr->rotate_half ? isa->rope_half : isa->rope)(x + p.at, cosine + angles, sine + angles,
                                                         attr->inverse ? -1.0f : 1.0f, y + p.at,
                                                         p.rows * apart, alike, D);
    }
    return WEFT_OK;
}

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
