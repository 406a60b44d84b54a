/* Handles, descriptors and their attributes. */
#include "emu_cudnn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HANDLE_MAGIC = 0x4448, DESCRIPTOR_MAGIC = 0x4444, REASON = 256 };

static _Thread_local char reason[REASON];

void dnn_stop(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("emulated cuDNN: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

cudnnStatus_t dnn_refuse(cudnnStatus_t status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    const char *level = getenv("CUDNN_LOGLEVEL_DBG");
    if (level && atoi(level) > 0)
        fprintf(stderr, "emulated cuDNN: status %d: %s\n", status, reason);
    return status;
}

/* ---- handles --------------------------------------------------------------------------------- */

API size_t cudnnGetVersion(void)
{
    const char *version = getenv("WEFT_EMU_CUDNN_VERSION");
    return version ? (size_t)atoll(version) : 92800;
}

API const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return status < NOT_SUPPORTED ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_NOT_SUPPORTED";
    }
}

API void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", reason);
    reason[0] = 0;
}

/* The GPU of a handle is the GPU of the current context. */
API cudnnStatus_t cudnnCreate(dnn_handle **handle)
{
    const emu_library_driver *driver = emu_library_driver_get();
    if (!handle)
        return dnn_refuse(NULL_POINTER, "no place for the handle");
    if (!driver || driver->device() < 0)
        return dnn_refuse(NOT_INITIALIZED, "the thread has no context");
    *handle = malloc(sizeof **handle);
    if (!*handle)
        return ALLOCATION_FAILED;
    **handle = (dnn_handle){HANDLE_MAGIC, driver->device(), NULL};
    return SUCCESS;
}

API cudnnStatus_t cudnnDestroy(dnn_handle *handle)
{
    if (!handle || handle->magic != HANDLE_MAGIC)
        return dnn_refuse(BAD_PARAM, "the handle was not created");
    handle->magic = 0;
    free(handle);
    return SUCCESS;
}

API cudnnStatus_t cudnnSetStream(dnn_handle *handle, void *stream)
{
    if (!handle || handle->magic != HANDLE_MAGIC)
        return dnn_refuse(BAD_PARAM, "the handle was not created");
    handle->stream = stream;
    return SUCCESS;
}

API cudnnStatus_t cudnnGetStream(dnn_handle *handle, void **stream)
{
    if (!handle || handle->magic != HANDLE_MAGIC || !stream)
        return dnn_refuse(BAD_PARAM, "the handle was not created");
    *stream = handle->stream;
    return SUCCESS;
}

/* ---- attributes of the header ---------------------------------------------------------------- */

typedef struct rule {
    int kind, name, type, other; /* other: a second type that is allowed, or `type` */
    int64_t least, most;         /* values; least 0: optional */
    bool read_only;
    int descriptor; /* kind of a descriptor, or ANY_OPERATION */
} rule;
enum { ANY_OPERATION = -1 };
#define VALUE(KIND, NAME, TYPE)                                                                    \
    {                                                                                              \
        KIND_##KIND, NAME, TYPE_##TYPE, TYPE_##TYPE, 1, 1, false, 0                                \
    }
#define OPTIONAL(KIND, NAME, TYPE)                                                                 \
    {                                                                                              \
        KIND_##KIND, NAME, TYPE_##TYPE, TYPE_##TYPE, 0, 1, false, 0                                \
    }
#define FACTOR(KIND, NAME)                                                                         \
    {                                                                                              \
        KIND_##KIND, NAME, TYPE_FLOAT, TYPE_DOUBLE, 1, 1, false, 0                                 \
    }
#define LIST(KIND, NAME, TYPE, LEAST, MOST)                                                        \
    {                                                                                              \
        KIND_##KIND, NAME, TYPE_##TYPE, TYPE_##TYPE, LEAST, MOST, false, 0                         \
    }
#define RESULT(KIND, NAME, TYPE, OF)                                                               \
    {                                                                                              \
        KIND_##KIND, NAME, TYPE_##TYPE, TYPE_##TYPE, 0, 0, true, OF                                \
    }
#define PART(KIND, NAME, LEAST, MOST, OF)                                                          \
    {                                                                                              \
        KIND_##KIND, NAME, TYPE_DESCRIPTOR, TYPE_DESCRIPTOR, LEAST, MOST, false, OF                \
    }
