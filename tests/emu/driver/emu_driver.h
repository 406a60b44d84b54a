/* An emulated CUDA driver for tests: libcuda.so.1 with a thread for each stream, written from the
 * public documentation of the driver API. It runs the kernels of src/kernel/cuda that gcc compiled,
 * and stops the process with a message that names kernel and node where a GPU might give a wrong
 * result:
 *
 *   host accesses memory of a GPU                     kernel leaves the memory of its allocations
 *   host accesses pinned memory before it waited      copy of host memory that is not pinned
 *   two streams use memory without an event           memory is freed or unpinned while in use
 *   memory is used after it was freed                 parameter of another size than in the PTX
 *
 * Fresh memory is NaN. The delays of streams follow from WEFT_EMU_SEED. WEFT_EMU_DEVICES (default
 * 1) and WEFT_EMU_MEMORY (default 4 GiB) set the number of GPUs and the bytes of each, WEFT_EMU_NAME
 * their model; with WEFT_EMU_NO_PEERS they have no direct copies.
 * WEFT_EMU_FAULT plants a fault: memory@N fails the N-th allocation; lost@N, ecc@N, illegal@N and
 * hang@N are effects of the N-th launch; lost:FILE, ecc:FILE and hang:FILE of the first launch that
 * begins when FILE exists; lost@peer, ecc@peer and hang@peer of a copy to another GPU; fragment and
 * lse are wrong results of each product of bf16 and of each attention, remainder@N of products whose
 * last tile has N columns. WEFT_EMU_LEFT names a file that gets a line at the end of the process:
 * contexts, streams, allocations of GPUs and pinned allocations that the process has left. */
#ifndef WEFT_TESTS_EMU_DRIVER_EMU_DRIVER_H
#define WEFT_TESTS_EMU_DRIVER_EMU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_UNKNOWN = 999,
};
/* Least limits of the GPUs that kernels are compiled for (sm_80, sm_89, sm_90). */
enum {
    EMU_MAJOR = 8,
    EMU_MINOR = 9,
    EMU_BLOCK_THREADS = 1024,
    EMU_GRID_YZ = 65535,
    EMU_SHARED = 48 << 10,
    EMU_SHARED_OPTIN = 99 << 10,
    EMU_PARAMETER_BYTES = 4096,
    EMU_MAX_PITCH = 0x7fffffff,
    EMU_STREAMS = 256,
};

