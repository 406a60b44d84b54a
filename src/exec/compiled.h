/* A compiled program: plan, code and tables for one rank of a mesh. Twins share it. */
#ifndef WEFT_EXEC_COMPILED_H
#define WEFT_EXEC_COMPILED_H

#include "comm/comm.h"
#include "exec/copy_engine.h"
#include "exec/program.h"
#include "kernel/device.h"
#include "transform/memory/lifetime.h"

/* JOIN: a member of a coalesced all-reduce, which starts with its last member. COPY: starts an
 * offload or a fetch. COPY_WAIT: waits for one. */
typedef enum instruction_kind {
    INSTR_KERNEL,
    INSTR_START,
    INSTR_JOIN,
    INSTR_WAIT,
    INSTR_SLICE,
    INSTR_COPY,
    INSTR_COPY_WAIT
} instruction_kind;

typedef struct instruction {
    instruction_kind kind;
    int32_t node;
    weft_kernel_args args; /* KERNEL, SLICE */
    const weft_kernel *kernel;
    weft_copy_request *copy;               /* COPY, COPY_WAIT */
    int64_t slice_start;                   /* SLICE: first element along the dim */
    int32_t gate;                          /* START: number of its request's gate */
    int64_t workspace_bytes, workspace_at; /* workspace_at: offset in the workspace */
} instruction;

/* An input or output in the caller's type. */
typedef struct port {
    weft_tensor tensor[2]; /* the second: the other set of double_inputs */
    int32_t value;
    int64_t offset;  /* offset of the caller's bytes in the ports; -1: in the storage */
    int64_t offset2; /* `offset` of the second set */
} port;

typedef struct update {
    int32_t source, value;
    bool in_place;
    weft_tensor *tensor;
    int32_t last; /* last instruction that accesses the tensor; code_count: copied after all */
} update;

/* Areas of the two memory blocks (program_internal.h), in bytes. */
typedef struct weft_program_areas {
    int64_t workspace_at, shared_bytes; /* offsets: shared block */
    /* Scratch by axis and channel, because requests of several channels run at the same time */
    int64_t scratch_at[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT],
        scratch_bytes[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT];
    /* Devices that are apart: pinned memory of messages in the shared pinned block, and gates of
     * requests after the ports */
    int64_t wire_at[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT],
        wire_bytes[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT], shared_wire_bytes, gate_bytes;
    /* Offsets in the program's own block, which begins with the inputs */
    int64_t sources_at, ports_at, ports_bytes, memory_bytes;
} weft_program_areas;

/* Written by weft_compiled_create and weft_compiled_lay_out only. Exceptions are the addresses in
 * `code`, `view` and `ports`, and the tensors in `update`: the program that owns the tables sets
 * them at bind. A twin has none. */
typedef struct weft_compiled {
    weft_arena *meta; /* contains this struct and its tables; borrowed */
    const weft_graph *graph;
    weft_program_options options;
    weft_mesh mesh;
    int rank; /* rank in the mesh */
    const weft_backend *backend;
    int threads; /* kernel threads, at planning and at run time */
    weft_products products;
    weft_memory_plan plan;
    weft_program_areas areas;
    int64_t workspace_used; /* end of the last workspace of the code, if workspaces are spread */

    /* Tables by value */
    int64_t *source_offset; /* f64 copies of params and states; -1: none */
    weft_view *view;

    /* Tables by node */
    int32_t *begins;          /* collectives: node that starts their request */
    int32_t *joined;          /* collectives: previous coalesced member; -1: none */
    uint8_t *channel;         /* collectives: weft_channel */
    weft_copy_request **copy; /* offloads and fetches */

    instruction *code;
    int32_t code_count;
    struct {
        port *input, *output;
        int inputs, outputs;
    } ports;
    update *update;
    int update_count;
    /* Values of the constants kept in f64, one per constant, sorted by the address of its data */
    struct {
        int32_t *value;
        int32_t count;
    } constants;
} weft_compiled;

/* Returns true if the backend keeps floats as f64. */
static inline bool weft_compiled_is_wide(const weft_compiled *c)
{
    return c->backend->refresh != NULL;
}

/* Returns true if the caller writes inputs and reads outputs in memory apart from the storage:
 * because of its type or of its device. */
static inline bool weft_compiled_has_staged_ports(const weft_compiled *c)
{
    return weft_compiled_is_wide(c) || weft_device_is_apart(c->backend->device);
}

/* Plans memory and writes the code, in the arena `meta`. `graph` and options->backend are borrowed.
 * Scratch of collectives is not known yet: the caller sets areas.scratch_bytes and calls
 * weft_compiled_lay_out. */
weft_status weft_compiled_create(const weft_graph *graph, const weft_program_options *options,
                                 weft_arena *meta, weft_compiled **out);
/* Sets the areas of the memory blocks. */
void weft_compiled_lay_out(weft_compiled *c);
/* Frees the plan. The rest is freed with the arena. */
void weft_compiled_free(weft_compiled *c); /* Accepts NULL. */
weft_dtype weft_compiled_storage_type(const weft_compiled *c, weft_dtype dtype);
/* Bytes of a value in its storage type. */
int64_t weft_compiled_storage_bytes(const weft_compiled *c, int32_t value);
/* Copies the views of a node's operands and results; absent ones have rank -1. */
void weft_compiled_fill_views(const weft_compiled *c, const weft_node *node, weft_view *in,
                              weft_view *out);
/* The constant of a value that the program stores a copy of, because of its type or its device;
 * NULL: none. */
const weft_attr_constant *weft_compiled_constant(const weft_compiled *c, int32_t value);
/* Returns true if the program keeps a copy of the constant with this data. */
bool weft_compiled_has_constant(const weft_compiled *c, const void *data);

#endif
