/* conv3d, its data gradient and its weight gradient.
 *
 * FLOPs 2 B T'Y'X' O I kt ky kx each. Activations stay channels-last as in the graph, and oneDNN
 * pads by index, so activations are not copied. Only the weights (O,I,kt,ky,kx) are reordered to
 * the blocked form of the generated kernel and, for the weight gradient, back. 1x1x1 convolutions
 * are matrix products. prepare() creates the primitives; their scratch is in the workspace. */
#include "base/memory.h"
#include "kernel/cpu/conv_own.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>

typedef enum conv_kind { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS } conv_kind;

typedef struct conv_shape {
    conv_kind kind;
    bool bias;
    conv_dims d;
    int64_t taps; /* frames of the complete kernel; d.w may be one of its frames */
    bool adds;    /* CONV_WEIGHTS: adds to the output */
} conv_shape;

typedef struct conv_cache {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t conv, reorder;
    /* src, weights (blocked), dst, bias, scratch, weights (plain), reorder's scratch */
    dnnl_memory_t x, w, y, bias, scratch, plain;
    int64_t w_bytes, scratch_bytes;
    bool one_thread; /* see conv_choose */
} conv_cache;

static conv_shape conv_of(const weft_kernel_args *args, conv_kind kind)
{
    conv_shape s = {.kind = kind, .d.attr = args->attr};
    s.d.x = kind == CONV_DATA ? args->out[0].shape : args->in[0].shape;
    s.d.w = kind == CONV_WEIGHTS ? args->out[0].shape : args->in[1].shape;
    s.d.y = kind == CONV_FORWARD ? args->out[0].shape
            : kind == CONV_DATA  ? args->in[0].shape
                                 : args->in[1].shape;
    s.taps = s.d.w.dim[2];
    s.bias = kind == CONV_FORWARD && args->in_count > 2 && view_present(&args->in[2]);
    return s;
}

static bool is_empty(const conv_shape *s)
{
    return shape_span(&s->d.x, 0, 5) == 0 || shape_span(&s->d.y, 0, 5) == 0 ||
           shape_span(&s->d.w, 0, 5) == 0;
}

/* True if the convolution is a product of (positions, I) and (O, I). */
static bool is_pointwise(const conv_shape *s)
{
    for (int d = 0; d < 3; d++)
        if (s->d.w.dim[2 + d] != 1 || s->d.attr->stride[d] != 1 || s->d.attr->before[d] ||
            s->d.attr->after[d])
            return false;
    return true;
}

/* True if our own kernel runs the convolution. Own kernels are used where they are faster or more
 * exact (bench/README.md):
 *
 *   - the last layer of a decoder, whose few outputs oneDNN pads to a vector
 *   - weight gradients without AVX-512, where oneDNN falls back to im2col for causal padding
 *   - weight gradients of few channels. oneDNN's order of addition is less exact: two ranks differ
 *     from one by three times as much after 50 steps of a narrow VAE
 *   - weight gradients of large frames, up to the size whose partial sums stay in the cache */
static bool is_own(const conv_shape *s)
{
    enum { FEW = 64 * 64, CHANNELS = 96 * 96, LARGE_FRAME = 2048 };
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1];
    if (s->kind == CONV_FORWARD)
        return conv_own_few_fits(&s->d);
    return s->kind == CONV_WEIGHTS &&
           (!cpu_isa_get()->wide || O * I < FEW ||
            (O * I <= CHANNELS && shape_span(&s->d.y, 2, 4) >= LARGE_FRAME));
}

static void ncdhw(const weft_shape *s, dnnl_dims_t dims)
{
    dims[0] = s->dim[0];
    dims[1] = s->dim[4];
    for (int d = 0; d < 3; d++)
        dims[2 + d] = s->dim[1 + d];
}

static weft_status_code dnnl_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return WEFT_OK;
    return weft_error(status == dnnl_out_of_memory ? WEFT_MSG_OUT_OF_MEMORY
                                                   : WEFT_MSG_KERNEL_UNSUPPORTED,
                      WEFT_AT(.key = "conv3d"), "oneDNN rejects the convolution (%s, status %d)",
                      what, (int)status);
}