/* Prints "emulated driver: ..." and ends the process. */
void emu_stop(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
int64_t emu_setting(const char *name, int64_t usual); /* a number of the environment */

/* ---- memory (emu_memory.c) ----------------------------------------------------------------- */

typedef enum emu_kind { EMU_UNKNOWN, EMU_DEVICE, EMU_PINNED } emu_kind;
/* Returns the address that programs have; NULL: out of memory. */
void *emu_memory_alloc(int device, size_t bytes);
void *emu_memory_pin(size_t bytes);
/* False: not the address of an allocation. */
bool emu_memory_free(void *data, emu_kind kind);
size_t emu_memory_size(const void *data); /* of the allocation that begins there; 0: none */
int64_t emu_memory_left(int device);
int emu_memory_count(emu_kind kind); /* live allocations */
/* EMU_UNKNOWN: not all bytes are inside one live allocation. *inside: where their values are. */
emu_kind emu_memory_find(const void *data, size_t bytes, char **inside);
int emu_memory_device(const void *data); /* of the allocation that has the byte; -1: none */
/* True for any address of devices, allocated or not. */
bool emu_memory_is_device(const void *data);
/* True for addresses in memory of a device that was freed. */
bool emu_memory_is_freed(const void *data);
/* Protects the pages of pinned memory that the host has not waited for, and no others. */
void emu_memory_protect(void);
/* Names the work of this thread in reports of faults. The text is borrowed. */
void emu_memory_name(const char *text);

/* ---- order (emu_order.c) ------------------------------------------------------------------- */

typedef struct emu_clock {
    int64_t at[EMU_STREAMS];
} emu_clock;
typedef struct emu_access {
    const char *begin, *end;
    bool writes;
} emu_access;
const char *emu_intern(const char *text); /* the same text, never freed */
int emu_order_open(void);                 /* a position in clocks; -1: all are in use */
void emu_order_close(int stream);
/* The position of submitted work, and the state of the host then. */
typedef struct emu_ticket {
    int64_t time;
    struct emu_seen *seen;
} emu_ticket;
/* Adds work of `stream`, named `node`, with its accesses. */
emu_ticket emu_order_submit(int stream, const char *node, const emu_access *access, int count);
/* The work begins: it is the last of its stream's clock. A conflict with begun work of another
 * stream that the clock does not cover ends the process. runs: false after an error of the GPU, when
 * the work accesses nothing. */
void emu_order_begin(int stream, emu_clock *clock, const emu_ticket *ticket, bool runs);
void emu_clock_join(emu_clock *to, const emu_clock *from);
void emu_order_seen(const emu_clock *clock); /* the host has waited for it */
void emu_order_join_host(emu_clock *to);     /* joins what the host has waited for */
/* Ends the process if work that the host has not waited for may access the bytes. */
void emu_order_release(const void *data, size_t bytes);
/* Access of the host to the byte: 0 none, 1 read, 2 read and write. *node: the work that
 * still accesses it. */
int emu_order_host(const char *at, const char **node);
/* Calls each() for accesses of the bytes that the host has not waited for, reads first. */
void emu_order_pending(const char *begin, const char *end,
                       void (*each)(void *user, const emu_access *access), void *user);
bool emu_order_idle(int stream); /* the host has waited for all work of the stream */

/* ---- streams and events (emu_stream.c) ------------------------------------------------------ */

typedef struct emu_context {
    int device;
    CUresult error; /* of all later calls; 0: none */
} emu_context;
typedef struct emu_stream emu_stream;
typedef struct emu_event emu_event;
typedef struct emu_work emu_work;
struct emu_work {
    void (*run)(emu_work *work, emu_stream *stream);
    emu_work *next;
    const char *node;
    emu_ticket ticket;
    bool always; /* runs after an error, too */
};

emu_stream *emu_stream_open(emu_context *context);
void emu_stream_close(emu_stream *stream);
int emu_stream_count(void); /* open streams */
emu_context *emu_stream_context(const emu_stream *stream);
int emu_stream_number(const emu_stream *stream);
const char *emu_stream_node(const emu_stream *stream);
uint64_t emu_stream_random(emu_stream *stream); /* for the order of blocks and threads */
/* Hands over work that malloc() allocated. */
void emu_stream_submit(emu_stream *stream, emu_work *work, const emu_access *access, int count);
bool emu_stream_done(emu_stream *stream); /* true: the host has now waited for its work */
void emu_stream_fail(emu_stream *stream, CUresult error);
void emu_stream_hang(emu_stream *stream); /* returns when the process ends the stream */
/* Accesses of launches, from weft_emulated_access(). */
void emu_stream_declare(emu_stream *stream, const char *node);
void emu_stream_declare_access(emu_stream *stream, const emu_access *access);
int emu_stream_declared(const emu_stream *stream, const emu_access **access);

/* Graphs: works in their order, which a stream records instead of running them. */
typedef struct emu_graph emu_graph;
bool emu_graph_begin(emu_stream *stream);     /* false: the stream records already */
emu_graph *emu_graph_end(emu_stream *stream); /* NULL: the stream does not record */
bool emu_graph_records(const emu_stream *stream);
void emu_graph_launch(emu_graph *graph, emu_stream *stream);
emu_graph *emu_graph_take(emu_graph *graph); /* takes its works; NULL: out of memory */
void emu_graph_free(emu_graph *graph);

emu_event *emu_event_create(void);
void emu_event_destroy(emu_event *event);
void emu_event_record(emu_event *event, emu_stream *stream);
void emu_event_wait(emu_event *event, emu_stream *stream);
bool emu_event_done(emu_event *event);
bool emu_event_seconds(emu_event *event, double *seconds); /* false: not recorded or not reached */
/* Words of memory that streams wait for and write. `at`: where programs have the word; `inside`:
 * where streams find it. A wait ends when the word has reached `value`, counted in a circle. */
void emu_word_wait(emu_stream *stream, const void *at, uint32_t *inside, uint32_t value);
void emu_word_write(emu_stream *stream, const void *at, uint32_t *inside, uint32_t value);

/* ---- modules (emu_module.c) ----------------------------------------------------------------- */

typedef struct emu_kernel emu_kernel;
typedef struct emu_module emu_module;
typedef struct emu_function {
    char name[96];
    const emu_kernel *kernel;
    uint32_t parameter; /* bytes, of the PTX */
    uint32_t threads;   /* .maxntid; 0: none */
    uint32_t shared;    /* static */
    uint32_t dynamic;   /* most bytes of a launch */
    struct emu_function *next;
} emu_function;
CUresult emu_module_load(const char *image, char *log, size_t log_bytes, emu_module **module);
void emu_module_unload(emu_module *module);
emu_function *emu_module_find(emu_module *module, const char *name);
CUresult emu_function_launch(emu_function *f, const uint32_t grid[3], const uint32_t block[3],
                             uint32_t shared, emu_stream *stream, const void *parameter);

#endif
