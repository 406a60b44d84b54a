/* Host code of matmul, linear and the products of experts. */
#include "kernel/cuda/op_products.h"

#include "kernel/cuda/op_gemm.h"
#include "kernel/cuda/op_moves.h"

/* Sizes of a matmul: batch products of (rows, depth) and (columns, depth). */
typedef struct sizes {
    int64_t batch, rows, columns, depth;
    bool one_b; /* one b for all; without trans_a, all rows are one product */
} sizes;

static sizes matmul_sizes(const weft_kernel_args *args)
{
    const weft_attr_matmul *attr = args->attr;
    const weft_shape *a = &args->in[0].shape, *b = &args->in[1].shape, *out = &args->out[0].shape;
    const int r = out->rank;
    sizes s = {.batch = shape_span(out, 0, r - 2),
               .rows = out->dim[r - 2],
               .columns = out->dim[r - 1],
               .depth = a->dim[a->rank - (attr->trans_a ? 2 : 1)],
               .one_b = b->rank == 2 && r > 2};
    if (s.one_b && !attr->trans_a) {
        s.rows *= s.batch;
        s.batch = 1;
    }
    return s;
}

int64_t weft_cuda_matmul_workspace(const weft_kernel_args *args)
{
    const sizes s = matmul_sizes(args);
    return weft_cuda_gemm_bytes(s.rows, s.columns, s.depth, s.batch);
}

weft_status_code weft_cuda_matmul(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_matmul *attr = args->attr;
    const sizes s = matmul_sizes(args);
    const weft_view *x = &args->in[0], *y = &args->in[1];
    gemm_args a = {.a = attr->trans_a ? weft_cuda_operand(x, 1, s.rows, s.rows)
                                      : weft_cuda_operand(x, s.depth, 1, s.depth),
                   .b = attr->trans_b ? weft_cuda_operand(y, s.depth, 1, s.depth)
                                      : weft_cuda_operand(y, 1, s.columns, s.columns),
                   .c = weft_cuda_ref(&args->out[0]),
                   .rows = s.rows,
                   .columns = s.columns,
                   .depth = s.depth,
                   .batch_stride = s.rows * s.columns,
                   .tf32 = attr->tf32};
    a.a.batch_stride = s.rows * s.depth;
    a.b.batch_stride = s.one_b ? 0 : s.columns * s.depth;
    return weft_cuda_gemm(&a, s.batch, args->workspace, queue);
}

static sizes linear_sizes(const weft_kernel_args *args)
{
    const weft_shape *x = &args->in[0].shape, *w = &args->in[1].shape;
    return (sizes){.batch = 1,
                   .rows = shape_span(x, 0, x->rank - 1),
                   .columns = w->dim[0],
                   .depth = w->dim[1]};
}

/* Bias and activation need the whole sum. */
static bool has_epilogue(const weft_kernel_args *args)
{
    const weft_attr_linear *attr = args->attr;
    return attr->act != WEFT_ACT_NONE || (args->in_count > 2 && view_present(&args->in[2]));
}

int64_t weft_cuda_linear_workspace(const weft_kernel_args *args)
{
    const sizes s = linear_sizes(args);
    return has_epilogue(args) ? 0 : weft_cuda_gemm_bytes(s.rows, s.columns, s.depth, 1);
}

weft_status_code weft_cuda_linear(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_linear *attr = args->attr;
    const sizes s = linear_sizes(args);
    if (weft_int8_elements(args->in[1].dtype, &args->in[1].shape))
        return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.key = "--weights", .value = "int8"),
                          "backend cuda has no kernel for weights of int8; use --weights bf16");
    gemm_args a = {.a = weft_cuda_operand(&args->in[0], s.depth, 1, s.depth),
                   .b = weft_cuda_operand(&args->in[1], s.depth, 1, s.depth),
                   .bias = weft_cuda_input(args, 2),
                   .c = weft_cuda_ref(&args->out[0]),
                   .rows = s.rows,
                   .columns = s.columns,
                   .depth = s.depth,
                   .act = (int32_t)attr->act,
                   .round = (int32_t)attr->round,
                   .tf32 = attr->tf32};
    return weft_cuda_gemm(&a, 1, has_epilogue(args) ? NULL : args->workspace, queue);
}

/* ---- experts -------------------------------------------------------------------------------- */

/* The most tiles of all experts: the last tile of an expert may be partial. */
static int64_t most_tiles(int64_t rows, int64_t experts)
{
    return weft_cuda_blocks(rows, MMA_TILE) + experts;
}

