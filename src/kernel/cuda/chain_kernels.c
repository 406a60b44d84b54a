#include "kernel/cuda/chain_kernels.h"

#include "base/memory.h"
#include "kernel/cuda/chain_class.h"
#include "kernel/cuda/compiled_code.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/op_launch.h"

#include <pthread.h>
#include <string.h>

static struct {
    pthread_mutex_t mutex;
    weft_chain_kernel *first; /* with code */
    weft_chain_kernel *named; /* names only */
} chains = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void weft_chain_lock(void)
{
    pthread_mutex_lock(&chains.mutex);
}

void weft_chain_unlock(void)
{
    pthread_mutex_unlock(&chains.mutex);
}

/* ---- the code -------------------------------------------------------------------------------- */

/* The module keeps the code. */
static weft_status add_kernel(weft_chain_kernel *k, const char *source)
{
    char *code = NULL;
    WEFT_TRY(weft_compiled_code("-chain-", k->name, source, &code));
    const weft_status_code status = weft_cuda_module_add(k->name, code);
    if (status != WEFT_OK) {
        weft_free(code);
        return status;
    }
    k->next = chains.first;
    chains.first = k;
    return WEFT_OK;
}

weft_status weft_chain_kernel_get(const weft_kernel_args *args, weft_chain_kernel **out)
{
    weft_buf source = {0};
    char name[WEFT_CHAIN_NAME];
    weft_chain_kernel *k = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_chain_source(args, name, &source));
    for (k = chains.first; k && strcmp(k->name, name);)
        k = k->next;
    if (!k) {
        WEFT_GO(WEFT_NEW(k, 1, "a generated kernel"));
        memcpy(k->name, name, sizeof k->name);
        status = add_kernel(k, source.data);
        if (status != WEFT_OK)
            weft_free(k);
    }
    *out = k;
out:
    weft_buf_free(&source);
    return status;
}

const char *weft_chain_name(const weft_kernel_args *args)
{
    weft_buf source = {0};
    char name[WEFT_CHAIN_NAME];
    weft_chain_kernel *k = NULL;
    if (weft_chain_source(args, name, &source) == WEFT_OK) {
        weft_chain_lock();
        for (k = chains.named; k && strcmp(k->name, name);)
            k = k->next;
        if (!k && (k = weft_calloc(1, sizeof *k))) {
            memcpy(k->name, name, sizeof k->name);
            k->next = chains.named;
            chains.named = k;
        }
        weft_chain_unlock();
    }
    weft_buf_free(&source);
    return k ? k->name : NULL;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The two numbers of a step, as for the kernel of the op. */
static void set_numbers(const weft_pointwise_step *step, float *a, float *b)
{
    if (step->op == WEFT_OP_AFFINE) {
        *a = (float)step->attr.affine.scale;
        *b = (float)step->attr.affine.offset;
    } else if (step->op == WEFT_OP_CLAMP || step->op == WEFT_OP_CLAMP_GRAD) {
        *a = (float)step->attr.clamp.lo;
        *b = (float)step->attr.clamp.hi;
    }
}

weft_status_code weft_chain_launch(const weft_kernel_args *args, const char *name,
                                   weft_cuda_queue *queue)
{
    const weft_attr_pointwise *attr = args->attr;
    weft_cuda_loop loop;
    chain_args a = {0};
    weft_chain_loop(args, &loop);
    for (int i = 0; i < args->in_count; i++) {
        a.in[i] = args->in[i].data;
        a.same[i] = loop.rank > 0 && loop.stride[i][loop.rank - 1] == 0;
    }
    for (int o = 0; o < args->out_count; o++)
        a.out[o] = args->out[o].data;
    for (int s = 0; s < attr->count; s++)
        set_numbers(&attr->step[s], &a.a[s], &a.b[s]);
    a.vector = weft_cuda_loop_widen(&loop, args, args->in_count);
    a.items = weft_cuda_loop_items(&loop);
    WEFT_TRY(weft_cuda_loop_shape(&loop, &a.shape));
    for (int i = 0; i < args->in_count; i++)
        weft_cuda_loop_strides(&loop, i, a.stride[i]);
    return weft_cuda_add(queue, name, weft_cuda_blocks(a.items, POINTWISE_THREADS),
                         POINTWISE_THREADS, &a, sizeof a);
}
