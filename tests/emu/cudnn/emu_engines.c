/* Engines: which graphs they support, and their workspaces. */
#include "emu_cudnn.h"

enum { HEAD_WIDTH = 128, HEAD_UNIT = 8, SPACE = 4096 };

static const dnn_engine tensor_core = {"tensor core", 1, {NOTE_TENSOR_CORE}, 3, 4, true},
                        converting = {"TF32", 2, {NOTE_TENSOR_CORE, NOTE_DOWN_CONVERT}, 3, 4, true},
                        any_order = {"nondeterministic", 1, {NOTE_NONDETERMINISTIC}, 1, 2, false},
                        without_copy = {"fused", 1, {NOTE_TENSOR_CORE}, 1, 2, false},
                        direct = {"direct", 0, {0}, 0, 0, false},
                        forward = {"attention", 1, {NOTE_TENSOR_CORE}, 2, 4, true},
                        backward = {"its gradient", 1, {NOTE_TENSOR_CORE}, 0, 4, true},
                        in_steps = {"steps", 1, {NOTE_TENSOR_CORE}, 1, 2, true};

static int type_of(const dnn_descriptor *op, int name)
{
    const dnn_descriptor *t = dnn_sub(op, name, 0);
    return t ? (int)dnn_int(t, 901, 0) : -1;
}

static int conv_engines(const dnn_descriptor *graph, const dnn_engine *engine[DNN_ENGINES])
{
    const dnn_descriptor *op = dnn_sub(graph, 801, 0);
    static const int names[][3] = {{703, 704, 705}, {715, 716, 717}, {709, 710, 711}};
    /* the output may be f32 */
    static const int output[] = {2, 0, 1};
    const int kind = op->kind - KIND_CONV_FORWARD, *name = names[kind], out = output[kind];
    const int a = type_of(op, name[(out + 1) % 3]), b = type_of(op, name[(out + 2) % 3]),
              y = type_of(op, name[out]);
    int count = 0;
    if (a != b || (y != a && y != DATA_FLOAT))
        return 0;
    if (a != DATA_FLOAT && dnn_sub(graph, 801, 1))
        engine[count++] = &without_copy;
    engine[count++] = a == DATA_FLOAT ? &converting : &tensor_core;
    if (op->kind == KIND_CONV_BWD_FILTER)
        engine[count++] = &any_order;
    engine[count++] = &direct;
    return count;
}

/* Whether a tensor of heads can be read 16 bytes at a time. */
static bool is_wide(const dnn_descriptor *t)
{
    int64_t dim[DNN_DIMS], stride[DNN_DIMS];
    (void)dnn_extents(t, 902, dim);
    (void)dnn_extents(t, 903, stride);
    return dim[3] % HEAD_UNIT == 0 && dim[3] <= HEAD_WIDTH && stride[3] == 1 &&
           stride[0] % HEAD_UNIT == 0 && stride[1] % HEAD_UNIT == 0 && stride[2] % HEAD_UNIT == 0 &&
           dnn_int(t, 900, 0) >= 16;
}

static int attention_engines(const dnn_descriptor *op, const dnn_engine *engine[DNN_ENGINES])
{
    static const int names[][9] = {{2800, 2801, 2802, 2803},
                                   {2851, 2852, 2853, 2854, 2859, 2860, 2861, 2862}};
    const bool grad = op->kind == KIND_SDPA_BACKWARD;
    const int *name = names[grad], type = type_of(op, name[0]);
    const int stats = type_of(op, grad ? 2855 : 2804), scale = type_of(op, grad ? 2856 : 2805);
    if ((type != DATA_HALF && type != DATA_BFLOAT16) || stats > DATA_FLOAT || scale > DATA_FLOAT)
        return 0;
    for (int i = 0; name[i]; i++)
        if (type_of(op, name[i]) != type || !is_wide(dnn_sub(op, name[i], 0)))
            return 0;
    engine[0] = grad ? &backward : &forward;
    return 1;
}

/* Operands of products are narrow, and tensors of heads are wide. */
static int step_engines(const dnn_descriptor *graph, const dnn_engine *engine[DNN_ENGINES])
{
    int products = 0;
    for (int64_t i = 0; i < dnn_find(graph, 801)->count; i++) {
        const dnn_descriptor *op = dnn_sub(graph, 801, i), *t[3];
        const int count = op->kind == KIND_OP_MATMUL ? dnn_step_tensors(op, t) : 0;
        products += count > 0;
        for (int k = 0; k < count; k++)
            if (k < 2 && dnn_int(t[k], 901, 0) == DATA_FLOAT)
                return 0;
    }
    engine[0] = &in_steps;
    return products == 5;
}

int dnn_engines(const dnn_descriptor *graph, const dnn_engine *engine[DNN_ENGINES])
{
    const dnn_descriptor *op = dnn_sub(graph, 801, 0);
    if (dnn_is_step(op->kind))
        return step_engines(graph, engine);
    return op->kind == KIND_SDPA_FORWARD || op->kind == KIND_SDPA_BACKWARD
               ? attention_engines(op, engine)
               : conv_engines(graph, engine);
}

bool dnn_lacks_copy(const dnn_descriptor *config)
{
    return dnn_sub(config, 300, 0)->engine == &without_copy;
}

int64_t dnn_stages(const dnn_descriptor *config)
{
    const dnn_descriptor *choice = dnn_sub(config, 302, 0);
    return choice ? dnn_int(choice, 601, 0) : dnn_sub(config, 300, 0)->engine->knob;
}

/* Attention needs a value for each row, and one order of sums needs a value for each score. */
int64_t dnn_workspace(const dnn_descriptor *config)
{
    const dnn_descriptor *own = dnn_sub(config, 300, 0);
    const dnn_descriptor *op = dnn_sub(dnn_sub(own, 1300, 0), 801, 0);
    const bool grad = op->kind == KIND_SDPA_BACKWARD;
    int64_t q[DNN_DIMS], k[DNN_DIMS];
    if (!own->engine->needs_space)
        return 0;
    if (own->engine == &in_steps)
        return dnn_steps_workspace(dnn_sub(own, 1300, 0));
    if (!grad && op->kind != KIND_SDPA_FORWARD) { /* and a copy of the filter */
        const int name = op->kind == KIND_CONV_FORWARD    ? 703
                         : op->kind == KIND_CONV_BWD_DATA ? 709
                                                          : 715;
        const dnn_descriptor *w = dnn_sub(op, name, 0);
        int64_t bytes = SPACE + (int64_t)dnn_bytes((int)dnn_int(w, 901, 0));
        for (int rank = dnn_extents(w, 902, q), i = 0; i < rank; i++)
            bytes += (bytes - SPACE) * (q[i] - 1);
        return bytes;
    }
    (void)dnn_extents(dnn_sub(op, grad ? 2851 : 2800, 0), 902, q);
    (void)dnn_extents(dnn_sub(op, grad ? 2852 : 2801, 0), 902, k);
    const int64_t columns = grad && dnn_stages(config) == DNN_ORDERED ? k[2] : 1;
    return (q[0] * q[1] * q[2] * columns * 4 + 255) / 256 * 256;
}
