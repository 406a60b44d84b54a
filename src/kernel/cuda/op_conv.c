/* Host code of convolutions as implicit products: no input is copied to columns; the kernel of the
 * product computes the address of each tap. */
#include "kernel/cuda/op_conv.h"

#include "kernel/cuda/op_gemm.h"

/* Shapes: x (B,T,Y,X,I), y (B,..,O), the weights' taps. */
typedef struct geometry {
    const weft_attr_conv *attr;
    const weft_shape *x, *y;
    int64_t kernel[3], taps, I, O;
} geometry;

static geometry geometry_of(const weft_kernel_args *args)
{
    const bool dx = args->op == WEFT_OP_CONV3D_DX, dw = args->op == WEFT_OP_CONV3D_DW;
    const weft_shape *w = dw ? &args->out[0].shape : &args->in[1].shape;
    geometry g = {.attr = args->attr,
                  .x = dx ? &args->out[0].shape : &args->in[0].shape,
                  .y = dx   ? &args->in[0].shape
                       : dw ? &args->in[1].shape
                            : &args->out[0].shape,
                  .taps = 1,
                  .I = w->dim[1],
                  .O = w->dim[0]};
    for (int d = 0; d < 3; d++) {
        g.kernel[d] = w->dim[2 + d];
        g.taps *= g.kernel[d];
    }
    return g;
}

/* Positions of `grid`; the sources have the dims and channels of `source`. */
static weft_status_code map_of(const geometry *g, const weft_shape *grid, const weft_shape *source,
                               conv_map *map)
{
    const int64_t positions = shape_span(grid, 0, 4), rest = g->taps * source->dim[4];
    if (positions > INT32_MAX || rest > INT32_MAX)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(positions)),
                          "a convolution of CUDA has at most 2^31 positions, not %" PRId64
                          ". Use smaller clips or tiles",
                          positions);
    map->channels = weft_cuda_divisor(source->dim[4] ? (uint32_t)source->dim[4] : 1);
    map->back = source == g->y;
    for (int d = 0; d < 3; d++) {
        map->grid[d] = weft_cuda_divisor(grid->dim[1 + d] ? (uint32_t)grid->dim[1 + d] : 1);
        map->source[d] = (int32_t)source->dim[1 + d];
        map->stride[d] = (int32_t)g->attr->stride[d];
        map->before[d] = (int32_t)g->attr->before[d];
    }
    map->taps[0] = weft_cuda_divisor((uint32_t)g->kernel[1]);
    map->taps[1] = weft_cuda_divisor((uint32_t)g->kernel[2]);
    return WEFT_OK;
}

int64_t weft_cuda_conv3d_workspace(const weft_kernel_args *args)
{
    const geometry g = geometry_of(args);
    const int64_t weights = (g.O * g.taps * g.I * 4 + 15) / 16 * 16;
    if (args->op != WEFT_OP_CONV3D_DW)
        return weights;
    return weights + weft_cuda_gemm_bytes(g.O, g.taps * g.I, shape_span(g.y, 0, 4), 1);
}

/* Transposes (batch, rows, columns) elements of a type. */
static weft_status_code transpose(transpose_args a, int64_t batch, weft_cuda_queue *queue)
{
    const int64_t grid[3] = {weft_cuda_blocks(a.columns, TRANSPOSE_TILE),
                             weft_cuda_blocks(a.rows, TRANSPOSE_TILE), batch};
    return weft_cuda_add_grid(queue, "weft_transpose", grid, TRANSPOSE_TILE * TRANSPOSE_ROWS, &a,
                              sizeof a);
}

/* y (positions, O) = sources (positions, taps I) times weights (O, taps I). */
weft_status_code weft_cuda_conv3d(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const geometry g = geometry_of(args);
    const weft_view *x = &args->in[0], *w = &args->in[1];
    const transpose_args t = {.from = w->data,
                              .out = args->workspace,
                              .rows = g.I,
                              .columns = g.taps,
                              .bytes = (int32_t)weft_dtype_bytes(w->dtype)};
    weft_view weights = *w;
    weights.data = args->workspace;
    gemm_args a = {.a = weft_cuda_operand(x, 0, 1, g.I),
                   .b = weft_cuda_operand(&weights, g.taps * g.I, 1, g.taps * g.I),
                   .bias = weft_cuda_input(args, 2),
                   .c = weft_cuda_ref(&args->out[0]),
                   .rows = shape_span(g.y, 0, 4),
                   .columns = g.O,
                   .depth = g.taps * g.I,
                   .tf32 = g.attr->tf32};
    a.a.kind = OPERAND_POSITION_ROWS;
    WEFT_TRY(map_of(&g, g.y, g.x, &a.conv));
    WEFT_TRY(transpose(t, g.O, queue));
    return weft_cuda_gemm(&a, 1, NULL, queue);
}

/* dx (positions, I) = sources in dy (positions, taps O) times weights (I, taps O). */
weft_status_code weft_cuda_conv3d_dx(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const geometry g = geometry_of(args);
    const weft_view *dy = &args->in[0], *w = &args->in[1];
    const transpose_args t = {.from = w->data,
                              .out = args->workspace,
                              .rows = g.O,
                              .columns = g.I * g.taps,
                              .bytes = (int32_t)weft_dtype_bytes(w->dtype)};
    weft_view weights = *w;
    weights.data = args->workspace;
    gemm_args a = {.a = weft_cuda_operand(dy, 0, 1, g.O),
                   .b = weft_cuda_operand(&weights, g.taps * g.O, 1, g.taps * g.O),
                   .c = weft_cuda_ref(&args->out[0]),
                   .rows = shape_span(g.x, 0, 4),
                   .columns = g.I,
                   .depth = g.taps * g.O,
                   .tf32 = g.attr->tf32};
    a.a.kind = OPERAND_POSITION_ROWS;
    WEFT_TRY(map_of(&g, g.x, g.y, &a.conv));
    WEFT_TRY(transpose(t, 1, queue));
    return weft_cuda_gemm(&a, 1, NULL, queue);
}

/* dw (O, taps I) = dy (positions, O) times sources (positions, taps I), then in the order of w. */
weft_status_code weft_cuda_conv3d_dw(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const geometry g = geometry_of(args);
    const weft_view *x = &args->in[0], *dy = &args->in[1], *out = &args->out[0];
    const int64_t positions = shape_span(g.y, 0, 4),
                  weights = (g.O * g.taps * g.I * 4 + 15) / 16 * 16;
    weft_view dw = *out;
    dw.data = args->workspace;
    gemm_args a = {.a = weft_cuda_operand(dy, 1, g.O, g.O),
                   .b = weft_cuda_operand(x, 1, 0, g.I),
                   .c = weft_cuda_ref(&dw),
                   .rows = g.O,
                   .columns = g.taps * g.I,
                   .depth = positions,
                   .tf32 = g.attr->tf32};
    const transpose_args t = {.from = args->workspace,
                              .out = out->data,
                              .rows = g.taps,
                              .columns = g.I,
                              .bytes = (int32_t)weft_dtype_bytes(out->dtype)};
    a.b.kind = OPERAND_POSITION_DEPTH;
    WEFT_TRY(map_of(&g, g.y, g.x, &a.conv));
    WEFT_TRY(weft_cuda_gemm(&a, 1, (char *)args->workspace + weights, queue));
    return transpose(t, g.O, queue);
}