static const rule rules[] = {
    VALUE(POINTWISE, 0, POINTWISE_MODE),
    VALUE(POINTWISE, 1, DATA_TYPE),
    PART(OP_POINTWISE, 750, 1, 1, KIND_POINTWISE),
    PART(OP_POINTWISE, 751, 1, 1, KIND_TENSOR),
    PART(OP_POINTWISE, 752, 0, 1, KIND_TENSOR),
    PART(OP_POINTWISE, 753, 1, 1, KIND_TENSOR),
    VALUE(CONVOLUTION, 100, DATA_TYPE),
    VALUE(CONVOLUTION, 101, CONVOLUTION_MODE),
    LIST(CONVOLUTION, 102, INT64, 1, DNN_DIMS),
    LIST(CONVOLUTION, 103, INT64, 1, DNN_DIMS),
    LIST(CONVOLUTION, 104, INT64, 1, DNN_DIMS),
    LIST(CONVOLUTION, 105, INT64, 1, DNN_DIMS),
    VALUE(CONVOLUTION, 106, INT64),
    VALUE(HEURISTIC, 200, HEUR_MODE),
    PART(HEURISTIC, 201, 1, 1, KIND_GRAPH),
    RESULT(HEURISTIC, 202, DESCRIPTOR, KIND_CONFIG),
    OPTIONAL(HEURISTIC, 203, INT32),
    PART(HEURISTIC, 204, 0, 1, KIND_DEVICE),
    PART(CONFIG, 300, 1, 1, KIND_ENGINE),
    PART(CONFIG, 302, 0, 64, KIND_KNOB_CHOICE),
    OPTIONAL(PLAN, 400, HANDLE),
    PART(PLAN, 401, 1, 1, KIND_CONFIG),
    RESULT(PLAN, 402, INT64, 0),
    PART(PLAN, 407, 0, 1, KIND_DEVICE),
    VALUE(KNOB_CHOICE, 600, KNOB_TYPE),
    VALUE(KNOB_CHOICE, 601, INT64),
    FACTOR(CONV_FORWARD, 700),
    FACTOR(CONV_FORWARD, 701),
    PART(CONV_FORWARD, 702, 1, 1, KIND_CONVOLUTION),
    PART(CONV_FORWARD, 703, 1, 1, KIND_TENSOR),
    PART(CONV_FORWARD, 704, 1, 1, KIND_TENSOR),
    PART(CONV_FORWARD, 705, 1, 1, KIND_TENSOR),
    FACTOR(CONV_BWD_DATA, 706),
    FACTOR(CONV_BWD_DATA, 707),
    PART(CONV_BWD_DATA, 708, 1, 1, KIND_CONVOLUTION),
    PART(CONV_BWD_DATA, 709, 1, 1, KIND_TENSOR),
    PART(CONV_BWD_DATA, 710, 1, 1, KIND_TENSOR),
    PART(CONV_BWD_DATA, 711, 1, 1, KIND_TENSOR),
    FACTOR(CONV_BWD_FILTER, 712),
    FACTOR(CONV_BWD_FILTER, 713),
    PART(CONV_BWD_FILTER, 714, 1, 1, KIND_CONVOLUTION),
    PART(CONV_BWD_FILTER, 715, 1, 1, KIND_TENSOR),
    PART(CONV_BWD_FILTER, 716, 1, 1, KIND_TENSOR),
    PART(CONV_BWD_FILTER, 717, 1, 1, KIND_TENSOR),
    OPTIONAL(GRAPH, 800, HANDLE),
    PART(GRAPH, 801, 1, DNN_STEPS, ANY_OPERATION),
    RESULT(GRAPH, 802, INT64, 0),
    VALUE(TENSOR, 900, INT64),
    VALUE(TENSOR, 901, DATA_TYPE),
    LIST(TENSOR, 902, INT64, 1, DNN_DIMS),
    LIST(TENSOR, 903, INT64, 1, DNN_DIMS),
    OPTIONAL(TENSOR, 904, INT64),
    OPTIONAL(TENSOR, 905, INT64),
    VALUE(TENSOR, 906, INT64),
    OPTIONAL(TENSOR, 907, BOOLEAN),
    OPTIONAL(TENSOR, 908, BOOLEAN),
    LIST(PACK, 1000, INT64, 0, 64),
    LIST(PACK, 1001, VOID_PTR, 0, 64),
    VALUE(PACK, 1003, VOID_PTR),
    RESULT(KNOB_INFO, 1200, KNOB_TYPE, 0),
    RESULT(KNOB_INFO, 1201, INT64, 0),
    RESULT(KNOB_INFO, 1202, INT64, 0),
    RESULT(KNOB_INFO, 1203, INT64, 0),
    PART(ENGINE, 1300, 1, 1, KIND_GRAPH),
    VALUE(ENGINE, 1301, INT64),
    RESULT(ENGINE, 1302, DESCRIPTOR, KIND_KNOB_INFO),
    RESULT(ENGINE, 1303, NUMERICAL_NOTE, 0),
    RESULT(ENGINE, 1305, BEHAVIOR_NOTE, 0),
    OPTIONAL(ENGINE, 1306, INT32),
    PART(ENGINE, 1307, 0, 1, KIND_DEVICE),
    VALUE(MATMUL, 1500, DATA_TYPE),
    PART(OP_MATMUL, 1520, 1, 1, KIND_TENSOR),
    PART(OP_MATMUL, 1521, 1, 1, KIND_TENSOR),
    PART(OP_MATMUL, 1522, 1, 1, KIND_TENSOR),
    PART(OP_MATMUL, 1523, 1, 1, KIND_MATMUL),
    VALUE(REDUCTION, 1600, REDUCTION_OPERATOR),
    VALUE(REDUCTION, 1601, DATA_TYPE),
    PART(OP_REDUCTION, 1610, 1, 1, KIND_TENSOR),
    PART(OP_REDUCTION, 1611, 1, 1, KIND_TENSOR),
    PART(OP_REDUCTION, 1612, 1, 1, KIND_REDUCTION),
    PART(OP_RESHAPE, 2200, 1, 1, KIND_TENSOR),
    PART(OP_RESHAPE, 2201, 1, 1, KIND_TENSOR),
    OPTIONAL(DEVICE, 2700, INT32),
    OPTIONAL(DEVICE, 2701, HANDLE),
    LIST(DEVICE, 2702, CHAR, 0, 65536),
    PART(SDPA_FORWARD, 2800, 1, 1, KIND_TENSOR),
    PART(SDPA_FORWARD, 2801, 1, 1, KIND_TENSOR),
    PART(SDPA_FORWARD, 2802, 1, 1, KIND_TENSOR),
    PART(SDPA_FORWARD, 2803, 1, 1, KIND_TENSOR),
    PART(SDPA_FORWARD, 2804, 0, 1, KIND_TENSOR),
    PART(SDPA_FORWARD, 2805, 0, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2851, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2852, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2853, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2854, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2855, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2856, 0, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2859, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2860, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2861, 1, 1, KIND_TENSOR),
    PART(SDPA_BACKWARD, 2862, 1, 1, KIND_TENSOR),
};
enum { RULES = sizeof rules / sizeof rules[0] };

