#include "kernel/cuda/chain_impl.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernel/cuda/chain_class.h"
#include "kernel/cuda/chain_kernels.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_nvrtc.h"
#include "kernel/cuda/ops.h"
#include "kernel/device.h"
#include "kernel/view.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

bool weft_chain_has(weft_op op)
{
    return op == WEFT_OP_POINTWISE;
}

/* ---- comparison with the ops ----------------------------------------------------------------- */

/* The result of the comparison of a kernel in a class of shapes. Stays until the process ends. */
typedef struct weft_chain_proof {
    weft_chain_class of;
    bool equal;
    struct weft_chain_proof *next;
} weft_chain_proof;

typedef struct comparison {
    weft_kernel_args args;
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    char *memory; /* of the GPU: operands and workspace */
    int64_t bytes, out_at, out_bytes;
    weft_staging *staging;
    char *result[2]; /* of the host: all outputs, by the ops and by the kernel */
} comparison;

static void place(comparison *c, weft_view *view, int count)
{
    for (int i = 0; i < count; i++) {
        view[i].data = c->memory ? c->memory + c->bytes : NULL;
        c->bytes += weft_aligned(view_count(&view[i]) * weft_dtype_bytes(view[i].dtype));
    }
}

static void place_all(comparison *c)
{
    c->bytes = 0;
    place(c, c->in, c->args.in_count);
    c->out_at = c->bytes;
    place(c, c->out, c->args.out_count);
    c->out_bytes = c->bytes - c->out_at;
    c->args.workspace = c->memory ? c->memory + c->bytes : NULL;
}

static weft_status write_inputs(comparison *c)
{
    weft_rng rng = weft_rng_make(1, WEFT_RNG_TEST);
    float *values;
    int64_t most = 0;
    for (int i = 0; i < c->args.in_count; i++)
        most = view_count(&c->in[i]) > most ? view_count(&c->in[i]) : most;
    WEFT_TRY(WEFT_NEW(values, most + 1, "the comparison of a kernel"));
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < c->args.in_count; i++) {
        const int64_t count = view_count(&c->in[i]);
        for (int64_t k = 0; k < count; k++)
            values[k] = (float)(2 * weft_rng_normal(&rng));
        WEFT_GO(
            weft_staging_write(c->staging, c->in[i].data, c->in[i].dtype, values, WEFT_F32, count));
    }
    WEFT_GO(weft_staging_zero(c->staging, c->memory + c->out_at, c->out_bytes));
    status = weft_staging_finish(c->staging);
out:
    weft_free(values);
    return status;
}

/* `name` NULL: the kernels of the ops. */
static weft_status compute(comparison *c, const char *name, char *result)
{
    bool begun;
    WEFT_TRY(write_inputs(c));
    WEFT_TRY(weft_cuda_stream_node(c->args.stream, &c->args,
                                   weft_cuda_ops[WEFT_OP_POINTWISE].workspace(&c->args), &begun));
    weft_cuda_queue *queue = weft_cuda_stream_queue(c->args.stream);
    WEFT_TRY(name ? weft_chain_launch(&c->args, name, queue)
                  : weft_cuda_ops[WEFT_OP_POINTWISE].launch(&c->args, queue));
    WEFT_TRY(weft_device_cuda.wait(c->args.stream));
    return weft_staging_read(c->staging, result, WEFT_U8, c->memory + c->out_at, WEFT_U8,
                             c->out_bytes);
}

static void comparison_free(comparison *c)
{
    weft_device_cuda.close(c->args.stream);
    weft_device_cuda.free(&weft_device_cuda, c->memory);
    weft_staging_free(c->staging);
    weft_free(c->result[0]);
    weft_free(c->result[1]);
}

