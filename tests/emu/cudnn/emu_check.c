/* Checks of descriptors before they become final, as the header describes them. */
#include "emu_cudnn.h"

#include <string.h>

static cudnnStatus_t check_tensor(const dnn_descriptor *d)
{
    int64_t dim[DNN_DIMS], stride[DNN_DIMS];
    const int rank = dnn_extents(d, 902, dim), strides = dnn_extents(d, 903, stride);
    const int64_t alignment = dnn_int(d, 900, 0),
                  bytes = (int64_t)dnn_bytes((int)dnn_int(d, 901, 0));
    if (!bytes)
        return dnn_refuse(NOT_SUPPORTED_DATA_TYPE, "type %lld", (long long)dnn_int(d, 901, 0));
    if (rank != strides)
        return dnn_refuse(BAD_PARAM, "%d extents and %d strides", rank, strides);
    for (int i = 0; i < rank; i++)
        if (dim[i] < 1 || stride[i] < 1)
            return dnn_refuse(BAD_PARAM, "extent %lld with stride %lld", (long long)dim[i],
                              (long long)stride[i]);
    if (alignment < 1 || alignment % bytes)
        return dnn_refuse(BAD_PARAM, "an alignment of %lld bytes", (long long)alignment);
    if (dnn_find(d, 904) && dnn_int(d, 904, 0) != 1)
        return dnn_refuse(NOT_SUPPORTED, "tensors of vectors");
    return SUCCESS;
}

static cudnnStatus_t check_math(const dnn_descriptor *d)
{
    const int64_t mode =
        d->kind == KIND_MATMUL ? 0 : dnn_int(d, d->kind == KIND_POINTWISE ? 0 : 1600, 0);
    const int type = d->kind == KIND_POINTWISE ? 1 : d->kind == KIND_MATMUL ? 1500 : 1601;
    if (d->kind == KIND_REDUCTION ? mode != 0
                                  : mode != MODE_ADD && mode != MODE_MUL && mode != MODE_SUB &&
                                        mode != MODE_EXP && mode != MODE_IDENTITY)
        return dnn_refuse(NOT_SUPPORTED, "mode %lld", (long long)mode);
    return dnn_int(d, type, 0) == DATA_FLOAT
               ? SUCCESS
               : dnn_refuse(NOT_SUPPORTED_DATA_TYPE, "operations compute in f32 only");
}

static cudnnStatus_t check_convolution(const dnn_descriptor *d)
{
    const int64_t spatial = dnn_int(d, 106, 0);
    if (dnn_int(d, 100, 0) != DATA_FLOAT)
        return dnn_refuse(NOT_SUPPORTED_DATA_TYPE, "convolutions compute in f32 only");
    for (int name = 102; name <= 105; name++) {
        if (dnn_find(d, name)->count != spatial)
            return dnn_refuse(BAD_PARAM, "attribute %d has %lld of %lld values", name,
                              (long long)dnn_find(d, name)->count, (long long)spatial);
        for (int64_t i = 0; i < spatial; i++)
            if (dnn_int(d, name, i) < (name <= 103))
                return dnn_refuse(BAD_PARAM, "attribute %d is %lld", name,
                                  (long long)dnn_int(d, name, i));
    }
    return SUCCESS;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The tensors of a convolution: filter, image, response. */
static void conv_tensors(const dnn_descriptor *d, const dnn_descriptor *tensor[3])
{
    static const int names[][3] = {{703, 704, 705}, {715, 716, 717}, {709, 710, 711}};
    for (int i = 0; i < 3; i++)
        tensor[i] = dnn_sub(d, names[d->kind - KIND_CONV_FORWARD][i], 0);
}

static cudnnStatus_t check_conv_operation(const dnn_descriptor *d)
{
    static const int description[] = {702, 714, 708};
    const dnn_descriptor *conv = dnn_sub(d, description[d->kind - KIND_CONV_FORWARD], 0),
                         *tensor[3];
    const int spatial = (int)dnn_int(conv, 106, 0);
    int64_t w[DNN_DIMS], x[DNN_DIMS], y[DNN_DIMS];
    conv_tensors(d, tensor);
    if (dnn_extents(tensor[0], 902, w) != spatial + 2 ||
        dnn_extents(tensor[1], 902, x) != spatial + 2 ||
        dnn_extents(tensor[2], 902, y) != spatial + 2)
        return dnn_refuse(BAD_PARAM, "tensors have not %d dimensions", spatial + 2);
    if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] || w[0] % (x[1] / w[1]))
        return dnn_refuse(BAD_PARAM, "samples or channels of X, W and Y differ");
    for (int i = 0; i < spatial; i++) {
        const int64_t padded = x[i + 2] + dnn_int(conv, 104, i) + dnn_int(conv, 105, i),
                      filter = (w[i + 2] - 1) * dnn_int(conv, 102, i) + 1;
        if (padded < filter || (padded - filter) / dnn_int(conv, 103, i) + 1 != y[i + 2])
            return dnn_refuse(BAD_PARAM, "dimension %d: X %lld and W %lld do not give Y %lld", i,
                              (long long)x[i + 2], (long long)w[i + 2], (long long)y[i + 2]);
    }
    return SUCCESS;
}

