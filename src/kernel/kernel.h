/* Backends: what each op computes, and where and when. A backend is a device (memory, streams) and
 * a kernel per op. A kernel gets plain views; it allocates nothing and keeps nothing. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include "graph/op.h"

/* ---- devices ------------------------------------------------------------------------------- */

/* What a device does, in order. Kernels and copies may be under way when their call returns; wait()
 * and await() say when they are done. The host's work is done when the call returns. */
typedef struct weft_device_stream weft_device_stream;

/* A moment in a stream's work. */
typedef struct weft_event {
    double seconds; /* when it is reached, on weft_now()'s clock; known after await() */
    void *handle;   /* the device's own */
} weft_event;

/* A strided copy: `rows` rows of `row` bytes, `to` and `from` bytes apart on the two sides. One
 * side dense is packing or unpacking. */
typedef struct weft_rows {
    int64_t rows, row, to, from;
} weft_rows;

typedef struct weft_backend weft_backend;

/* Seconds of a model that nobody waits for. */
typedef struct weft_device_clock {
    double *now;   /* of who gives the stream work and waits for it */
    double *ready; /* when the stream's work is done */
} weft_device_clock;

typedef struct weft_device {
    const char *name; /* "host", "virtual" */
    /* Sizes only: nothing that is written is there afterwards, and nothing need be. */
    bool hollow;
    /* 64-byte aligned, content undefined; NULL: no memory. */
    void *(*alloc)(int64_t bytes);
    void (*free)(void *data); /* accepts NULL */
    weft_status_code (*open)(const weft_backend *backend, weft_device_stream **stream);
    void (*close)(weft_device_stream *stream); /* accepts NULL */
    weft_status_code (*wait)(weft_device_stream *stream);
    weft_status_code (*record)(weft_device_stream *stream, weft_event *event);
    weft_status_code (*await)(weft_device_stream *stream, weft_event *event);
    void (*copy)(weft_device_stream *stream, void *to, const void *from, weft_rows rows);
    void (*fill)(weft_device_stream *stream, void *to, int byte, int64_t bytes);
    /* Between its memory and the host's; NULL of the host, which has only one. */
    void (*carry)(weft_device_stream *stream, void *to, const void *from, int64_t bytes);
    /* As weft_convert. */
    void (*convert)(weft_device_stream *stream, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count);
    /* As weft_sum_two and weft_sum_terms (kernel/sums.h), along the same tree. The lists of terms
     * and slots are the host's, and need last until the call returns. */
    void (*add)(weft_device_stream *stream, weft_dtype dtype, void *out, const void *a,
                const void *b, int64_t count);
    void (*sum)(weft_device_stream *stream, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count);
    /* False, or NULL: the stream's time is weft_now()'s. Else its clock, and from now on its work
     * begins where *ready says, whatever its user's time is: for who has a time of its own. */
    bool (*clock)(weft_device_stream *stream, weft_device_clock *clock);
} weft_device;

/* The memory of this process; kernels run on the thread that calls them. */
extern const weft_device weft_device_host;

/* Threads that host kernels called from this thread use; setting gives back what it was. */
int weft_host_threads(void);
int weft_host_set_threads(int threads);

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
    weft_view *out; /* may alias an input where weft_op_over says so */
    int out_count;
    const void *attr;
    int threads;                /* the workspace is for so many, and so many run */
    void *workspace;            /* 64-byte aligned, weft_kernel.workspace() bytes */
    void *cache;                /* per node of a program, made by prepare(); NULL if none */
    weft_device_stream *stream; /* where it runs */
    weft_cost cost;             /* of the node, for devices that only count; zero if nobody asked */
} weft_kernel_args;

typedef struct weft_kernel {
    weft_status_code (*run)(const weft_kernel_args *args);
    /* Scratch bytes for these shapes and threads; NULL: none. data pointers are NULL here. */
    int64_t (*workspace)(const weft_kernel_args *args);
    /* Once per node when a program is made (library primitives and such); NULL: none. */
    weft_status_code (*prepare)(const weft_kernel_args *args, void **cache);
    void (*release)(void *cache);
} weft_kernel;

struct weft_backend {
    const char *name; /* "ref", "cpu", "virtual" */
    const weft_device *device;
    /* Not NULL: floats of any type are kept as f64 (`wide`). Takes over what the store holds, but
     * keeps the f64 values of which it holds the rounding. */
    void (*refresh)(double *wide, const void *stored, weft_dtype dtype, int64_t count);
    const void *self; /* the backend's own */
    /* By op; NULL: sources, views and layout conversions, which the runtime does itself
     * (WEFT_OWN in op.def). */
    const weft_kernel *kernel[WEFT_OP_COUNT];
};

/* ref computes in f64 on f64 storage (every f32 value of a graph is f64 there), one loop nest per
 * op. */
extern const weft_backend weft_backend_ref;
extern const weft_backend weft_backend_cpu;
/* NULL: none of that name. */
const weft_backend *weft_backend_find(const char *name);
/* "cpu, ref, virtual": for messages. */
const char *weft_backend_names(void);
/* Another one to be found (borrowed for the rest of the process): what a plugin brings. WEFT_E_ARG:
 * there is one of that name, or a kernel that a legal op needs is missing. */
weft_status weft_backend_add(const weft_backend *backend);

#endif
