/* Backends: a device (memory, streams) and one kernel per op. A kernel gets plain views, allocates
 * nothing and stores nothing. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include "graph/op.h"

/* ---- devices ------------------------------------------------------------------------------- */

/* Ordered work of a device. Kernels and copies may still run when their call returns; wait() and
 * await() return when they are done. Host work is done when the call returns. Calls that add work
 * return no status: the first error of a stream is kept, the work after it is skipped, and the next
 * wait() or await() returns the error once. */
typedef struct weft_device_stream weft_device_stream;

/* A position in the work of a stream. Zero at first; the device allocates `handle` when it records
 * the position, reuses it for later positions, and frees it in forget(). */
typedef struct weft_event {
    double seconds; /* time when the position is reached (weft_now()); known after await() */
    void *handle;
} weft_event;

/* A strided copy: `rows` rows of `row` bytes, with distances of `to` and `from` bytes. The copy
 * packs if only `to` is dense, and unpacks if only `from` is. */
typedef struct weft_rows {
    int64_t rows, row, to, from;
} weft_rows;

typedef struct weft_backend weft_backend;

/* Simulated time of a stream, in seconds. */
typedef struct weft_device_clock {
    double *now;   /* time of the rank that uses the stream */
    double *ready; /* time when the stream's work is done */
} weft_device_clock;

typedef struct weft_device weft_device;
struct weft_device {
    const char *name; /* "host", "virtual" */
    /* Memory without values: written values are lost, and nothing needs to be written. */
    bool meta;
    /* Returns 64-byte aligned memory with undefined content. NULL: out of memory. */
    void *(*alloc)(const weft_device *device, int64_t bytes);
    void (*free)(const weft_device *device, void *data); /* accepts NULL */
    /* Returns the bytes that alloc() can still return. NULL: the host's. */
    int64_t (*available)(const weft_device *device);
    /* Returns the bytes of the device, including used ones. NULL: the host's. */
    int64_t (*total)(const weft_device *device);
    /* Pinned host memory, which host_copy() reads and writes while the host does other work; like
     * alloc() and free(). NULL: any host memory (see kernel/device.h). */
    void *(*alloc_host)(const weft_device *device, int64_t bytes);
    void (*free_host)(const weft_device *device, void *data);
    /* `backend`: whose kernels the stream runs; NULL: none, only copies. Closing waits for the
     * work, and accepts NULL. */
    weft_status_code (*open)(const weft_device *device, const weft_backend *backend,
                             weft_device_stream **stream);
    void (*close)(weft_device_stream *stream);
    weft_status_code (*wait)(weft_device_stream *stream);
    weft_status_code (*record)(weft_device_stream *stream, weft_event *event);
    weft_status_code (*await)(weft_device_stream *stream, weft_event *event);
    /* Work added later begins after the recorded position, which may be another stream's. */
    void (*after)(weft_device_stream *stream, const weft_event *event);
    void (*forget)(const weft_device *device, weft_event *event); /* accepts a zero event */
    /* True if a recorded position was reached, or the device failed; await() then returns at once.
     * The device of pinned memory has it. */
    bool (*reached)(const weft_device *device, const weft_event *event);
    /* A gate is a word of pinned memory, 0 at first, whose number only rises. It lets a stream wait
     * for work of another stream that is not known yet. hold(): work added later begins when the
     * gate has reached `turn`; the call may wait for that, after it has issued all work of the
     * stream. lift(): the gate reaches `turn` after the work so far, also after an
     * error. force(): the host lets it reach `turn` now, after all work that it has waited for.
     * NULL: the device has none. */
    void (*hold)(weft_device_stream *stream, uint32_t *gate, uint32_t turn);
    void (*lift)(weft_device_stream *stream, uint32_t *gate, uint32_t turn);
    void (*force)(const weft_device *device, uint32_t *gate, uint32_t turn);
    /* Names the node whose work follows, for errors; the texts are borrowed until the work is done.
     * NULL: not needed, because errors return from the call. */
    void (*mark)(weft_device_stream *stream, int32_t node, const char *op, const char *scope);
    void (*copy)(weft_device_stream *stream, void *to, const void *from, weft_rows rows);
    void (*fill)(weft_device_stream *stream, void *to, int byte, int64_t bytes);
    /* Copies between the device's memory and pinned memory of the host. NULL for the host. */
    void (*host_copy)(weft_device_stream *stream, void *to, const void *from, int64_t bytes);
    /* Converts like weft_convert. */
    void (*convert)(weft_device_stream *stream, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count);
    /* Add and sum like weft_sum_two and weft_sum_terms (kernel/sums.h), along the same tree. The
     * lists of terms and slots are in host memory and must be valid until the call returns. */
    void (*add)(weft_device_stream *stream, weft_dtype dtype, void *out, const void *a,
                const void *b, int64_t count);
    void (*sum)(weft_device_stream *stream, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count);
    /* Switches the stream to a simulated clock and returns true. The work of the stream then begins
     * at *ready, whatever the time of its user is. False, or NULL: the stream uses weft_now(). */
    bool (*clock)(weft_device_stream *stream, weft_device_clock *clock);
    /* Messages that the device sends itself (kernel/device_links.h). NULL: it cannot. */
    const struct weft_device_links *links;
    /* Work that is recorded and launched with one call (kernel/device_graphs.h). NULL: it cannot.
     */
    const struct weft_device_graphs *graphs;
};

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct weft_view {
    void *data;
    weft_dtype dtype;
    weft_shape shape;
} weft_view;

