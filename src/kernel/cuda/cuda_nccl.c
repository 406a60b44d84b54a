#include "kernel/cuda/cuda_nccl.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct nccl_functions {
#define NCCL_FUNCTION(member, symbol, parameters) nccl_result(*member) parameters;
#include "kernel/cuda/cuda_nccl.def"
#undef NCCL_FUNCTION
    const char *(*error_text)(nccl_result result);
} nccl_functions;

static struct {
    pthread_once_t once;
    nccl_functions functions;
    int version; /* 0: not usable */
} nccl = {.once = PTHREAD_ONCE_INIT};

/* The library allows aborts while another thread waits inside a call, so calls have no lock. */
struct weft_device_link {
    _Atomic(nccl_comm) comm; /* NULL: aborted */
};

/* ---- the library ----------------------------------------------------------------------------- */

static bool find_functions(void *library)
{
    nccl_functions *f = &nccl.functions;
    const weft_library_function list[] = {
#define NCCL_FUNCTION(member, symbol, parameters) {#symbol, (void **)&f->member},
#include "kernel/cuda/cuda_nccl.def"
#undef NCCL_FUNCTION
        {"ncclGetErrorString", (void **)&f->error_text},
    };
    return !weft_library_find(library, list, sizeof list / sizeof list[0]);
}

static void load(void)
{
    const char *mode = getenv("WEFT_NCCL"), *own = getenv("WEFT_NCCL_LIBRARY");
    int version = 0;
    if (mode && !strcmp(mode, "off"))
        return;
    void *library = dlopen(own && own[0] ? own : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library && find_functions(library) && nccl.functions.get_version(&version) == NCCL_OK)
        nccl.version = version;
}

static weft_status failed(nccl_result result, const char *what)
{
    const char *text = nccl.functions.error_text(result);
    return weft_error(WEFT_MSG_COMM_FAILED, WEFT_AT(.value = "NCCL", WEFT_NUMBER(result)),
                      "%s: NCCL returns %d, %s. NCCL_DEBUG=WARN prints the reason.", what, result,
                      text ? text : "an error without a text");
}

static void describe(const weft_device *device, weft_link_endpoint *endpoint)
{
    const weft_cuda_gpu *gpu;
    (void)device;
    memset(endpoint, 0, sizeof *endpoint);
    pthread_once(&nccl.once, load);
    if (weft_cuda_gpu_get(&gpu) == WEFT_OK &&
        gpu->driver->device_uuid(endpoint->device, gpu->gpu) == CUDA_OK)
        endpoint->version = nccl.version;
}

/* ---- connections ----------------------------------------------------------------------------- */

static weft_status_code create_id(weft_link_id *id)
{
    nccl_unique_id made;
    const nccl_result result = nccl.functions.get_unique_id(&made);
    memcpy(id->bytes, made.internal, sizeof id->bytes);
    return result == NCCL_OK ? WEFT_OK : failed(result, "the id of a group of GPUs");
}

static weft_status_code open_link(const weft_link_id *id, int ranks, int own,
                                  weft_device_link **out)
{
    weft_device_link *link;
    const weft_cuda_gpu *gpu;
    nccl_unique_id made;
    memcpy(made.internal, id->bytes, sizeof id->bytes);
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    WEFT_TRY(WEFT_NEW(link, 1, "connections of GPUs"));
    nccl_comm comm;
    const nccl_result result = nccl.functions.comm_init_rank(&comm, ranks, made, own);
    if (result != NCCL_OK) {
        weft_free(link);
        return failed(result, "the connections of a group of GPUs");
    }
    atomic_init(&link->comm, comm);
    *out = link;
    return WEFT_OK;
}

static void close_link(weft_device_link *link)
{
    const weft_cuda_gpu *gpu;
    const nccl_comm comm = link ? atomic_exchange(&link->comm, NULL) : NULL;
    if (comm && weft_cuda_gpu_get(&gpu) == WEFT_OK)
        nccl.functions.comm_destroy(comm);
    weft_free(link);
}

static void abort_link(weft_device_link *link)
{
    const weft_cuda_gpu *gpu;
    const nccl_comm comm = atomic_exchange(&link->comm, NULL);
    if (comm && weft_cuda_gpu_get(&gpu) == WEFT_OK)
        nccl.functions.comm_abort(comm);
}

