/* An emulated cuBLASLt for tests: libcublasLt.so.12, written from NVIDIA's documentation and header
 * of the library. Products are work of the emulated driver's streams, which checks their order and
 * memory. Calls that the documentation forbids return the documented status, and
 * CUBLASLT_LOG_LEVEL=1 prints the reason. The process stops where the library may give a wrong
 * result without an error:
 *
 *   D overlaps A, B or the workspace      handle of another GPU than the stream's
 *   descriptor that was not created       C and D overlap, but are not the same matrix
 *
 * Supported are f32, f16 and bf16 with sums in f32, column and row order, strided batches, and the
 * epilogues. Sums go from the last term of the depth to the first, which is another order than
 * weft's. A workspace has arbitrary bytes afterwards.
 *
 * Two algorithms exist. The wide one needs 16 bytes of alignment and a workspace; the narrow one
 * needs neither.
 *
 * WEFT_EMU_FAULT plants a fault: cublaslt-result is a wrong first element of each product,
 * cublaslt-status fails each product, and cublaslt-heuristic finds no algorithm. */
#ifndef WEFT_TESTS_EMU_CUBLASLT_H
#define WEFT_TESTS_EMU_CUBLASLT_H

#include "emu_library.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int cublasStatus_t;
enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum {
    COMPUTE_32F = 68,
    COMPUTE_32F_PEDANTIC = 69,
    COMPUTE_32F_FAST_16F = 74,
    COMPUTE_32F_FAST_16BF = 75,
    COMPUTE_32F_FAST_TF32 = 77,
};
enum { ORDER_COL = 0, ORDER_ROW = 1 };
enum { OP_N = 0, OP_T = 1, OP_C = 2 };
enum { POINTER_HOST = 0, POINTER_DEVICE = 1 };
/* Bits of epilogues. An epilogue is one of the combinations of emu_matmul.c. */
enum {
    EPILOGUE_DEFAULT = 1,
    EPILOGUE_RELU = 2,
    EPILOGUE_BIAS = 4,
    EPILOGUE_DRELU = 8,
    EPILOGUE_BGRAD = 16,
    EPILOGUE_GELU = 32,
    EPILOGUE_DGELU = 64,
    EPILOGUE_AUX = 128,
    EPILOGUE_BGRADA = 256,
    EPILOGUE_BGRADB = 512,
};

/* ---- descriptors: sizes of the header, members of the stand-in ------------------------------- */

enum {
    LAYOUT_MAGIC = 0x4c59,
    MATMUL_MAGIC = 0x4d4d,
    PREFERENCE_MAGIC = 0x5052,
    ALGO_MAGIC = 0x414c
};

typedef struct lt_layout {
    int32_t magic;
    uint32_t type;
    int32_t order, batch;
    uint64_t rows, cols;
    int64_t ld, stride, plane;
    uint32_t mode, none;
} lt_layout;

typedef struct lt_matmul {
    int32_t magic, compute, scale, pointer_mode, op_a, op_b, op_c, fill;
    uint32_t epilogue;
    int32_t sm_count, aux_type, bias_type;
    void *bias;
    int64_t bias_stride;
    void *aux;
    int64_t aux_ld, aux_stride, alpha_stride;
    const void *scales[8]; /* A, B, C, D, largest |D|, aux, largest |aux|, D out; all NULL */
    int32_t modes[6];      /* of scales A, B, C, D, aux, D out; all 0 */
    int8_t fast_sums;
} lt_matmul;

typedef struct lt_preference {
    int32_t magic;
    uint32_t search;
    uint64_t workspace, implementations;
    uint32_t reductions, alignment[4]; /* of A, B, C, D in bytes */
    float waves;
} lt_preference;

typedef struct lt_algo {
    int32_t magic;
    uint32_t id;           /* 1 wide, 0 narrow */
    uint64_t signature;    /* of types, orders, transposes and epilogue */
    uint32_t vector_bytes; /* alignment of the epilogue's vectors */
    uint32_t none[11];
} lt_algo;
_Static_assert(sizeof(lt_layout) == 64, "cublasLtMatrixLayoutOpaque_t");
_Static_assert(sizeof(lt_matmul) <= 256, "cublasLtMatmulDescOpaque_t");
_Static_assert(sizeof(lt_preference) <= 64, "cublasLtMatmulPreferenceOpaque_t");
_Static_assert(sizeof(lt_algo) == 64, "cublasLtMatmulAlgo_t");

typedef struct lt_result {
    lt_algo algo;
    size_t workspace;
    cublasStatus_t state;
    float waves;
    int none[4];
} lt_result;

typedef struct lt_handle {
    int32_t magic;
    int device;
} lt_handle;

/* ---- parts of the library -------------------------------------------------------------------- */

/* Prints "emulated cuBLASLt: ..." and ends the process. */
void lt_stop(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Returns the status, and prints the reason with CUBLASLT_LOG_LEVEL=1. */
cublasStatus_t lt_refuse(cublasStatus_t status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
size_t lt_bytes(uint32_t type); /* of an element; 0: not supported */

/* One matrix of a product as the computation sees it: element (row, col) of batch b is at
 * data[b * batch + row * by_row + col * by_col]. */
typedef struct lt_matrix {
    char *data;
    uint32_t type;
    int64_t batch, by_row, by_col;
} lt_matrix;
enum {
    RANGE_A,
    RANGE_B,
    RANGE_D,
    RANGE_C,
    RANGE_BIAS,
    RANGE_AUX,
    RANGE_SPACE,
    RANGE_ALPHA,
    RANGE_BETA,
    RANGE_COUNT
};
typedef struct lt_product {
    weft_emulated_range range[RANGE_COUNT];
    int place[RANGE_COUNT]; /* position in `range`, by operand; -1: none */
    int ranges;
    lt_matrix a, b, c, d;
    int64_t m, n, k, batch;
    int32_t compute;
    uint32_t epilogue;
    float alpha, beta; /* of the host */
    bool reads_c;
    int64_t bias_stride, aux_ld, aux_stride;
} lt_product;
void lt_product_run(void *product); /* emu_product.c */

#endif
