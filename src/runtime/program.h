/* Inside a program: shared by program.c (compile, bind) and run.c (the step loop).
 *
 * Two pieces of memory, areas in this order, each a multiple of 64 bytes. The first is shared by
 * programs that are bound together, since nothing in it outlives a run (but outputs, until another
 * of them runs):
 *
 *   passing:  | arena | workspace | scratch of the collectives |
 *     own:    | inputs (1 or 2 sets) | constants | sources (ref) | inputs, outputs (ref) |
 *               plan                   copies in the storage type   in the graph's types    */
#ifndef WEFT_RUNTIME_PROGRAM_H
#define WEFT_RUNTIME_PROGRAM_H

#include "runtime/comm.h"

/* JOIN: a collective that starts later, with the last of its bundle. */
typedef enum instruction_kind {
    INSTR_KERNEL,
    INSTR_START,
    INSTR_JOIN,
    INSTR_WAIT,
    INSTR_SLICE
} instruction_kind;

typedef struct instruction {
    instruction_kind kind;
    int32_t node;
    weft_kernel_args args; /* KERNEL, SLICE */
    const weft_kernel *kernel;
    weft_exchange *exchange; /* START, WAIT */
    int64_t slice_start;     /* SLICE: along the dim, elements */
    int64_t workspace_bytes;
} instruction;

/* An input or output as the caller sees it. */
typedef struct port {
    weft_tensor tensor[2]; /* the second: the other set of double_inputs */
    int32_t value;
    int64_t offset;  /* of the caller's bytes in its area; -1: the storage itself */
    int64_t offset2; /* the same of the second set */
} port;

typedef struct update {
    int32_t source, value;
    bool in_place;
    weft_tensor *tensor;
} update;

/* Memory that programs bound together pass through, one at a time. */
typedef struct weft_passing {
    int users;
    char *data;
} weft_passing;

struct weft_program {
    weft_arena *meta; /* everything below that is not tensor data */
    const weft_graph *graph;
    weft_program_options options;
    weft_mesh mesh;
    const weft_backend *backend;
    bool f64; /* the backend keeps floats as f64 */
    weft_memory_plan plan;
    int64_t workspace_at, scratch_at, passing_bytes; /* in `passing` */
    int64_t constants_at, sources_at, ports_at,
        memory_bytes; /* in `memory`, which begins with the inputs */
    int64_t scratch_bytes;
    int64_t *source_offset; /* by value: f64 copies of params and states */
    weft_tensor **stored;   /* by value: the store's tensor of params and states */
    weft_view *view;        /* by value */
    instruction *code;
    int32_t code_count;
    weft_exchange **exchange; /* by node, of those that start one */
    int32_t
        *begins; /* by node, for collectives: the node that starts their exchange, or themselves */
    int32_t *joined; /* by node: the collective before it in its bundle; -1: none */
    void **cache;    /* by node: prepared kernels */
    port *input, *output;
    int input_count, output_count;
    int input_set; /* which of the two sets the next run reads */
    update *update;
    int update_count;
    weft_passing *passing; /* NULL: not bound */
    char *arena;           /* = passing->data */
    char *memory;          /* this program's own */
    double *seconds;       /* by node; NULL: no profile */
    double *begin, *end;   /* by instruction: of the last run; NULL: no profile */
    int64_t runs;
};

weft_dtype weft_program_storage_type(const weft_program *program, weft_dtype dtype);
/* Which all_reduces share an exchange: fills begins and joined, which are there (runtime/bundle.c).
 */
void weft_program_bundle(weft_program *program);
/* Where the bytes of a value are; after bind. */
void *weft_program_locate(const weft_program *program, int32_t value);
/* Points every view at its bytes: at bind, and after a swap of inputs. */
void weft_program_point_views(weft_program *program);

#endif
