#include "kernel/cuda/op_reduce.h"

enum {
    CHUNKS_MOST = 1024,   /* sums that the second step adds */
    BLOCKS_WANTED = 1024, /* enough for the multiprocessors of any GPU */
    ROWS_LEAST = 64,      /* terms of a chunk for which a second step pays */
    SQUARES_CHUNK = 16384
};

/* The kept dims and the reduced dims of a sum. */
typedef struct plan {
    weft_cuda_loop kept, reduced;
    int64_t kept_items, reduced_items, chunk, chunks;
    bool columns; /* the last dim is kept */
    bool eights;  /* and has groups of eight, and one dim is reduced */
} plan;

/* Blocks that cover the kept dims. */
static int64_t blocks_of(const plan *p, bool eights)
{
    return weft_cuda_blocks(p->kept_items, eights ? 256 : p->columns ? 32 : REDUCE_WARPS);
}

static plan plan_of(const weft_cuda_sum *sum)
{
    plan p = {0};
    int64_t stride[WEFT_MAX_RANK];
    shape_strides(sum->x, stride);
    for (int d = 0; d < sum->x->rank; d++) {
        weft_cuda_loop *w = sum->dims >> d & 1 ? &p.reduced : &p.kept;
        w->dim[w->rank] = sum->x->dim[d];
        w->stride[0][w->rank++] = stride[d];
        if (sum->x->dim[d] > 1)
            p.columns = w == &p.kept;
    }
    weft_cuda_loop_join(&p.kept, 1);
    weft_cuda_loop_join(&p.reduced, 1);
    p.kept_items = weft_cuda_loop_items(&p.kept);
    p.reduced_items = weft_cuda_loop_items(&p.reduced);
    p.eights = p.columns && p.reduced.rank == 1 && p.kept.dim[p.kept.rank - 1] % 8 == 0;
    const int64_t blocks = blocks_of(&p, p.eights);
    int64_t chunks = BLOCKS_WANTED / (blocks ? blocks : 1);
    const int64_t most = weft_cuda_blocks(p.reduced_items, ROWS_LEAST * REDUCE_WARPS);
    chunks = chunks > most ? most : chunks;
    chunks = chunks > CHUNKS_MOST ? CHUNKS_MOST : chunks < 1 ? 1 : chunks;
    p.chunk = weft_cuda_blocks(p.reduced_items, chunks);
    p.chunks = p.chunk ? weft_cuda_blocks(p.reduced_items, p.chunk) : 1;
    return p;
}

int64_t weft_cuda_reduce_bytes(const weft_cuda_sum *sum)
{
    const plan p = plan_of(sum);
    return p.chunks > 1 ? p.chunks * p.kept_items * 4 : 0;
}

static bool in_eights(const tensor_ref *t)
{
    return (uintptr_t)t->data % 16 == 0 &&
           (t->type == TYPE_F32 || t->type == TYPE_BF16 || t->type == TYPE_F16);
}

static weft_status_code add_step(const plan *p, const reduce_args *a, weft_cuda_queue *queue)
{
    const bool eights = p->eights && in_eights(&a->x) && (a->term == REDUCE_X || in_eights(&a->dy));
    const int64_t grid[3] = {blocks_of(p, eights), p->chunks, 1};
    return weft_cuda_add_grid(queue,
                              eights       ? "weft_reduce_eights"
                              : p->columns ? "weft_reduce_columns"
                                           : "weft_reduce_rows",
                              grid, REDUCE_THREADS, a, sizeof *a);
}

weft_status_code weft_cuda_sum_parts(void *part, int64_t parts, int64_t items, tensor_ref out,
                                     weft_cuda_queue *queue)
{
    const plan p = {.kept_items = items, .chunks = 1, .columns = true, .eights = items % 8 == 0};
    reduce_args a = {.x = {part, WEFT_F32},
                     .out = out,
                     .kept_items = items,
                     .reduced_items = parts,
                     .chunk = parts,
                     .term = REDUCE_X};
    const weft_cuda_loop kept = {.rank = 1, .dim = {items}, .stride = {{1}}},
                         over = {.rank = 1, .dim = {parts}, .stride = {{items}}};
    WEFT_TRY(weft_cuda_loop_shape(&kept, &a.kept));
    WEFT_TRY(weft_cuda_loop_shape(&over, &a.reduced));
    weft_cuda_loop_strides(&kept, 0, a.kept_stride);
    weft_cuda_loop_strides(&over, 0, a.reduced_stride);
    return add_step(&p, &a, queue);
}

weft_status_code weft_cuda_reduce(const weft_cuda_sum *sum, reduce_args *a, void *part,
                                  weft_cuda_queue *queue)
{
    const plan p = plan_of(sum);
    const tensor_ref out = a->out;
    WEFT_TRY(weft_cuda_loop_shape(&p.kept, &a->kept));
    WEFT_TRY(weft_cuda_loop_shape(&p.reduced, &a->reduced));
    weft_cuda_loop_strides(&p.kept, 0, a->kept_stride);
    weft_cuda_loop_strides(&p.reduced, 0, a->reduced_stride);
    a->kept_items = p.kept_items;
    a->reduced_items = p.reduced_items;
    a->chunk = p.chunk;
    if (p.chunks == 1)
        return add_step(&p, a, queue);
    a->out = (tensor_ref){part, WEFT_F32};
    WEFT_TRY(add_step(&p, a, queue));
    return weft_cuda_sum_parts(part, p.chunks, p.kept_items, out, queue);
}

uint32_t weft_cuda_broadcast_dims(const weft_shape *small, const weft_shape *x)
{
    uint32_t dims = 0;
    for (int d = 0; d < x->rank; d++)
        dims |= (uint32_t)(small->dim[d] == 1 && x->dim[d] != 1) << d;
    return dims;
}

int64_t weft_cuda_sum_workspace(const weft_kernel_args *args)
{
    const weft_attr_sum *attr = args->attr;
    return weft_cuda_reduce_bytes(&(weft_cuda_sum){&args->in[0].shape, attr->dims});
}

weft_status_code weft_cuda_sum_dims(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_sum *attr = args->attr;
    reduce_args a = {
        .x = weft_cuda_ref(&args->in[0]), .out = weft_cuda_ref(&args->out[0]), .term = REDUCE_X};
    return weft_cuda_reduce(&(weft_cuda_sum){&args->in[0].shape, attr->dims}, &a, args->workspace,
                            queue);
}

/* Chunks grow with the tensor, so that the second step adds at most CHUNKS_MOST sums. */
static squares_args squares_of(const weft_kernel_args *args)
{
    squares_args a = {.x = weft_cuda_ref(&args->in[0]), .count = view_count(&args->in[0])};
    const int64_t least = 8 * weft_cuda_blocks(a.count, 8 * CHUNKS_MOST);
    a.chunk = least > SQUARES_CHUNK ? least : SQUARES_CHUNK;
    a.vector = weft_cuda_in_eights(&args->in[0]);
    a.parts = weft_cuda_blocks(a.count, a.chunk);
    return a;
}

int64_t weft_cuda_sum_squares_workspace(const weft_kernel_args *args)
{
    return squares_of(args).parts * 8;
}

weft_status_code weft_cuda_sum_squares(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    squares_args a = squares_of(args);
    a.part = args->workspace;
    a.out = args->out[0].data;
    WEFT_TRY(weft_cuda_add(queue, "weft_sum_squares", a.parts, REDUCE_THREADS, &a, sizeof a));
    return weft_cuda_add(queue, "weft_sum_squares_end", 1, REDUCE_THREADS, &a, sizeof a);
}