static dnnl_status_t conv_descriptor(const conv_shape *s, dnnl_engine_t engine,
                                     const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    dnnl_dims_t xd, yd, wd, bd = {s->d.w.dim[0]}, stride, left, right, dilation = {0, 0, 0};
    ncdhw(&s->d.x, xd);
    ncdhw(&s->d.y, yd);
    for (int d = 0; d < 5; d++)
        wd[d] = s->d.w.dim[d];
    for (int d = 0; d < 3; d++) {
        stride[d] = s->d.attr->stride[d];
        left[d] = s->d.attr->before[d];
        right[d] = s->d.attr->after[d];
    }
    dnnl_memory_desc_t x, w, y, b;
    dnnl_memory_desc_init_by_tag(&x, 5, xd, dnnl_f32, dnnl_ndhwc);
    dnnl_memory_desc_init_by_tag(&y, 5, yd, dnnl_f32, dnnl_ndhwc);
    dnnl_memory_desc_init_by_tag(&w, 5, wd, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&b, 1, bd, dnnl_f32, dnnl_a);
    dnnl_convolution_desc_t forward, desc;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &forward, dnnl_forward_training, dnnl_convolution_direct, &x, &w, s->bias ? &b : NULL, &y,
        stride, dilation, left, right);
    if (status != dnnl_success)
        return status;
    if (s->kind == CONV_FORWARD)
        return dnnl_primitive_desc_create(out, &forward, attr, engine, NULL);
    status =
        s->kind == CONV_DATA
            ? dnnl_dilated_convolution_backward_data_desc_init(
                  &desc, dnnl_convolution_direct, &x, &w, &y, stride, dilation, left, right)
            : dnnl_dilated_convolution_backward_weights_desc_init(
                  &desc, dnnl_convolution_direct, &x, &w, NULL, &y, stride, dilation, left, right);
    if (status != dnnl_success)
        return status;
    dnnl_primitive_desc_t hint;
    status = dnnl_primitive_desc_create(&hint, &forward, attr, engine, NULL);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_desc_create(out, &desc, attr, engine, hint);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* Creates the descriptor. oneDNN multiplies im2col matrices where it has no generated kernel, as
 * for strided frames without AVX-512. That product is cut by the number of threads, and so is its
 * rounding: such a convolution gets one thread. */
static dnnl_status_t conv_choose(const conv_shape *s, dnnl_engine_t engine,
                                 const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out,
                                 bool *one_thread)
{
    const char *name = "";
    *one_thread = false;
    dnnl_status_t status = conv_descriptor(s, engine, attr, out);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &name);
    if (status != dnnl_success || !strstr(name, "gemm"))
        return status;
    dnnl_primitive_desc_destroy(*out);
    *one_thread = true;
    const int before = weft_host_set_threads(1);
    status = conv_descriptor(s, engine, attr, out);
    weft_host_set_threads(before);
    return status;
}

/* Creates the descriptor with caller-owned scratch. Sets the bytes of blocked weights and scratch,
 * and the threads. */
static weft_status_code conv_plan(const conv_shape *s, conv_cache *c, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    WEFT_TRY(dnnl_check(dnnl_primitive_attr_create(&attr), "attributes"));
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    const dnnl_status_t status = conv_choose(s, c->engine, attr, out, &c->one_thread);
    dnnl_primitive_attr_destroy(attr);
    WEFT_TRY(dnnl_check(status, "descriptor"));
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(
        *out, s->kind == CONV_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(*out, dnnl_query_scratchpad_md, 0);
    c->w_bytes = ((int64_t)dnnl_memory_desc_get_size(w) + 63) & ~(int64_t)63;
    c->scratch_bytes = scratch ? (int64_t)dnnl_memory_desc_get_size(scratch) : 0;
    return WEFT_OK;
}

/* ---- 1x1x1 --------------------------------------------------------------------------------- */

/* A 1x1x1 convolution as a linear layer. */
typedef struct pointwise {
    weft_view in[3];
    weft_attr_linear attr;
    weft_kernel_args args;
} pointwise;

static void pointwise_of(const conv_shape *s, const weft_kernel_args *args, pointwise *p)
{
    *p = (pointwise){.in = {args->in[0], args->in[1]}, .attr = {WEFT_ACT_NONE}, .args = *args};
    if (s->bias)
        p->in[2] = args->in[2];
    p->in[1].shape = (weft_shape){2, {s->d.w.dim[0], s->d.w.dim[1]}};
    p->args.in = p->in;
    p->args.in_count = s->bias ? 3 : 2;
    p->args.attr = &p->attr;
}

/* The weight gradient has few elements and long sums. Sums are cut into parts by the shape, and
 * parts are added in order. */
enum { PART_POSITIONS = 4096, MAX_PARTS = 16, SMALL_GRADIENT = 192 };

static int64_t pointwise_parts(const conv_shape *s)
{
    const int64_t parts = shape_span(&s->d.x, 0, 4) / PART_POSITIONS;
    return s->d.w.dim[0] >= SMALL_GRADIENT || parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
}

static int64_t pointwise_workspace(const conv_shape *s, const weft_kernel_args *args)
{
    if (s->kind == CONV_WEIGHTS)
        return pointwise_parts(s) * s->d.w.dim[0] * s->d.w.dim[1] * 4;
    if (s->kind == CONV_DATA)
        return 0;
    pointwise p;
    pointwise_of(s, args, &p);
    return cpu_linear.workspace(&p.args);
}

static void pointwise_dx(const conv_shape *s, const weft_kernel_args *args)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1];
    cpu_gemm(&(cpu_product){.M = shape_span(&s->d.x, 0, 4),
                            .N = I,
                            .K = O,
                            .lda = O,
                            .ldb = I,
                            .ldc = I,
                            .A = args->in[0].data,
                            .B = args->in[1].data,
                            .C = args->out[0].data});
}

