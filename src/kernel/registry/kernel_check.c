#include "kernel/registry/kernel_check.h"

#include "base/convert.h"
#include "base/kept_error.h"
#include "base/memory.h"
#include "kernel/cpu/table.h"
#include "kernel/device.h"
#include "kernel/host.h"
#include "kernel/ref/table.h"
#include "kernel/view.h"

#include <math.h>
#include <stdio.h>

typedef struct check {
    const weft_graph *graph;
    const weft_backend *backend;
    weft_device_stream *stream;
    weft_staging *staging; /* NULL: the host's memory */
    weft_view *value;      /* index: value; floats as f64 with the precision of their type */
    uint64_t seed;
    const weft_check_rounds *rounds;
    weft_op_check *op;
    weft_products products;
} check;

static weft_dtype wide(weft_dtype dtype)
{
    return weft_dtype_is_float(dtype) ? WEFT_F64 : dtype;
}

static int64_t view_bytes(const weft_view *v)
{
    return view_count(v) * weft_dtype_bytes(v->dtype);
}

/* Rounds f64 elements to the precision of `dtype`. */
static void round_to(const weft_view *v, weft_dtype dtype)
{
    for (int64_t i = 0, n = view_count(v); i < n && v->dtype == WEFT_F64; i++) {
        double *x = (double *)v->data + i;
        const float narrow = (float)*x;
        *x = dtype == WEFT_BF16  ? weft_bf16_to_f32(weft_f32_to_bf16(narrow))
             : dtype == WEFT_F16 ? weft_f16_to_f32(weft_f32_to_f16(narrow))
             : dtype == WEFT_F64 ? *x
                                 : narrow;
    }
}

static weft_status create_view(const weft_value_info *info, weft_view *v)
{
    *v = (weft_view){.dtype = wide(info->dtype), .shape = info->shape};
    v->data = weft_alloc_aligned(view_bytes(v) + 1);
    return WEFT_ALLOCATED(v->data, "the check of kernels");
}

/* ---- values of ref --------------------------------------------------------------------------- */

/* Floats are normal. Scalars (rates, step numbers) and states (second moments) are positive, and
 * limits are large. Integers are 0 or 1. */
static void fill_source(const check *c, const weft_node *node, int32_t n, const weft_view *v)
{
    const uint64_t seed = weft_seed_mix(c->seed, (uint64_t)n);
    const char *name = weft_value_get(c->graph, node->out[0])->name;
    const bool is_limit = name && strstr(name, "limit"),
               is_positive = node->op == WEFT_OP_STATE || v->shape.rank == 0;
    for (int64_t i = 0, count = view_count(v); i < count; i++) {
        const double x = weft_random_normal(seed, WEFT_RNG_TEST, (uint64_t)i);
        if (v->dtype != WEFT_F64)
            view_set_int(v, i, x > 0);
        else
            view_set(v, i, is_limit ? 1e30 : is_positive ? fabs(x) + 0.5 : x);
    }
}

static void copy_constant(const weft_node *node, const weft_view *v)
{
    const weft_attr_constant *a = node->attr;
    weft_convert(v->data, v->dtype, a->data, a->dtype, view_count(v));
}

/* Computes nodes without kernels, as the runtime does. False: the node has a kernel. */
static bool fill_by_runtime(const check *c, const weft_node *node, int32_t n)
{
    const weft_view *out = &c->value[node->out[0].id];
    if (weft_backend_ref.kernel[node->op])
        return false;
    if (node->op == WEFT_OP_CONSTANT)
        copy_constant(node, out);
    else if (node->in_count == 0)
        fill_source(c, node, n, out);
    else
        memcpy(out->data, c->value[node->in[0].id].data, (size_t)view_bytes(out));
    return true;
}

/* ---- one node -------------------------------------------------------------------------------- */

typedef struct operands {
    weft_view *in, *own; /* of ref, and of the backend */
    weft_view out[WEFT_MAX_OUTPUTS], own_out[WEFT_MAX_OUTPUTS];
    void *workspace;
} operands;

static weft_kernel_args args_of(const weft_node *node, const weft_view *in, weft_view *out)
{
    return (weft_kernel_args){.op = node->op,
                              .in = in,
                              .in_count = node->in_count,
                              .out = out,
                              .out_count = node->out_count,
                              .attr = node->attr,
                              .threads = weft_host_threads()};
}

/* Waits for work that an implementation added before its error, which stays the error. */
static weft_status_code end_failed(const weft_device *device, weft_device_stream *stream,
                                   weft_status_code status)
{
    weft_error_copy *error = weft_error_save();
    (void)device->wait(stream);
    return weft_kept_error_return(error, status);
}

