/* The CUDA driver API, loaded at run time: weft starts and is built without it. */
#ifndef WEFT_KERNEL_CUDA_CUDA_DRIVER_H
#define WEFT_KERNEL_CUDA_CUDA_DRIVER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef int cuda_result; /* CUresult */
typedef int cuda_gpu;    /* CUdevice */
typedef unsigned long long cuda_address;
typedef struct cuda_context_handle *cuda_context;
typedef struct cuda_stream_handle *cuda_stream;
typedef struct cuda_event_handle *cuda_event;
typedef struct cuda_graph_handle *cuda_graph;
typedef struct cuda_graph_exec_handle *cuda_graph_exec;
typedef struct cuda_module_handle *cuda_module;
typedef struct cuda_function_handle *cuda_function;

enum {
    CUDA_OK = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_DEINITIALIZED = 4,
    CUDA_DEVICE_UNAVAILABLE = 46,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_IMAGE = 200,
    CUDA_NO_BINARY = 209,
    CUDA_ECC_UNCORRECTABLE = 214,
    CUDA_INVALID_PTX = 218,
    CUDA_NVLINK_UNCORRECTABLE = 220,
    CUDA_NO_JIT_COMPILER = 221,
    CUDA_UNSUPPORTED_PTX = 222,
    CUDA_JIT_DISABLED = 223,
    CUDA_NOT_READY = 600,
    CUDA_PEER_ENABLED = 704,
    CUDA_UNKNOWN = 999,
};
enum { CUDA_CONTEXT_SPIN = 1, CUDA_STREAM_NON_BLOCKING = 1, CUDA_HOST_PORTABLE = 1 };
enum {
    CUDA_WAIT_REACHED = 0
}; /* CU_STREAM_WAIT_VALUE_GEQ: the word minus the value is not negative */
enum { CUDA_CAPTURE_THREAD_LOCAL = 1 }; /* CUstreamCaptureMode */
/* CUdevice_attribute */
enum {
    CUDA_DEVICE_MAX_PITCH = 11,
    CUDA_DEVICE_PROCESSORS = 16,
    CUDA_DEVICE_MAJOR = 75,
    CUDA_DEVICE_MINOR = 76,
    CUDA_DEVICE_SHARED_OPTIN = 97,
};
/* CUfunction_attribute */
enum { CUDA_FUNCTION_STATIC_SHARED = 1, CUDA_FUNCTION_DYNAMIC_SHARED = 8 };
/* CUjit_option */
enum { CUDA_JIT_ERROR_LOG = 5, CUDA_JIT_ERROR_LOG_BYTES = 6 };

/* CUDA_MEMCPY2D */
enum { CUDA_MEMORY_DEVICE = 2 };
typedef struct cuda_copy_2d {
    size_t from_x, from_y;
    unsigned from_type; /* CUDA_MEMORY_DEVICE */
    const void *from_host;
    cuda_address from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void *to_host;
    cuda_address to;
    void *to_array;
    size_t to_pitch;
    size_t width, height; /* bytes, rows */
} cuda_copy_2d;

/* The driver's functions, and two of the emulated driver, which checks accesses between streams.
 * Real drivers do not have the two, and they are NULL then. */
typedef struct weft_cuda_driver {
#define CUDA_FUNCTION(member, symbol, parameters) cuda_result(*member) parameters;
#include "kernel/cuda/cuda_driver.def"
#undef CUDA_FUNCTION
    /* Names the node of the stream's next work; the text is copied. */
    void (*emulated_node)(cuda_stream stream, const char *text);
    /* The stream's launches until the next emulated_node() read or write the bytes. */
    void (*emulated_access)(cuda_stream stream, cuda_address data, size_t bytes, int writes);
} weft_cuda_driver;

/* Returns the driver of the process, loaded and initialised once. It stays loaded. The environment
 * variable WEFT_CUDA_LIBRARY replaces "libcuda.so.1", for tests. WEFT_E_UNSUPPORTED: the driver is
 * not installed, or rejects the start. */
weft_status weft_cuda_driver_load(const weft_cuda_driver **driver);
/* Records the error of a failed call, with its name and text: "CUDA_ERROR_... (2): ... in WHAT". */
weft_status_code weft_cuda_error(const weft_cuda_driver *driver, cuda_result result,
                                 const char *what);

#endif
