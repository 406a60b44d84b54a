/* A libcudnn.so.9 for tests of the calls of cuDNN, not of results: it computes nothing. A plan is
 * work of the emulated driver's stream, which reads the inputs and fills the outputs with zeros. The
 * tensor descriptors have the extents. So the driver checks memory and order.
 *
 * The process stops if a descriptor is used before it is finalized, or changed afterwards. It also
 * stops if a tensor has two addresses, or no address without being virtual.
 *
 * Engines have no knobs, or with WEFT_CUDNN_BINDINGS_KNOBS any knob. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { ATTRIBUTES = 16, VALUES = 16, TENSORS = 16, WORKSPACE = 4096 };
enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { CONFIG = 3, HEURISTIC = 4, PLAN = 5, GRAPH = 15, PACK = 16, TENSOR = 17 };
enum { TYPE_DESCRIPTOR = 15 };

typedef struct attribute {
    int name, type;
    int64_t count;
    uint64_t value[VALUES];
} attribute;
typedef struct descriptor {
    int type;
    bool final;
    struct descriptor *from; /* graph of a configuration that a heuristic found */
    int attributes;
    attribute attribute[ATTRIBUTES];
} descriptor;
typedef struct handle {
    void *stream;
} handle;

typedef struct weft_emulated_range {
    const void *data;
    size_t bytes;
    int writes;
    char *inside;
} weft_emulated_range;
typedef struct execution {
    weft_emulated_range range[TENSORS];
    int64_t id[TENSORS];
    int ranges;
} execution;

static void stop(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void stop(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("bindings of cuDNN: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

/* ---- descriptors ----------------------------------------------------------------------------- */

API size_t cudnnGetVersion(void)
{
    return 92800;
}

API const char *cudnnGetErrorString(int status)
{
    return status ? "an error" : "no error";
}

API void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "none");
}

API int cudnnCreate(handle **h)
{
    *h = calloc(1, sizeof **h);
    return *h ? OK : BAD_PARAM;
}

API int cudnnDestroy(handle *h)
{
    free(h);
    return OK;
}

API int cudnnSetStream(handle *h, void *stream)
{
    h->stream = stream;
    return OK;
}

API int cudnnBackendCreateDescriptor(int type, descriptor **d)
{
    *d = calloc(1, sizeof **d);
    (*d)->type = type;
    return OK;
}

API int cudnnBackendDestroyDescriptor(descriptor *d)
{
    free(d);
    return OK;
}

static const char device[] = "{\"deviceVer\":890}";

static size_t bytes_of(int type)
{
    static const struct {
        int type;
        size_t bytes;
    } sizes[] = {{0, 8}, {1, 4}, {2, 1}, {3, 8},  {4, 4}, {6, 8},
                 {7, 4}, {8, 4}, {9, 4}, {14, 4}, {15, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].type == type)
            return sizes[i].bytes;
    stop("an attribute has type %d", type);
}

API int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count,
                                 const void *values)
{
    if (d->final)
        stop("attribute %d is set after its descriptor is finalized", name);
    if (d->attributes == ATTRIBUTES || count > VALUES || !values)
        return BAD_PARAM;
    attribute *a = &d->attribute[d->attributes++];
    *a = (attribute){.name = name, .type = type, .count = count};
    for (int64_t i = 0; i < count; i++) {
        memcpy(&a->value[i], (const char *)values + (size_t)i * bytes_of(type), bytes_of(type));
        const descriptor *used = (const descriptor *)(uintptr_t)a->value[i];
        if (type == TYPE_DESCRIPTOR && (!used || !used->final))
            stop("attribute %d is a descriptor that is not finalized", name);
    }
    return OK;
}

static const attribute *find(const descriptor *d, int name)
{
    for (int i = 0; d && i < d->attributes; i++)
        if (d->attribute[i].name == name)
            return &d->attribute[i];
    return NULL;
}

static descriptor *descriptor_of(const descriptor *d, int name)
{
    const attribute *a = find(d, name);
    return a ? (descriptor *)(uintptr_t)a->value[0] : NULL;
}

API int cudnnBackendFinalize(descriptor *d)
{
    if (d->final)
        stop("a descriptor of type %d is finalized twice", d->type);
    if (find(d, 302) && !getenv("WEFT_CUDNN_BINDINGS_KNOBS"))
        return NOT_SUPPORTED;
    d->final = true;
    return OK;
}