/* Whether the extents of attribute `name` are those given. True if it is not set. */
static bool has(const dnn_descriptor *d, int name, int64_t a, int64_t b, int64_t c, int64_t e)
{
    int64_t dim[DNN_DIMS];
    const dnn_descriptor *t = dnn_sub(d, name, 0);
    return !t || (dnn_extents(t, 902, dim) == 4 && dim[0] == a && dim[1] == b && dim[2] == c &&
                  dim[3] == e);
}

static cudnnStatus_t check_attention(const dnn_descriptor *d)
{
    const int first = d->kind == KIND_SDPA_FORWARD ? 2800 : 2851;
    int64_t q[DNN_DIMS], k[DNN_DIMS], v[DNN_DIMS];
    if (dnn_extents(dnn_sub(d, first, 0), 902, q) != 4 ||
        dnn_extents(dnn_sub(d, first + 1, 0), 902, k) != 4 ||
        dnn_extents(dnn_sub(d, first + 2, 0), 902, v) != 4)
        return dnn_refuse(BAD_PARAM, "Q, K and V need 4 dimensions");
    if (k[1] < 1 || q[1] % k[1] || q[1] % v[1] || !has(d, first + 1, q[0], k[1], k[2], q[3]) ||
        !has(d, first + 2, q[0], v[1], k[2], v[3]) || !has(d, first + 3, q[0], q[1], q[2], v[3]))
        return dnn_refuse(BAD_PARAM, "the extents of Q, K, V and O do not match");
    if (!has(d, first + 4, q[0], q[1], q[2], 1))
        return dnn_refuse(BAD_PARAM, "statistics need the extents (B, H, S, 1)");
    if (!has(d, first + 5, 1, 1, 1, 1))
        return dnn_refuse(BAD_PARAM, "the scale needs the extents (1, 1, 1, 1)");
    if (d->kind == KIND_SDPA_BACKWARD &&
        (!has(d, 2859, q[0], q[1], q[2], q[3]) || !has(d, 2860, k[0], k[1], k[2], k[3]) ||
         !has(d, 2861, v[0], v[1], v[2], v[3]) || !has(d, 2862, q[0], q[1], q[2], v[3])))
        return dnn_refuse(BAD_PARAM, "the extents of gradients do not match");
    return SUCCESS;
}

/* ---- graphs and plans ------------------------------------------------------------------------ */

