/* Host code of ops that move elements. */
#include "kernel/cuda/op_moves.h"

#include "kernel/cuda/op_launch.h"

weft_status_code weft_cuda_set_bytes(const weft_view *view, uint64_t pattern,
                                     weft_cuda_queue *queue)
{
    const fill_args a = {view->data, view_count(view) * weft_dtype_bytes(view->dtype), pattern};
    return weft_cuda_add(queue, "weft_fill", weft_cuda_blocks(a.bytes, POINTWISE_THREADS * 16),
                         POINTWISE_THREADS, &a, sizeof a);
}

weft_status_code weft_cuda_fill(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_fill *attr = args->attr;
    const int64_t bytes = weft_dtype_bytes(args->out[0].dtype);
    uint64_t pattern = 0;
    weft_view one = {.data = &pattern, .dtype = args->out[0].dtype};
    for (int64_t i = 0; i < 8 / bytes; i++)
        view_set(&one, i, attr->value);
    return weft_cuda_set_bytes(&args->out[0], pattern, queue);
}

/* A strided copy: operand 0 is `from`, operand 1 `out`. */
typedef struct move {
    weft_cuda_loop loop;
    const char *from;
    char *out;
    int64_t bytes; /* of an item */
} move;

/* Makes items of two elements while the strides and addresses are multiples of such items. */
static void widen(move *m)
{
    weft_cuda_loop *w = &m->loop;
    const int last = w->rank - 1;
    while (last >= 0 && m->bytes < 16 && w->stride[0][last] == 1 && w->stride[1][last] == 1) {
        bool even = w->dim[last] % 2 == 0 && (uintptr_t)m->from % (size_t)(m->bytes * 2) == 0 &&
                    (uintptr_t)m->out % (size_t)(m->bytes * 2) == 0;
        for (int d = 0; d < last; d++)
            even = even && w->stride[0][d] % 2 == 0 && w->stride[1][d] % 2 == 0;
        if (!even)
            return;
        w->dim[last] /= 2;
        for (int d = 0; d < last; d++) {
            w->stride[0][d] /= 2;
            w->stride[1][d] /= 2;
        }
        m->bytes *= 2;
    }
}

static weft_status_code add_move(move m, weft_cuda_queue *queue)
{
    weft_cuda_loop_join(&m.loop, 2);
    widen(&m);
    move_args a = {.from = m.from,
                   .out = m.out,
                   .items = weft_cuda_loop_items(&m.loop),
                   .bytes = (int32_t)m.bytes};
    WEFT_TRY(weft_cuda_loop_shape(&m.loop, &a.shape));
    weft_cuda_loop_strides(&m.loop, 0, a.from_stride);
    weft_cuda_loop_strides(&m.loop, 1, a.out_stride);
    return weft_cuda_add(queue, "weft_move",
                         weft_cuda_blocks(a.items, POINTWISE_THREADS * POINTWISE_PER_THREAD),
                         POINTWISE_THREADS, &a, sizeof a);
}

/* A move to all elements of the output in their order. */
static move to_output(const weft_kernel_args *args)
{
    const weft_view *out = &args->out[0];
    move m = {.loop.rank = out->shape.rank,
              .from = args->in[0].data,
              .out = out->data,
              .bytes = weft_dtype_bytes(out->dtype)};
    memcpy(m.loop.dim, out->shape.dim, sizeof m.loop.dim);
    shape_strides(&out->shape, m.loop.stride[1]);
    return m;
}

weft_status_code weft_cuda_broadcast(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    move m = to_output(args);
    shape_strides(&args->in[0].shape, m.loop.stride[0]);
    return add_move(m, queue);
}

