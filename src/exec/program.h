/* Inside a program: shared by program.c (compile, bind) and execute.c (the step loop).
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
#include "runtime/constants.h"
#include "runtime/mover.h"

/* JOIN: a collective that starts later, with the last of its bundle. MOVE: a copy elsewhere or back
 * starts, MOVED: it is waited for. */
typedef enum instruction_kind {
    INSTR_KERNEL,
    INSTR_START,
    INSTR_JOIN,
    INSTR_WAIT,
    INSTR_SLICE,
    INSTR_MOVE,
    INSTR_MOVED
} instruction_kind;

typedef struct instruction {
    instruction_kind kind;
    int32_t node;
    weft_kernel_args args; /* KERNEL, SLICE */
    const weft_kernel *kernel;
    weft_carry *move;    /* MOVE, MOVED */
    int64_t slice_start; /* SLICE: along the dim, elements */
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
    int32_t last; /* instruction that touches it; the count of all: it is written behind them */
} update;

/* Memory that programs bound together pass through, one at a time. */
typedef struct weft_passing {
    int users;
    const weft_device *device;
    char *data;
    int64_t bytes;
    /* What is elsewhere, and who copies it; NULL: none of them has such a thing */
    weft_elsewhere away;
    weft_mover *mover;
} weft_passing;

struct weft_program {
    weft_group *group[WEFT_MAX_AXES]; /* by axis, that it is bound to */
    bool compared;                    /* the ranks of these have the same exchanges */
    weft_arena *meta;                 /* everything below that is not tensor data */
    const weft_graph *graph;
    weft_program_options options;
    weft_mesh mesh;
    int rank; /* in the mesh */
    /* Of a twin: the program whose plan, code and tables it uses (borrowed). Its own are exchanges,
     * slots, streams and what is bound. NULL: not a twin */
    const weft_program *like;
    const weft_backend *backend;
    const weft_device *device; /* = backend->device */
    bool wide;                 /* the backend keeps floats as f64 */
    int threads;               /* for which everything is planned, and with which it runs */
    weft_memory_plan plan;

    /* offsets in `passing` */
    int64_t workspace_at, passing_bytes;
    /* by axis and channel: those of several run at the same time */
    int64_t scratch_at[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT],
        scratch_bytes[WEFT_MAX_AXES][WEFT_CHANNEL_COUNT];
    /* offsets in `memory`, which begins with the inputs */
    int64_t sources_at, ports_at, memory_bytes;

    /* by value */
    weft_tensor *slot; /* states that are not the store's */
    int slot_count;
    int64_t *source_offset;        /* f64 copies of params and states */
    weft_tensor **stored;          /* the store's tensor of params and states */
    weft_constant_copy **constant; /* while bound, of constants that are kept in f64 */
    weft_view *asked;              /* room for the inputs of a node */
    weft_view *view;

    /* by node */
    weft_exchange **exchange; /* of those that start one */
    int32_t *begins;          /* collectives: the node that starts their exchange, or themselves */
    int32_t *joined;          /* collectives: the one before it in its bundle; -1: none */
    uint8_t *channel;         /* collectives: weft_channel */
    weft_carry **move;        /* copies elsewhere and back */
    void **cache;             /* prepared kernels */
    double *seconds;          /* NULL: no profile */

    instruction *code;
    int32_t code_count;
    port *input, *output;
    int input_count, output_count;
    int input_set; /* which of the two sets the next run reads */
    update *update;
    int update_count;
    /* Who is told of them (NULL: nobody), and updates by `last`; NULL: nobody has asked yet */
    weft_program_written written;
    void *written_user;
    int32_t *in_order;

    bool bound;
    weft_group *base;           /* that the mesh is laid over; NULL: it has no collectives */
    weft_device_stream *stream; /* of the device, while bound */
    /* by axis: what its exchanges copy and add, beside the kernels */
    weft_device_stream *exchange_stream[WEFT_MAX_AXES];
    weft_passing *passing; /* NULL: not bound */
    char *arena;           /* = passing->data */
    char *memory;          /* this program's own */

    /* by instruction, of the last run; NULL: no profile */
    weft_event *moment; /* two of each: before it, after it */
    double *begin, *end;
    int64_t runs;
};

/* The exchange that an instruction starts or waits for. */
static inline weft_exchange *weft_program_exchange(const weft_program *p, const instruction *code)
{
    return p->exchange[p->begins[code->node]];
}

weft_dtype weft_program_storage_type(const weft_program *program, weft_dtype dtype);
/* On which channel each collective goes, and which all_reduces share an exchange: fills channel,
 * begins and joined, which are there (runtime/bundle.c). */
weft_status weft_program_choose_channels(weft_program *program);
void weft_program_bundle(weft_program *program);
/* Makes the exchange that collective `n` begins, alone or as the last of a bundle. */
weft_status weft_program_create_exchange(weft_program *program, int32_t n);
/* Before the first run after a bind, when all ranks of the mesh are here: WEFT_E_COMM with both
 * lists when two of them would exchange different things. */
weft_status weft_program_compare(weft_program *program);
/* Where the bytes of a value are; after bind. */
void *weft_program_locate(const weft_program *program, int32_t value);
/* Memory elsewhere for programs that are bound together (runtime/away.c), */
weft_status weft_passing_reserve(weft_passing *passing, weft_program *const *programs, int count);
void weft_passing_release(weft_passing *passing);
/* and where a copy goes from and to. */
void weft_program_point_move(const weft_program *program, const instruction *code);
/* Points every view at its bytes: at bind, and after a swap of inputs. */
void weft_program_point_views(weft_program *program);

#endif