static weft_status comparison_create(const weft_kernel_args *args, const weft_chain_class *of,
                                     comparison *c)
{
    c->args = *args;
    memcpy(c->in, args->in, (size_t)args->in_count * sizeof *c->in);
    memcpy(c->out, args->out, (size_t)args->out_count * sizeof *c->out);
    c->args.in = c->in;
    c->args.out = c->out;
    c->args.stream = NULL;
    weft_chain_class_shapes(of, c->in, args->in_count, c->out, args->out_count);
    place_all(c);
    const int64_t bytes = c->bytes + weft_cuda_ops[WEFT_OP_POINTWISE].workspace(&c->args);
    c->memory = weft_device_cuda.alloc(&weft_device_cuda, bytes + 1);
    if (!c->memory)
        return weft_device_no_memory(&weft_device_cuda, bytes, "operands of a comparison");
    place_all(c);
    for (int i = 0; i < 2; i++)
        c->result[i] = weft_calloc(c->out_bytes + 1, 1);
    WEFT_TRY(WEFT_ALLOCATED(c->result[0] && c->result[1], "the comparison of a kernel"));
    WEFT_TRY(weft_staging_create(&weft_device_cuda, &c->staging));
    return weft_device_cuda.open(&weft_device_cuda, NULL, &c->args.stream);
}

static weft_status compare(const weft_kernel_args *args, const weft_chain_class *of,
                           const char *name, bool *equal)
{
    comparison c = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(comparison_create(args, of, &c));
    WEFT_GO(compute(&c, NULL, c.result[0]));
    WEFT_GO(compute(&c, name, c.result[1]));
    *equal = !memcmp(c.result[0], c.result[1], (size_t)c.out_bytes);
out:
    comparison_free(&c);
    return status;
}

/* Finds the comparison of the kernel in the class of the node's shapes, or makes it. */
static weft_status prove(const weft_kernel_args *args, weft_chain_kernel *kernel, bool *equal)
{
    const weft_chain_class of = weft_chain_class_of(args);
    weft_chain_proof *p = kernel->proofs;
    while (p && memcmp(&p->of, &of, sizeof of))
        p = p->next;
    if (!p) {
        WEFT_TRY(compare(args, &of, kernel->name, equal));
        WEFT_TRY(WEFT_NEW(p, 1, "the comparison of a kernel"));
        *p = (weft_chain_proof){of, *equal, kernel->proofs};
        kernel->proofs = p;
    }
    *equal = p->equal;
    return WEFT_OK;
}

/* ---- the implementation ---------------------------------------------------------------------- */

static weft_status prepare(const weft_kernel_args *args, weft_chain_kernel **kernel)
{
    bool equal;
    WEFT_TRY(weft_chain_kernel_get(args, kernel));
    WEFT_TRY(prove(args, *kernel, &equal));
    if (equal)
        return WEFT_OK;
    return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = (*kernel)->name),
                      "the generated kernel %s differs from the ops that it replaces. Another "
                      "implementation is used.",
                      (*kernel)->name);
}

weft_status_code weft_chain_prepare(const weft_kernel_args *args, int first, int most,
                                    weft_cuda_plan *plan, int *count)
{
    weft_chain_kernel *kernel = NULL;
    (void)first, (void)most; /* one variant */
    weft_chain_lock();
    const weft_status_code status = prepare(args, &kernel);
    weft_chain_unlock();
    WEFT_TRY(status);
    plan[0] = (weft_cuda_plan){.plan = kernel};
    *count = 1;
    return WEFT_OK;
}

void weft_chain_release(void *plan)
{
    (void)plan; /* the process's */
}

weft_status_code weft_chain_run(const weft_kernel_args *args, void *plan)
{
    const weft_chain_kernel *kernel = plan;
    bool begun;
    WEFT_TRY(weft_cuda_stream_node(args->stream, args, 0, &begun));
    if (!begun)
        return WEFT_OK; /* the error appears when the host waits */
    return weft_chain_launch(args, kernel->name, weft_cuda_stream_queue(args->stream));
}

static void say_missing(void)
{
    weft_notice(WEFT_MSG_KERNEL_REPLACED, WEFT_AT(.key = "pointwise", .value = "nvrtc"),
                "elementwise ops are not joined, because NVRTC was not found. Install NVIDIA's "
                "libnvrtc, or set WEFT_NVRTC_LIBRARY to its path.");
}

bool weft_chain_available(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *mode = getenv("WEFT_NVRTC");
    if (weft_nvrtc_version() > 0)
        return true;
    if (!mode || strcmp(mode, "off") != 0)
        pthread_once(&once, say_missing);
    return false;
}
