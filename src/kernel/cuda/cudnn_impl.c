#include "kernel/cuda/cudnn_impl.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cudnn_attention.h"

#include <pthread.h>

/* The descriptors of a plan stay as long as the plan, which may use the others. */
typedef struct cudnn_plan {
    weft_cudnn_builder builder;
    weft_cudnn_op op;
    cudnn_descriptor plan;
} cudnn_plan;

/* cuDNN's state of the process' GPU. A handle has one stream at a time, so launches take turns. */
static struct {
    pthread_mutex_t mutex;
    cudnn_handle handle; /* NULL: not created */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int64_t weft_cudnn_version(void)
{
    const weft_cudnn *library = weft_cudnn_get();
    return library ? library->version : 0;
}

static weft_status_code get_handle(const weft_cudnn *library, cudnn_handle *handle)
{
    const weft_cuda_gpu *gpu; /* its context is current afterwards */
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    pthread_mutex_lock(&state.mutex);
    const int result = state.handle ? CUDNN_OK : library->create(&state.handle);
    if (result != CUDNN_OK)
        state.handle = NULL;
    *handle = state.handle;
    pthread_mutex_unlock(&state.mutex);
    return result == CUDNN_OK ? WEFT_OK : weft_cudnn_error(library, result, "the start of cuDNN");
}

/* *variant: the first one that may be used, then the plan's. */
static weft_status_code find_plan(const weft_kernel_args *args, int *variant, cudnn_plan *p)
{
    int64_t workspace = 0;
    const weft_cudnn_wish wish = weft_cudnn_wish_of(args, *variant);
    weft_cudnn_add_op(&p->builder, args, &p->op);
    p->plan = weft_cudnn_add_plan(&p->builder, p->op.graph, &wish, variant, &workspace);
    return p->builder.status;
}

static weft_status_code create_plan(const weft_kernel_args *args, int *variant, cudnn_plan **plan)
{
    const weft_cudnn *library = weft_cudnn_get();
    cudnn_plan *p;
    if (!library)
        return weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(.value = "libcudnn.so.9"),
                          "cuDNN 9.17 or later is not installed. Another implementation is used.");
    WEFT_TRY(WEFT_NEW(p, 1, "a plan of cuDNN"));
    p->builder.library = library;
    weft_status_code status = WEFT_OK;
    WEFT_GO(get_handle(library, &p->builder.handle));
    WEFT_GO(find_plan(args, variant, p));
    *plan = p;
    return WEFT_OK;
out:
    weft_cudnn_release(p);
    return status;
}

/* A plan is built once; only cuDNN's list of configurations is asked for each plan, because the
 * descriptors of a plan are its own. */
weft_status_code weft_cudnn_prepare(const weft_kernel_args *args, int first, int most,
                                    weft_cuda_plan *list, int *count)
{
    int made = 0;
    weft_status_code status = WEFT_OK;
    for (int v = first; made < most; v++) {
        cudnn_plan *p = NULL;
        status = create_plan(args, &v, &p);
        if (status != WEFT_OK)
            break;
        list[made++] = (weft_cuda_plan){v, p};
    }
    if (made && status == WEFT_E_UNSUPPORTED)
        status = WEFT_OK; /* no more plans */
    for (int i = 0; i < made && status != WEFT_OK; i++)
        weft_cudnn_release(list[i].plan);
    *count = made;
    return status;
}

void weft_cudnn_release(void *plan)
{
    cudnn_plan *p = plan;
    if (p)
        weft_cudnn_close(&p->builder);
    weft_free(p);
}

static void *aligned_workspace(const weft_kernel_args *args)
{
    const uintptr_t at = (uintptr_t)args->workspace + CUDNN_WORKSPACE_ALIGNMENT - 1;
    return (void *)(at / CUDNN_WORKSPACE_ALIGNMENT * CUDNN_WORKSPACE_ALIGNMENT);
}

/* Values of the host, and the part of attention that an execution computes. */
typedef struct cudnn_part {
    float scale, one;
    int64_t sample, head; /* first ones */
} cudnn_part;

