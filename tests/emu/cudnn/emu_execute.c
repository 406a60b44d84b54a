/* Executions: the tensors of a plan, their memory, and the work of the stream. */
#include "emu_cudnn.h"

#include <stdlib.h>
#include <string.h>

enum { HANDLE_MAGIC = 0x4448, SPACE_ALIGNMENT = 256 };

static int accepted, refused; /* calls of cudnnBackendExecute */

/* The calls of the process, for tests. */
API void weft_emulated_cudnn(int *executions, int *refusals)
{
    *executions = __atomic_load_n(&accepted, __ATOMIC_RELAXED);
    *refusals = __atomic_load_n(&refused, __ATOMIC_RELAXED);
}

static const void *address_of(const dnn_descriptor *pack, int64_t id)
{
    const dnn_attribute *ids = dnn_find(pack, 1000), *pointers = dnn_find(pack, 1001);
    for (int64_t i = 0; ids && i < ids->count; i++)
        if (dnn_int(pack, 1000, i) == id)
            return ((const void *const *)pointers->values)[i];
    return NULL;
}

static int first_of(int kind)
{
    switch (kind) {
    case KIND_CONV_FORWARD: return 703;
    case KIND_CONV_BWD_DATA: return 709;
    case KIND_CONV_BWD_FILTER: return 715;
    case KIND_SDPA_FORWARD: return 2800;
    default: return 2851;
    }
}

static bool is_output(int kind, int i)
{
    switch (kind) {
    case KIND_CONV_FORWARD: return i == CONV_Y || i == CONV_SUM;
    case KIND_CONV_BWD_DATA: return i == CONV_X;
    case KIND_CONV_BWD_FILTER: return i == CONV_W;
    case KIND_SDPA_FORWARD: return i == FWD_O || i == FWD_STATS;
    default: return i >= BWD_DQ && i <= BWD_DV;
    }
}

static cudnnStatus_t add_tensor(dnn_execution *e, int i, const dnn_descriptor *d,
                                const dnn_descriptor *pack, bool writes)
{
    dnn_tensor *t = &e->tensor[i];
    const int64_t id = dnn_int(d, 906, 0), alignment = dnn_int(d, 900, 0);
    const void *data = address_of(pack, id);
    *t = (dnn_tensor){.type = (int)dnn_int(d, 901, 0), .range = -1};
    t->rank = dnn_extents(d, 902, t->dim);
    (void)dnn_extents(d, 903, t->stride);
    if (dnn_find(d, 907) && dnn_int(d, 907, 0))
        return SUCCESS;
    if (!data)
        return dnn_refuse(NULL_POINTER, "tensor %lld has no address", (long long)id);
    if (dnn_find(d, 908) && dnn_int(d, 908, 0)) { /* the host's value is read now */
        if (t->type != DATA_FLOAT)
            return dnn_refuse(NOT_SUPPORTED_DATA_TYPE, "a value of the host is f32");
        memcpy(&t->value, data, sizeof t->value);
        return SUCCESS;
    }
    if ((uintptr_t)data % (uintptr_t)alignment)
        return dnn_refuse(MISALIGNED_POINTER, "tensor %lld at %p is not at a multiple of %lld",
                          (long long)id, data, (long long)alignment);
    t->range = e->ranges;
    e->range[e->ranges++] =
        (weft_emulated_range){data, (size_t)dnn_span(t) * dnn_bytes(t->type), writes, NULL};
    return SUCCESS;
}

static void check_overlap(const dnn_execution *e)
{
    for (int i = 0; i < e->ranges; i++)
        for (int k = 0; k < e->ranges; k++) {
            const weft_emulated_range *a = &e->range[i], *b = &e->range[k];
            const char *begin = a->data, *other = b->data;
            if (i != k && a->writes && begin < other + b->bytes && other < begin + a->bytes)
                dnn_stop("an output or the workspace overlaps another tensor");
        }
}

