#include "kernel/cuda/cuda_impl.h"

#include "kernel/cuda/chain_impl.h"
#include "kernel/cuda/chain_source.h"
#include "kernel/cuda/cublaslt_impl.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/cudnn_impl.h"
#include "kernel/cuda/cudnn_ops.h"
#include "kernel/cuda/ops.h"
#include "kernel/cuda/special_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- weft's own kernels ---------------------------------------------------------------------- */

static int64_t own_version(void)
{
    return 1;
}

static bool own_has(weft_op op)
{
    return weft_cuda_ops[op].launch != NULL;
}

static bool own_accepts(const weft_kernel_args *args)
{
    (void)args;
    return true;
}

static int64_t own_workspace(const weft_kernel_args *args)
{
    const weft_cuda_op *op = &weft_cuda_ops[args->op];
    return op->workspace ? op->workspace(args) : 0;
}

static weft_status_code own_launch(const weft_kernel_args *args, void *plan)
{
    bool begun;
    (void)plan;
    WEFT_TRY(weft_cuda_stream_node(args->stream, args, own_workspace(args), &begun));
    if (!begun)
        return WEFT_OK; /* the error appears when the host waits */
    return weft_cuda_ops[args->op].launch(args, weft_cuda_stream_queue(args->stream));
}

static const weft_cuda_impl own = {.name = "weft",
                                   .version = own_version,
                                   .has = own_has,
                                   .accepts = own_accepts,
                                   .workspace = own_workspace,
                                   .launch = own_launch,
                                   .joins = true};

/* ---- the list -------------------------------------------------------------------------------- */

static const weft_cuda_impl cublaslt = {.name = "cublaslt",
                                        .version = weft_cublaslt_version,
                                        .has = weft_cublaslt_has,
                                        .accepts = weft_cublaslt_accepts,
                                        .workspace = weft_cublaslt_workspace,
                                        .prepare = weft_cublaslt_prepare,
                                        .release = weft_cublaslt_release,
                                        .launch = weft_cublaslt_launch};

/* cuDNN computes only with WEFT_CUDNN=on. On an H100 attention passed, and some convolutions gave
 * wrong results at a few numbers of channels (bench/gpu.md): a verdict is of an op, not of each
 * shape. */
static int64_t cudnn_version(void)
{
    const char *mode = getenv("WEFT_CUDNN");
    return mode && !strcmp(mode, "on") ? weft_cudnn_version() : 0;
}

static const weft_cuda_impl cudnn = {.name = "cudnn",
                                     .version = cudnn_version,
                                     .has = weft_cudnn_has,
                                     .accepts = weft_cudnn_accepts,
                                     .workspace = weft_cudnn_workspace,
                                     .prepare = weft_cudnn_prepare,
                                     .release = weft_cudnn_release,
                                     .launch = weft_cudnn_launch};

static const weft_cuda_impl generated = {.name = "nvrtc",
                                         .version = weft_nvrtc_version,
                                         .has = weft_chain_has,
                                         .accepts = weft_chain_accepts,
                                         .prepare = weft_chain_prepare,
                                         .release = weft_chain_release,
                                         .launch = weft_chain_run,
                                         .joins = true};

static const weft_cuda_impl specialised = {.name = "specialised",
                                           .version = weft_nvrtc_version,
                                           .has = weft_special_has,
                                           .accepts = weft_special_accepts,
                                           .prepare = weft_special_prepare,
                                           .release = weft_special_release,
                                           .launch = weft_special_launch,
                                           .joins = true,
                                           .is_exact = true,
                                           .pays = weft_special_pays};

static const weft_cuda_impl *const built_in[] = {&cublaslt, &cudnn, &generated, &specialised, &own};
enum { BUILT_IN = sizeof built_in / sizeof built_in[0] };
static struct {
    const weft_cuda_impl *impl[WEFT_CUDA_IMPLS - BUILT_IN];
    int count;
} planted;

int weft_cuda_impl_count(void)
{
    return planted.count + BUILT_IN;
}

int weft_cuda_impl_own(void)
{
    return weft_cuda_impl_count() - 1;
}

const weft_cuda_impl *weft_cuda_impl_get(int index)
{
    return index < planted.count ? planted.impl[index] : built_in[index - planted.count];
}

void weft_cuda_impl_plant(const weft_cuda_impl *impl)
{
    if (!impl)
        planted.count = 0;
    else if (planted.count < WEFT_CUDA_IMPLS - BUILT_IN)
        planted.impl[planted.count++] = impl;
}

bool weft_cuda_impl_accepts(int index, const weft_kernel_args *args)
{
    const weft_cuda_impl *impl = weft_cuda_impl_get(index);
    return impl->has(args->op) && impl->accepts(args) && impl->version() > 0;
}

int64_t weft_cuda_impls_workspace(const weft_kernel_args *args)
{
    int64_t most = 0;
    for (int i = 0; i < weft_cuda_impl_count(); i++) {
        const weft_cuda_impl *impl = weft_cuda_impl_get(i);
        const int64_t bytes =
            impl->workspace && weft_cuda_impl_accepts(i, args) ? impl->workspace(args) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}