/* Whether the last two dims are exchanged within a batch. */
static bool exchanges(const weft_cuda_loop *w)
{
    const int r = w->rank;
    if (r != 2 && r != 3)
        return false;
    const int64_t rows = w->dim[r - 1], columns = w->dim[r - 2];
    return w->stride[0][r - 2] == 1 && w->stride[0][r - 1] == columns &&
           (r == 2 || (w->stride[0][0] == rows * columns && w->dim[0] <= 65535)) &&
           weft_cuda_blocks(rows, TRANSPOSE_TILE) <= 65535;
}

weft_status_code weft_cuda_permute(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_permute *attr = args->attr;
    move m = to_output(args);
    int64_t stride[WEFT_MAX_RANK];
    shape_strides(&args->in[0].shape, stride);
    for (int d = 0; d < m.loop.rank; d++)
        m.loop.stride[0][d] = stride[attr->perm[d]];
    weft_cuda_loop_join(&m.loop, 2);
    if (!exchanges(&m.loop))
        return add_move(m, queue);
    const int r = m.loop.rank;
    const transpose_args a = {.from = m.from,
                              .out = m.out,
                              .rows = m.loop.dim[r - 1],
                              .columns = m.loop.dim[r - 2],
                              .bytes = (int32_t)m.bytes};
    const int64_t grid[3] = {weft_cuda_blocks(a.columns, TRANSPOSE_TILE),
                             weft_cuda_blocks(a.rows, TRANSPOSE_TILE), r == 3 ? m.loop.dim[0] : 1};
    return weft_cuda_add_grid(queue, "weft_transpose", grid, TRANSPOSE_TILE * TRANSPOSE_ROWS, &a,
                              sizeof a);
}

/* A part of one dim: loops over (outer, dim, inner), where dim and inner are dense in both. */
typedef struct part {
    int64_t outer, inner, len; /* `len` of dim are copied */
    int64_t from_len, from_at, out_len, out_at;
} part;

static weft_status_code add_part(const part *p, const weft_view *from, const weft_view *out,
                                 weft_cuda_queue *queue)
{
    const int64_t bytes = weft_dtype_bytes(out->dtype);
    const move m = {.loop = {.rank = 2,
                             .dim = {p->outer, p->len * p->inner},
                             .stride = {{p->from_len * p->inner, 1}, {p->out_len * p->inner, 1}}},
                    .from = (const char *)from->data + p->from_at * p->inner * bytes,
                    .out = (char *)out->data + p->out_at * p->inner * bytes,
                    .bytes = bytes};
    return p->outer * p->len * p->inner > 0 ? add_move(m, queue) : WEFT_OK;
}

static part part_of(const weft_shape *s, int dim)
{
    return (part){.outer = shape_span(s, 0, dim), .inner = shape_span(s, dim + 1, s->rank)};
}

weft_status_code weft_cuda_slice(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_slice *attr = args->attr;
    const weft_shape *s = &args->in[0].shape;
    part p = part_of(s, attr->dim);
    p.len = p.out_len = attr->len;
    p.from_len = s->dim[attr->dim];
    p.from_at = attr->start;
    return add_part(&p, &args->in[0], &args->out[0], queue);
}

weft_status_code weft_cuda_pad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_pad *attr = args->attr;
    const weft_shape *s = &args->in[0].shape;
    part p = part_of(s, attr->dim);
    p.len = p.from_len = s->dim[attr->dim];
    p.out_len = attr->before + p.len + attr->after;
    p.out_at = attr->before;
    WEFT_TRY(weft_cuda_set_bytes(&args->out[0], 0, queue));
    return add_part(&p, &args->in[0], &args->out[0], queue);
}

weft_status_code weft_cuda_concat(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_concat *attr = args->attr;
    const weft_shape *s = &args->out[0].shape;
    part p = part_of(s, attr->dim);
    p.out_len = s->dim[attr->dim];
    for (int n = 0; n < args->in_count; n++) {
        p.len = p.from_len = args->in[n].shape.dim[attr->dim];
        WEFT_TRY(add_part(&p, &args->in[n], &args->out[0], queue));
        p.out_at += p.len;
    }
    return WEFT_OK;
}
