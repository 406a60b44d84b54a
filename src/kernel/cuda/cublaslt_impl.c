#include "kernel/cuda/cublaslt_impl.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_cublaslt.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/view.h"

#include <pthread.h>

enum {
    MOST_WORKSPACE = 32 << 20, /* bytes: enough for every algorithm of the library */
    SPLITS = 8,                /* parts of a sum that the workspace has memory for */
    WORKSPACE_ALIGNMENT = 256
};

/* A product in column order: D (m, n) = op(A) (m, k) op(B) (k, n). A is input 1, B is input 0. */
typedef struct product {
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    int64_t a_stride, b_stride; /* elements between matrices of a batch; 0: one for all */
} product;

typedef struct plan {
    const weft_cublaslt *library;
    product product;
    cublaslt_handle handle;
    cublaslt_matmul matmul;
    cublaslt_layout a, b, d;
    cublaslt_algorithm algorithm;
    size_t workspace;
} plan;

static struct {
    pthread_mutex_t mutex;  /* also of plans: the address of the bias is a part of the plan */
    cublaslt_handle handle; /* NULL: not created */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int64_t weft_cublaslt_version(void)
{
    const weft_cublaslt *library = weft_cublaslt_get();
    return library ? library->version : 0;
}

/* ---- accepted args --------------------------------------------------------------------------- */

bool weft_cublaslt_has(weft_op op)
{
    return op == WEFT_OP_LINEAR || op == WEFT_OP_MATMUL;
}

static const weft_view *bias_of(const weft_kernel_args *args)
{
    const bool is = args->op == WEFT_OP_LINEAR && args->in_count > 2 && view_present(&args->in[2]);
    return is ? &args->in[2] : NULL;
}

static product linear_product(const weft_kernel_args *args)
{
    const weft_shape *x = &args->in[0].shape, *w = &args->in[1].shape;
    return (product){.m = w->dim[0],
                     .n = shape_span(x, 0, x->rank - 1),
                     .k = w->dim[1],
                     .batch = 1,
                     .trans_a = true};
}

static product matmul_product(const weft_kernel_args *args)
{
    const weft_attr_matmul *attr = args->attr;
    const weft_shape *a = &args->in[0].shape, *b = &args->in[1].shape, *out = &args->out[0].shape;
    const int r = out->rank;
    const bool one_b = b->rank == 2 && r > 2;
    product p = {.m = out->dim[r - 1],
                 .n = out->dim[r - 2],
                 .k = a->dim[a->rank - (attr->trans_a ? 2 : 1)],
                 .batch = shape_span(out, 0, r - 2),
                 .trans_a = attr->trans_b,
                 .trans_b = attr->trans_a};
    if (one_b && !attr->trans_a) {
        p.n *= p.batch;
        p.batch = 1;
    }
    p.a_stride = one_b ? 0 : p.m * p.k;
    p.b_stride = p.n * p.k;
    return p;
}

static product product_of(const weft_kernel_args *args)
{
    return args->op == WEFT_OP_LINEAR ? linear_product(args) : matmul_product(args);
}

/* One type of operands; results of that type or f32; a bias of the type of results or f32.
 * The library counts matrices in 32 bits. */
bool weft_cublaslt_accepts(const weft_kernel_args *args)
{
    const weft_dtype type = args->in[0].dtype, out = args->out[0].dtype;
    const weft_view *bias = bias_of(args);
    if ((type != WEFT_F32 && type != WEFT_BF16 && type != WEFT_F16) || args->in[1].dtype != type ||
        (out != type && out != WEFT_F32) || (bias && bias->dtype != out && bias->dtype != WEFT_F32))
        return false;
    if (args->op == WEFT_OP_LINEAR) {
        const weft_attr_linear *attr = args->attr;
        if (attr->act != WEFT_ACT_NONE && attr->round != out)
            return false;
    }
    return view_count(&args->in[0]) > 0 && view_count(&args->in[1]) > 0 &&
           product_of(args).batch <= INT32_MAX;
}

/* Bytes of the bias in the type of results, which the library needs. 0: it has this type. */
static int64_t bias_bytes(const weft_kernel_args *args)
{
    const weft_view *bias = bias_of(args);
    const weft_dtype out = args->out[0].dtype;
    return bias && bias->dtype != out ? weft_aligned(view_count(bias) * weft_dtype_bytes(out)) : 0;
}

int64_t weft_cublaslt_workspace(const weft_kernel_args *args)
{
    const product p = product_of(args);
    const int64_t bytes = SPLITS * 4 * p.m * p.n * p.batch;
    return (bytes < MOST_WORKSPACE ? bytes : MOST_WORKSPACE) + WORKSPACE_ALIGNMENT +
           bias_bytes(args);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static weft_status check(const weft_cublaslt *library, int result, const char *what)
{
    return result == CUBLASLT_OK ? WEFT_OK : weft_cublaslt_error(library, result, what);
}

static weft_status get_handle(const weft_cublaslt *library, cublaslt_handle *handle)
{
    const weft_cuda_gpu *gpu; /* its context is current afterwards */
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    pthread_mutex_lock(&state.mutex);
    const int result = state.handle ? CUBLASLT_OK : library->create(&state.handle);
    if (result != CUBLASLT_OK)
        state.handle = NULL;
    *handle = state.handle;
    pthread_mutex_unlock(&state.mutex);
    return check(library, result, "the start of cuBLASLt");
}

static int type_of(weft_dtype dtype)
{
    return dtype == WEFT_BF16 ? CUBLASLT_BF16 : dtype == WEFT_F16 ? CUBLASLT_F16 : CUBLASLT_F32;
}

/* A matrix of rows times columns in column order, without space between columns. */
static weft_status create_layout(const plan *p, weft_dtype type, int64_t rows, int64_t columns,
                                 int64_t stride, cublaslt_layout *layout)
{
    const weft_cublaslt *l = p->library;
    const int32_t batch = (int32_t)p->product.batch;
    WEFT_TRY(check(l,
                   l->layout_create(layout, type_of(type), (uint64_t)rows, (uint64_t)columns, rows),
                   "a matrix"));
    if (batch == 1)
        return WEFT_OK;
    WEFT_TRY(check(l, l->layout_set(*layout, CUBLASLT_LAYOUT_BATCH, &batch, sizeof batch),
                   "the batch of a matrix"));
    return check(l, l->layout_set(*layout, CUBLASLT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride),
                 "the batch of a matrix");
}

static weft_status create_layouts(plan *p, const weft_kernel_args *args)
{
    const product *q = &p->product;
    const int64_t a[] = {q->m, q->k}, b[] = {q->k, q->n};
    const weft_dtype type = args->in[0].dtype;
    WEFT_TRY(create_layout(p, type, a[q->trans_a], a[!q->trans_a], q->a_stride, &p->a));
    WEFT_TRY(create_layout(p, type, b[q->trans_b], b[!q->trans_b], q->b_stride, &p->b));
    return create_layout(p, args->out[0].dtype, q->m, q->n, q->m * q->n, &p->d);
}

static weft_status set_matmul(const plan *p, int attribute, const void *value, size_t bytes)
{
    return check(p->library, p->library->matmul_set(p->matmul, attribute, value, bytes),
                 "a product");
}

static weft_status create_matmul(plan *p, const weft_kernel_args *args)
{
    const int32_t trans_a = p->product.trans_a, trans_b = p->product.trans_b;
    const int sums =
        weft_op_is_tf32(args->op, args->attr) ? CUBLASLT_SUMS_F32_OF_TF32 : CUBLASLT_SUMS_F32;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const uintptr_t aligned = WEFT_CUDA_ALIGNMENT; /* the search reads only the alignment */
    WEFT_TRY(
        check(p->library, p->library->matmul_create(&p->matmul, sums, CUBLASLT_F32), "a product"));
    WEFT_TRY(set_matmul(p, CUBLASLT_MATMUL_TRANS_A, &trans_a, sizeof trans_a));
    WEFT_TRY(set_matmul(p, CUBLASLT_MATMUL_TRANS_B, &trans_b, sizeof trans_b));
    if (!bias_of(args))
        return WEFT_OK;
    WEFT_TRY(set_matmul(p, CUBLASLT_MATMUL_EPILOGUE, &epilogue, sizeof epilogue));
    return set_matmul(p, CUBLASLT_MATMUL_BIAS, &aligned, sizeof aligned);
}

/* Bytes of the workspace after its start is aligned. */
static uint64_t usable_workspace(const weft_kernel_args *args)
{
    return (uint64_t)(weft_cublaslt_workspace(args) - WORKSPACE_ALIGNMENT - bias_bytes(args));
}

static weft_status limit_search(const plan *p, const weft_kernel_args *args,
                                cublaslt_preference preference)
{
    const weft_cublaslt *l = p->library;
    const uint64_t workspace = usable_workspace(args);
    const uint32_t reductions = CUBLASLT_REDUCE_F32, alignment = WEFT_CUDA_ALIGNMENT;
    int result =
        l->preference_set(preference, CUBLASLT_SEARCH_WORKSPACE, &workspace, sizeof workspace);
    if (result == CUBLASLT_OK)
        result = l->preference_set(preference, CUBLASLT_SEARCH_REDUCTIONS, &reductions,
                                   sizeof reductions);
    for (int i = 0; i < 4 && result == CUBLASLT_OK; i++)
        result = l->preference_set(preference, CUBLASLT_SEARCH_ALIGNMENT_A + i, &alignment,
                                   sizeof alignment);
    return check(l, result, "the search of an algorithm");
}

/* A plan without an algorithm. */
static weft_status create_plan(const weft_cublaslt *library, const weft_kernel_args *args,
                               plan **out)
{
    plan *p;
    WEFT_TRY(WEFT_NEW(p, 1, "a plan of cuBLASLt"));
    p->library = library;
    p->product = product_of(args);
    weft_status_code status = WEFT_OK;
    WEFT_GO(get_handle(library, &p->handle));
    WEFT_GO(create_matmul(p, args));
    WEFT_GO(create_layouts(p, args));
    *out = p;
    return WEFT_OK;
out:
    weft_cublaslt_release(p);
    return status;
}

/* The algorithms for the product of the plan, best first. The request is always the same, because
 * the order for a smaller number may differ. */
static weft_status find_algorithms(const plan *p, const weft_kernel_args *args,
                                   cublaslt_found found[WEFT_CUDA_VARIANTS], int *count)
{
    const weft_cublaslt *l = p->library;
    cublaslt_preference preference;
    *count = 0;
    WEFT_TRY(check(l, l->preference_create(&preference), "the search of an algorithm"));
    weft_status_code status = limit_search(p, args, preference);
    if (status == WEFT_OK)
        status = check(l,
                       l->find(p->handle, p->matmul, p->a, p->b, p->d, p->d, preference,
                               WEFT_CUDA_VARIANTS, found, count),
                       "the search of an algorithm");
    l->preference_destroy(preference);
    return status;
}

/* The first usable algorithm from number *variant on. False: none. */
static bool next_algorithm(const cublaslt_found *found, int count, int *variant)
{
    while (*variant < count && found[*variant].status != CUBLASLT_OK)
        ++*variant;
    return *variant < count;
}

static void release_plans(const weft_cuda_plan *list, int count)
{
    for (int i = 0; i < count; i++)
        weft_cublaslt_release(list[i].plan);
}

weft_status_code weft_cublaslt_prepare(const weft_kernel_args *args, int first, int most,
                                       weft_cuda_plan *list, int *count)
{
    const weft_cublaslt *library = weft_cublaslt_get();
    cublaslt_found found[WEFT_CUDA_VARIANTS];
    plan *search = NULL, *p;
    int algorithms = 0, made = 0;
    weft_status_code status = WEFT_OK;
    if (library) {
        WEFT_GO(create_plan(library, args, &search));
        WEFT_GO(find_algorithms(search, args, found, &algorithms));
    }
    for (int v = first; made < most && next_algorithm(found, algorithms, &v); v++) {
        WEFT_GO(create_plan(library, args, &p));
        p->algorithm = found[v].algorithm;
        p->workspace = found[v].workspace;
        list[made++] = (weft_cuda_plan){v, p};
    }
    if (!made)
        WEFT_GO(weft_error(WEFT_MSG_KERNEL_UNSUPPORTED,
                           WEFT_AT(.value = "libcublasLt.so", WEFT_NUMBER(first)),
                           "cuBLASLt has %d algorithms for the product. Another implementation is "
                           "used.",
                           algorithms));
    *count = made;
out:
    weft_cublaslt_release(search);
    if (status != WEFT_OK)
        release_plans(list, made);
    return status;
}

void weft_cublaslt_release(void *of)
{
    plan *p = of;
    if (!p)
        return;
    const cublaslt_layout layout[] = {p->a, p->b, p->d};
    for (int i = 0; i < 3; i++)
        if (layout[i])
            p->library->layout_destroy(layout[i]);
    if (p->matmul)
        p->library->matmul_destroy(p->matmul);
    weft_free(p);
}

/* ---- launches -------------------------------------------------------------------------------- */

static void *aligned_workspace(const weft_kernel_args *args)
{
    const uintptr_t at = (uintptr_t)args->workspace + (uintptr_t)bias_bytes(args);
    return (void *)((at + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT);
}

/* Converts the bias to the start of the workspace if the library needs that. False: as for
 * weft_cuda_stream_begin(). */
static bool convert_bias(const weft_kernel_args *args, const void **bias)
{
    const weft_view *v = bias_of(args);
    *bias = v ? v->data : NULL;
    if (!bias_bytes(args))
        return true;
    weft_device_cuda.convert(args->stream, args->workspace, args->out[0].dtype, v->data, v->dtype,
                             view_count(v));
    *bias = args->workspace;
    return weft_cuda_stream_begin(args->stream, "cublaslt");
}

static weft_status multiply(const plan *p, const weft_kernel_args *args, const void *bias)
{
    const float one = 1, zero = 0;
    void *d = args->out[0].data;
    pthread_mutex_lock(&state.mutex);
    int result = bias ? p->library->matmul_set(p->matmul, CUBLASLT_MATMUL_BIAS, &bias, sizeof bias)
                      : CUBLASLT_OK;
    if (result == CUBLASLT_OK)
        result =
            p->library->run(p->handle, p->matmul, &one, args->in[1].data, p->a, args->in[0].data,
                            p->b, &zero, d, p->d, d, p->d, &p->algorithm, aligned_workspace(args),
                            p->workspace, weft_cuda_stream_handle(args->stream));
    pthread_mutex_unlock(&state.mutex);
    return check(p->library, result, "a product");
}

/* The activation of linear, in place. */
static weft_status activate(const weft_kernel_args *args, weft_act act)
{
    const weft_attr_gelu gelu = {.exact = false};
    weft_view y = args->out[0];
    const weft_kernel_args one = {.op = act == WEFT_ACT_SILU ? WEFT_OP_SILU : WEFT_OP_GELU,
                                  .in = &y,
                                  .in_count = 1,
                                  .out = &y,
                                  .out_count = 1,
                                  .attr = &gelu,
                                  .stream = args->stream};
    return weft_cuda_impl_get(weft_cuda_impl_own())->launch(&one, NULL);
}

weft_status_code weft_cublaslt_launch(const weft_kernel_args *args, void *of)
{
    const weft_attr_linear *attr = args->op == WEFT_OP_LINEAR ? args->attr : NULL;
    const void *bias;
    if (!convert_bias(args, &bias))
        return WEFT_OK; /* the error appears when the host waits */
    WEFT_TRY(multiply(of, args, bias));
    return attr && attr->act != WEFT_ACT_NONE ? activate(args, attr->act) : WEFT_OK;
}
