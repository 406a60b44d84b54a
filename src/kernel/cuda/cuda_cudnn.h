/* cuDNN's backend interface, loaded at run time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_CUDNN_H
#define WEFT_KERNEL_CUDA_CUDA_CUDNN_H

#include "kernel/cuda/cuda_driver.h"

typedef struct cudnn_handle_opaque *cudnn_handle;
typedef void *cudnn_descriptor;

enum { CUDNN_OK = 0, CUDNN_NOT_SUPPORTED = 3000 };
/* Types of descriptors. */
enum {
    CUDNN_POINTWISE = 0,
    CUDNN_CONVOLUTION = 1,
    CUDNN_ENGINE = 2,
    CUDNN_ENGINE_CONFIG = 3,
    CUDNN_HEURISTIC = 4,
    CUDNN_PLAN = 5,
    CUDNN_KNOB_CHOICE = 7,
    CUDNN_OP_CONV = 10,
    CUDNN_OP_CONV_DW = 11,
    CUDNN_OP_CONV_DX = 12,
    CUDNN_OP_POINTWISE = 13,
    CUDNN_GRAPH = 15,
    CUDNN_PACK = 16,
    CUDNN_TENSOR = 17,
    CUDNN_MATMUL = 18,
    CUDNN_OP_MATMUL = 19,
    CUDNN_REDUCTION = 21,
    CUDNN_OP_REDUCTION = 22,
    CUDNN_OP_RESHAPE = 31,
    CUDNN_DEVICE = 38,
    CUDNN_OP_SDPA = 41,
    CUDNN_OP_SDPA_GRAD = 43,
};
/* Types of attributes. */
enum {
    CUDNN_TYPE_HANDLE = 0,
    CUDNN_TYPE_DATA_TYPE = 1,
    CUDNN_TYPE_BOOLEAN = 2,
    CUDNN_TYPE_INT64 = 3,
    CUDNN_TYPE_FLOAT = 4,
    CUDNN_TYPE_ADDRESS = 6,
    CUDNN_TYPE_CONVOLUTION_MODE = 7,
    CUDNN_TYPE_HEURISTIC_MODE = 8,
    CUDNN_TYPE_KNOB = 9,
    CUDNN_TYPE_NUMERICAL_NOTE = 11,
    CUDNN_TYPE_POINTWISE_MODE = 14,
    CUDNN_TYPE_DESCRIPTOR = 15,
    CUDNN_TYPE_REDUCTION_OPERATOR = 18,
    CUDNN_TYPE_CHAR = 24,
};
/* Attributes. */
enum {
    CUDNN_POINTWISE_MODE = 0,
    CUDNN_POINTWISE_TYPE = 1,
    CUDNN_CONV_TYPE = 100,
    CUDNN_CONV_MODE = 101,
    CUDNN_CONV_DILATIONS = 102,
    CUDNN_CONV_STRIDES = 103,
    CUDNN_CONV_AFTER = 104,
    CUDNN_CONV_BEFORE = 105,
    CUDNN_CONV_DIMS = 106,
    CUDNN_HEURISTIC_MODE = 200,
    CUDNN_HEURISTIC_GRAPH = 201,
    CUDNN_HEURISTIC_RESULTS = 202,
    CUDNN_HEURISTIC_DEVICE = 204,
    CUDNN_CONFIG_ENGINE = 300,
    CUDNN_CONFIG_KNOBS = 302,
    CUDNN_PLAN_HANDLE = 400,
    CUDNN_PLAN_CONFIG = 401,
    CUDNN_PLAN_WORKSPACE = 402,
    CUDNN_PLAN_DEVICE = 407,
    CUDNN_KNOB_TYPE = 600,
    CUDNN_KNOB_VALUE = 601,
    CUDNN_OP_CONV_ALPHA = 700, /* then beta, convolution, w, x, y */
    CUDNN_OP_CONV_DX_ALPHA = 706,
    CUDNN_OP_CONV_DW_ALPHA = 712,
    CUDNN_OP_POINTWISE_OF = 750, /* then x, b, y */
    CUDNN_GRAPH_HANDLE = 800,
    CUDNN_GRAPH_OPS = 801,
    CUDNN_TENSOR_ALIGNMENT = 900,
    CUDNN_TENSOR_TYPE = 901,
    CUDNN_TENSOR_DIMS = 902,
    CUDNN_TENSOR_STRIDES = 903,
    CUDNN_TENSOR_ID = 906,
    CUDNN_TENSOR_IS_VIRTUAL = 907,
    CUDNN_TENSOR_IS_BY_VALUE = 908,
    CUDNN_PACK_IDS = 1000,
    CUDNN_PACK_ADDRESSES = 1001,
    CUDNN_PACK_WORKSPACE = 1003,
    CUDNN_ENGINE_GRAPH = 1300,
    CUDNN_ENGINE_INDEX = 1301,
    CUDNN_ENGINE_NOTES = 1303,
    CUDNN_ENGINE_DEVICE = 1307,
    CUDNN_MATMUL_TYPE = 1500,
    CUDNN_OP_MATMUL_A = 1520, /* then b, c, matmul */
    CUDNN_REDUCTION_OPERATOR = 1600,
    CUDNN_REDUCTION_TYPE = 1601,
    CUDNN_OP_REDUCTION_X = 1610, /* then y, reduction */
    CUDNN_OP_RESHAPE_X = 2200,   /* then y */
    CUDNN_DEVICE_HANDLE = 2701,
    CUDNN_DEVICE_JSON = 2702,
    CUDNN_SDPA_Q = 2800,       /* then k, v, out, lse, scale */
    CUDNN_SDPA_GRAD_Q = 2851,  /* then k, v, out, lse, scale */
    CUDNN_SDPA_GRAD_DQ = 2859, /* then dk, dv, dout */
};
/* Values. */
enum { CUDNN_F32 = 0, CUDNN_F16 = 2, CUDNN_BF16 = 9 };
enum { CUDNN_CROSS_CORRELATION = 1, CUDNN_REDUCE_ADD = 0 };
enum { CUDNN_ADD = 0, CUDNN_MUL = 1, CUDNN_SUB = 9, CUDNN_EXP = 13 };
enum { CUDNN_HEURISTIC_A = 3, CUDNN_HEURISTIC_FALLBACK = 2 };
enum { CUDNN_NOTE_TENSOR_CORE = 0, CUDNN_NOTES = 16 };
/* The knob that selects, in engines of the gradient of attention, the order of sums: 0 any order,
 * 2 and 4 one order (2 with a workspace of queries times keys, 4 on compute capability 9.0). */