/* A heuristic has one configuration, and an engine has no notes. */
API int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t most, int64_t *count,
                                 void *values)
{
    (void)type, (void)most;
    descriptor **config = values;
    if (!d->final)
        stop("attribute %d is read before its descriptor is finalized", name);
    *count = name == 302 || name == 1303 ? 0 : 1; /* knobs, notes */
    if (name == 202) {
        config[0]->from = descriptor_of(d, 201);
        config[0]->final = true;
    } else if (name == 300) {
        config[0]->final = true;
    } else if (name == 2702) {
        *count = (int64_t)strlen(device);
        if (values)
            memcpy(values, device, strlen(device));
    } else if (name == 402) {
        *(int64_t *)values = WORKSPACE;
    } else if (name == 1301) {
        *(int64_t *)values = 7;
    }
    return OK;
}

/* ---- executions ------------------------------------------------------------------------------ */

static bool is_output(int name)
{
    return name == 705 || name == 710 || name == 715 || name == 753 || name == 2803 ||
           name == 2804 || (name >= 2859 && name <= 2861);
}

static size_t extent_of(const descriptor *t)
{
    const attribute *dim = find(t, 902), *stride = find(t, 903);
    const int type = (int)find(t, 901)->value[0];
    uint64_t last = 0;
    for (int64_t i = 0; i < dim->count; i++)
        last += (dim->value[i] - 1) * stride->value[i];
    return (size_t)(last + 1) * (type == 0 ? 4 : 2);
}

static const void *address_in(const descriptor *pack, uint64_t id)
{
    const attribute *ids = find(pack, 1000), *addresses = find(pack, 1001);
    const void *found = NULL;
    if (!ids || !addresses || ids->count != addresses->count)
        stop("a pack has not as many addresses as ids");
    for (int64_t i = 0; i < ids->count; i++) {
        if (ids->value[i] != id)
            continue;
        if (found)
            stop("tensor %llu has two addresses", (unsigned long long)id);
        found = (const void *)(uintptr_t)addresses->value[i];
    }
    return found;
}

/* Adds the tensors of an operation to the execution. */
static void add_tensors(execution *e, const descriptor *op, const descriptor *pack)
{
    for (int i = 0; i < op->attributes; i++) {
        const attribute *a = &op->attribute[i];
        const descriptor *t = (const descriptor *)(uintptr_t)a->value[0];
        if (a->type != TYPE_DESCRIPTOR || t->type != TENSOR)
            continue;
        const void *data = address_in(pack, find(t, 906)->value[0]);
        if (!data && !find(t, 907))
            stop("attribute %d has no address", a->name);
        if (data && (uintptr_t)data % find(t, 900)->value[0] && !find(t, 908))
            stop("attribute %d is at %p", a->name, data);
        if (data && !find(t, 908)) /* not a value of the host */
            e->range[e->ranges++] =
                (weft_emulated_range){data, extent_of(t), is_output(a->name), NULL};
    }
}

static void run(void *user)
{
    const execution *e = user;
    for (int i = 0; i < e->ranges; i++)
        if (e->range[i].writes)
            memset(e->range[i].inside, 0, e->range[i].bytes);
}

API int cudnnBackendExecute(handle *h, descriptor *plan, descriptor *pack)
{
    int (*add_work)(void *stream, weft_emulated_range *range, int count, void (*run)(void *user),
                    const void *user, size_t bytes);
    void *driver = dlopen(getenv("WEFT_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    execution e = {0};
    if (!driver || !h->stream || plan->type != PLAN || !plan->final || pack->type != PACK ||
        !pack->final)
        return BAD_PARAM;
    *(void **)&add_work = dlsym(driver, "weft_emulated_repeated_work");
    const descriptor *config = descriptor_of(plan, 401);
    const attribute *ops =
        find(config->from ? config->from : descriptor_of(descriptor_of(config, 300), 1300), 801);
    for (int64_t i = 0; i < ops->count; i++)
        add_tensors(&e, (const descriptor *)(uintptr_t)ops->value[i], pack);
    e.range[e.ranges++] = (weft_emulated_range){(const void *)(uintptr_t)find(pack, 1003)->value[0],
                                                WORKSPACE, 1, NULL};
    return add_work(h->stream, e.range, e.ranges, run, &e, sizeof e) ? BAD_PARAM : OK;
}