/* The address of the part of an operand: of (B,S,H,D), or of lse (B,H,S). */
static void *part_of(const weft_view *v, const cudnn_part *part)
{
    const int64_t *d = v->shape.dim;
    const int64_t at = v->shape.rank == 4 ? (part->sample * d[1] * d[2] + part->head) * d[3]
                                          : (part->sample * d[1] + part->head) * d[2];
    return (char *)v->data + (part->sample || part->head ? at * weft_dtype_bytes(v->dtype) : 0);
}

/* The address of a tensor of the graph. */
static void *address_of(const weft_kernel_args *args, int64_t id, cudnn_part *part)
{
    if (id == CUDNN_ID_SCALE)
        return &part->scale;
    if (id == CUDNN_ID_ONE)
        return &part->one;
    if (id == CUDNN_ID_SUMS)
        return aligned_workspace(args);
    return part_of(id >= CUDNN_ID_OUT ? &args->out[id - CUDNN_ID_OUT] : &args->in[id - CUDNN_ID_IN],
                   part);
}

static float scale_of(const weft_kernel_args *args)
{
    const weft_attr_attention *attr = args->attr;
    const bool is = args->op == WEFT_OP_ATTENTION || args->op == WEFT_OP_ATTENTION_GRAD;
    return is ? (float)attr->scale : 1;
}

static void fill_pack(weft_cudnn_builder *b, cudnn_descriptor pack, const weft_cudnn_op *op,
                      void *const *address, void *workspace)
{
    weft_cudnn_set(b, pack, CUDNN_PACK_IDS, CUDNN_TYPE_INT64, op->ids, op->id);
    weft_cudnn_set(b, pack, CUDNN_PACK_ADDRESSES, CUDNN_TYPE_ADDRESS, op->ids, address);
    weft_cudnn_set(b, pack, CUDNN_PACK_WORKSPACE, CUDNN_TYPE_ADDRESS, 1, &workspace);
    weft_cudnn_finish(b, pack);
}

static weft_status_code execute(const cudnn_plan *p, cudnn_descriptor pack,
                                weft_device_stream *stream)
{
    const weft_cudnn *library = p->builder.library;
    const cudnn_handle handle = p->builder.handle;
    pthread_mutex_lock(&state.mutex);
    int result = library->set_stream(handle, weft_cuda_stream_handle(stream));
    if (result == CUDNN_OK)
        result = library->execute(handle, p->plan, pack);
    pthread_mutex_unlock(&state.mutex);
    return result == CUDNN_OK ? WEFT_OK : weft_cudnn_error(library, result, "a plan of cuDNN");
}

/* Addresses differ between launches, so each launch has a pack of its own. */
static weft_status_code launch_part(const weft_kernel_args *args, const cudnn_plan *p,
                                    cudnn_part *part)
{
    weft_cudnn_builder b = {.library = p->builder.library, .handle = p->builder.handle};
    void *address[CUDNN_OP_TENSORS];
    char *const workspace = (char *)aligned_workspace(args) + weft_cudnn_sums_bytes(args);
    for (int i = 0; i < p->op.ids; i++)
        address[i] = address_of(args, p->op.id[i], part);
    cudnn_descriptor pack = weft_cudnn_new(&b, CUDNN_PACK);
    fill_pack(&b, pack, &p->op, address, workspace);
    const weft_status_code status = b.status == WEFT_OK ? execute(p, pack, args->stream) : b.status;
    weft_cudnn_close(&b);
    return status;
}

weft_status_code weft_cudnn_launch(const weft_kernel_args *args, void *plan)
{
    const cudnn_plan *p = plan;
    const int64_t *q = args->in[0].shape.dim;
    cudnn_part part = {.scale = scale_of(args), .one = 1};
    if (!p->op.heads)
        return launch_part(args, p, &part);
    for (part.sample = 0; part.sample < q[0]; part.sample += p->op.samples)
        for (part.head = 0; part.head < q[2]; part.head += p->op.heads)
            WEFT_TRY(launch_part(args, p, &part));
    return WEFT_OK;
}

weft_status_code weft_cudnn_device(char **json)
{
    weft_cudnn_builder b = {.library = weft_cudnn_get()};
    *json = NULL;
    if (!b.library)
        return WEFT_OK;
    WEFT_TRY(get_handle(b.library, &b.handle));
    *json = weft_cudnn_describe_device(&b);
    weft_cudnn_close(&b);
    return b.status;
}
