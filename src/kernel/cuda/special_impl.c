#include "kernel/cuda/special_impl.h"

#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/special_kernels.h"
#include "kernel/view.h"

#include <string.h>

/* Fewer elements of inputs and outputs are a launch of a few microseconds at most. */
enum { ELEMENTS_LEAST = 1 << 16 };

bool weft_special_has(weft_op op)
{
    switch (op) {
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM_GRAD:
    case WEFT_OP_SOFTMAX:
    case WEFT_OP_MODULATE:
    case WEFT_OP_GATED_ADD:
    case WEFT_OP_ROPE:
    case WEFT_OP_MATMUL:
    case WEFT_OP_LINEAR:
    case WEFT_OP_EXPERT_MATMUL:
    case WEFT_OP_EXPERT_MATMUL_DW:
    case WEFT_OP_CONV3D:
    case WEFT_OP_CONV3D_DX:
    case WEFT_OP_CONV3D_DW:
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_GRAD: return true;
    default: return false;
    }
}

static int64_t elements_of(const weft_view *view, int count)
{
    int64_t elements = 0;
    for (int i = 0; i < count; i++)
        elements += view_present(&view[i]) ? view_count(&view[i]) : 0;
    return elements;
}

bool weft_special_accepts(const weft_kernel_args *args)
{
    return elements_of(args->out, 1) > 0 && elements_of(args->in, 1) > 0;
}

bool weft_special_pays(const weft_kernel_args *args)
{
    return elements_of(args->in, args->in_count) + elements_of(args->out, args->out_count) >=
           ELEMENTS_LEAST;
}

/* ---- compilation ----------------------------------------------------------------------------- */

/* A queue that compiles the kernels of launches and launches nothing. */
static weft_status_code compile(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    const char *name;
    (void)queue;
    return weft_special_get(launch, &name);
}

/* Gives operands aligned addresses, which nothing reads: launches have constants of addresses that
 * are aligned and not NULL. */
static void place(weft_view *view, const weft_view *of, int count, uintptr_t *at)
{
    for (int i = 0; i < count; i++) {
        view[i] = of[i];
        *at += (uintptr_t)1 << 20;
        view[i].data = view_present(&of[i]) ? (void *)*at : NULL;
    }
}

weft_status_code weft_special_prepare(const weft_kernel_args *args, int first, int most,
                                      weft_cuda_plan *plan, int *count)
{
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args placed = *args;
    weft_cuda_queue queue = {.add = compile};
    uintptr_t at = 0;
    (void)first, (void)most; /* one variant */
    place(in, args->in, args->in_count, &at);
    place(out, args->out, args->out_count, &at);
    placed.in = in;
    placed.out = out;
    placed.workspace = (void *)(at + ((uintptr_t)1 << 20));
    WEFT_TRY(weft_cuda_ops[args->op].launch(&placed, &queue));
    plan[0] = (weft_cuda_plan){0};
    *count = 1;
    return WEFT_OK;
}

void weft_special_release(void *plan)
{
    (void)plan; /* the process's */
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef struct special_queue {
    weft_cuda_queue queue;
    weft_cuda_queue *to;
} special_queue;

/* Launches whose constants were not compiled are of the embedded kernel, which computes the
 * same. */
static weft_status_code add(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    const special_queue *q = (const special_queue *)queue;
    weft_cuda_launch special = *launch;
    const char *name = weft_special_find(launch);
    if (name)
        special.kernel = name;
    return q->to->add(q->to, &special);
}

static void split(weft_cuda_queue *queue, const void *part, int64_t bytes)
{
    const special_queue *q = (const special_queue *)queue;
    q->to->split(q->to, part, bytes);
}

weft_status_code weft_special_launch(const weft_kernel_args *args, void *plan)
{
    const weft_cuda_op *op = &weft_cuda_ops[args->op];
    bool begun;
    (void)plan;
    WEFT_TRY(
        weft_cuda_stream_node(args->stream, args, op->workspace ? op->workspace(args) : 0, &begun));
    if (!begun)
        return WEFT_OK; /* the error appears when the host waits */
    weft_cuda_queue *to = weft_cuda_stream_queue(args->stream);
    special_queue q = {.queue = {add, to->bad_id, to->split ? split : NULL}, .to = to};
    return op->launch(args, &q.queue);
}