/* Computes dw (O,I) of positions [from, to). */
static void pointwise_dw_part(int64_t O, int64_t I, int64_t from, int64_t to, const float *x,
                              const float *dy, float *dw)
{
    cpu_gemm(&(cpu_product){.trans_a = true,
                            .M = O,
                            .N = I,
                            .K = to - from,
                            .lda = O,
                            .ldb = I,
                            .ldc = I,
                            .A = dy + from * O,
                            .B = x + from * I,
                            .C = dw});
}

static void pointwise_dw(const conv_shape *s, const weft_kernel_args *args)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1], positions = shape_span(&s->d.x, 0, 4),
                  parts = pointwise_parts(s);
    const float *x = args->in[0].data, *dy = args->in[1].data;
    float *dw = args->out[0].data, *partial = parts > 1 ? args->workspace : dw;
    const int threads = parts > 1 ? cpu_threads(positions * O) : 1;
    if (threads == 1) { /* no region of one thread around a product: see matmul */
        for (int64_t i = 0; i < parts; i++)
            pointwise_dw_part(O, I, positions * i / parts, positions * (i + 1) / parts, x, dy,
                              partial + i * O * I);
    } else {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < parts; i++)
            pointwise_dw_part(O, I, positions * i / parts, positions * (i + 1) / parts, x, dy,
                              partial + i * O * I);
    }
    if (parts > 1) {
        memset(dw, 0, (size_t)(O * I) * sizeof *dw);
        cpu_isa_get()->f32->column_sums(partial, parts, O * I, dw);
    }
}

/* ---- oneDNN -------------------------------------------------------------------------------- */

static void conv_release(void *cache)
{
    conv_cache *c = cache;
    if (!c)
        return;
    dnnl_memory_t memory[] = {c->x, c->w, c->y, c->bias, c->scratch, c->plain};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (c->conv)
        dnnl_primitive_destroy(c->conv);
    if (c->reorder)
        dnnl_primitive_destroy(c->reorder);
    if (c->stream)
        dnnl_stream_destroy(c->stream);
    if (c->engine)
        dnnl_engine_destroy(c->engine);
    weft_free(c);
}

static dnnl_status_t reorder_descriptor(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                        const dnnl_memory_desc_t *from,
                                        const dnnl_memory_desc_t *to, bool adds)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success && adds)
        status = dnnl_post_ops_create(&sum);
    if (status == dnnl_success && adds)
        status = dnnl_post_ops_append_sum(sum, 1);
    if (status == dnnl_success && adds)
        status = dnnl_primitive_attr_set_post_ops(attr, sum);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(out, from, engine, to, engine, attr);
    if (sum)
        dnnl_post_ops_destroy(sum);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static weft_status_code conv_memories(conv_cache *c, const conv_shape *s,
                                      dnnl_primitive_desc_t desc)
{
    const bool dw = s->kind == CONV_WEIGHTS, dx = s->kind == CONV_DATA,
               forward = s->kind == CONV_FORWARD;
    const dnnl_memory_desc_t *x =
        dnnl_primitive_desc_query_md(desc, dx ? dnnl_query_diff_src_md : dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(
        desc, dw ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *y =
        dnnl_primitive_desc_query_md(desc, forward ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0);
    WEFT_TRY(dnnl_check(dnnl_memory_create(&c->x, x, c->engine, DNNL_MEMORY_NONE), "input"));
    WEFT_TRY(dnnl_check(dnnl_memory_create(&c->w, w, c->engine, DNNL_MEMORY_NONE), "weights"));
    WEFT_TRY(dnnl_check(dnnl_memory_create(&c->y, y, c->engine, DNNL_MEMORY_NONE), "output"));
    if (s->bias)
        WEFT_TRY(dnnl_check(
            dnnl_memory_create(&c->bias,
                               dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1),
                               c->engine, DNNL_MEMORY_NONE),
            "bias"));
    WEFT_TRY(dnnl_check(
        dnnl_memory_create(&c->scratch,
                           dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0),
                           c->engine, DNNL_MEMORY_NONE),
        "scratch"));
    dnnl_dims_t wd;
    dnnl_memory_desc_t plain;
    for (int d = 0; d < 5; d++)
        wd[d] = s->d.w.dim[d];
    const int64_t tap = wd[3] * wd[4];
    const dnnl_dims_t strides = {wd[1] * s->taps * tap, s->taps * tap, tap, wd[4], 1};
    WEFT_TRY(dnnl_check(dnnl_memory_desc_init_by_strides(&plain, 5, wd, dnnl_f32, strides),
                        "plain weights"));
    WEFT_TRY(dnnl_check(dnnl_memory_create(&c->plain, &plain, c->engine, DNNL_MEMORY_NONE),
                        "plain weights"));
    dnnl_primitive_desc_t reorder;
    WEFT_TRY(dnnl_check(dw ? reorder_descriptor(&reorder, c->engine, w, &plain, s->adds)
                           : reorder_descriptor(&reorder, c->engine, &plain, w, false),
                        "weight reorder"));
    const dnnl_status_t status = dnnl_primitive_create(&c->reorder, reorder);
    dnnl_primitive_desc_destroy(reorder);
    return dnnl_check(status, "weight reorder");
}