static bool same_attribute(const dnn_descriptor *a, const dnn_descriptor *b, int name)
{
    const dnn_attribute *of_a = dnn_find(a, name), *of_b = dnn_find(b, name);
    if (!of_a || !of_b)
        return of_a == of_b;
    if (of_a->count != of_b->count)
        return false;
    for (int64_t i = 0; i < of_a->count; i++)
        if (dnn_int(a, name, i) != dnn_int(b, name, i))
            return false;
    return true;
}

static void check_same_tensor(const dnn_descriptor *a, const dnn_descriptor *b)
{
    if (dnn_int(a, 906, 0) != dnn_int(b, 906, 0))
        return;
    for (int name = 900; name <= 908; name++)
        if (!same_attribute(a, b, name))
            dnn_stop("tensors with the id %lld differ in attribute %d",
                     (long long)dnn_int(a, 906, 0), name);
}

static bool is_virtual(const dnn_descriptor *t)
{
    return dnn_find(t, 907) && dnn_int(t, 907, 0);
}

/* A bias of each channel that is added to the virtual result of a convolution. */
static cudnnStatus_t check_bias(const dnn_descriptor *conv, const dnn_descriptor *sum)
{
    const dnn_descriptor *y = dnn_sub(conv, 705, 0), *x = dnn_sub(sum, 751, 0),
                         *out = dnn_sub(sum, 753, 0);
    int64_t of_y[DNN_DIMS], bias[DNN_DIMS];
    const int rank = dnn_extents(y, 902, of_y),
              bias_rank = dnn_extents(dnn_sub(sum, 752, 0), 902, bias);
    bool is = rank == bias_rank && bias[1] == of_y[1] && same_attribute(y, out, 902);
    for (int i = 0; i < rank; i++)
        is = is && (i == 1 || bias[i] == 1);
    if (!is)
        return dnn_refuse(NOT_SUPPORTED_SHAPE, "a bias has one value for each channel");
    if (!is_virtual(y) || is_virtual(out) || dnn_int(y, 906, 0) != dnn_int(x, 906, 0))
        return dnn_refuse(NOT_SUPPORTED_GRAPH_PATTERN, "the sum is not of a virtual response");
    return SUCCESS;
}

API size_t cudnnGetVersion(void);

static cudnnStatus_t check_pattern(const dnn_descriptor *d)
{
    const dnn_descriptor *op = dnn_sub(d, 801, 0), *second = dnn_sub(d, 801, 1);
    if (dnn_is_step(op->kind))
        return dnn_check_steps(d);
    if (op->kind == KIND_SDPA_BACKWARD && cudnnGetVersion() < 92800)
        return dnn_refuse(BAD_PARAM, "outputGraph.buildDAG()");
    if (!second)
        return SUCCESS;
    if (dnn_find(d, 801)->count > 2 || op->kind != KIND_CONV_FORWARD ||
        second->kind != KIND_OP_POINTWISE || dnn_int(dnn_sub(second, 750, 0), 0, 0) != MODE_ADD)
        return dnn_refuse(NOT_SUPPORTED_GRAPH_PATTERN, "graphs of several operations");
    return check_bias(op, second);
}

/* Adds the tensors of an operation to the list. */
static cudnnStatus_t check_tensors(const dnn_descriptor *op, bool is_alone,
                                   const dnn_descriptor **tensor, int *count)
{
    for (int i = 0; i < op->attributes; i++) {
        const dnn_descriptor *t =
            op->attribute[i].type == TYPE_DESCRIPTOR ? dnn_sub(op, op->attribute[i].name, 0) : NULL;
        if (!t || t->kind != KIND_TENSOR)
            continue;
        if (is_alone && is_virtual(t))
            return dnn_refuse(BAD_PARAM, "a virtual tensor has no producer or no consumer");
        for (int k = 0; k < *count; k++)
            check_same_tensor(tensor[k], t);
        tensor[(*count)++] = t;
    }
    return SUCCESS;
}

