#include "kernel/cpu/conv_primitive.h"

#include "base/memory.h"
#include "kernel/cpu/isa.h"
#include "kernel/host.h"

#include <pthread.h>

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

static dnnl_data_type_t type_of(weft_dtype dtype)
{
    return dtype == WEFT_BF16 ? dnnl_bf16 : dnnl_f32;
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
    dnnl_memory_desc_t x, w, y, b, dw;
    const dnnl_data_type_t type = type_of(s->type);
    dnnl_memory_desc_init_by_tag(&x, 5, xd, type, dnnl_ndhwc);
    dnnl_memory_desc_init_by_tag(&y, 5, yd, type, dnnl_ndhwc);
    dnnl_memory_desc_init_by_tag(&w, 5, wd, type, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&dw, 5, wd, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&b, 1, bd, type_of(s->bias_type), dnnl_a);
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
                  &desc, dnnl_convolution_direct, &x, &dw, NULL, &y, stride, dilation, left, right);
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

void conv_release(void *cache)
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
    WEFT_TRY(dnnl_check(dnnl_memory_desc_init_by_strides(&plain, 5, wd, type_of(s->plain), strides),
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

weft_status_code conv_open(const conv_shape *s, conv_cache **cache)
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

/* Bytes of an opened convolution by kind and type: objects and generated code, which oneDNN does
 * not report. They hardly depend on the shape, so one convolution of each kind is measured. */
enum { OPENED_TYPES = 2 };
static int64_t opened[CONV_WEIGHTS + 1][OPENED_TYPES];

static int64_t measure(conv_kind kind, weft_dtype type)
{
    static const weft_attr_conv attr = {
        .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    enum { CHANNELS = 72, SIDE = 9 }; /* not the shape of a model: oneDNN keeps known primitives */
    const weft_shape image = {5, {1, 1, SIDE, SIDE, CHANNELS}};
    const conv_shape shape = {
        .kind = kind,
        .d = {.x = image, .w = {5, {CHANNELS, CHANNELS, 1, 3, 3}}, .y = image, .attr = &attr},
        .taps = 1,
        .type = type,
        .plain = kind == CONV_WEIGHTS ? WEFT_F32 : type};
    conv_cache *c = NULL;
    const int64_t before = weft_memory_library_use();
    const int64_t bytes = conv_open(&shape, &c) == WEFT_OK ? weft_memory_library_use() - before : 0;
    conv_release(c);
    return bytes;
}

static void measure_opened(void)
{
    for (int kind = CONV_FORWARD; kind <= CONV_WEIGHTS; kind++) {
        opened[kind][0] = measure((conv_kind)kind, WEFT_F32);
        if (cpu_isa_get()->bf16_units)
            opened[kind][1] = measure((conv_kind)kind, WEFT_BF16);
    }
}

int64_t conv_opened_bytes(conv_kind kind, weft_dtype type)
{
    static pthread_once_t measured = PTHREAD_ONCE_INIT;
    pthread_once(&measured, measure_opened);
    const int64_t bytes = opened[kind][type == WEFT_BF16];
    return bytes > 0 ? bytes : 0;
}

weft_status_code conv_reorder_weights(const conv_cache *c, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_check(dnnl_primitive_execute(c->reorder, c->stream, 2, list), "weight reorder");
}

weft_status_code conv_multiply(const conv_cache *c, conv_kind kind, void *x, void *w, void *y,
                               void *bias, void *scratch)
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

weft_status_code conv_execute(const conv_cache *c, conv_kind kind, char *space, void *x, void *w,
                              void *y, void *bias)
{
    dnnl_memory_set_data_handle(c->plain, w);
    dnnl_memory_set_data_handle(c->w, space);
    WEFT_TRY(conv_reorder_weights(c, c->plain, c->w));
    const int threads = weft_host_threads();
    weft_host_set_threads(c->one_thread ? 1 : threads);
    const weft_status_code status = conv_multiply(c, kind, x, space, y, bias, space + c->w_bytes);
    weft_host_set_threads(threads);
    WEFT_TRY(status);
    return dnnl_check(dnnl_stream_wait(c->stream), "wait");
}

weft_status_code conv_wait(const conv_cache *c)
{
    return dnnl_check(dnnl_stream_wait(c->stream), "wait");
}

int64_t conv_primitive_workspace(const conv_shape *s)
{
    dnnl_primitive_desc_t desc;
    conv_cache c = {0};
    if (dnnl_engine_create(&c.engine, dnnl_cpu, 0) != dnnl_success)
        return 0;
    if (conv_plan(s, &c, &desc) == WEFT_OK)
        dnnl_primitive_desc_destroy(desc);
    dnnl_engine_destroy(c.engine);
    return c.w_bytes + c.scratch_bytes;
}