static weft_status_code conv_open(const conv_shape *s, conv_cache **cache)
{
    weft_status_code status = WEFT_OK;
    dnnl_primitive_desc_t desc = NULL;
    *cache = NULL;
    conv_cache *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the primitives of conv3d"));
    WEFT_GO(dnnl_check(dnnl_engine_create(&c->engine, dnnl_cpu, 0), "engine"));
    WEFT_GO(
        dnnl_check(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags), "stream"));
    WEFT_GO(conv_plan(s, c, &desc));
    WEFT_GO(dnnl_check(dnnl_primitive_create(&c->conv, desc), "primitive"));
    WEFT_GO(conv_memories(c, s, desc));
    *cache = c;
    c = NULL;
out:
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    conv_release(c);
    return status;
}

/* ---- bytes of primitives --------------------------------------------------------------------- */

/* Bytes of an opened convolution by kind: objects and generated code, which oneDNN does not report.
 * They hardly depend on the shape, so one convolution of each kind is measured. */
static int64_t opened[CONV_WEIGHTS + 1];

static void measure_opened(void)
{
    static const weft_attr_conv attr = {
        .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    enum { CHANNELS = 72, SIDE = 9 }; /* not the shape of a model: oneDNN keeps known primitives */
    for (int kind = CONV_FORWARD; kind <= CONV_WEIGHTS; kind++) {
        const weft_shape image = {5, {1, 1, SIDE, SIDE, CHANNELS}};
        const conv_shape shape = {
            .kind = (conv_kind)kind,
            .d = {.x = image, .w = {5, {CHANNELS, CHANNELS, 1, 3, 3}}, .y = image, .attr = &attr},
            .taps = 1};
        conv_cache *c = NULL;
        const int64_t before = weft_memory_library_use();
        if (conv_open(&shape, &c) == WEFT_OK)
            opened[kind] = weft_memory_library_use() - before;
        conv_release(c);
    }
}

static int64_t opened_bytes(conv_kind kind)
{
    static pthread_once_t measured = PTHREAD_ONCE_INIT;
    pthread_once(&measured, measure_opened);
    return opened[kind] > 0 ? opened[kind] : 0;
}

static bool uses_primitives(const conv_shape *s)
{
    return !is_empty(s) && !is_pointwise(s) && !is_own(s);
}

static weft_status_code conv_prepare(const weft_kernel_args *args, conv_kind kind, void **cache)
{
    const conv_shape s = conv_of(args, kind);
    conv_cache *c = NULL;
    if (uses_primitives(&s))
        WEFT_TRY(conv_open(&s, &c));
    *cache = c;
    return WEFT_OK;
}

static weft_status_code reorder_weights(const conv_cache *c, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_check(dnnl_primitive_execute(c->reorder, c->stream, 2, list), "weight reorder");
}

/* Runs the convolution. x, w (blocked) and y are named by their role in the forward convolution,
 * whichever is the result. */
static weft_status_code conv_multiply(const conv_cache *c, conv_kind kind, void *x, void *w,
                                      void *y, void *bias, void *scratch)
{
    dnnl_memory_set_data_handle(c->x, x);
    dnnl_memory_set_data_handle(c->y, y);
    dnnl_memory_set_data_handle(c->w, w);
    dnnl_memory_set_data_handle(c->scratch, scratch);
    if (c->bias)
        dnnl_memory_set_data_handle(c->bias, bias);
    const dnnl_exec_arg_t list[] = {
        {kind == CONV_DATA ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, c->x},
        {kind == CONV_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, c->w},
        {kind == CONV_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, c->y},
        {DNNL_ARG_SCRATCHPAD, c->scratch},
        {DNNL_ARG_BIAS, c->bias},
    };
    return dnnl_check(dnnl_primitive_execute(c->conv, c->stream, c->bias ? 5 : 4, list), "execute");
}

/* Runs the forward or the data gradient. w is plain, `space` is scratch. */
static weft_status_code conv_execute(const conv_cache *c, conv_kind kind, char *space, void *x,
                                     void *w, void *y, void *bias)
{
    dnnl_memory_set_data_handle(c->plain, w);
    dnnl_memory_set_data_handle(c->w, space);
    WEFT_TRY(reorder_weights(c, c->plain, c->w));
    const int threads = weft_host_threads();
    weft_host_set_threads(c->one_thread ? 1 : threads);
    const weft_status_code status = conv_multiply(c, kind, x, space, y, bias, space + c->w_bytes);
    weft_host_set_threads(threads);
    WEFT_TRY(status);
    return dnnl_check(dnnl_stream_wait(c->stream), "wait");
}

/* ---- oneDNN's weight gradient -------------------------------------------------------------- */

/* Weight gradient in tasks of one thread. oneDNN alone adds over samples and frames in one partial
 * sum per thread. It also does not use its generated kernel if a single frame has padded frames
 * before it. A task is therefore one frame kt of the kernel and 32 or 64 outputs, as convolutions
 * without padding in time:
 *
 *   dW[o .. o+32][kt] = sum over runs of frames:  x[t s + kt - before]  by  dy[t][o .. o+32]
 *
 * The dy of a run is packed, because oneDNN requires it dense. It stays in the second-level cache
 * with the gradient. Tasks and runs are functions of the shape, runs are added in order, and no two
 * tasks share a sum. */
enum { DW_FLOATS = 1 << 16 }; /* floats of a run's dy; at least one frame */

/* Frames that tap kt of the kernel sees, in `segments` ranges. The whole batch is one range if the
 * tap sees every frame. */
typedef struct dw_tap {
    int64_t segments, frames; /* output frames of each segment */
    int64_t x_first, y_first; /* first frames; `x_step`, `y_step` from one segment to the next */
    int64_t x_step, y_step;
} dw_tap;

/* A run of `frames` by `outputs`. `adds`: adds to the sum of earlier runs. */
typedef struct dw_kind {
    int64_t frames, outputs;
    bool adds;
} dw_kind;

typedef struct dw_cache {
    int threads, kinds;
    bool several;                   /* some sum has several runs */
    int64_t packed, w_bytes, space; /* bytes per thread: dy of a run, its gradient, all scratch */
    dw_kind *kind;
    conv_cache **c; /* [thread][kind] */
} dw_cache;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static dw_tap dw_tap_of(const conv_shape *s, int64_t kt)
{
    const int64_t B = s->d.x.dim[0], T = s->d.x.dim[1], out = s->d.y.dim[1];
    const int64_t stride = s->d.attr->stride[0], offset = s->d.attr->before[0] - kt,
                  first = offset > 0 ? (offset + stride - 1) / stride : 0,
                  seen = T - 1 + offset < 0 ? 0 : least(out, (T - 1 + offset) / stride + 1);
    dw_tap tap = {B, seen > first ? seen - first : 0, first * stride - offset, first, T, out};
    if (stride == 1 && tap.frames == T && T == out) {
        tap.frames *= B;
        tap.segments = 1;
    }
    return tap;
}

/* Returns the outputs of a task. More outputs read x less often, but leave threads without work if
 * outputs are few. */
static int64_t dw_outputs(const conv_shape *s)
{
    return s->d.w.dim[0] * s->taps >= 12 * 64 ? 64 : 32;
}

/* Returns the frames of a run. */
static int64_t dw_run_frames(const conv_shape *s)
{
    const int64_t frames = DW_FLOATS / dw_outputs(s) / shape_span(&s->d.y, 2, 4);
    return frames < 1 ? 1 : frames;
}

/* Returns the convolution of one run. */
static conv_shape dw_shape(const conv_shape *whole, const dw_kind *kind, weft_attr_conv *attr)
{
    conv_shape s = *whole;
    *attr = *whole->d.attr;
    attr->before[0] = attr->after[0] = 0;
    s.adds = kind->adds;
    s.d.attr = attr;
    s.d.w.dim[0] = s.d.y.dim[4] = kind->outputs;
    s.d.w.dim[2] = 1;
    s.d.x.dim[0] = s.d.y.dim[0] = 1;
    s.d.x.dim[1] = (kind->frames - 1) * attr->stride[0] + 1;
    s.d.y.dim[1] = kind->frames;
    return s;
}

static int dw_find(const dw_cache *c, const dw_kind *kind)
{
    int i = 0;
    while (i < c->kinds && (c->kind[i].frames != kind->frames ||
                            c->kind[i].outputs != kind->outputs || c->kind[i].adds != kind->adds))
        i++;
    return i;
}

/* Lists the kinds of all runs, each once: runs of full length, then the last, shorter run of a
 * tap. */
static void dw_kinds(const conv_shape *s, dw_cache *c)
{
    const int64_t O = s->d.w.dim[0], run = dw_run_frames(s), step = dw_outputs(s);
    for (int64_t kt = 0; kt < s->taps; kt++) {
        const dw_tap tap = dw_tap_of(s, kt);
        const int64_t frames = tap.frames;
        c->several |= tap.segments > 1 || frames > run;
        for (int64_t o = 0; o < O; o += step) {
            const int64_t outputs = least(step, O - o);
            const dw_kind both[] = {{run, outputs, false}, {frames % run, outputs, frames >= run}};
            for (int i = frames < run; i < 2; i++)
                if (both[i].frames > 0 && dw_find(c, &both[i]) == c->kinds)
                    c->kind[c->kinds++] = both[i];
        }
    }
}

static void dw_release(void *cache)
{
    dw_cache *c = cache;
    for (int i = 0; c && c->c && i < c->threads * c->kinds; i++)
        conv_release(c->c[i]);
    if (c)
        weft_free(c->c);
    if (c)
        weft_free(c->kind);
    weft_free(c);
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

static weft_status_code dw_open(const conv_shape *s, int threads, dw_cache **cache)
{
    weft_status_code status = WEFT_OK;
    int64_t scratch = 0, frames = 0;
    *cache = NULL;
    dw_cache *c;
    WEFT_TRY(WEFT_NEW(c, 1, "the primitives of conv3d_dw"));
    const int before = weft_host_set_threads(1); /* primitives are created for one thread */
    c->kind = weft_calloc((s->taps + 1) * 4, sizeof *c->kind);
    WEFT_GO(WEFT_ALLOCATED(c->kind, "the primitives of conv3d_dw"));
    dw_kinds(s, c);
    c->c = weft_alloc(threads * c->kinds * (int64_t)sizeof *c->c + 1);
    WEFT_GO(WEFT_ALLOCATED(c->c, "the primitives of conv3d_dw"));
    c->threads = threads;
    for (int i = 0; i < threads * c->kinds; i++) {
        weft_attr_conv attr;
        const dw_kind *kind = &c->kind[i % c->kinds];
        const conv_shape part = dw_shape(s, kind, &attr);
        WEFT_GO(conv_open(&part, &c->c[i]));
        c->w_bytes = c->w_bytes > c->c[i]->w_bytes ? c->w_bytes : c->c[i]->w_bytes;
        scratch = scratch > c->c[i]->scratch_bytes ? scratch : c->c[i]->scratch_bytes;
        frames = frames > kind->frames ? frames : kind->frames;
    }
    c->packed = round_up(frames * shape_span(&s->d.y, 2, 4) * dw_outputs(s) * 4);
    c->space = c->packed + (c->several ? 2 : 1) * c->w_bytes + round_up(scratch);
    *cache = c;
    c = NULL;
out:
    weft_host_set_threads(before);
    dw_release(c);
    return status;
}

static int64_t dw_workspace(const conv_shape *s, int threads)
{
    dw_cache *c;
    if (dw_open(s, 1, &c) != WEFT_OK)
        return 0;
    const int64_t bytes = threads * c->space;
    dw_release(c);
    return bytes;
}

/* Bytes of the primitives of all kinds of runs. Primitives of other threads share the code. */
static int64_t conv3d_dw_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    dw_cache c = {.kind =
                      uses_primitives(&s) ? weft_calloc((s.taps + 1) * 4, sizeof *c.kind) : NULL};
    if (c.kind)
        dw_kinds(&s, &c);
    weft_free(c.kind);
    return c.kinds * opened_bytes(CONV_WEIGHTS);
}

static weft_status_code dw_prepare(const weft_kernel_args *args, void **cache)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    dw_cache *c = NULL;
    if (uses_primitives(&s))
        WEFT_TRY(dw_open(&s, args->threads, &c));
    *cache = c;
    return WEFT_OK;
}