static const rule *find_rule(int kind, int name)
{
    for (size_t i = 0; i < RULES; i++)
        if (rules[i].kind == kind && rules[i].name == name)
            return &rules[i];
    return NULL;
}

static size_t value_bytes(int type)
{
    switch (type) {
    case TYPE_BOOLEAN:
    case TYPE_CHAR: return 1;
    case TYPE_HANDLE:
    case TYPE_INT64:
    case TYPE_DOUBLE:
    case TYPE_VOID_PTR:
    case TYPE_DESCRIPTOR: return 8;
    default: return 4; /* enumerations, INT32 and FLOAT */
    }
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static void check_alive(const dnn_descriptor *d)
{
    if (d->magic != DESCRIPTOR_MAGIC)
        dnn_stop("a descriptor was not created");
    if (d->destroyed)
        dnn_stop("a descriptor of kind %d is used after it was destroyed", d->kind);
}

const dnn_attribute *dnn_find(const dnn_descriptor *d, int name)
{
    check_alive(d);
    for (int i = 0; i < d->attributes; i++)
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    return NULL;
}

int64_t dnn_int(const dnn_descriptor *d, int name, int64_t i)
{
    const dnn_attribute *a = dnn_find(d, name);
    const size_t bytes = value_bytes(a->type);
    int64_t wide;
    int32_t narrow;
    const char *at = (const char *)a->values + (size_t)i * bytes;
    if (bytes == 1)
        return *at;
    if (bytes == 4) {
        memcpy(&narrow, at, 4);
        return narrow;
    }
    memcpy(&wide, at, 8);
    return wide;
}

dnn_descriptor *dnn_sub(const dnn_descriptor *d, int name, int64_t i)
{
    const dnn_attribute *a = dnn_find(d, name);
    if (!a || i >= a->count)
        return NULL;
    dnn_descriptor *sub = ((dnn_descriptor **)a->values)[i];
    check_alive(sub);
    return sub;
}

int dnn_extents(const dnn_descriptor *tensor, int name, int64_t extent[DNN_DIMS])
{
    const dnn_attribute *a = dnn_find(tensor, name);
    memcpy(extent, a->values, (size_t)a->count * sizeof *extent);
    return (int)a->count;
}

static void release(dnn_descriptor *d)
{
    if (d->users > 0)
        return;
    for (int i = 0; i < d->attributes; i++) {
        dnn_attribute *a = &d->attribute[i];
        for (int64_t k = 0; a->type == TYPE_DESCRIPTOR && k < a->count; k++) {
            dnn_descriptor *sub = ((dnn_descriptor **)a->values)[k];
            sub->users--;
            if (sub->destroyed)
                release(sub);
        }
        free(a->values);
    }
    d->magic = 0;
    free(d);
}

dnn_descriptor *dnn_make(int kind)
{
    dnn_descriptor *d = calloc(1, sizeof *d);
    if (d) {
        d->magic = DESCRIPTOR_MAGIC;
        d->kind = kind;
    }
    return d;
}

API cudnnStatus_t cudnnBackendCreateDescriptor(int kind, dnn_descriptor **d)
{
    bool known = false;
    for (size_t i = 0; i < RULES; i++)
        known = known || rules[i].kind == kind;
    if (!d)
        return dnn_refuse(NULL_POINTER, "no place for the descriptor");
    if (!known)
        return dnn_refuse(NOT_SUPPORTED, "descriptors of kind %d", kind);
    *d = dnn_make(kind);
    return *d ? SUCCESS : ALLOCATION_FAILED;
}

API cudnnStatus_t cudnnBackendDestroyDescriptor(dnn_descriptor *d)
{
    if (!d)
        return SUCCESS;
    check_alive(d);
    d->destroyed = true;
    release(d);
    return SUCCESS;
}

/* Replaces the values of an attribute. */
cudnnStatus_t dnn_put(dnn_descriptor *d, int name, int type, int64_t count, const void *values)
{
    dnn_attribute *a = (dnn_attribute *)dnn_find(d, name);
    const size_t bytes = (size_t)count * value_bytes(type);
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy || (!a && d->attributes == DNN_ATTRIBUTES))
        dnn_stop("out of memory");
    if (!a)
        a = &d->attribute[d->attributes++];
    else if (a->type == TYPE_DESCRIPTOR)
        for (int64_t i = 0; i < a->count; i++)
            ((dnn_descriptor **)a->values)[i]->users--;
    free(a->values);
    memcpy(copy, values, bytes);
    *a = (dnn_attribute){name, type, count, copy};
    for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < count; i++)
        ((dnn_descriptor **)copy)[i]->users++;
    return SUCCESS;
}