/* Runs a kernel; `device`: whose memory its workspace is. */
static weft_status run_kernel(const weft_backend *backend, weft_kernel_args *args,
                              weft_device_stream *stream)
{
    const weft_kernel *k = backend->kernel[args->op];
    const weft_device *device = backend->device;
    weft_status_code status = WEFT_OK;
    const int64_t bytes = k->workspace ? k->workspace(args) : 0;
    args->stream = stream;
    args->workspace = device->alloc(device, bytes + 1);
    WEFT_GO(WEFT_ALLOCATED(args->workspace, "a kernel"));
    if (k->prepare)
        WEFT_GO(k->prepare(args, &args->cache));
    status = k->run(args);
    WEFT_GO(status == WEFT_OK ? device->wait(stream) : end_failed(device, stream, status));
out:
    if (k->release && args->cache)
        k->release(args->cache);
    device->free(device, args->workspace);
    return status;
}

static weft_status create_own(const check *c, weft_view *own, const weft_value_info *info)
{
    *own = (weft_view){.dtype = info->dtype, .shape = info->shape};
    own->data = c->backend->device->alloc(c->backend->device, view_bytes(own) + 1);
    return WEFT_ALLOCATED(own->data, "the check of kernels");
}

static weft_status send(const check *c, const weft_view *own, const weft_view *from)
{
    if (!c->staging) {
        weft_convert(own->data, own->dtype, from->data, from->dtype, view_count(own));
        return WEFT_OK;
    }
    return weft_staging_write(c->staging, own->data, own->dtype, from->data, from->dtype,
                              view_count(own));
}

/* The norm of the sums of absolute values, for sums whose terms cancel: a bias whose gradient is
 * zero, for instance. 0 for other ops. */
static weft_status norm_of_terms(const weft_node *node, const operands *o, double *norm)
{
    *norm = 0;
    if (node->op != WEFT_OP_SUM)
        return WEFT_OK;
    weft_view in = o->in[0], out = o->out[0];
    weft_status_code status = WEFT_OK;
    in.data = weft_alloc_aligned(view_bytes(&in) + 1);
    out.data = weft_alloc_aligned(view_bytes(&out) + 1);
    WEFT_GO(WEFT_ALLOCATED(in.data && out.data, "the check of kernels"));
    for (int64_t i = 0, n = view_count(&in); i < n; i++)
        view_set(&in, i, fabs(view_get(&o->in[0], i)));
    weft_kernel_args args = args_of(node, &in, &out);
    WEFT_GO(run_kernel(&weft_backend_ref, &args, NULL));
    for (int64_t i = 0, n = view_count(&out); i < n; i++)
        *norm += view_get(&out, i) * view_get(&out, i);
    *norm = sqrt(*norm);
out:
    weft_free(in.data);
    weft_free(out.data);
    return status;
}

/* Norm-wise error of an output, relative to ref, or to `least` if that is larger; infinite where
 * only one side is finite. */
static weft_status compare(const check *c, const weft_view *own, const weft_view *ref,
                           bool is_exact, double least, double *relative)
{
    const int64_t n = view_count(own);
    const weft_dtype dtype = wide(own->dtype);
    weft_view got = {weft_alloc_aligned(n * weft_dtype_bytes(dtype) + 1), dtype, own->shape};
    double error = 0, size = 0;
    WEFT_TRY(WEFT_ALLOCATED(got.data, "the check of kernels"));
    weft_status_code status = WEFT_OK;
    if (c->staging)
        status = weft_staging_read(c->staging, got.data, dtype, own->data, own->dtype, n);
    else
        weft_convert(got.data, dtype, own->data, own->dtype, n);
    if (is_exact)
        round_to(ref, own->dtype);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        const double x = view_get(&got, i), y = view_get(ref, i);
        size += isfinite(y) ? y * y : 0;
        if (x != y && !(isnan(x) && isnan(y)))
            error += (x - y) * (x - y); /* NaN if one of the two is */
    }
    size = fmax(sqrt(size), least);
    *relative = size > 0 ? sqrt(error) / size : sqrt(error);
    if (!isfinite(*relative))
        *relative = INFINITY;
    weft_free(got.data);
    return status;
}