/* Packs channels [o, o + outputs) of `positions` densely. */
static void dw_pack(const float *dy, int64_t O, int64_t o, int64_t outputs, int64_t positions,
                    float *to)
{
    for (int64_t i = 0; i < positions; i++)
        memcpy(to + i * outputs, dy + i * O + o, (size_t)outputs * sizeof *to);
}

/* One task: outputs of tap kt, from `o` on. */
typedef struct dw_task {
    const conv_shape *s;
    const dw_cache *c;
    float *x, *dy, *dw;
    int64_t kt, o;
    int thread;
    char *space;
} dw_task;

/* Adds all runs of one kind. The first run starts at frame `from` of each segment. */
static weft_status_code dw_runs(const dw_task *t, const dw_tap *tap, const dw_kind *kind,
                                int64_t from, int64_t to)
{
    const dw_cache *all = t->c;
    const conv_cache *c = all->c[t->thread * all->kinds + dw_find(all, kind)];
    const int64_t O = t->s->d.w.dim[0], I = t->s->d.w.dim[1],
                  x_frame = shape_span(&t->s->d.x, 2, 5), y_frame = shape_span(&t->s->d.y, 2, 5);
    float *packed = (float *)t->space, *sum = packed + all->packed / 4,
          *next = all->several ? sum + all->w_bytes / 4 : sum, *scratch = next + all->w_bytes / 4;
    bool first = true;
    for (int64_t b = 0; b < tap->segments; b++)
        for (int64_t f = from; f < to; f += kind->frames, first = false) {
            const int64_t x_at = b * tap->x_step + tap->x_first + f * t->s->d.attr->stride[0],
                          y_at = b * tap->y_step + tap->y_first + f;
            dw_pack(t->dy + y_at * y_frame, O, t->o, kind->outputs, kind->frames * y_frame / O,
                    packed);
            WEFT_TRY(conv_multiply(c, CONV_WEIGHTS, t->x + x_at * x_frame, first ? sum : next,
                                   packed, NULL, scratch));
            if (!first)
                cpu_isa_get()->f32->column_sums(next, 1, c->w_bytes / 4, sum);
        }
    const int64_t tap_floats = shape_span(&t->s->d.w, 3, 5);
    dnnl_memory_set_data_handle(c->w, sum);
    dnnl_memory_set_data_handle(c->plain, t->dw + (t->o * I * t->s->taps + t->kt) * tap_floats);
    WEFT_TRY(reorder_weights(c, c->w, c->plain));
    return dnnl_check(dnnl_stream_wait(c->stream), "wait");
}

