/* conv3d, its data gradient and its weight gradient.
 *
 * FLOPs 2 B T'Y'X' O I kt ky kx each. Activations stay channels-last, as the graph has them, and
 * oneDNN pads by index, so there is no copy of an activation; only the weights (O,I,kt,ky,kx) are
 * reordered to the blocked form that the generated kernel wants and, for the weight gradient, back.
 * 1x1x1 convolutions are plain matrix products. Primitives are made in prepare(); their scratch is
 * in the workspace. */
#include "kernel/cpu/conv_own.h"
#include "kernel/cpu/simd.h"

#include <dnnl.h>

typedef enum conv_kind { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS } conv_kind;

typedef struct conv_shape {
    conv_kind kind;
    bool bias;
    conv_dims d;
} conv_shape;

typedef struct conv_cache {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t conv, reorder;
    /* src, weights (blocked), dst, bias, scratch, weights (plain), reorder's scratch */
    dnnl_memory_t x, w, y, bias, scratch, plain;
    int64_t w_bytes, scratch_bytes;
} conv_cache;

static conv_shape conv_of(const weft_kernel_args *args, conv_kind kind)
{
    conv_shape s = {.kind = kind, .d.attr = args->attr};
    s.d.x = kind == CONV_DATA ? args->out[0].shape : args->in[0].shape;
    s.d.w = kind == CONV_WEIGHTS ? args->out[0].shape : args->in[1].shape;
    s.d.y = kind == CONV_FORWARD ? args->out[0].shape
            : kind == CONV_DATA  ? args->in[0].shape
                                 : args->in[1].shape;
    s.bias = kind == CONV_FORWARD && args->in_count > 2 && view_present(&args->in[2]);
    return s;
}

static bool is_empty(const conv_shape *s)
{
    return shape_span(&s->d.x, 0, 5) == 0 || shape_span(&s->d.y, 0, 5) == 0 ||
           shape_span(&s->d.w, 0, 5) == 0;
}

/* A product of (positions, I) and (O, I). */
static bool is_pointwise(const conv_shape *s)
{
    for (int d = 0; d < 3; d++)
        if (s->d.w.dim[2 + d] != 1 || s->d.attr->stride[d] != 1 || s->d.attr->before[d] ||
            s->d.attr->after[d])
            return false;
    return true;
}

/* Who serves it. Own kernels where they win by measurement (bench/README.md): the last layer of a
 * decoder, whose few outputs oneDNN pads to a vector; weight gradients without AVX-512, where
 * oneDNN falls back to im2col for causal padding, and with it up to the size whose partial sums
 * stay in the cache. */
