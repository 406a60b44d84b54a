#include "doctor/backend_choice.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "comm/rank_gpus.h"
#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_impl.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/registry/backend.h"

static weft_status verify(const weft_backend *backend, weft_products products, weft_comm *comm)
{
    if (comm)
        weft_comm_set_busy(comm, "comparing the kernels of the GPU with the reference");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_backend_check(backend));
    WEFT_GO(weft_gpu_settle(backend, products));
out:
    if (comm)
        weft_comm_set_busy(comm, NULL);
    return status;
}

/* Whether weft's kernel of the op failed and no library passed. */
static bool has_failed(weft_products products, weft_op op)
{
    for (int i = 0; i < weft_cuda_impl_own(); i++)
        if (weft_cuda_verdict_get(products, i, op) == WEFT_VERDICT_PASSED)
            return false;
    return weft_cuda_verdict_get(products, weft_cuda_impl_own(), op) == WEFT_VERDICT_FAILED;
}

/* An op without an implementation that can be used; NULL: none. */
static const char *failed_op(weft_products products)
{
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        if (has_failed(products, (weft_op)op))
            return weft_op_get((weft_op)op)->name;
    return NULL;
}

/* Whether the GPU of this rank can be used. A GPU that cannot is a warning, not an error. */
static bool has_usable_gpu(weft_products products, weft_comm *comm)
{
    if (weft_backend_find("auto") != &weft_backend_cuda)
        return false;
    const weft_status_code status = verify(&weft_backend_cuda, products, comm);
    const char *failed = status == WEFT_OK ? failed_op(products) : NULL;
    if (status != WEFT_OK)
        weft_warning(weft_error_class(), weft_error_fields(), "backend auto uses cpu: %s",
                     weft_error_text());
    else if (failed)
        weft_warning(WEFT_MSG_PARITY_FAILED, WEFT_AT(.key = failed),
                     "backend auto uses cpu: the kernel of %s differs from the reference on this "
                     "GPU. Run weft doctor --gpu for details.",
                     failed);
    weft_error_clear();
    return status == WEFT_OK && !failed;
}

/* Ranks agree on the choice: results of ranks with different backends would differ. */
static weft_status choose(weft_products products, weft_comm *comm, const weft_backend **backend)
{
    const weft_cuda_gpu *gpu = NULL;
    double usable = has_usable_gpu(products, comm);
    const double ranks = comm ? weft_comm_ranks(comm) : 1;
    const bool prints = !comm || weft_comm_rank(comm) == 0;
    if (comm)
        WEFT_TRY(weft_comm_sum(comm, &usable, 1));
    if (usable < ranks)
        weft_backend_auto_cpu();
    *backend = weft_backend_find("auto");
    if (*backend == &weft_backend_cuda)
        WEFT_TRY(weft_cuda_gpu_get(&gpu));
    if (prints)
        weft_notice(WEFT_MSG_BACKEND_CHOSEN,
                    WEFT_AT(.value = (*backend)->name, WEFT_NUMBER(usable)), "backend: %s%s%s%s",
                    (*backend)->name, gpu ? " (" : "", gpu ? gpu->name : "", gpu ? ")" : "");
    return WEFT_OK;
}

weft_status weft_backend_settle(const char *name, weft_products products, weft_comm *comm,
                                const weft_backend **backend)
{
    WEFT_TRY(weft_rank_gpus_choose(name, comm));
    if (weft_backend_is_auto(name))
        return choose(products, comm, backend);
    *backend = weft_backend_find(name);
    if (!*backend)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "backend", .value = name),
                          "'%.80s' is not one of %s", name, weft_backend_names());
    return verify(*backend, products, comm);
}
