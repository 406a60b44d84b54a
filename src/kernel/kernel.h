/* Backends: a device (memory, streams) and one kernel per op. A kernel gets plain views, allocates
 * nothing and stores nothing. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include "graph/op.h"

/* ---- devices ------------------------------------------------------------------------------- */

/* Ordered work of a device. Kernels and copies may still run when their call returns; wait() and
 * await() return when they are done. Host work is done when the call returns. */
typedef struct weft_device_stream weft_device_stream;

/* A position in the work of a stream. */
typedef struct weft_event {
    double seconds; /* time when the position is reached (weft_now()); known after await() */
    void *handle;   /* owned by the device */
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

typedef struct weft_device {
    const char *name; /* "host", "virtual" */
    /* Memory without values: written values are lost, and nothing needs to be written. */
    bool meta;
    /* Returns 64-byte aligned memory with undefined content. NULL: out of memory. */
    void *(*alloc)(int64_t bytes);
    void (*free)(void *data); /* accepts NULL */
    weft_status_code (*open)(const weft_backend *backend, weft_device_stream **stream);
    void (*close)(weft_device_stream *stream); /* accepts NULL */
    weft_status_code (*wait)(weft_device_stream *stream);
    weft_status_code (*record)(weft_device_stream *stream, weft_event *event);
    weft_status_code (*await)(weft_device_stream *stream, weft_event *event);
    void (*copy)(weft_device_stream *stream, void *to, const void *from, weft_rows rows);
    void (*fill)(weft_device_stream *stream, void *to, int byte, int64_t bytes);
    /* Copies between the device's memory and the host's. NULL for the host. */
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
} weft_device;

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
    const void *self; /* owned by the backend */
    /* index: op. NULL: sources, views and layout conversions, which the runtime implements
     * (WEFT_OWN in op.def). */
    const weft_kernel *kernel[WEFT_OP_COUNT];
};

#endif