enum { CUDNN_KNOB_STAGES = 14, CUDNN_ORDERED_SCORES = 2, CUDNN_ORDERED_DQ = 4 };

typedef struct weft_cudnn {
#define CUDNN_FUNCTION(member, symbol, parameters) int(*member) parameters;
#include "kernel/cuda/cuda_cudnn.def"
#undef CUDNN_FUNCTION
    const char *(*error_text)(int status);
    void (*last_error)(char *text, size_t bytes); /* the reason of this thread's last error */
    int64_t version;                              /* 92800 is 9.28.0 */
} weft_cudnn;

enum { WEFT_CUDNN_LEAST = 91700 }; /* earlier versions lack the gradient of attention */

/* Returns the library; NULL: it is missing, or earlier than WEFT_CUDNN_LEAST. The environment
 * variable WEFT_CUDNN=off switches cuDNN off, and WEFT_CUDNN_LIBRARY replaces "libcudnn.so.9", for
 * tests; with WEFT_CUDA_LIBRARY, which replaces the driver, no other library is used. */
const weft_cudnn *weft_cudnn_get(void);
/* Reports a failed call as WEFT_E_UNSUPPORTED: another implementation is used. Errors of the GPU
 * appear when the host waits. */
weft_status_code weft_cudnn_error(const weft_cudnn *library, int status, const char *what);

#endif