/* Sets the operands of a node: ref's values, and memory of the device with the inputs. */
static weft_status place_operands(const check *c, const weft_node *node, operands *o)
{
    for (int i = 0; i < node->in_count; i++) {
        o->in[i] = o->own[i] = (weft_view){.shape = {.rank = -1}};
        if (!weft_value_ok(node->in[i]))
            continue;
        o->in[i] = c->value[node->in[i].id];
        WEFT_TRY(create_own(c, &o->own[i], weft_value_get(c->graph, node->in[i])));
        WEFT_TRY(send(c, &o->own[i], &o->in[i]));
    }
    for (int i = 0; i < node->out_count; i++) {
        o->out[i] = o->own_out[i] = (weft_view){.shape = {.rank = -1}};
        if (!weft_value_ok(node->out[i]))
            continue;
        o->out[i] = c->value[node->out[i].id];
        WEFT_TRY(create_own(c, &o->own_out[i], weft_value_get(c->graph, node->out[i])));
    }
    return WEFT_OK;
}

/* Ends copies that began before an error too: the operands are freed after it. */
static weft_status set_operands(const check *c, const weft_node *node, operands *o)
{
    const weft_status_code status = place_operands(c, node, o);
    if (!c->staging)
        return status;
    if (status == WEFT_OK)
        return weft_staging_finish(c->staging);
    weft_error_copy *error = weft_error_save();
    const weft_status_code ended = weft_staging_finish(c->staging);
    (void)ended;
    return weft_kept_error_return(error, status);
}

static void free_own(const weft_device *device, const weft_node *node, const operands *o)
{
    for (int i = 0; i < node->in_count; i++)
        device->free(device, o->own[i].data);
    for (int i = 0; i < node->out_count; i++)
        device->free(device, o->own_out[i].data);
}

/* Errors of cpu's kernel at the outputs of a node. */
static weft_status errors_of_cpu(const check *c, const weft_node *node, double least,
                                 double error[WEFT_MAX_OUTPUTS])
{
    check host = *c;
    operands o = {0};
    weft_status_code status = WEFT_OK;
    host.backend = &weft_backend_cpu;
    host.stream = NULL;
    host.staging = NULL;
    WEFT_GO(WEFT_NEW(o.in, node->in_count + 1, "the check of kernels"));
    WEFT_GO(WEFT_NEW(o.own, node->in_count + 1, "the check of kernels"));
    WEFT_GO(set_operands(&host, node, &o));
    weft_kernel_args args = args_of(node, o.own, o.own_out);
    WEFT_GO(run_kernel(&weft_backend_cpu, &args, NULL));
    for (int i = 0; i < node->out_count; i++)
        if (o.own_out[i].data)
            WEFT_GO(compare(&host, &o.own_out[i], &o.out[i], false, least, &error[i]));
out:
    if (o.own)
        free_own(&weft_device_host, node, &o);
    weft_free(o.in);
    weft_free(o.own);
    return status;
}

/* An output fails above the tolerance of the op and twice the error of cpu, which is large as well
 * where terms cancel. */
static weft_status compare_outputs(const check *c, const weft_node *node, const operands *o)
{
    const bool tf32 = weft_op_is_tf32(node->op, node->attr);
    weft_op_check *r = &c->op[node->op];
    double least, error[WEFT_MAX_OUTPUTS] = {0}, tolerance[WEFT_MAX_OUTPUTS] = {0},
                  of_cpu[WEFT_MAX_OUTPUTS] = {0};
    bool is_above = false, failed = false;
    WEFT_TRY(norm_of_terms(node, o, &least));
    for (int i = 0; i < node->out_count; i++) {
        const weft_view *own = &o->own_out[i];
        if (!own->data)
            continue;
        tolerance[i] = weft_op_tolerance(node->op, own->dtype, tf32);
        WEFT_TRY(compare(c, own, &o->out[i], tolerance[i] == 0, least, &error[i]));
        is_above = is_above || error[i] > tolerance[i];
        if (error[i] > r->error || !r->worst_output[0]) {
            r->error = error[i];
            r->tolerance = tolerance[i];
            snprintf(r->worst_output, sizeof r->worst_output, "%.120s, output %d", node->scope, i);
        }
    }
    if (is_above)
        WEFT_TRY(errors_of_cpu(c, node, least, of_cpu));
    for (int i = 0; i < node->out_count; i++)
        failed = failed || error[i] > fmax(tolerance[i], 2 * of_cpu[i]);
    r->nodes++;
    r->failed += failed;
    return WEFT_OK;
}

/* Counts a node that the implementation does not compute. False: another error. */
static bool count_refusal(const check *c, weft_op op)
{
    const weft_message_class kind = weft_error_class();
    c->op[op].missing += kind == WEFT_MSG_KERNEL_MISSING;
    c->op[op].unsupported += kind == WEFT_MSG_KERNEL_UNSUPPORTED;
    return kind == WEFT_MSG_KERNEL_MISSING || kind == WEFT_MSG_KERNEL_UNSUPPORTED;
}