static cudnnStatus_t add_space(dnn_execution *e, const dnn_descriptor *pack, int64_t bytes)
{
    const void *space = *(void *const *)dnn_find(pack, 1003)->values;
    e->space = -1;
    if (!bytes)
        return SUCCESS;
    if (!space)
        return dnn_refuse(NULL_POINTER, "the plan needs a workspace of %lld bytes",
                          (long long)bytes);
    if ((uintptr_t)space % SPACE_ALIGNMENT)
        return dnn_refuse(MISALIGNED_POINTER, "the workspace is not at a multiple of 256");
    e->space = e->ranges;
    e->range[e->ranges++] = (weft_emulated_range){space, (size_t)bytes, 1, NULL};
    return SUCCESS;
}

static float factor(const dnn_descriptor *op, int name)
{
    const dnn_attribute *a = dnn_find(op, name);
    return a->type == TYPE_FLOAT ? *(const float *)a->values : (float)*(const double *)a->values;
}

static void set_convolution(dnn_execution *e, const dnn_descriptor *op, int first)
{
    const dnn_descriptor *conv = dnn_sub(op, first - 1, 0);
    e->alpha = factor(op, first - 3);
    e->beta = factor(op, first - 2);
    e->flips = dnn_int(conv, 101, 0) == 0;
    e->spatial = dnn_int(conv, 106, 0);
    (void)dnn_extents(conv, 102, e->dilation);
    (void)dnn_extents(conv, 103, e->step);
    (void)dnn_extents(conv, 104, e->post);
    (void)dnn_extents(conv, 105, e->pre);
}

/* Tensor `i` of the execution; NULL: none. */
static const dnn_descriptor *tensor_of(const dnn_descriptor *graph, int i)
{
    const dnn_descriptor *op = dnn_sub(graph, 801, 0), *sum = dnn_sub(graph, 801, 1);
    const int first = first_of(op->kind);
    if (first >= 2800 || i <= CONV_Y)
        return dnn_sub(op, first + i, 0);
    return sum && i <= CONV_SUM ? dnn_sub(sum, i == CONV_BIAS ? 752 : 753, 0) : NULL;
}

/* Whether an operation of the graph writes the tensor. */
static bool is_written(const dnn_descriptor *graph, int64_t id)
{
    const dnn_descriptor *t[3];
    for (int64_t i = 0; i < dnn_find(graph, 801)->count; i++) {
        const int count = dnn_step_tensors(dnn_sub(graph, 801, i), t);
        if (dnn_int(t[count - 1], 906, 0) == id)
            return true;
    }
    return false;
}

/* Sets *index to the tensor of the execution, which is added where it is new. */
static cudnnStatus_t add_step_tensor(dnn_execution *e, const dnn_descriptor *graph,
                                     const dnn_descriptor *t, const dnn_descriptor *pack,
                                     int *index)
{
    const int64_t id = dnn_int(t, 906, 0);
    int i = 0;
    while (i < DNN_TENSORS && e->tensor[i].rank && e->id[i] != id)
        i++;
    *index = i;
    if (i == DNN_TENSORS)
        dnn_stop("a graph has more than %d tensors", DNN_TENSORS);
    if (e->tensor[i].rank)
        return SUCCESS;
    e->id[i] = id;
    return add_tensor(e, i, t, pack, is_written(graph, id));
}

static cudnnStatus_t add_steps(dnn_execution *e, const dnn_descriptor *graph,
                               const dnn_descriptor *pack)
{
    e->kind = KIND_GRAPH;
    e->steps = (int)dnn_find(graph, 801)->count;
    for (int i = 0; i < e->steps; i++) {
        const dnn_descriptor *op = dnn_sub(graph, 801, i), *t[3];
        const int count = dnn_step_tensors(op, t);
        int index[3] = {-1, -1, -1};
        for (int k = 0; k < count; k++) {
            const cudnnStatus_t status = add_step_tensor(e, graph, t[k], pack, &index[k]);
            if (status != SUCCESS)
                return status;
        }
        e->operation[i] = (dnn_step){
            op->kind, op->kind == KIND_OP_POINTWISE ? (int)dnn_int(dnn_sub(op, 750, 0), 0, 0) : 0,
            index[0], count == 3 ? index[1] : -1, index[count - 1]};
    }
    return SUCCESS;
}

