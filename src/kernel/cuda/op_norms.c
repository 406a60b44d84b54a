/* Host code of norms over the last dim. */
#include "kernel/cuda/op_norms.h"

#include "kernel/cuda/op_launch.h"
#include "kernel/cuda/op_reduce.h"

enum { WARP_COLUMNS = 4096 }; /* up to here, a warp computes a row */

static int32_t kind_of(const weft_kernel_args *args)
{
    const weft_attr_norm *attr = args->attr;
    if (args->op == WEFT_OP_LAYER_NORM || args->op == WEFT_OP_LAYER_NORM_GRAD)
        return NORM_LAYER;
    return attr->l2 ? NORM_L2 : NORM_RMS;
}

/* Whether rows, and the inputs that belong to columns, allow accesses of eight elements. */
static bool in_vectors(const weft_kernel_args *args)
{
    if (view_last(&args->in[0]) % 8 != 0 || !weft_cuda_in_eights(&args->out[0]))
        return false;
    for (int i = 0; i < args->in_count; i++)
        if (view_present(&args->in[i]) && !weft_cuda_in_eights(&args->in[i]))
            return false;
    return true;
}

static int64_t blocks_of(int64_t rows, bool by_warp)
{
    return by_warp ? weft_cuda_blocks(rows, NORM_THREADS / 32) : rows;
}

static norm_args norm_of(const weft_kernel_args *args)
{
    const weft_view *x = &args->in[0];
    const int64_t columns = view_last(x);
    return (norm_args){.x = weft_cuda_ref(x),
                       .out = weft_cuda_ref(&args->out[0]),
                       .rows = columns ? view_count(x) / columns : 0,
                       .columns = columns,
                       .vector = in_vectors(args),
                       .by_warp = columns <= WARP_COLUMNS};
}

weft_status_code weft_cuda_norm(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    norm_args a = norm_of(args);
    a.gamma = weft_cuda_input(args, 1);
    a.beta = weft_cuda_input(args, 2);
    a.eps = (float)((const weft_attr_norm *)args->attr)->eps;
    a.kind = kind_of(args);
    return weft_cuda_add(queue, "weft_norm", blocks_of(a.rows, a.by_warp), NORM_THREADS, &a,
                         sizeof a);
}

weft_status_code weft_cuda_softmax(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const norm_args a = norm_of(args);
    return weft_cuda_add(queue, "weft_softmax", blocks_of(a.rows, a.by_warp), NORM_THREADS, &a,
                         sizeof a);
}

static int64_t statistics_bytes(const weft_kernel_args *args)
{
    const int64_t columns = view_last(&args->in[0]);
    return args->out_count > 1 && columns ? view_count(&args->in[0]) / columns * 16 : 0;
}

static weft_shape rows_of(const weft_kernel_args *args)
{
    const int64_t columns = view_last(&args->in[0]);
    return (weft_shape){2, {columns ? view_count(&args->in[0]) / columns : 0, columns}};
}

int64_t weft_cuda_norm_grad_workspace(const weft_kernel_args *args)
{
    const weft_shape s = rows_of(args);
    const int64_t part = weft_aligned(weft_cuda_reduce_bytes(&(weft_cuda_sum){&s, 1}));
    return statistics_bytes(args) + part * (args->out_count - 1);
}

weft_status_code weft_cuda_norm_grad(const weft_kernel_args *args, weft_cuda_queue *queue)
{
    const norm_args n = norm_of(args);
    const weft_shape s = rows_of(args);
    const weft_cuda_sum over_rows = {&s, 1};
    void *part = weft_cuda_split(queue, args->workspace, statistics_bytes(args));
    const norm_grad_args a = {.x = n.x,
                              .dy = weft_cuda_ref(&args->in[1]),
                              .gamma = weft_cuda_input(args, 2),
                              .dx = n.out,
                              .statistics = args->out_count > 1 ? args->workspace : NULL,
                              .rows = n.rows,
                              .columns = n.columns,
                              .eps = (float)((const weft_attr_norm *)args->attr)->eps,
                              .kind = kind_of(args),
                              .vector = n.vector,
                              .by_warp = n.by_warp};
    WEFT_TRY(weft_cuda_add(queue, "weft_norm_grad", blocks_of(a.rows, a.by_warp), NORM_THREADS, &a,
                           sizeof a));
    for (int o = 1; o < args->out_count; o++) {
        reduce_args r = {.x = o == 1 ? a.x : a.dy,
                         .dy = a.dy,
                         .out = weft_cuda_ref(&args->out[o]),
                         .statistics = a.statistics,
                         .term = o == 1 ? REDUCE_DY_NORMED : REDUCE_X};
        void *next = weft_cuda_split(queue, part, weft_aligned(weft_cuda_reduce_bytes(&over_rows)));
        WEFT_TRY(weft_cuda_reduce(&over_rows, &r, part, queue));
        part = next;
    }
    return WEFT_OK;
}