/* Runs the backend's kernel of a node and compares its outputs. */
static weft_status run_and_compare(const check *c, int32_t n, operands *o)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    const weft_device *device = c->backend->device;
    weft_kernel_args args = args_of(node, o->own, o->own_out);
    args.products = c->products;
    if (device->mark)
        device->mark(c->stream, n, weft_op_get(node->op)->name, node->scope);
    const weft_status_code status = run_kernel(c->backend, &args, c->stream);
    if (status != WEFT_OK)
        return count_refusal(c, node->op) ? WEFT_OK : status;
    return compare_outputs(c, node, o);
}

/* One implementation of a node. Before the first one, ref computes the values. At least one
 * implementation has a kernel. */
static weft_status check_round(const check *c, int round, bool is_first, int32_t n, operands *o)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    const weft_check_rounds *rounds = c->rounds;
    check own = *c;
    weft_status_code status = WEFT_OK;
    own.op += round * WEFT_OP_COUNT;
    memset(o->own, 0, (size_t)weft_graph_most_inputs(c->graph) * sizeof *o->own);
    memset(o->own_out, 0, sizeof o->own_out);
    WEFT_GO(set_operands(c, node, o));
    weft_kernel_args args = args_of(node, o->in, o->out);
    if (is_first)
        WEFT_GO(run_kernel(&weft_backend_ref, &args, NULL));
    if (rounds->begin)
        WEFT_GO(rounds->begin(rounds->user, round, node->op));
    WEFT_GO(run_and_compare(&own, n, o));
    if (rounds->end)
        WEFT_GO(rounds->end(rounds->user, round, node->op));
out:
    free_own(c->backend->device, node, o);
    return status;
}

static weft_status check_rounds(const check *c, int32_t n, operands *o)
{
    const weft_op op = weft_graph_node(c->graph, n)->op;
    bool is_first = true;
    for (int round = 0; round < c->rounds->count; round++)
        if (!c->rounds->select || c->rounds->select(c->rounds->user, round, op)) {
            WEFT_TRY(check_round(c, round, is_first, n, o));
            is_first = false;
        }
    return WEFT_OK;
}

static weft_status check_node(const check *c, int32_t n, operands *o)
{
    const weft_node *node = weft_graph_node(c->graph, n);
    weft_status_code status = WEFT_OK;
    if (!fill_by_runtime(c, node, n))
        status = check_rounds(c, n, o);
    for (int i = 0; i < node->out_count; i++)
        if (weft_value_ok(node->out[i]))
            round_to(&c->value[node->out[i].id], weft_value_get(c->graph, node->out[i])->dtype);
    return status;
}

/* ---- a graph --------------------------------------------------------------------------------- */

static weft_status check_nodes(check *c, operands *o)
{
    const int32_t values = weft_graph_value_count(c->graph);
    for (int32_t v = 0; v < values; v++)
        WEFT_TRY(create_view(weft_value_get(c->graph, (weft_value){v}), &c->value[v]));
    for (int32_t n = 0; n < weft_graph_node_count(c->graph); n++)
        WEFT_TRY(check_node(c, n, o));
    return WEFT_OK;
}

weft_status weft_kernels_check(const weft_graph *graph, const weft_backend *backend, uint64_t seed,
                               weft_op_check op[WEFT_OP_COUNT])
{
    const weft_check_rounds one = {.count = 1};
    return weft_kernels_check_rounds(graph, backend, seed, &one, op);
}

weft_status weft_kernels_check_rounds(const weft_graph *graph, const weft_backend *backend,
                                      uint64_t seed, const weft_check_rounds *rounds,
                                      weft_op_check *op)
{
    check c = {.graph = graph,
               .backend = backend,
               .seed = seed,
               .rounds = rounds,
               .op = op,
               .products = weft_graph_products(graph)};
    operands o = {0};
    const weft_device *device = backend->device;
    const int32_t values = weft_graph_value_count(graph);
    const int most = weft_graph_most_inputs(graph);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(backend->check ? backend->check() : WEFT_OK);
    WEFT_GO(WEFT_NEW(c.value, values, "the check of kernels"));
    WEFT_GO(WEFT_NEW(o.in, most, "the check of kernels"));
    WEFT_GO(WEFT_NEW(o.own, most, "the check of kernels"));
    WEFT_GO(device->open(device, backend, &c.stream));
    if (weft_device_is_apart(device))
        WEFT_GO(weft_staging_create(device, &c.staging));
    WEFT_GO(check_nodes(&c, &o));
out:
    if (c.stream)
        device->close(c.stream);
    weft_staging_free(c.staging);
    for (int32_t v = 0; c.value && v < values; v++)
        weft_free(c.value[v].data);
    weft_free(c.value);
    weft_free(o.in);
    weft_free(o.own);
    return status;
}
