/* An emulated cuDNN for tests: libcudnn.so.9 with the backend C API, written from NVIDIA's
 * documentation and header of version 9.28. Executions are work of the emulated driver's streams,
 * which checks their order and memory. Calls that the documentation forbids return the documented
 * status. cudnnGetLastErrorString() returns the reason, and CUDNN_LOGLEVEL_DBG=1 prints it. The
 * process stops where the library may give a wrong result without an error:
 *
 *   output overlaps another tensor or the workspace     handle of another GPU than the stream's
 *   descriptor that was destroyed or not created        tensors of one id that differ
 *
 * Supported types are f32, f16 and bf16. Convolutions have 1 to 3 spatial dimensions, and may have
 * a bias that is added to a virtual result. Both gradients of convolutions, attention and its
 * gradient are supported, too, with head widths and types of the documentation. The gradient of
 * attention may also be a graph of products, sums over columns, pointwise operations and reshapes.
 * Sums are computed in f64. A workspace has arbitrary bytes afterwards.
 *
 * Engines of a graph, in the order of the heuristic:
 *
 *   convolutions   a tensor core engine for f16 and bf16, or one that converts f32 to TF32
 *                  a nondeterministic engine for gradients of filters, with other results each time
 *                  a direct engine without workspace
 *                  first, for f16 and bf16 with a bias, an engine that reads any filter with the
 *                  channels last, as cuDNN 9.19 does on an H100: its results are wrong
 *   attention      one engine with a workspace. The gradient's sums have an order only with the
 *                  values 2 and 4 of the knob for stages; the heuristic chooses 0. A graph of
 *                  steps has an order, and a workspace for the gradient of scores
 *
 * WEFT_EMU_CUDNN_VERSION replaces 92800. Versions before it refuse the gradient of attention as one
 * operation, as 91900 does.
 *
 * WEFT_EMU_FAULT plants a fault. cudnn-result is a wrong first element of each output, and
 * cudnn-lse is statistics in base 2. cudnn-plan refuses each plan, cudnn-execute fails each
 * execution, and cudnn-heuristic finds no configuration. */
#ifndef WEFT_TESTS_EMU_CUDNN_H
#define WEFT_TESTS_EMU_CUDNN_H

#include "emu_library.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int cudnnStatus_t;
enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1001,
    BAD_PARAM = 2000,
    NULL_POINTER = 2002,
    MISALIGNED_POINTER = 2003,
    NOT_FINALIZED = 2004,
    SHAPE_MISMATCH = 2008,
    DUPLICATED_ENTRIES = 2009,
    ATTRIBUTE_TYPE = 2010,
    DESCRIPTOR_TYPE = 2012,
    NOT_SUPPORTED = 3000,
    NOT_SUPPORTED_GRAPH_PATTERN = 3001,
    NOT_SUPPORTED_SHAPE = 3002,
    NOT_SUPPORTED_DATA_TYPE = 3003,
    NOT_SUPPORTED_LAYOUT = 3004,
    ALLOCATION_FAILED = 4003,
    EXECUTION_FAILED = 5000,
};
enum { DATA_FLOAT = 0, DATA_HALF = 2, DATA_BFLOAT16 = 9 };

/* Kinds of descriptors, and types of attributes. */
enum {
    KIND_POINTWISE = 0,
    KIND_CONVOLUTION = 1,
    KIND_ENGINE = 2,
    KIND_CONFIG = 3,
    KIND_HEURISTIC = 4,
    KIND_PLAN = 5,
    KIND_KNOB_CHOICE = 7,
    KIND_KNOB_INFO = 8,
    KIND_CONV_FORWARD = 10,
    KIND_CONV_BWD_FILTER = 11,
    KIND_CONV_BWD_DATA = 12,
    KIND_OP_POINTWISE = 13,
    KIND_GRAPH = 15,
    KIND_PACK = 16,
    KIND_TENSOR = 17,
    KIND_MATMUL = 18,
    KIND_OP_MATMUL = 19,
    KIND_REDUCTION = 21,
    KIND_OP_REDUCTION = 22,
    KIND_OP_RESHAPE = 31,
    KIND_DEVICE = 38,
    KIND_SDPA_FORWARD = 41,
    KIND_SDPA_BACKWARD = 43,
};
enum {
    TYPE_HANDLE = 0,
    TYPE_DATA_TYPE = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_FLOAT = 4,
    TYPE_DOUBLE = 5,
    TYPE_VOID_PTR = 6,
    TYPE_CONVOLUTION_MODE = 7,
    TYPE_HEUR_MODE = 8,
    TYPE_KNOB_TYPE = 9,
    TYPE_NUMERICAL_NOTE = 11,
    TYPE_POINTWISE_MODE = 14,
    TYPE_DESCRIPTOR = 15,
    TYPE_REDUCTION_OPERATOR = 18,
    TYPE_BEHAVIOR_NOTE = 19,
    TYPE_INT32 = 23,
    TYPE_CHAR = 24,
};
enum { NOTE_TENSOR_CORE = 0, NOTE_DOWN_CONVERT = 1, NOTE_NONDETERMINISTIC = 4 };

enum { DNN_DIMS = 8, DNN_ATTRIBUTES = 20, DNN_TENSORS = 32, DNN_STEPS = 24, DNN_ENGINES = 4 };
enum { DNN_KNOB = 14, DNN_ORDERED = 2, DNN_ORDERED_TOO = 4 };
enum { MODE_ADD = 0, MODE_MUL = 1, MODE_SUB = 9, MODE_EXP = 13, MODE_IDENTITY = 21 };

/* ---- descriptors ----------------------------------------------------------------------------- */

typedef struct dnn_attribute {
    int name, type;
    int64_t count;
    void *values; /* `count` values of the type */
} dnn_attribute;