static weft_status_code dw_run_task(const dw_task *t)
{
    const dw_tap tap = dw_tap_of(t->s, t->kt);
    const int64_t run = dw_run_frames(t->s), whole = tap.frames / run * run,
                  outputs = least(dw_outputs(t->s), t->s->d.w.dim[0] - t->o);
    if (tap.frames == 0) { /* only padding */
        const int64_t I = t->s->d.w.dim[1], tap_floats = shape_span(&t->s->d.w, 3, 5);
        for (int64_t i = t->o * I; i < (t->o + outputs) * I; i++)
            memset(t->dw + (i * t->s->taps + t->kt) * tap_floats, 0,
                   (size_t)tap_floats * sizeof *t->dw);
    }
    if (whole > 0)
        WEFT_TRY(dw_runs(t, &tap, &(dw_kind){run, outputs, false}, 0, whole));
    if (tap.frames > whole)
        WEFT_TRY(dw_runs(t, &tap, &(dw_kind){tap.frames - whole, outputs, whole > 0}, whole,
                         tap.frames));
    return WEFT_OK;
}

static weft_status_code dw_execute(const weft_kernel_args *args, const conv_shape *s)
{
    const dw_cache *c = args->cache;
    const int64_t outputs = dw_outputs(s), blocks = (s->d.w.dim[0] + outputs - 1) / outputs;
    const int threads = omp_in_parallel() ? 1 : c->threads;
    int failed = WEFT_OK;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(max : failed)
    for (int64_t i = 0; i < blocks * s->taps; i++) {
        const int thread = omp_get_thread_num();
        const int status = dw_run_task(&(dw_task){
            .s = s,
            .c = c,
            .x = args->in[0].data,
            .dy = args->in[1].data,
            .dw = args->out[0].data,
            .kt = s->taps - 1 - i / blocks, /* long tasks first: the last tap sees most frames */
            .o = i % blocks * outputs,
            .thread = thread,
            .space = (char *)args->workspace + thread * c->space,
        });
        failed = status > failed ? status : failed;
    }
    return (weft_status_code)failed;
}