static bool is_operation(int kind)
{
    return (kind >= KIND_CONV_FORWARD && kind <= KIND_OP_POINTWISE) || kind == KIND_SDPA_FORWARD ||
           kind == KIND_SDPA_BACKWARD || dnn_is_step(kind);
}

static cudnnStatus_t check_parts(const rule *r, int64_t count, dnn_descriptor *const *parts)
{
    for (int64_t i = 0; i < count; i++) {
        if (!parts[i])
            return dnn_refuse(NULL_POINTER, "attribute %d has no descriptor", r->name);
        check_alive(parts[i]);
        if (r->descriptor == ANY_OPERATION ? !is_operation(parts[i]->kind)
                                           : parts[i]->kind != r->descriptor)
            return dnn_refuse(DESCRIPTOR_TYPE, "attribute %d is a descriptor of kind %d", r->name,
                              parts[i]->kind);
        if (!parts[i]->final)
            return dnn_refuse(NOT_FINALIZED, "attribute %d is not finalized", r->name);
    }
    return SUCCESS;
}

API cudnnStatus_t cudnnBackendSetAttribute(dnn_descriptor *d, int name, int type, int64_t count,
                                           const void *values)
{
    if (!d)
        return dnn_refuse(NULL_POINTER, "attribute %d of no descriptor", name);
    check_alive(d);
    const rule *r = find_rule(d->kind, name);
    if (d->final)
        return dnn_refuse(NOT_INITIALIZED, "attribute %d is set after finalization", name);
    if (!r || r->read_only)
        return dnn_refuse(BAD_PARAM, "attribute %d of kind %d", name, d->kind);
    if (type != r->type && type != r->other)
        return dnn_refuse(ATTRIBUTE_TYPE, "attribute %d has type %d", name, type);
    if (count < r->least || count > r->most || (count && !values))
        return dnn_refuse(BAD_PARAM, "attribute %d has %lld values", name, (long long)count);
    const cudnnStatus_t status = type == TYPE_DESCRIPTOR ? check_parts(r, count, values) : SUCCESS;
    if (status == SUCCESS && type == TYPE_HANDLE) {
        const dnn_handle *handle = *(dnn_handle *const *)values;
        if (!handle || handle->magic != HANDLE_MAGIC)
            return dnn_refuse(BAD_PARAM, "attribute %d is not a handle", name);
    }
    return status == SUCCESS ? dnn_put(d, name, type, count, values) : status;
}

