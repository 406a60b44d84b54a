#include "kernel/cuda/cuda_backend.h"

#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/cuda/ops.h"

static weft_status_code check_backend(void)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_module_check());
    return weft_cuda_gpu_get(&gpu);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int64_t workspace(const weft_kernel_args *args)
{
    const weft_cuda_op *op = &weft_cuda_ops[args->op];
    return op->workspace ? op->workspace(args) : 0;
}

static weft_status check_op(weft_op op)
{
    if (weft_cuda_ops[op].launch)
        return WEFT_OK;
    return weft_error(WEFT_MSG_KERNEL_MISSING, WEFT_AT(.value = weft_op_get(op)->name),
                      "backend \"cuda\" has no kernel for %s. Use backend cpu.",
                      weft_op_get(op)->name);
}

static weft_status_code prepare(const weft_kernel_args *args, void **cache)
{
    *cache = NULL;
    WEFT_TRY(check_op(args->op));
    WEFT_TRY(check_backend());
    return weft_cuda_verdict_check(args->op);
}

static weft_status_code run(const weft_kernel_args *args)
{
    weft_device_stream *s = args->stream;
    bool begun;
    WEFT_TRY(weft_cuda_stream_node(s, args, workspace(args), &begun));
    if (!begun)
        return WEFT_OK; /* the error appears when the host waits */
    WEFT_TRY(check_op(args->op));
    WEFT_TRY(weft_cuda_ops[args->op].launch(args, weft_cuda_stream_queue(s)));
    return weft_cuda_stream_check(s);
}

static const weft_kernel any = {.run = run, .workspace = workspace, .prepare = prepare};

/* clang-format off */
const weft_backend weft_backend_cuda = {
    .name = "cuda",
    .device = &weft_device_cuda,
    .check = check_backend,
    .spread_workspace = 16 << 20,
    .kernel = {
#define WEFT_OWN(...)
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = &any,
#include "graph/op.def"
    },
};
/* clang-format on */