static weft_status_code check_link(weft_device_link *link)
{
    nccl_result error = NCCL_OK;
    const nccl_comm comm = atomic_load(&link->comm);
    const nccl_result result = comm ? nccl.functions.comm_error(comm, &error) : NCCL_OK;
    if (result != NCCL_OK || (error != NCCL_OK && error != NCCL_IN_PROGRESS))
        return failed(result != NCCL_OK ? result : error, "messages between GPUs");
    return WEFT_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Completes work that the library added; the stream keeps an error for its next wait. */
static void added(weft_device_stream *stream, nccl_result result)
{
    if (result != NCCL_OK)
        weft_cuda_stream_fail(stream, failed(result, "a message between GPUs"));
}

static weft_status aborted(void)
{
    return weft_error(
        WEFT_MSG_COMM_FAILED, WEFT_NOWHERE,
        "the connections of this GPU have ended. The first message names the reason.");
}

static nccl_result add_message(const weft_link_message *m, nccl_comm comm, cuda_stream stream)
{
    const nccl_functions *f = &nccl.functions;
    const size_t bytes = (size_t)m->bytes;
    return m->receiving ? f->recv(m->data, bytes, NCCL_UINT8, m->peer, comm, stream)
                        : f->send(m->data, bytes, NCCL_UINT8, m->peer, comm, stream);
}

static void exchange(weft_device_stream *stream, weft_device_link *link,
                     const weft_link_message *message, int count)
{
    const nccl_comm comm = atomic_load(&link->comm);
    if (!weft_cuda_stream_begin(stream, "messages between GPUs"))
        return;
    if (!comm) {
        weft_cuda_stream_fail(stream, aborted());
        return;
    }
    weft_cuda_stream_exchange_begin(stream);
    nccl_result result = nccl.functions.group_start();
    for (int i = 0; i < count && result == NCCL_OK; i++)
        result = add_message(&message[i], comm, weft_cuda_stream_handle(stream));
    const nccl_result end = nccl.functions.group_end();
    added(stream, result == NCCL_OK ? end : result);
    weft_cuda_stream_exchange_end(stream);
}

static bool find_type(weft_dtype dtype, nccl_type *type)
{
    switch (dtype) {
    case WEFT_F32: *type = NCCL_FLOAT32; return true;
    case WEFT_F64: *type = NCCL_FLOAT64; return true;
    case WEFT_BF16: *type = NCCL_BFLOAT16; return true;
    case WEFT_F16: *type = NCCL_FLOAT16; return true;
    case WEFT_I32: *type = NCCL_INT32; return true;
    case WEFT_I64: *type = NCCL_INT64; return true;
    case WEFT_U8: *type = NCCL_UINT8; return true;
    default: return false;
    }
}

static nccl_result call(const weft_link_collective *c, nccl_type type, nccl_comm comm,
                        cuda_stream stream)
{
    const nccl_functions *f = &nccl.functions;
    const size_t count = (size_t)c->count;
    switch (c->op) {
    case WEFT_OP_ALL_REDUCE:
        return f->all_reduce(c->in, c->out, count, type, NCCL_SUM, comm, stream);
    case WEFT_OP_ALL_GATHER: return f->all_gather(c->in, c->out, count, type, comm, stream);
    default: return f->reduce_scatter(c->in, c->out, count, type, NCCL_SUM, comm, stream);
    }
}

static bool collective(weft_device_stream *stream, weft_device_link *link,
                       const weft_link_collective *c)
{
    nccl_type type;
    if (!find_type(c->dtype, &type))
        return false;
    if (!weft_cuda_stream_begin(stream, "a collective of GPUs"))
        return true;
    const nccl_comm comm = atomic_load(&link->comm);
    if (!comm) {
        weft_cuda_stream_fail(stream, aborted());
        return true;
    }
    weft_cuda_stream_exchange_begin(stream);
    added(stream, call(c, type, comm, weft_cuda_stream_handle(stream)));
    weft_cuda_stream_exchange_end(stream);
    return true;
}

const weft_device_links weft_cuda_nccl = {
    .name = "NCCL",
    .describe = describe,
    .create_id = create_id,
    .open = open_link,
    .close = close_link,
    .abort = abort_link,
    .check = check_link,
    .exchange = exchange,
    .collective = collective,
};