API cudnnStatus_t cudnnBackendFinalize(dnn_descriptor *d)
{
    if (!d)
        return dnn_refuse(NULL_POINTER, "no descriptor is finalized");
    check_alive(d);
    if (d->final)
        return dnn_refuse(BAD_PARAM, "a descriptor of kind %d is finalized twice", d->kind);
    for (size_t i = 0; i < RULES; i++)
        if (rules[i].kind == d->kind && rules[i].least && !dnn_find(d, rules[i].name))
            return dnn_refuse(BAD_PARAM, "attribute %d is missing", rules[i].name);
    const cudnnStatus_t status = dnn_check(d);
    const dnn_engine *engines[DNN_ENGINES];
    if (status != SUCCESS)
        return status;
    if (d->kind == KIND_ENGINE) {
        (void)dnn_engines(dnn_sub(d, 1300, 0), engines);
        d->engine = engines[dnn_int(d, 1301, 0)];
    }
    d->final = true;
    return SUCCESS;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Descriptors that a caller reads are created by the caller, and get the attributes. */
static cudnnStatus_t fill(dnn_descriptor *to, int kind)
{
    if (!to)
        return dnn_refuse(NULL_POINTER, "no descriptor to read into");
    check_alive(to);
    if (to->kind != kind)
        return dnn_refuse(DESCRIPTOR_TYPE, "a descriptor of kind %d is read as %d", to->kind, kind);
    return SUCCESS;
}

/* Makes a configuration of the engine with its usual knobs. */
static void make_config(dnn_descriptor *to, dnn_descriptor *graph, int64_t index,
                        const dnn_engine *engine)
{
    dnn_descriptor *own = dnn_make(KIND_ENGINE), *choice = dnn_make(KIND_KNOB_CHOICE);
    const int32_t knob = DNN_KNOB;
    dnn_put(own, 1300, TYPE_DESCRIPTOR, 1, &graph);
    dnn_put(own, 1301, TYPE_INT64, 1, &index);
    dnn_put(choice, 600, TYPE_KNOB_TYPE, 1, &knob);
    dnn_put(choice, 601, TYPE_INT64, 1, &engine->knob);
    dnn_put(to, 300, TYPE_DESCRIPTOR, 1, &own);
    dnn_put(to, 302, TYPE_DESCRIPTOR, 1, &choice);
    own->engine = engine;
    own->final = choice->final = to->final = true;
}

static cudnnStatus_t read_configs(const dnn_descriptor *d, int64_t most, int64_t *count,
                                  dnn_descriptor **to)
{
    dnn_descriptor *graph = dnn_sub(d, 201, 0);
    const dnn_engine *engine[DNN_ENGINES];
    const int found = emu_library_fault("cudnn-heuristic") ? 0 : dnn_engines(graph, engine);
    *count = most == 0 || found < most ? found : most;
    for (int64_t i = 0; most && i < *count; i++) {
        const cudnnStatus_t status = fill(to[i], KIND_CONFIG);
        if (status != SUCCESS)
            return status;
        make_config(to[i], graph, i, engine[i]);
    }
    return SUCCESS;
}

static cudnnStatus_t read_knobs(const dnn_descriptor *d, int64_t most, int64_t *count,
                                dnn_descriptor **to)
{
    const int32_t type = DNN_KNOB;
    const int64_t value[] = {d->engine->knob_most, 0, 1};
    *count = 1;
    if (!most)
        return SUCCESS;
    const cudnnStatus_t status = fill(to[0], KIND_KNOB_INFO);
    if (status != SUCCESS)
        return status;
    dnn_put(to[0], 1200, TYPE_KNOB_TYPE, 1, &type);
    for (int i = 0; i < 3; i++)
        dnn_put(to[0], 1201 + i, TYPE_INT64, 1, &value[i]);
    to[0]->final = true;
    return SUCCESS;
}

/* Copies values. Descriptors are copied into descriptors of the caller. */
static cudnnStatus_t copy_out(const dnn_attribute *a, const rule *r, int64_t most, int64_t *count,
                              void *values)
{
    *count = a ? a->count : 0;
    if (!most || !a)
        return SUCCESS;
    const int64_t n = a->count < most ? a->count : most;
    if (a->type != TYPE_DESCRIPTOR) {
        memcpy(values, a->values, (size_t)n * value_bytes(a->type));
        return SUCCESS;
    }
    for (int64_t i = 0; i < n; i++) {
        dnn_descriptor *to = ((dnn_descriptor **)values)[i];
        const dnn_descriptor *from = ((dnn_descriptor **)a->values)[i];
        const cudnnStatus_t status = fill(to, r->descriptor);
        if (status != SUCCESS)
            return status;
        for (int k = 0; k < from->attributes; k++)
            dnn_put(to, from->attribute[k].name, from->attribute[k].type, from->attribute[k].count,
                    from->attribute[k].values);
        to->engine = from->engine;
        to->final = true;
    }
    return SUCCESS;
}

static cudnnStatus_t read_device(int64_t most, int64_t *count, void *values)
{
    static const char text[] = "{\"deviceName\":\"emulated\",\"deviceVer\":890}";
    *count = sizeof text;
    if (most)
        memcpy(values, text, (size_t)(most < *count ? most : *count));
    return SUCCESS;
}

API cudnnStatus_t cudnnBackendGetAttribute(dnn_descriptor *d, int name, int type, int64_t most,
                                           int64_t *count, void *values)
{
    int64_t ignored;
    const dnn_engine *engine[DNN_ENGINES];
    if (!d || (most && !values))
        return dnn_refuse(NULL_POINTER, "attribute %d is read into nothing", name);
    check_alive(d);
    const rule *r = find_rule(d->kind, name);
    count = count ? count : &ignored;
    if (!d->final)
        return dnn_refuse(NOT_FINALIZED, "attribute %d is read before finalization", name);
    if (!r || most < 0)
        return dnn_refuse(BAD_PARAM, "attribute %d of kind %d", name, d->kind);
    if (type != r->type && type != r->other)
        return dnn_refuse(ATTRIBUTE_TYPE, "attribute %d is read as type %d", name, type);
    if (name == 202)
        return read_configs(d, most, count, values);
    if (name == 1302)
        return read_knobs(d, most, count, values);
    if (name == 2702 && !dnn_find(d, name))
        return read_device(most, count, values);
    if (name == 1303) {
        *count = d->engine->notes;
        if (most)
            memcpy(values, d->engine->note,
                   (size_t)(most < *count ? most : *count) * sizeof d->engine->note[0]);
        return SUCCESS;
    }
    if (name == 402 || name == 802) {
        const int64_t value =
            name == 402 ? dnn_workspace(dnn_sub(d, 401, 0)) : dnn_engines(d, engine);
        return copy_out(&(dnn_attribute){name, TYPE_INT64, 1, (void *)&value}, r, most, count,
                        values);
    }
    return copy_out(dnn_find(d, name), r, most, count, values);
}
