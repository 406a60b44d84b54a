/* The functions of libcuda.so.1, with the names and parameters of the public documentation. */
#include "emu_driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

typedef emu_context *CUcontext;
typedef emu_stream *CUstream;
typedef emu_event *CUevent;
typedef emu_module *CUmodule;
typedef emu_function *CUfunction;
typedef struct CUDA_MEMCPY2D {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

enum { MAX_DEVICES = 16 };
static emu_context context_of[MAX_DEVICES];
static bool initialized;
static _Thread_local CUcontext current;

#define NEEDS_CONTEXT                                                                              \
    if (!current)                                                                                  \
        return CUDA_ERROR_INVALID_CONTEXT;                                                         \
    if (current->error)                                                                            \
    return current->error
#define NEEDS_STREAM(stream)                                                                       \
    NEEDS_CONTEXT;                                                                                 \
    if (!(stream) || emu_stream_context(stream) != current)                                        \
    return CUDA_ERROR_INVALID_HANDLE

#define NEEDS_RUNNING(stream)                                                                      \
    NEEDS_STREAM(stream);                                                                          \
    if (emu_graph_records(stream))                                                                 \
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

/* ---- start, devices, errors ---------------------------------------------------------------- */

/* GPUs that CUDA_VISIBLE_DEVICES lists: numbers up to the first that does not exist. */
static int visible_devices(int list[MAX_DEVICES])
{
    const int all = (int)emu_setting("WEFT_EMU_DEVICES", 1);
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    for (; !text && count < all && count < MAX_DEVICES; count++)
        list[count] = count;
    while (text && *text && count < MAX_DEVICES) {
        char *end;
        const long device = strtol(text, &end, 10);
        if (end == text || device < 0 || device >= all)
            break;
        list[count++] = (int)device;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

API CUresult cuInit(unsigned flags)
{
    int list[MAX_DEVICES];
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    initialized = true;
    return visible_devices(list) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

API CUresult cuDriverGetVersion(int *version)
{
    *version = 12090;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count)
{
    int list[MAX_DEVICES];
    if (!initialized)
        return CUDA_ERROR_NOT_INITIALIZED;
    *count = visible_devices(list);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(int *device, int ordinal)
{
    int list[MAX_DEVICES];
    if (!initialized)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= visible_devices(list))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = list[ordinal];
    return CUDA_SUCCESS;
}

/* All GPUs are of one model, as usual in a machine: their ranks share verdicts. */
API CUresult cuDeviceGetName(char *name, int len, int device)
{
    const char *model = getenv("WEFT_EMU_NAME");
    (void)device;
    snprintf(name, (size_t)len, "%s", model ? model : "Emulated GPU");
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
    static const struct {
        int attribute, value;
    } values[] = {{1, EMU_BLOCK_THREADS}, {10, 32},        {11, EMU_MAX_PITCH},   {16, 4},
                  {75, EMU_MAJOR},        {76, EMU_MINOR}, {97, EMU_SHARED_OPTIN}};
    (void)device;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i].attribute == attribute) {
            *value = values[i].value;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* GPU 2 is in domain 0, bus 0x12, slot 0. */
API CUresult cuDeviceGetPCIBusId(char *bus, int len, int device)
{
    if (!bus || len < 13 || device < 0 || device >= MAX_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(bus, (size_t)len, "0000:%02x:00.0", 0x10 + device);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(char uuid[16], int device)
{
    memset(uuid, 0, 16);
    snprintf(uuid, 16, "GPU-%d", device);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)emu_setting("WEFT_EMU_MEMORY", (int64_t)4 << 30);
    return CUDA_SUCCESS;
}

static int contexts; /* retained and not released */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, int device)
{
    if (device < 0 || device >= MAX_DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    __atomic_add_fetch(&contexts, 1, __ATOMIC_RELAXED);
    *context = &context_of[device];
    context_of[device].device = device;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(int device)
{
    if (device < 0 || device >= MAX_DEVICES || !__atomic_load_n(&contexts, __ATOMIC_RELAXED))
        return CUDA_ERROR_INVALID_DEVICE;
    __atomic_sub_fetch(&contexts, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

__attribute__((destructor)) static void report_left(void)
{
    const char *name = getenv("WEFT_EMU_LEFT");
    FILE *file = name ? fopen(name, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%d contexts, %d streams, %d allocations, %d pinned\n", contexts,
            emu_stream_count(), emu_memory_count(EMU_DEVICE), emu_memory_count(EMU_PINNED));
    fclose(file);
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult find_error(CUresult result, const char **name, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].result == result) {
            *name = errors[i].name;
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    *name = *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult result, const char **name)
{
    const char *text;
    return find_error(result, name, &text);
}

API CUresult cuGetErrorString(CUresult result, const char **text)
{
    const char *name;
    return find_error(result, &name, text);
}

/* ---- memory ---------------------------------------------------------------------------------- */

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    NEEDS_CONTEXT;
    *available = (size_t)emu_memory_left(current->device);
    return cuDeviceTotalMem_v2(total, current->device);
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    static int allocations;
    const char *fault = getenv("WEFT_EMU_FAULT");
    NEEDS_CONTEXT;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const int n = __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    if (fault && !strncmp(fault, "memory@", 7) && n == atoi(fault + 7))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (uintptr_t)emu_memory_alloc(current->device, bytes);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(void *data, emu_kind kind)
{
    emu_order_release(data, emu_memory_size(data));
    return emu_memory_free(data, kind) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
    NEEDS_CONTEXT;
    return release((void *)(uintptr_t)address, EMU_DEVICE);
}

API CUresult cuMemHostAlloc(void **data, size_t bytes, unsigned flags)
{
    NEEDS_CONTEXT;
    if (!bytes || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    *data = emu_memory_pin(bytes);
    return *data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemFreeHost(void *data)
{
    NEEDS_CONTEXT;
    return release(data, EMU_PINNED);
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct copy {
    emu_work work;
    char *to;
    const char *from;
    size_t width, height, to_pitch, from_pitch;
    int byte; /* of a fill */
} copy;

static void run_copy(emu_work *work, emu_stream *s)
{
    (void)s;
    const copy *c = (const copy *)work;
    for (size_t i = 0; i < c->height; i++)
        memmove(c->to + i * c->to_pitch, c->from + i * c->from_pitch, c->width);
}

static void run_peer_copy(emu_work *work, emu_stream *s)
{
    const char *fault = getenv("WEFT_EMU_FAULT");
    if (fault && !strcmp(fault, "hang@peer"))
        emu_stream_hang(s);
    else if (fault && !strcmp(fault, "lost@peer"))
        emu_stream_fail(s, CUDA_ERROR_UNKNOWN);
    else if (fault && !strcmp(fault, "ecc@peer"))
        emu_stream_fail(s, CUDA_ERROR_ECC_UNCORRECTABLE);
    else
        run_copy(work, s);
}

static void run_fill(emu_work *work, emu_stream *s)
{
    (void)s;
    const copy *c = (const copy *)work;
    memset(c->to, c->byte, c->width);
}

/* The memory of an operand's values. Copies of host memory must be pinned: others would wait. */
static char *place(const emu_stream *s, CUdeviceptr address, size_t bytes, bool writes)
{
    void *data = (void *)(uintptr_t)address;
    char *inside;
    if (emu_memory_find(data, bytes, &inside) == EMU_UNKNOWN)
        emu_stop("work of %s %s %zu bytes at %p, which are %s", emu_stream_node(s),
                 writes ? "writes" : "reads", bytes, data,
                 emu_memory_is_device(data) ? "not allocated" : "host memory that is not pinned");
    return inside;
}

static emu_access access_of(CUdeviceptr address, size_t bytes, bool writes)
{
    const char *data = (const char *)(uintptr_t)address;
    return (emu_access){data, data + bytes, writes};
}

static void submit_copy(CUstream s, CUdeviceptr to, CUdeviceptr from, copy c)
{
    const size_t to_bytes = (c.height - 1) * c.to_pitch + c.width,
                 from_bytes = (c.height - 1) * c.from_pitch + c.width;
    const emu_access access[] = {access_of(from, from_bytes, false), access_of(to, to_bytes, true)};
    copy *own = malloc(sizeof *own);
    if (!own)
        emu_stop("out of memory");
    *own = c;
    own->work.run = c.work.run ? c.work.run : run_copy;
    own->to = place(s, to, to_bytes, true);
    own->from = place(s, from, from_bytes, false);
    emu_stream_submit(s, &own->work, access, 2);
}

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    NEEDS_STREAM(s);
    if (bytes)
        submit_copy(s, to, from, (copy){.width = bytes, .height = 1});
    return CUDA_SUCCESS;
}

/* GPUs have no access to memory of each other before cuCtxEnablePeerAccess; copies need none. */
API CUresult cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (device < 0 || device >= MAX_DEVICES || peer < 0 || peer >= MAX_DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && !getenv("WEFT_EMU_NO_PEERS");
    return CUDA_SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    static bool enabled[MAX_DEVICES][MAX_DEVICES];
    NEEDS_CONTEXT;
    if (flags || !peer || peer == current)
        return CUDA_ERROR_INVALID_VALUE;
    bool *own = &enabled[current->device][peer->device];
    const CUresult result = *own ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
    *own = true;
    return result;
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                               CUcontext from_context, size_t bytes, CUstream s)
{
    NEEDS_STREAM(s);
    if (!to_context || !from_context ||
        emu_memory_device((const void *)(uintptr_t)to) != to_context->device ||
        emu_memory_device((const void *)(uintptr_t)from) != from_context->device)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes)
        submit_copy(s, to, from, (copy){.work.run = run_peer_copy, .width = bytes, .height = 1});
    return CUDA_SUCCESS;
}

API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream s)
{
    NEEDS_STREAM(s);
    if (c->srcMemoryType != 2 || c->dstMemoryType != 2 || c->srcXInBytes || c->srcY ||
        c->dstXInBytes || c->dstY || c->srcPitch > EMU_MAX_PITCH || c->dstPitch > EMU_MAX_PITCH ||
        c->WidthInBytes > c->srcPitch || c->WidthInBytes > c->dstPitch)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->WidthInBytes && c->Height)
        submit_copy(s, c->dstDevice, c->srcDevice,
                    (copy){.width = c->WidthInBytes,
                           .height = c->Height,
                           .to_pitch = c->dstPitch,
                           .from_pitch = c->srcPitch});
    return CUDA_SUCCESS;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream s)
{
    NEEDS_STREAM(s);
    if (!bytes)
        return CUDA_SUCCESS;
    const emu_access access = access_of(to, bytes, true);
    copy *c = calloc(1, sizeof *c);
    if (!c)
        emu_stop("out of memory");
    *c = (copy){.work.run = run_fill, .width = bytes, .byte = byte};
    c->to = place(s, to, bytes, true);
    emu_stream_submit(s, &c->work, &access, 1);
    return CUDA_SUCCESS;
}

/* ---- streams and events ---------------------------------------------------------------------- */

API CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    NEEDS_CONTEXT;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = emu_stream_open(current);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuStreamDestroy_v2(CUstream s)
{
    if (!s || emu_stream_context(s) != current)
        return CUDA_ERROR_INVALID_HANDLE;
    emu_stream_close(s);
    return CUDA_SUCCESS;
}

API CUresult cuStreamQuery(CUstream s)
{
    if (!s || emu_stream_context(s) != current)
        return CUDA_ERROR_INVALID_HANDLE;
    if (emu_graph_records(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const bool done = emu_stream_done(s);
    NEEDS_CONTEXT;
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned flags)
{
    NEEDS_RUNNING(s);
    if (!event || flags)
        return CUDA_ERROR_INVALID_VALUE;
    emu_event_wait(event, s);
    return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    NEEDS_CONTEXT;
    (void)flags;
    *event = emu_event_create();
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    emu_event_destroy(event);
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream s)
{
    NEEDS_RUNNING(s);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    emu_event_record(event, s);
    return CUDA_SUCCESS;
}

API CUresult cuEventQuery(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    const bool done = emu_event_done(event);
    NEEDS_CONTEXT;
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end)
{
    double from, to;
    NEEDS_CONTEXT;
    if (!begin || !end)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!emu_event_seconds(begin, &from) || !emu_event_seconds(end, &to))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((to - from) * 1e3);
    return CUDA_SUCCESS;
}

/* A word is 4 bytes of pinned memory or of a GPU, at a multiple of 4. */
static uint32_t *word_of(CUdeviceptr address)
{
    char *inside;
    return address % 4 == 0 &&
                   emu_memory_find((void *)(uintptr_t)address, 4, &inside) != EMU_UNKNOWN
               ? (uint32_t *)(void *)inside
               : NULL;
}

API CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr address, uint32_t value, unsigned flags)
{
    NEEDS_RUNNING(s);
    uint32_t *word = word_of(address);
    if (!word || flags)
        return CUDA_ERROR_INVALID_VALUE;
    emu_word_wait(s, (void *)(uintptr_t)address, word, value);
    return CUDA_SUCCESS;
}

API CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr address, uint32_t value,
                                     unsigned flags)
{
    NEEDS_RUNNING(s);
    uint32_t *word = word_of(address);
    if (!word || flags)
        return CUDA_ERROR_INVALID_VALUE;
    emu_word_write(s, (void *)(uintptr_t)address, word, value);
    return CUDA_SUCCESS;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int launches, graph_launches; /* calls of the process */

API CUresult cuStreamBeginCapture_v2(CUstream s, int mode)
{
    NEEDS_STREAM(s);
    if (mode < 0 || mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    return emu_graph_begin(s) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

API CUresult cuStreamEndCapture(CUstream s, emu_graph **graph)
{
    NEEDS_STREAM(s);
    *graph = emu_graph_end(s);
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The executable graph takes the works of the graph, which has none then. */
API CUresult cuGraphInstantiateWithFlags(emu_graph **exec, emu_graph *graph,
                                         unsigned long long flags)
{
    NEEDS_CONTEXT;
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *exec = emu_graph_take(graph);
    return *exec ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGraphDestroy(emu_graph *graph)
{
    emu_graph_free(graph);
    return CUDA_SUCCESS;
}

API CUresult cuGraphLaunch(emu_graph *exec, CUstream s)
{
    NEEDS_RUNNING(s);
    __atomic_add_fetch(&graph_launches, 1, __ATOMIC_RELAXED);
    emu_graph_launch(exec, s);
    return CUDA_SUCCESS;
}

API CUresult cuGraphExecDestroy(emu_graph *exec)
{
    emu_graph_free(exec);
    return CUDA_SUCCESS;
}

/* The calls that launched kernels, and graphs, for tests. */
API void weft_emulated_launches(int *kernels, int *graphs)
{
    *kernels = __atomic_load_n(&launches, __ATOMIC_RELAXED);
    *graphs = __atomic_load_n(&graph_launches, __ATOMIC_RELAXED);
}

/* ---- modules and launches -------------------------------------------------------------------- */

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *option,
                                void **value)
{
    char *log = (char[8]){""};
    size_t bytes = 8;
    NEEDS_CONTEXT;
    for (unsigned i = 0; i < count; i++) {
        if (option[i] == 5)
            log = value[i];
        else if (option[i] == 6)
            bytes = (size_t)(uintptr_t)value[i];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return emu_module_load(image, log, bytes, module);
}

API CUresult cuModuleUnload(CUmodule module)
{
    emu_module_unload(module);
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    NEEDS_CONTEXT;
    *function = emu_module_find(module, name);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value)
{
    NEEDS_CONTEXT;
    if (attribute != 8 || value < 0 || (uint32_t)value + f->shared > EMU_SHARED_OPTIN)
        return CUDA_ERROR_INVALID_VALUE;
    f->dynamic = (uint32_t)value;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction f)
{
    NEEDS_CONTEXT;
    if (attribute != 1 && attribute != 8)
        return CUDA_ERROR_INVALID_VALUE;
    *value = (int)(attribute == 1 ? f->shared : f->dynamic);
    return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            CUstream s, void **parameters, void **extra)
{
    NEEDS_STREAM(s);
    if (!f || !parameters || extra)
        return CUDA_ERROR_INVALID_VALUE;
    __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
    return emu_function_launch(f, (uint32_t[]){grid_x, grid_y, grid_z},
                               (uint32_t[]){block_x, block_y, block_z}, shared, s, parameters[0]);
}

/* ---- work of other emulated libraries -------------------------------------------------------- */

typedef struct foreign_work {
    emu_work work;
    void (*run)(void *user);
    void *user;
} foreign_work;
enum { FOREIGN_HEAD = (sizeof(foreign_work) + 15) / 16 * 16 };

static void run_foreign(emu_work *work, emu_stream *s)
{
    (void)s;
    const foreign_work *w = (const foreign_work *)work;
    w->run(w->user);
}

/* The data follow the work, also in the copies that graphs make. */
static void run_copied(emu_work *work, emu_stream *s)
{
    (void)s;
    const foreign_work *w = (const foreign_work *)work;
    w->run((char *)work + FOREIGN_HEAD);
}

/* One range of memory that the work reads or writes; *inside: where the work finds it. */
typedef struct weft_emulated_range {
    const void *data;
    size_t bytes;
    int writes;
    char *inside;
} weft_emulated_range;

/* Adds work of a library, named `what`, which accesses the ranges. */
API CUresult weft_emulated_work(CUstream s, const char *what, weft_emulated_range *range, int count,
                                void (*run)(void *user), void *user)
{
    NEEDS_RUNNING(s);
    foreign_work *w = malloc(sizeof *w);
    emu_access *access = calloc((size_t)count + 1, sizeof *access);
    if (!w || !access)
        emu_stop("out of memory");
    emu_stream_declare(s, what);
    for (int i = 0; i < count; i++) {
        access[i] = access_of((uintptr_t)range[i].data, range[i].bytes, range[i].writes != 0);
        range[i].inside = place(s, (uintptr_t)range[i].data, range[i].bytes, range[i].writes != 0);
    }
    *w = (foreign_work){.work.run = run_foreign, .run = run, .user = user};
    emu_stream_submit(s, &w->work, access, count);
    free(access);
    return CUDA_SUCCESS;
}

/* As above for work that graphs may record: `bytes` bytes at `user`, which hold the ranges, are
 * copied, and run() gets the copy. Reports name the stream's node. */
API CUresult weft_emulated_repeated_work(CUstream s, weft_emulated_range *range, int count,
                                         void (*run)(void *user), const void *user, size_t bytes)
{
    NEEDS_STREAM(s);
    foreign_work *w = calloc(1, FOREIGN_HEAD + bytes);
    emu_access *access = calloc((size_t)count + 1, sizeof *access);
    if (!w || !access)
        emu_stop("out of memory");
    for (int i = 0; i < count; i++) {
        access[i] = access_of((uintptr_t)range[i].data, range[i].bytes, range[i].writes != 0);
        range[i].inside = place(s, (uintptr_t)range[i].data, range[i].bytes, range[i].writes != 0);
    }
    *w = (foreign_work){.work.run = run_copied, .run = run};
    memcpy((char *)w + FOREIGN_HEAD, user, bytes);
    emu_stream_submit(s, &w->work, access, count);
    free(access);
    return CUDA_SUCCESS;
}

/* The number of the GPU that the thread uses; -1: none. */
API int weft_emulated_device(void)
{
    return current ? current->device : -1;
}

/* ---- accesses of launches, which only this driver has ---------------------------------------- */

API void weft_emulated_node(CUstream s, const char *text)
{
    emu_stream_declare(s, text);
}

API void weft_emulated_access(CUstream s, CUdeviceptr data, size_t bytes, int writes)
{
    const emu_access access = access_of(data, bytes, writes != 0);
    if (!bytes)
        return;
    (void)place(s, data, bytes, writes != 0);
    emu_stream_declare_access(s, &access);
}
