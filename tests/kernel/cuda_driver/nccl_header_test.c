/* The functions and values of NCCL that weft declares itself, compared with nccl.h where a toolkit
 * is installed. The compiler checks them. */
#include "kernel/cuda/cuda_nccl.h"

#include <criterion/criterion.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define HAS_HEADER 1

_Static_assert((int)NCCL_OK == (int)ncclSuccess, "success");
_Static_assert((int)NCCL_IN_PROGRESS == (int)ncclInProgress, "in progress");
_Static_assert((int)NCCL_SUM == (int)ncclSum, "sum");
_Static_assert((int)NCCL_INT8 == (int)ncclInt8, "int8");
_Static_assert((int)NCCL_UINT8 == (int)ncclUint8, "uint8");
_Static_assert((int)NCCL_INT32 == (int)ncclInt32, "int32");
_Static_assert((int)NCCL_INT64 == (int)ncclInt64, "int64");
_Static_assert((int)NCCL_FLOAT16 == (int)ncclFloat16, "float16");
_Static_assert((int)NCCL_FLOAT32 == (int)ncclFloat32, "float32");
_Static_assert((int)NCCL_FLOAT64 == (int)ncclFloat64, "float64");
_Static_assert((int)NCCL_BFLOAT16 == (int)ncclBfloat16, "bfloat16");
_Static_assert(sizeof(nccl_unique_id) == sizeof(ncclUniqueId), "id");
_Static_assert(sizeof(nccl_result) == sizeof(ncclResult_t), "result");
_Static_assert(sizeof(nccl_type) == sizeof(ncclDataType_t), "type");
_Static_assert(sizeof(nccl_op) == sizeof(ncclRedOp_t), "op");

/* The table again, with the types of the header. */
#define nccl_result    ncclResult_t
#define nccl_type      ncclDataType_t
#define nccl_op        ncclRedOp_t
#define nccl_comm      ncclComm_t
#define nccl_unique_id ncclUniqueId
#define cuda_stream    cudaStream_t
#define NCCL_FUNCTION(member, symbol, parameters)                                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), ncclResult_t parameters),      \
                   #symbol);
#include "kernel/cuda/cuda_nccl.def"
#undef NCCL_FUNCTION
#else
#define HAS_HEADER 0
#endif

Test(nccl_header, functions_and_values_are_those_of_the_header)
{
    if (!HAS_HEADER)
        cr_skip("no nccl.h");
}
