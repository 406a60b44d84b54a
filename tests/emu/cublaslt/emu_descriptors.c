/* Handles, descriptors and their attributes. */
#include "emu_cublaslt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lt_stop(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("emulated cuBLASLt: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

cublasStatus_t lt_refuse(cublasStatus_t status, const char *fmt, ...)
{
    const char *level = getenv("CUBLASLT_LOG_LEVEL");
    if (!level || atoi(level) < 1)
        return status;
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "emulated cuBLASLt: status %d: ", status);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return status;
}

size_t lt_bytes(uint32_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

/* ---- handles --------------------------------------------------------------------------------- */

enum { HANDLE_MAGIC = 0x4854 };

API size_t cublasLtGetVersion(void)
{
    return 120903;
}

API size_t cublasLtGetCudartVersion(void)
{
    return 12090;
}

API cublasStatus_t cublasLtGetProperty(int type, int *value)
{
    static const int version[] = {12, 9, 3};
    if (type < 0 || type > 2 || !value)
        return CUBLAS_STATUS_INVALID_VALUE;
    *value = version[type];
    return CUBLAS_STATUS_SUCCESS;
}

API const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "unknown";
    }
}

API const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

/* The context of a handle is the current one, which must exist. */
API cublasStatus_t cublasLtCreate(lt_handle **handle)
{
    const emu_library_driver *driver = emu_library_driver_get();
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!driver || driver->device() < 0)
        return lt_refuse(CUBLAS_STATUS_NOT_INITIALIZED, "the thread has no context");
    *handle = malloc(sizeof **handle);
    if (!*handle)
        return CUBLAS_STATUS_ALLOC_FAILED;
    **handle = (lt_handle){HANDLE_MAGIC, driver->device()};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtDestroy(lt_handle *handle)
{
    if (!handle || handle->magic != HANDLE_MAGIC)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- attributes ------------------------------------------------------------------------------ */

typedef struct attribute {
    int id;
    size_t offset, bytes;
} attribute;
#define AT(ID, STRUCT, MEMBER)                                                                     \
    {                                                                                              \
        ID, offsetof(STRUCT, MEMBER), sizeof(((STRUCT *)0)->MEMBER)                                \
    }
/* Ends with a row without bytes. */
static const attribute of_layout[] = {AT(0, lt_layout, type),   AT(1, lt_layout, order),
                                      AT(2, lt_layout, rows),   AT(3, lt_layout, cols),
                                      AT(4, lt_layout, ld),     AT(5, lt_layout, batch),
                                      AT(6, lt_layout, stride), AT(7, lt_layout, plane),
                                      AT(8, lt_layout, mode),   {0}},
                       of_matmul[] = {AT(0, lt_matmul, compute),
                                      AT(1, lt_matmul, scale),
                                      AT(2, lt_matmul, pointer_mode),
                                      AT(3, lt_matmul, op_a),
                                      AT(4, lt_matmul, op_b),
                                      AT(5, lt_matmul, op_c),
                                      AT(6, lt_matmul, fill),
                                      AT(7, lt_matmul, epilogue),
                                      AT(8, lt_matmul, bias),
                                      AT(10, lt_matmul, bias_stride),
                                      AT(11, lt_matmul, aux),
                                      AT(12, lt_matmul, aux_ld),
                                      AT(13, lt_matmul, aux_stride),
                                      AT(14, lt_matmul, alpha_stride),
                                      AT(15, lt_matmul, sm_count),
                                      AT(17, lt_matmul, scales[0]),
                                      AT(18, lt_matmul, scales[1]),
                                      AT(19, lt_matmul, scales[2]),
                                      AT(20, lt_matmul, scales[3]),
                                      AT(21, lt_matmul, scales[4]),
                                      AT(22, lt_matmul, aux_type),
                                      AT(23, lt_matmul, scales[5]),
                                      AT(24, lt_matmul, scales[6]),
                                      AT(25, lt_matmul, fast_sums),
                                      AT(26, lt_matmul, bias_type),
                                      AT(31, lt_matmul, modes[0]),
                                      AT(32, lt_matmul, modes[1]),
                                      AT(33, lt_matmul, modes[2]),
                                      AT(34, lt_matmul, modes[3]),
                                      AT(35, lt_matmul, modes[4]),
                                      AT(36, lt_matmul, scales[7]),
                                      AT(37, lt_matmul, modes[5]),
                                      {0}},
                       of_preference[] = {AT(0, lt_preference, search),
                                          AT(1, lt_preference, workspace),
                                          AT(3, lt_preference, reductions),
                                          AT(5, lt_preference, alignment[0]),
                                          AT(6, lt_preference, alignment[1]),
                                          AT(7, lt_preference, alignment[2]),
                                          AT(8, lt_preference, alignment[3]),
                                          AT(9, lt_preference, waves),
                                          AT(12, lt_preference, implementations),
                                          {0}};

static const attribute *find_attribute(const attribute *list, int id)
{
    while (list->bytes && list->id != id)
        list++;
    return list->bytes ? list : NULL;
}

static cublasStatus_t set(void *descriptor, const attribute *list, int id, const void *value,
                          size_t bytes)
{
    const attribute *a = find_attribute(list, id);
    if (!descriptor || !a || !value || bytes != a->bytes)
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE,
                         "attribute %d is set by %zu bytes; it has %zu bytes", id, bytes,
                         a ? a->bytes : 0);
    memcpy((char *)descriptor + a->offset, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const void *descriptor, const attribute *a, void *value, size_t bytes,
                          size_t *written)
{
    if (!descriptor || !a || (!bytes && !written) || (bytes && (!value || bytes != a->bytes)))
        return lt_refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute is read by %zu bytes", bytes);
    if (bytes)
        memcpy(value, (const char *)descriptor + a->offset, bytes);
    if (written)
        *written = a->bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* Creates, sets, reads and destroys the descriptors of a kind. */
#define DESCRIPTOR(NAME, TYPE, MAGIC, ATTRIBUTES)                                                  \
    API cublasStatus_t cublasLt##NAME##Destroy(TYPE *d)                                            \
    {                                                                                              \
        if (d && d->magic != (MAGIC))                                                              \
            lt_stop("cublasLt" #NAME "Destroy gets another descriptor");                           \
        if (d)                                                                                     \
            d->magic = 0;                                                                          \
        free(d);                                                                                   \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    API cublasStatus_t cublasLt##NAME##SetAttribute(TYPE *d, int id, const void *value,            \
                                                    size_t bytes)                                  \
    {                                                                                              \
        if (d && d->magic != (MAGIC))                                                              \
            lt_stop("cublasLt" #NAME "SetAttribute gets another descriptor");                      \
        return set(d, ATTRIBUTES, id, value, bytes);                                               \
    }                                                                                              \
    API cublasStatus_t cublasLt##NAME##GetAttribute(TYPE *d, int id, void *value, size_t bytes,    \
                                                    size_t *written)                               \
    {                                                                                              \
        return get(d, find_attribute(ATTRIBUTES, id), value, bytes, written);                      \
    }
DESCRIPTOR(MatrixLayout, lt_layout, LAYOUT_MAGIC, of_layout)
DESCRIPTOR(MatmulDesc, lt_matmul, MATMUL_MAGIC, of_matmul)
DESCRIPTOR(MatmulPreference, lt_preference, PREFERENCE_MAGIC, of_preference)

API cublasStatus_t cublasLtMatrixLayoutInit_internal(lt_layout *d, size_t size, int type,
                                                     uint64_t rows, uint64_t cols, int64_t ld)
{
    if (size < 64)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (lt_layout){.magic = LAYOUT_MAGIC,
                     .type = (uint32_t)type,
                     .rows = rows,
                     .cols = cols,
                     .ld = ld,
                     .batch = 1};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulDescInit_internal(lt_matmul *d, size_t size, int compute,
                                                   int scale)
{
    if (size < 256)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (lt_matmul){.magic = MATMUL_MAGIC,
                     .compute = compute,
                     .scale = scale,
                     .epilogue = EPILOGUE_DEFAULT,
                     .fill = 2, /* the complete matrix */
                     .aux_type = -1,
                     .bias_type = -1};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceInit_internal(lt_preference *d, size_t size)
{
    if (size < 64)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (lt_preference){.magic = PREFERENCE_MAGIC,
                         .implementations = UINT64_MAX,
                         .reductions = 7,
                         .alignment = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatrixLayoutCreate(lt_layout **d, int type, uint64_t rows, uint64_t cols,
                                              int64_t ld)
{
    *d = malloc(64);
    return *d ? cublasLtMatrixLayoutInit_internal(*d, 64, type, rows, cols, ld)
              : CUBLAS_STATUS_ALLOC_FAILED;
}

API cublasStatus_t cublasLtMatmulDescCreate(lt_matmul **d, int compute, int scale)
{
    *d = malloc(256);
    return *d ? cublasLtMatmulDescInit_internal(*d, 256, compute, scale)
              : CUBLAS_STATUS_ALLOC_FAILED;
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(lt_preference **d)
{
    *d = malloc(64);
    return *d ? cublasLtMatmulPreferenceInit_internal(*d, 64) : CUBLAS_STATUS_ALLOC_FAILED;
}

/* ---- attributes of algorithms ------------------------------------------------------------------ */

/* The configuration: id; tile, splits, reduction, order of blocks, option, stages, shapes. */
API cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const lt_algo *algo, int id, void *value,
                                                        size_t bytes, size_t *written)
{
    static const size_t sizes[] = {4, 4, 4, 4, 4, 4, 4, 2, 2};
    const uint32_t config[] = {algo ? algo->id : 0, 20, 1, 0, 0, 0, 15, 0, 0};
    if (!algo || algo->magic != ALGO_MAGIC || id < 0 || id > 8)
        return CUBLAS_STATUS_INVALID_VALUE;
    return get(&config[id], &(attribute){id, 0, sizes[id]}, value, bytes, written);
}