static bool is_own(const conv_shape *s)
{
    const bool avx512 = strcmp(cpu_isa_get()->name, "avx512") == 0;
    if (s->kind == CONV_FORWARD)
        return conv_own_few_fits(&s->d);
    return s->kind == CONV_WEIGHTS && (!avx512 || s->d.w.dim[0] * s->d.w.dim[1] <= 96 * 96);
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
    return weft_fail(status == dnnl_out_of_memory ? WEFT_E_MEMORY : WEFT_E_UNSUPPORTED,
                     "conv3d: oneDNN refuses (%s, status %d)", what, (int)status);
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

/* The descriptor with its scratch in our hands, and the bytes of blocked weights and scratch. */
static weft_status_code conv_plan(const conv_shape *s, dnnl_engine_t engine,
                                  dnnl_primitive_desc_t *out, int64_t *w_bytes,
                                  int64_t *scratch_bytes)
{
    dnnl_primitive_attr_t attr;
    WEFT_TRY(dnnl_check(dnnl_primitive_attr_create(&attr), "attributes"));
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    const dnnl_status_t status = conv_descriptor(s, engine, attr, out);
    dnnl_primitive_attr_destroy(attr);
    WEFT_TRY(dnnl_check(status, "descriptor"));
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(
        *out, s->kind == CONV_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(*out, dnnl_query_scratchpad_md, 0);
    *w_bytes = ((int64_t)dnnl_memory_desc_get_size(w) + 63) & ~(int64_t)63;
    *scratch_bytes = scratch ? (int64_t)dnnl_memory_desc_get_size(scratch) : 0;
    return WEFT_OK;
}

/* ---- 1x1x1 --------------------------------------------------------------------------------- */

/* A convolution as the linear layer that it is. */
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

/* The weight gradient has few elements and long sums: those are cut into parts by the shape, and
 * the parts added in order. */
enum { PART_POSITIONS = 4096, MAX_PARTS = 16, FEW_OUTPUTS = 192 };

static int64_t pointwise_parts(const conv_shape *s)
{
    const int64_t parts = shape_span(&s->d.x, 0, 4) / PART_POSITIONS;
    return s->d.w.dim[0] >= FEW_OUTPUTS || parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
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

/* dw (O,I) of positions [from, to). */
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
        cpu_isa_get()->column_sums(partial, parts, O * I, dw);
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
    WEFT_TRY(dnnl_check(dnnl_memory_desc_init_by_tag(&plain, 5, wd, dnnl_f32, dnnl_oidhw),
                        "plain weights"));
    WEFT_TRY(dnnl_check(dnnl_memory_create(&c->plain, &plain, c->engine, DNNL_MEMORY_NONE),
                        "plain weights"));
    dnnl_primitive_desc_t reorder;
    WEFT_TRY(dnnl_check(
        dw ? dnnl_reorder_primitive_desc_create(&reorder, w, c->engine, &plain, c->engine, NULL)
           : dnnl_reorder_primitive_desc_create(&reorder, &plain, c->engine, w, c->engine, NULL),
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
    conv_cache *c = weft_alloc(sizeof *c);
    if (!c)
        return weft_fail(WEFT_E_MEMORY, "conv3d: no memory for its primitives");
    WEFT_GO(dnnl_check(dnnl_engine_create(&c->engine, dnnl_cpu, 0), "engine"));
    WEFT_GO(
        dnnl_check(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags), "stream"));
    WEFT_GO(conv_plan(s, c->engine, &desc, &c->w_bytes, &c->scratch_bytes));
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

static weft_status_code conv_prepare(const weft_kernel_args *args, conv_kind kind, void **cache)
{
    const conv_shape s = conv_of(args, kind);
    conv_cache *c = NULL;
    if (!is_empty(&s) && !is_pointwise(&s) && !is_own(&s))
        WEFT_TRY(conv_open(&s, &c));
    *cache = c;
    return WEFT_OK;
}

static weft_status_code reorder_weights(const conv_cache *c, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_check(dnnl_primitive_execute(c->reorder, c->stream, 2, list), "weight reorder");
}

/* x, w, y by their place in the convolution, whichever is the result. `space` is scratch. */
static weft_status_code conv_execute(const conv_cache *c, conv_kind kind, char *space, void *x,
                                     void *w, void *y, void *bias)
{
    dnnl_memory_set_data_handle(c->x, x);
    dnnl_memory_set_data_handle(c->y, y);
    dnnl_memory_set_data_handle(c->plain, w);
    dnnl_memory_set_data_handle(c->w, space);
    dnnl_memory_set_data_handle(c->scratch, space + c->w_bytes);
    if (c->bias)
        dnnl_memory_set_data_handle(c->bias, bias);
    if (kind != CONV_WEIGHTS)
        WEFT_TRY(reorder_weights(c, c->plain, c->w));
    const dnnl_exec_arg_t list[] = {
        {kind == CONV_DATA ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, c->x},
        {kind == CONV_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, c->w},
        {kind == CONV_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, c->y},
        {DNNL_ARG_SCRATCHPAD, c->scratch},
        {DNNL_ARG_BIAS, c->bias},
    };
    WEFT_TRY(
        dnnl_check(dnnl_primitive_execute(c->conv, c->stream, c->bias ? 5 : 4, list), "execute"));
    if (kind == CONV_WEIGHTS)
        WEFT_TRY(reorder_weights(c, c->w, c->plain));
    return dnnl_check(dnnl_stream_wait(c->stream), "wait");
}

/* ---- oneDNN's weight gradient -------------------------------------------------------------- */

/* oneDNN adds over samples and frames in as many partial sums as it has threads. So it gets runs of
 * samples, or of frames of one sample, as convolutions of their own on one thread each; the runs
 * are a function of the shape, and their gradients are added in order. */
enum {
    DW_BYTES = 48 << 20, /* of partial gradients */
    DW_POSITIONS = 2048, /* of a part at least: what amortises its own gradient */
};

typedef struct dw_part {
    conv_shape s;
    weft_attr_conv attr;
    int64_t x_at, y_at; /* first element */
    conv_cache *c;      /* NULL: this part sees padding alone */
} dw_part;

typedef struct dw_cache {
    int64_t parts, space; /* bytes of scratch of a part, its gradient behind it */
    dw_part part[MAX_PARTS];
} dw_cache;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t dw_floats(const conv_shape *s)
{
    return (shape_span(&s->d.w, 0, 5) + 15) & ~(int64_t)15;
}

static int64_t dw_parts(const conv_shape *s)
{
    const int64_t frames = s->d.y.dim[0] * s->d.y.dim[1], fit = DW_BYTES / (dw_floats(s) * 4),
                  most = fit < 1           ? 1
                         : fit < MAX_PARTS ? fit
                                           : MAX_PARTS;
    const int64_t parts = shape_span(&s->d.y, 0, 4) / DW_POSITIONS;
    return parts < 1 || frames < 1 ? 1 : least(parts, least(frames, most));
}

/* Part `i` of parts_of(): `samples` of them, or one sample in `chunks` runs of frames. */
static void dw_part_of(const conv_shape *whole, int64_t chunks, int64_t i, dw_part *p)
{
    const int64_t B = whole->d.x.dim[0], T = whole->d.x.dim[1], out = whole->d.y.dim[1],
                  x_frame = shape_span(&whole->d.x, 2, 5), y_frame = shape_span(&whole->d.y, 2, 5);
    const int64_t stride = whole->d.attr->stride[0], before = whole->d.attr->before[0];
    int64_t b0 = i / chunks, b1 = b0 + 1;
    if (chunks == 1) {
        const int64_t parts = B < dw_parts(whole) ? B : dw_parts(whole);
        b0 = B * i / parts;
        b1 = B * (i + 1) / parts;
    }
    const int64_t t0 = out * (i % chunks) / chunks, t1 = out * (i % chunks + 1) / chunks;
    const int64_t from = t0 * stride - before, to = (t1 - 1) * stride - before + whole->d.w.dim[2];
    const int64_t first = from < 0 ? 0 : from, last = to > T ? T : to;
    p->s = *whole;
    p->attr = *whole->d.attr;
    p->attr.before[0] = first - from;
    p->attr.after[0] = to - last;
    p->s.d.attr = &p->attr;
    p->s.d.x.dim[0] = p->s.d.y.dim[0] = b1 - b0;
    p->s.d.x.dim[1] = last > first ? last - first : 0;
    p->s.d.y.dim[1] = t1 - t0;
    p->x_at = (b0 * T + first) * x_frame;
    p->y_at = (b0 * out + t0) * y_frame;
}

/* Runs of frames per sample; 1: parts are samples. */
static int64_t dw_chunks(const conv_shape *s)
{
    const int64_t chunks = dw_parts(s) / s->d.x.dim[0];
    return chunks < 1 ? 1 : chunks;
}

static int64_t dw_count(const conv_shape *s)
{
    const int64_t B = s->d.x.dim[0], chunks = dw_chunks(s);
    return chunks > 1 || B < dw_parts(s) ? B * chunks : dw_parts(s);
}

static void dw_release(void *cache)
{
    dw_cache *c = cache;
    for (int64_t i = 0; c && i < c->parts; i++)
        conv_release(c->part[i].c);
    weft_free(c);
}

static weft_status_code dw_open(const conv_shape *s, dw_cache **cache)
{
    weft_status_code status = WEFT_OK;
    dw_cache *c = weft_alloc(sizeof *c);
    *cache = NULL;
    if (!c)
        return weft_fail(WEFT_E_MEMORY, "conv3d_dw: no memory for its primitives");
    c->parts = dw_count(s);
    const int before = weft_host_set_threads(1); /* what the primitives are made for */
    for (int64_t i = 0; i < c->parts; i++) {
        dw_part *p = &c->part[i];
        dw_part_of(s, dw_chunks(s), i, p);
        if (is_empty(&p->s))
            continue;
        WEFT_GO(conv_open(&p->s, &p->c));
        const int64_t space = (p->c->w_bytes + p->c->scratch_bytes + 63) & ~(int64_t)63;
        c->space = space > c->space ? space : c->space;
    }
    *cache = c;
    c = NULL;
out:
    weft_host_set_threads(before);
    dw_release(c);
    return status;
}

static int64_t dw_workspace(const conv_shape *s)
{
    dw_cache *c;
    if (dw_open(s, &c) != WEFT_OK)
        return 0;
    const int64_t bytes = c->parts * (c->space + dw_floats(s) * 4);
    dw_release(c);
    return bytes;
}

static weft_status_code dw_prepare(const weft_kernel_args *args, void **cache)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    dw_cache *c = NULL;
    if (!is_empty(&s) && !is_pointwise(&s) && !is_own(&s))
        WEFT_TRY(dw_open(&s, &c));
    *cache = c;
    return WEFT_OK;
}

static weft_status_code dw_run_part(const weft_kernel_args *args, const dw_part *p, char *space,
                                    float *dw, int64_t floats)
{
    float *x = args->in[0].data, *dy = args->in[1].data;
    if (!p->c) {
        memset(dw, 0, (size_t)floats * sizeof *dw);
        return WEFT_OK;
    }
    return conv_execute(p->c, CONV_WEIGHTS, space, x + p->x_at, dw, dy + p->y_at, NULL);
}

static weft_status_code dw_execute(const weft_kernel_args *args, const conv_shape *s)
{
    const dw_cache *c = args->cache;
    const int64_t floats = dw_floats(s), count = view_count(&args->out[0]);
    char *space = args->workspace;
    float *partial = (float *)(space + c->parts * c->space), *dw = args->out[0].data;
    const int threads = cpu_threads(view_count(&args->in[0]) + view_count(&args->in[1]));
    int failed = WEFT_OK;
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(max : failed)
    for (int64_t i = 0; i < c->parts; i++) {
        const int status =
            dw_run_part(args, &c->part[i], space + i * c->space, partial + i * floats, floats);
        failed = status > failed ? status : failed;
    }
    if (failed != WEFT_OK)
        return (weft_status_code)failed;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(c->parts *count))
    for (int64_t at = 0; at < count; at += 4096) {
        const int64_t n = count - at < 4096 ? count - at : 4096;
        memcpy(dw + at, partial + at, (size_t)n * sizeof *dw);
        for (int64_t i = 1; i < c->parts; i++)
            cpu_isa_get()->column_sums(partial + i * floats + at, 1, n, dw + at);
    }
    return WEFT_OK;
}

/* ---- the kernels --------------------------------------------------------------------------- */

static int64_t conv_workspace(const weft_kernel_args *args, conv_kind kind)
{
    const conv_shape s = conv_of(args, kind);
    dnnl_engine_t engine;
    dnnl_primitive_desc_t desc;
    int64_t w_bytes = 0, scratch_bytes = 0;
    if (is_empty(&s))
        return 0;
    if (is_pointwise(&s))
        return pointwise_workspace(&s, args);
    if (is_own(&s))
        return kind == CONV_FORWARD ? conv_own_few_workspace(&s.d) : conv_own_dw_workspace(&s.d);
    if (kind == CONV_WEIGHTS)
        return dw_workspace(&s);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        return 0;
    if (conv_plan(&s, engine, &desc, &w_bytes, &scratch_bytes) == WEFT_OK)
        dnnl_primitive_desc_destroy(desc);
    dnnl_engine_destroy(engine);
    return w_bytes + scratch_bytes;
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

/* What an empty operand leaves: zeros, plus the bias. */
static void conv_of_nothing(const weft_view *out, const float *bias)
{
    const int64_t count = view_count(out), O = view_last(out);
    float *y = out->data;
    for (int64_t i = 0; i < count; i++)
        y[i] = bias ? bias[i % O] : 0;
}

CPU_KERNEL_WITH(conv3d, .workspace = conv3d_workspace, .prepare = conv3d_prepare,
                .kernel.release = conv_release)
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

CPU_KERNEL_WITH(conv3d_dx, .workspace = conv3d_dx_workspace, .prepare = conv3d_dx_prepare,
                .kernel.release = conv_release)
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

CPU_KERNEL_WITH(conv3d_dw, .workspace = conv3d_dw_workspace, .prepare = dw_prepare,
                .kernel.release = dw_release)
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