/* ---- the kernels --------------------------------------------------------------------------- */

static int64_t conv_workspace(const weft_kernel_args *args, conv_kind kind)
{
    const conv_shape s = conv_of(args, kind);
    dnnl_primitive_desc_t desc;
    conv_cache c = {0};
    if (is_empty(&s))
        return 0;
    if (is_pointwise(&s))
        return pointwise_workspace(&s, args);
    if (is_own(&s))
        return kind == CONV_FORWARD ? conv_own_few_workspace(&s.d) : conv_own_dw_workspace(&s.d);
    if (kind == CONV_WEIGHTS)
        return dw_workspace(&s, args->threads);
    if (dnnl_engine_create(&c.engine, dnnl_cpu, 0) != dnnl_success)
        return 0;
    if (conv_plan(&s, &c, &desc) == WEFT_OK)
        dnnl_primitive_desc_destroy(desc);
    dnnl_engine_destroy(c.engine);
    return c.w_bytes + c.scratch_bytes;
}

#define WORKSPACE(name, kind)                                                                      \
    static int64_t name##_workspace(const weft_kernel_args *args)                                  \
    {                                                                                              \
        return conv_workspace(args, kind);                                                         \
    }
WORKSPACE(conv3d, CONV_FORWARD)
WORKSPACE(conv3d_dx, CONV_DATA)
WORKSPACE(conv3d_dw, CONV_WEIGHTS)