typedef struct dnn_descriptor {
    int32_t magic;
    int kind;
    bool final;
    bool destroyed; /* other descriptors still have its address */
    int users;      /* attributes that have its address */
    int attributes;
    dnn_attribute attribute[DNN_ATTRIBUTES];
    const struct dnn_engine *engine; /* of engines, after they are finalized */
} dnn_descriptor;

typedef struct dnn_handle {
    int32_t magic;
    int device;
    void *stream;
} dnn_handle;

/* The attribute; NULL: not set. Stops if the descriptor was destroyed. */
const dnn_attribute *dnn_find(const dnn_descriptor *d, int name);
/* Value `i` of an attribute that is set. */
int64_t dnn_int(const dnn_descriptor *d, int name, int64_t i);
dnn_descriptor *dnn_sub(const dnn_descriptor *d, int name, int64_t i); /* NULL: not set */
/* Copies dimensions of a tensor; returns how many it has. */
int dnn_extents(const dnn_descriptor *tensor, int name, int64_t extent[DNN_DIMS]);
/* A finalized descriptor that the library makes, and an attribute of one. */
dnn_descriptor *dnn_make(int kind);
cudnnStatus_t dnn_put(dnn_descriptor *d, int name, int type, int64_t count, const void *values);

/* ---- engines (emu_engines.c) ----------------------------------------------------------------- */

typedef struct dnn_engine {
    const char *name;
    int notes, note[2];
    int64_t knob, knob_most; /* "stages": the heuristic's value, and the largest one */
    bool needs_space;
} dnn_engine;
/* Engines of a graph, in the order of the heuristic; returns how many, 0: none supports it. */
int dnn_engines(const dnn_descriptor *graph, const dnn_engine *engine[DNN_ENGINES]);
int64_t dnn_workspace(const dnn_descriptor *config);
/* Whether the engine reads filters with the channels last, without a copy. */
bool dnn_lacks_copy(const dnn_descriptor *config);
/* The value of the knob in a configuration. */
int64_t dnn_stages(const dnn_descriptor *config);

/* Graphs of steps (emu_steps.c): checks of an operation and of a graph, and the bytes of the
 * gradient of scores. */
bool dnn_is_step(int kind);
cudnnStatus_t dnn_check_step(const dnn_descriptor *operation);
cudnnStatus_t dnn_check_steps(const dnn_descriptor *graph);
int64_t dnn_steps_workspace(const dnn_descriptor *graph);
/* Inputs of a step, and its output as the last one. Returns how many. */
int dnn_step_tensors(const dnn_descriptor *operation, const dnn_descriptor *tensor[3]);

/* Checks before a descriptor becomes final (emu_check.c). */
cudnnStatus_t dnn_check(const dnn_descriptor *d);

/* ---- executions ------------------------------------------------------------------------------ */

/* A tensor of an execution. A value of the host has no range. */
typedef struct dnn_tensor {
    int type, rank, range; /* range -1: none */
    int64_t dim[DNN_DIMS], stride[DNN_DIMS];
    float value; /* of a tensor by value */
} dnn_tensor;
/* One operation. Tensors are at the offset of their attribute: */
enum { CONV_W, CONV_X, CONV_Y, CONV_BIAS, CONV_SUM }; /* sum: with a bias */
enum { FWD_Q, FWD_K, FWD_V, FWD_O, FWD_STATS, FWD_SCALE };
enum { BWD_Q, BWD_K, BWD_V, BWD_O, BWD_STATS, BWD_SCALE, BWD_DQ = 8, BWD_DK, BWD_DV, BWD_DO };
/* A step: its operation, the mode of pointwise ones, and its tensors (b -1: none). */
typedef struct dnn_step {
    int kind, mode, a, b, out;
} dnn_step;
typedef struct dnn_execution {
    weft_emulated_range range[DNN_TENSORS + 1]; /* the last one is the workspace */
    int ranges, space;                          /* space: its range; -1: none */
    int kind;                                   /* of the operation; KIND_GRAPH: steps */
    dnn_tensor tensor[DNN_TENSORS];             /* rank 0: not set */
    int64_t id[DNN_TENSORS];                    /* of steps */
    dnn_step operation[DNN_STEPS];
    int steps;
    int64_t spatial, pre[DNN_DIMS], post[DNN_DIMS], step[DNN_DIMS], dilation[DNN_DIMS];
    bool biased, flips; /* flips: convolution, not cross-correlation */
    float alpha, beta;
    bool tf32;
    uint32_t noise; /* of a nondeterministic engine; 0: none */
} dnn_execution;
void dnn_run(void *execution);        /* emu_run.c */
void dnn_attention(dnn_execution *e); /* emu_attention.c */
void dnn_run_steps(dnn_execution *e); /* emu_run_steps.c */

float dnn_round(float value, int type);              /* to the values of a type */
float *dnn_load(const dnn_execution *e, int tensor); /* dense, in f32; from malloc() */
/* Writes a dense tensor. */
void dnn_store(const dnn_execution *e, int tensor, const float *values);
int64_t dnn_count(const dnn_tensor *t);
/* The position of dense element `i` in memory, and the elements from the first to the last. */
int64_t dnn_place(const dnn_tensor *t, int64_t i);
int64_t dnn_span(const dnn_tensor *t);
size_t dnn_bytes(int type); /* of an element; 0: not supported */

/* ---- errors ---------------------------------------------------------------------------------- */

/* Prints "emulated cuDNN: ..." and ends the process. */
void dnn_stop(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Returns the status, and keeps the reason for cudnnGetLastErrorString(). */
cudnnStatus_t dnn_refuse(cudnnStatus_t status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
