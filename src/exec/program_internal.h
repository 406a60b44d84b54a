/* Internals of a program, shared by program.c (bind) and execute.c (the step loop): its compiled
 * program, its binding and the state of its runs.
 *
 * Two memory blocks, with areas in this order, each a multiple of 64 bytes. Programs that are bound
 * together share the first block: none of its data outlives a run, except outputs, which are valid
 * until another of the programs runs.
 *
 *   shared: | arena | workspace | communication scratch |
 *   memory: | inputs (1 or 2 sets) | sources (ref) | inputs, outputs (ref) |
 *               plan                   f64 copies      in the graph's types
 *
 * A device whose memory the host cannot access has the last area in a third, pinned block, before
 * the gates of its collectives; messages of the programs that are bound together share a fourth. */
#ifndef WEFT_EXEC_PROGRAM_INTERNAL_H
#define WEFT_EXEC_PROGRAM_INTERNAL_H

#include "comm/comm.h"
#include "comm/group.h"
#include "exec/compiled.h"
#include "exec/constants.h"
#include "exec/copy_engine.h"
#include "exec/program.h"

/* Memory shared by programs that are bound together and run one at a time. */
typedef struct weft_shared_arena {
    int users;
    const weft_device *device;
    char *data;
    int64_t bytes;
    char *wire; /* pinned memory of messages; NULL: the device shares the host's memory */
    int64_t wire_bytes;
    weft_event done; /* end of the last launched run, if `pending` */
    bool pending;
    /* Offload buffer and its copy engine; NULL: no program offloads */
    weft_offload_buffer offload;
    weft_copy_engine *copies;
} weft_shared_arena;

/* Memory and connections of a program, from bind to unbind. Tables and requests remain. */
typedef struct weft_binding {
    weft_group *base;                 /* group of the whole mesh; NULL: no collectives */
    weft_group *group[WEFT_MAX_AXES]; /* process groups by axis */
    bool compared;                    /* ranks of the groups have the same collectives */
    bool bound;
    weft_shared_arena *shared;  /* NULL: not bound */
    char *arena;                /* = shared->data */
    char *memory;               /* owned by this program alone */
    char *ports;                /* inputs and outputs that are not in the storage */
    weft_device_stream *stream; /* kernels */
    /* Copies and additions of requests by axis, concurrent with the kernels. Twins also have one
     * by channel, because several threads run their requests */
    weft_device_stream *comm_stream[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT];

    weft_tensor *slot; /* states outside the store */
    int slot_count;
    weft_tensor **stored;          /* one per value: the store's tensor of params and states */
    weft_constant_copy **constant; /* one per value: copies of constants kept in f64 */
    weft_comm_request **request;   /* one per node: collectives that start one */
    void **cache;                  /* one per node: prepared kernels */
} weft_binding;

/* State that runs read or write. */
typedef struct weft_run_state {
    int input_set; /* set of inputs that the next run reads, 0 or 1 */
    /* Callback for written updates (NULL: none), and updates sorted by `last` (NULL: not sorted
     * yet) */
    weft_program_written written;
    void *written_user;
    int32_t *in_order;
    int64_t runs;
    /* Launched runs: one may be unfinished; where the last has read its inputs; its error (NULL:
     * none) */
    bool launched;
    weft_event sent;
    weft_error_copy *failed;
    struct weft_captured *captured; /* recorded parts of the code (captured_code.h); NULL: none */
    int64_t moved;                  /* runs when the addresses changed last */
    /* Profile; NULL: none */
    double *seconds;     /* one per node, summed over all runs */
    weft_event *moment;  /* two per instruction: start, end */
    double *begin, *end; /* one per instruction, of the last run */
} weft_run_state;

struct weft_program {
    weft_arena *meta; /* tables of this program; of the compiled program too, unless a twin's */
    /* Twins only: the program whose compiled program this one uses (borrowed). A twin owns its
     * requests, slots, streams and bound memory. NULL: not a twin */
    const weft_program *like;
    const weft_compiled *compiled;
    int rank; /* rank in the mesh; a twin's differs from compiled->rank */
    const weft_backend *backend;
    const weft_device *device; /* = backend->device */
    weft_binding binding;
    weft_run_state run;
};

/* The request that an instruction starts or waits for. */
static inline weft_comm_request *weft_program_exchange(const weft_program *p,
                                                       const instruction *code)
{
    return p->binding.request[p->compiled->begins[code->node]];
}

#endif
