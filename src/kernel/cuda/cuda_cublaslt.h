/* cuBLASLt, loaded at run time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_CUBLASLT_H
#define WEFT_KERNEL_CUDA_CUDA_CUBLASLT_H

#include "kernel/cuda/cuda_driver.h"

#include <stddef.h>

typedef struct cublaslt_context *cublaslt_handle;
typedef struct cublaslt_matmul_opaque *cublaslt_matmul;
typedef struct cublaslt_layout_opaque *cublaslt_layout;
typedef struct cublaslt_preference_opaque *cublaslt_preference;

enum { CUBLASLT_OK = 0 };
/* Types of elements, and of sums in f32: of operands as they are, or of f32 rounded to TF32. */
enum {
    CUBLASLT_F32 = 0,
    CUBLASLT_F16 = 2,
    CUBLASLT_BF16 = 14,
    CUBLASLT_SUMS_F32 = 68,
    CUBLASLT_SUMS_F32_OF_TF32 = 77
};
/* Attributes of a product. */
enum {
    CUBLASLT_MATMUL_TRANS_A = 3,
    CUBLASLT_MATMUL_TRANS_B = 4,
    CUBLASLT_MATMUL_EPILOGUE = 7,
    CUBLASLT_MATMUL_BIAS = 8,
};
enum { CUBLASLT_EPILOGUE_BIAS = 4 };
/* Attributes of a matrix. */
enum { CUBLASLT_LAYOUT_BATCH = 5, CUBLASLT_LAYOUT_BATCH_STRIDE = 6 };
/* Attributes of a search. */
enum {
    CUBLASLT_SEARCH_WORKSPACE = 1,
    CUBLASLT_SEARCH_REDUCTIONS = 3,
    CUBLASLT_SEARCH_ALIGNMENT_A = 5, /* B, C and D follow */
};
enum { CUBLASLT_REDUCE_F32 = 2 }; /* parts of a sum are added in f32, in one order */

typedef struct cublaslt_algorithm {
    uint64_t data[8];
} cublaslt_algorithm;

/* An algorithm that the library proposes. */
typedef struct cublaslt_found {
    cublaslt_algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} cublaslt_found;

typedef struct weft_cublaslt {
#define CUBLASLT_FUNCTION(member, symbol, parameters) int(*member) parameters;
#include "kernel/cuda/cuda_cublaslt.def"
#undef CUBLASLT_FUNCTION
    const char *(*error_text)(int status);
    int64_t version; /* 120903 is 12.9.3 */
} weft_cublaslt;

enum { WEFT_CUBLASLT_LEAST = 120000 };

/* Returns the library; NULL: it is missing, or earlier than WEFT_CUBLASLT_LEAST. The environment
 * variable WEFT_CUBLASLT=off switches cuBLASLt off. WEFT_CUBLASLT_LIBRARY replaces
 * "libcublasLt.so.13" and "libcublasLt.so.12", for tests. WEFT_CUDA_LIBRARY replaces the driver;
 * then no other library is used. */
const weft_cublaslt *weft_cublaslt_get(void);
/* Reports a failed call. Each error is WEFT_E_UNSUPPORTED, so that another implementation is used;
 * errors of the GPU also appear when the host waits. */
weft_status_code weft_cublaslt_error(const weft_cublaslt *library, int status, const char *what);

#endif