/* Lists and their index in the workspace. Tiles of 128 rows also serve the kernel of f32. */
static expert_list_args lists_of(const weft_kernel_args *args, const weft_cuda_queue *queue,
                                 int64_t experts)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *ids = &args->in[2];
    expert_list_args l = {.report = weft_cuda_report(args, queue),
                          .ids = ids->data,
                          .count = view_count(ids),
                          .experts = experts,
                          .each = attr->by_expert ? ids->shape.dim[1] * ids->shape.dim[2] : 0,
                          .tile = MMA_TILE};
    l.tiles = most_tiles(l.count, experts);
    l.counts = args->workspace;
    l.starts = l.counts + experts;
    l.tile_expert = l.starts + experts + 1;
    l.list = l.tile_expert + l.tiles * (MMA_TILE / GEMM_TILE);
    return l;
}

static int64_t experts_of(const weft_kernel_args *args)
{
    const bool dw = args->op == WEFT_OP_EXPERT_MATMUL_DW;
    return dw ? args->out[0].shape.dim[0] : args->in[1].shape.dim[0];
}

int64_t weft_cuda_expert_matmul_workspace(const weft_kernel_args *args)
{
    const int64_t experts = experts_of(args), tiles = most_tiles(view_count(&args->in[2]), experts);
    return (2 * experts + 1 + tiles * (MMA_TILE / GEMM_TILE) + tiles * MMA_TILE) * 4;
}

/* `tile`: rows of a tile in the kernel of the product. */
static weft_status_code add_lists(expert_list_args *l, int64_t tile, weft_cuda_queue *queue)
{
    l->tiles *= MMA_TILE / tile;
    l->tile = (int32_t)tile;
    WEFT_TRY(weft_cuda_add(queue, "weft_expert_counts", l->experts, 32, l, sizeof *l));
    WEFT_TRY(weft_cuda_add(queue, "weft_expert_starts", 1, 32, l, sizeof *l));
    return weft_cuda_add(queue, "weft_expert_lists", l->experts, 32, l, sizeof *l);
}

static int32_t shared_rows(const weft_view *x, const weft_view *ids)
{
    return (int32_t)(x->shape.dim[2] == ids->shape.dim[2] ? 1 : ids->shape.dim[2]);
}

weft_status_code weft_cuda_expert_matmul(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_attr_expert_matmul *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1], *ids = &args->in[2];
    const int64_t N = w->shape.dim[1], K = w->shape.dim[2];
    const int64_t wide = attr->trans_b ? N : K, deep = attr->trans_b ? K : N;
    expert_list_args l = lists_of(args, queue, experts_of(args));
    gemm_args a = {.a = weft_cuda_operand(x, deep, 1, deep),
                   .b = attr->trans_b ? weft_cuda_operand(w, deep, 1, deep)
                                      : weft_cuda_operand(w, 1, wide, wide),
                   .c = weft_cuda_ref(&args->out[0]),
                   .list = l.list,
                   .tile_expert = l.tile_expert,
                   .rows = l.tiles * MMA_TILE,
                   .columns = wide,
                   .depth = deep,
                   .list_c = 1,
                   .tf32 = attr->tf32};
    a.a.kind = OPERAND_LISTED_ROWS;
    a.a.shared = shared_rows(x, ids);
    a.b.batch_stride = N * K;
    WEFT_TRY(add_lists(&l, weft_cuda_gemm_is_tensor(&a) ? MMA_TILE : GEMM_TILE, queue));
    WEFT_TRY(weft_cuda_set_bytes(&args->out[0], 0, queue)); /* rows without an expert */
    return weft_cuda_gemm(&a, 1, NULL, queue);
}

weft_status_code weft_cuda_expert_matmul_dw(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const weft_view *x = &args->in[0], *y = &args->in[1], *ids = &args->in[2];
    const int64_t N = args->out[0].shape.dim[1], K = args->out[0].shape.dim[2];
    expert_list_args l = lists_of(args, queue, experts_of(args));
    gemm_args a = {.a = weft_cuda_operand(x, 1, N, N),
                   .b = weft_cuda_operand(y, 1, K, K),
                   .c = weft_cuda_ref(&args->out[0]),
                   .list = l.list,
                   .starts = l.starts,
                   .rows = N,
                   .columns = K,
                   .batch_stride = N * K,
                   .tf32 = weft_op_is_tf32(args->op, args->attr)};
    a.a.kind = a.b.kind = OPERAND_LISTED_DEPTH;
    a.a.shared = shared_rows(x, ids);
    a.b.shared = shared_rows(y, ids);
    WEFT_TRY(add_lists(&l, GEMM_TILE, queue));
    return weft_cuda_gemm(&a, l.experts, NULL, queue);
}