static cudnnStatus_t check_graph(const dnn_descriptor *d)
{
    const dnn_descriptor *tensor[4 * DNN_STEPS];
    int count = 0;
    if (!dnn_find(d, 800))
        return dnn_refuse(BAD_PARAM, "the graph has no handle");
    cudnnStatus_t status = check_pattern(d);
    for (int64_t i = 0; status == SUCCESS && i < dnn_find(d, 801)->count; i++)
        status = check_tensors(dnn_sub(d, 801, i), dnn_find(d, 801)->count == 1, tensor, &count);
    return status;
}

static cudnnStatus_t check_engine(const dnn_descriptor *d)
{
    const dnn_engine *engine[DNN_ENGINES];
    const int64_t index = dnn_int(d, 1301, 0), count = dnn_engines(dnn_sub(d, 1300, 0), engine);
    return index < 0 || index >= count ? dnn_refuse(NOT_SUPPORTED, "engine %lld of %lld",
                                                    (long long)index, (long long)count)
                                       : SUCCESS;
}

static cudnnStatus_t check_config(const dnn_descriptor *d)
{
    const dnn_engine *engine = dnn_sub(d, 300, 0)->engine;
    const dnn_attribute *choices = dnn_find(d, 302);
    for (int64_t i = 0; choices && i < choices->count; i++) {
        const dnn_descriptor *c = dnn_sub(d, 302, i);
        if (dnn_int(c, 600, 0) != DNN_KNOB || dnn_int(c, 601, 0) < 0 ||
            dnn_int(c, 601, 0) > engine->knob_most)
            return dnn_refuse(NOT_SUPPORTED, "knob %lld with value %lld of engine %s",
                              (long long)dnn_int(c, 600, 0), (long long)dnn_int(c, 601, 0),
                              engine->name);
        if (i)
            return dnn_refuse(DUPLICATED_ENTRIES, "a knob has two values");
    }
    return SUCCESS;
}

static cudnnStatus_t check_plan(const dnn_descriptor *d)
{
    if (!dnn_find(d, 400) && !dnn_find(d, 407))
        return dnn_refuse(BAD_PARAM, "the plan has no handle");
    return emu_library_fault("cudnn-plan") ? dnn_refuse(NOT_SUPPORTED, "a planted fault") : SUCCESS;
}

static cudnnStatus_t check_pack(const dnn_descriptor *d)
{
    const dnn_attribute *ids = dnn_find(d, 1000), *pointers = dnn_find(d, 1001);
    const int64_t count = ids ? ids->count : 0;
    if (count != (pointers ? pointers->count : 0))
        return dnn_refuse(BAD_PARAM, "a pack has not as many addresses as ids");
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < i; k++)
            if (dnn_int(d, 1000, i) == dnn_int(d, 1000, k))
                return dnn_refuse(DUPLICATED_ENTRIES, "tensor %lld has two addresses",
                                  (long long)dnn_int(d, 1000, i));
    return SUCCESS;
}

cudnnStatus_t dnn_check(const dnn_descriptor *d)
{
    switch (d->kind) {
    case KIND_TENSOR: return check_tensor(d);
    case KIND_POINTWISE:
    case KIND_MATMUL:
    case KIND_REDUCTION: return check_math(d);
    case KIND_OP_POINTWISE:
    case KIND_OP_MATMUL:
    case KIND_OP_REDUCTION:
    case KIND_OP_RESHAPE: return dnn_check_step(d);
    case KIND_CONVOLUTION: return check_convolution(d);
    case KIND_CONV_FORWARD:
    case KIND_CONV_BWD_FILTER:
    case KIND_CONV_BWD_DATA: return check_conv_operation(d);
    case KIND_SDPA_FORWARD:
    case KIND_SDPA_BACKWARD: return check_attention(d);
    case KIND_GRAPH: return check_graph(d);
    case KIND_ENGINE: return check_engine(d);
    case KIND_CONFIG: return check_config(d);
    case KIND_PLAN: return check_plan(d);
    case KIND_PACK: return check_pack(d);
    default: return SUCCESS;
    }
}