typedef struct weft_kernel_args {
    weft_op op;
    const weft_view *in; /* absent inputs have data NULL and rank -1 */
    int in_count;
    weft_view *out; /* may alias an input where weft_op_over returns true */
    int out_count;
    const void *attr;
    weft_products products;     /* of the node's program: selects the verdicts of kernels */
    int threads;                /* threads of the kernel; the workspace is for this number */
    void *workspace;            /* 64-byte aligned, weft_kernel.workspace() bytes */
    void *cache;                /* cache of a program's node, created by prepare(); NULL: none */
    weft_device_stream *stream; /* stream that runs the kernel */
    weft_cost cost;             /* cost of the node for simulated devices; zero if not set */
} weft_kernel_args;

typedef struct weft_kernel {
    weft_status_code (*run)(const weft_kernel_args *args);
    /* Returns the scratch bytes for the shapes and threads of args, whose data pointers are NULL.
     * NULL: none. */
    int64_t (*workspace)(const weft_kernel_args *args);
    /* Called once per node when a program is created, for library primitives. NULL: none. */
    weft_status_code (*prepare)(const weft_kernel_args *args, void **cache);
    /* Returns the bytes that prepare() uses the first time for the shapes of args. NULL: none. */
    int64_t (*prepared)(const weft_kernel_args *args);
    void (*release)(void *cache);
} weft_kernel;

struct weft_backend {
    const char *name; /* "ref", "cpu", "virtual" */
    const weft_device *device;
    /* If set, floats of any type are stored as f64 (`wide`). Copies changed values of the store to
     * `wide`; keeps an f64 value whose rounding the store has. */
    void (*refresh)(double *wide, const void *stored, weft_dtype dtype, int64_t count);
    /* Returns an error if this machine or build cannot run the backend. NULL: every one can. */
    weft_status_code (*check)(void);
    const void *self; /* owned by the backend */
    /* Bytes over which a program spreads the workspaces of its nodes, because kernels with separate
     * workspaces can be launched together. 0 (default): all nodes use the same bytes */
    int64_t spread_workspace;
    /* Returns true if one kernel computes a chain of elementwise ops (pass pointwise) faster than
     * the kernels of the ops; reports once why it does not. NULL: false */
    bool (*joins_pointwise)(void);
    /* index: op. NULL: sources, views and layout conversions, which the runtime implements
     * (WEFT_OWN in op.def). */
    const weft_kernel *kernel[WEFT_OP_COUNT];
};

#endif
