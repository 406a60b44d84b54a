/* Types that the public headers and weft's sources share: status codes, element types, shapes, and
 * the values of a graph. */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Result of every function that can fail. Grouped by what must be rebuilt before trying again.
 * Values never change; new codes are appended. */
typedef enum weft_status_code {
    WEFT_OK = 0,
    /* the call or its input: fix the argument, the file or the config */
    WEFT_E_ARG = 1,         /* a value outside its range, an unknown name */
    WEFT_E_CONFIG = 2,      /* config file or --set: unknown key, wrong type */
    WEFT_E_FORMAT = 3,      /* a file's content is damaged or not what it says it is */
    WEFT_E_TOO_LARGE = 4,   /* a file asks for more memory than it may have */
    WEFT_E_SHAPE = 5,       /* tensor shapes or dtypes do not fit */
    WEFT_E_UNSUPPORTED = 6, /* legal, but not built in */
    WEFT_E_NOT_FOUND = 7,
    WEFT_E_INFEASIBLE = 8, /* no plan satisfies the limits */
    /* the environment: free room, rights */
    WEFT_E_IO = 9,
    WEFT_E_SPACE = 10, /* disk full */
    WEFT_E_PERMISSION = 11,
    WEFT_E_MEMORY = 12,
    /* the op */
    WEFT_E_NUMERIC = 13, /* NaN, Inf, a loss that left its range */
    /* the communicator: it must be created again */
    WEFT_E_COMM = 14, /* a rank failed or a communication timeout passed */
    /* the job */
    WEFT_E_CANCELLED = 15, /* interrupted by the user */
    WEFT_E_INTERNAL = 16,  /* a bug in weft */
} weft_status_code;

/* Element types of tensors. Append only: caches and traces store these values. */
typedef enum weft_dtype {
    WEFT_F32 = 0,
    WEFT_BF16 = 1,
    WEFT_F16 = 2,
    WEFT_F8E4M3 = 3,
    WEFT_I32 = 4,
    WEFT_I64 = 5,
    WEFT_U8 = 6,
    WEFT_F64 = 7, /* reference backend only */
    WEFT_DTYPE_COUNT
} weft_dtype;

typedef enum weft_log_level {
    WEFT_LOG_ERROR = 0,
    WEFT_LOG_WARN = 1,
    WEFT_LOG_INFO = 2,
    WEFT_LOG_DEBUG = 3
} weft_log_level;

enum { WEFT_MAX_RANK = 6 };

/* Sizes of a tensor, in elements, slowest dim first. Tensors are dense and row major. */
typedef struct weft_shape {
    int rank; /* 0: scalar */
    int64_t dim[WEFT_MAX_RANK];
} weft_shape;

/* Initial values of a parameter. Element i of the unsharded tensor is a function of (seed, hash of
 * the name, i). It depends neither on sharding nor on the order of parameters. */
typedef enum weft_init_kind {
    WEFT_INIT_ZERO = 0,
    WEFT_INIT_FILL = 1,
    WEFT_INIT_NORMAL = 2,
    WEFT_INIT_UNIFORM = 3
} weft_init_kind;
typedef struct weft_init {
    weft_init_kind kind;
    double value; /* FILL: the value; NORMAL: standard deviation; UNIFORM: half width */
} weft_init;

/* A value of a graph: an input, a parameter, or the result of an op. */
typedef struct weft_value {
    int32_t id; /* -1: none */
} weft_value;

#ifdef __cplusplus
#define WEFT_NONE (weft_value{-1})
#else
#define WEFT_NONE ((weft_value){-1})
#endif

#endif