static void set_engine(dnn_execution *e, const dnn_descriptor *config)
{
    static uint32_t calls;
    const dnn_engine *engine = dnn_sub(config, 300, 0)->engine;
    const int64_t stages = dnn_stages(config);
    bool ordered =
        e->kind != KIND_SDPA_BACKWARD || stages == DNN_ORDERED || stages == DNN_ORDERED_TOO;
    for (int i = 0; i < engine->notes; i++) {
        e->tf32 = e->tf32 || engine->note[i] == NOTE_DOWN_CONVERT;
        ordered = ordered && engine->note[i] != NOTE_NONDETERMINISTIC;
    }
    if (!ordered)
        e->noise = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static void put_channels_last(dnn_tensor *t)
{
    int64_t stride = t->dim[1];
    t->stride[1] = 1;
    for (int i = t->rank; i-- > 2; stride *= t->dim[i])
        t->stride[i] = stride;
    t->stride[0] = stride;
}

static cudnnStatus_t make_execution(const dnn_descriptor *plan, const dnn_descriptor *pack,
                                    dnn_execution *e)
{
    const dnn_descriptor *config = dnn_sub(plan, 401, 0);
    const dnn_descriptor *graph = dnn_sub(dnn_sub(config, 300, 0), 1300, 0),
                         *op = dnn_sub(graph, 801, 0);
    const int first = first_of(op->kind);
    if (dnn_is_step(op->kind)) {
        const cudnnStatus_t status = add_steps(e, graph, pack);
        return status == SUCCESS ? add_space(e, pack, dnn_workspace(config)) : status;
    }
    e->kind = op->kind;
    e->biased = dnn_sub(graph, 801, 1) != NULL;
    for (int i = 0; i < DNN_TENSORS; i++) {
        const dnn_descriptor *t = tensor_of(graph, i);
        const cudnnStatus_t status =
            t ? add_tensor(e, i, t, pack, is_output(op->kind, i)) : SUCCESS;
        if (status != SUCCESS)
            return status;
    }
    if (first < 2800)
        set_convolution(e, op, first);
    if (dnn_lacks_copy(config))
        put_channels_last(&e->tensor[CONV_W]);
    set_engine(e, config);
    return add_space(e, pack, dnn_workspace(config));
}

static cudnnStatus_t execute(dnn_handle *handle, const dnn_descriptor *plan,
                             const dnn_descriptor *pack)
{
    const emu_library_driver *driver = emu_library_driver_get();
    dnn_execution e = {0};
    if (!handle || !plan || !pack)
        return dnn_refuse(NULL_POINTER, "handle, plan or pack is missing");
    if (handle->magic != HANDLE_MAGIC)
        return dnn_refuse(BAD_PARAM, "the handle was not created");
    if (plan->kind != KIND_PLAN || pack->kind != KIND_PACK)
        return dnn_refuse(DESCRIPTOR_TYPE, "plan and pack are descriptors of kind %d and %d",
                          plan->kind, pack->kind);
    if (!plan->final || !pack->final)
        return dnn_refuse(NOT_FINALIZED, "plan or pack is not finalized");
    if (!driver || driver->device() != handle->device)
        dnn_stop("the handle of GPU %d is used for GPU %d", handle->device,
                 driver ? driver->device() : -1);
    const cudnnStatus_t status = make_execution(plan, pack, &e);
    if (status != SUCCESS)
        return status;
    check_overlap(&e);
    if (emu_library_fault("cudnn-execute"))
        return dnn_refuse(EXECUTION_FAILED, "a planted fault");
    return driver->add_work(handle->stream, e.range, e.ranges, dnn_run, &e, sizeof e)
               ? dnn_refuse(EXECUTION_FAILED, "the stream accepts no work")
               : SUCCESS;
}

API cudnnStatus_t cudnnBackendExecute(dnn_handle *handle, dnn_descriptor *plan,
                                      dnn_descriptor *pack)
{
    const cudnnStatus_t status = execute(handle, plan, pack);
    __atomic_add_fetch(status ? &refused : &accepted, 1, __ATOMIC_RELAXED);
    return status;
}