static weft_status_code conv3d_prepare(const weft_kernel_args *args, void **cache)
{
    return conv_prepare(args, CONV_FORWARD, cache);
}

static weft_status_code conv3d_dx_prepare(const weft_kernel_args *args, void **cache)
{
    return conv_prepare(args, CONV_DATA, cache);
}

static int64_t conv3d_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_FORWARD);
    return uses_primitives(&s) ? opened_bytes(CONV_FORWARD) : 0;
}

static int64_t conv3d_dx_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_DATA);
    return uses_primitives(&s) ? opened_bytes(CONV_DATA) : 0;
}

/* Writes the result for an empty operand: zeros plus the bias. */
static void conv_of_nothing(const weft_view *out, const float *bias)
{
    const int64_t count = view_count(out), O = view_last(out);
    float *y = out->data;
    for (int64_t i = 0; i < count; i++)
        y[i] = bias ? bias[i % O] : 0;
}

CPU_KERNEL_WITH(conv3d, .kernel.prepared = conv3d_prepared, .workspace = conv3d_workspace,
                .prepare = conv3d_prepare, .kernel.release = conv_release)
{
    const conv_shape s = conv_of(args, CONV_FORWARD);
    float *bias = s.bias ? args->in[2].data : NULL;
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], bias);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise p;
        pointwise_of(&s, args, &p);
        return cpu_linear.run(&p.args);
    }
    if (is_own(&s)) {
        conv_own_few(&s.d, args->in[0].data, args->in[1].data, bias, args->out[0].data,
                     args->workspace);
        return WEFT_OK;
    }
    return conv_execute(args->cache, CONV_FORWARD, args->workspace, args->in[0].data,
                        args->in[1].data, args->out[0].data, bias);
}

CPU_KERNEL_WITH(conv3d_dx, .kernel.prepared = conv3d_dx_prepared, .workspace = conv3d_dx_workspace,
                .prepare = conv3d_dx_prepare, .kernel.release = conv_release)
{
    const conv_shape s = conv_of(args, CONV_DATA);
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], NULL);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise_dx(&s, args);
        return WEFT_OK;
    }
    return conv_execute(args->cache, CONV_DATA, args->workspace, args->out[0].data,
                        args->in[1].data, args->in[0].data, NULL);
}

CPU_KERNEL_WITH(conv3d_dw, .kernel.prepared = conv3d_dw_prepared, .workspace = conv3d_dw_workspace,
                .prepare = dw_prepare, .kernel.release = dw_release)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], NULL);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise_dw(&s, args);
        return WEFT_OK;
    }
    if (is_own(&s)) {
        conv_own_dw(&s.d, args->in[0].data, args->in[1].data, args->out[0].data, args->workspace);
        return WEFT_OK;
    }
    return dw_execute(args, &s);
}
