#include "kernel/cuda/cuda_backend.h"

#include "kernel/cuda/chain_impl.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/ops.h"

static weft_status_code check_backend(void)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_module_check());
    return weft_cuda_gpu_get(&gpu);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static weft_status check_op(weft_op op)
{
    if (weft_cuda_ops[op].launch)
        return WEFT_OK;
    return weft_error(WEFT_MSG_KERNEL_MISSING, WEFT_AT(.value = weft_op_get(op)->name),
                      "backend \"cuda\" has no kernel for %s. Use backend cpu.",
                      weft_op_get(op)->name);
}

/* The cache of a node is the choice of the process for its shapes. */
static weft_status_code prepare(const weft_kernel_args *args, void **cache)
{
    weft_cuda_choice *choice;
    *cache = NULL;
    WEFT_TRY(check_op(args->op));
    WEFT_TRY(check_backend());
    WEFT_TRY(weft_cuda_choose(args, &choice));
    *cache = choice;
    return WEFT_OK;
}

static void release(void *cache)
{
    (void)cache; /* the process's */
}

static weft_status_code run(const weft_kernel_args *args)
{
    WEFT_TRY(check_op(args->op));
    WEFT_TRY(weft_cuda_choice_launch(args->cache, args));
    return weft_cuda_stream_check(args->stream);
}

static const weft_kernel any = {
    .run = run, .workspace = weft_cuda_impls_workspace, .prepare = prepare, .release = release};

/* clang-format off */
const weft_backend weft_backend_cuda = {
    .name = "cuda",
    .device = &weft_device_cuda,
    .check = check_backend,
    .spread_workspace = 16 << 20,
    .joins_pointwise = weft_chain_available,
    .kernel = {
#define WEFT_OWN(...)
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = &any,
#include "graph/op.def"
    },
};
/* clang-format on */
