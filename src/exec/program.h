#ifndef WEFT_EXEC_PROGRAM_H
#define WEFT_EXEC_PROGRAM_H

#include "comm/group.h"
#include "exec/store/store.h"
#include "kernel/kernel.h"
#include "transform/memory/lifetime.h"

typedef struct weft_program weft_program;
/* Called on the thread of the run, before the kernel of a node of `graph` runs. */
typedef void weft_program_observer(void *user, const weft_graph *graph, const weft_node *node,
                                   const weft_kernel_args *args);
typedef struct weft_program_options {
    const weft_backend *backend; /* NULL: cpu */
    const weft_mesh *mesh;       /* mesh of the sharded graph; NULL: weft_graph_mesh */

    bool guard;         /* guard bytes around every buffer, checked after each run (tests) */
    bool profile;       /* time every node */
    bool wide;          /* ref: inputs and outputs are the f64 storage, not in the graph's types */
    bool double_inputs; /* two sets of inputs: one is filled while a run reads the other */
    bool no_overlap;    /* wait for every collective where it starts (to measure) */
    bool no_views;      /* every slice and concat copies */
    bool no_coalesce;   /* one request per all_reduce (to measure) */
    /* Axis along which ranks run different programs (pipeline stages). Collectives on this axis are
     * not compared between ranks, because a rank may lack one that another rank has. NULL: none */
    const char *apart;
    /* Folder of the unnamed file that is the offload buffer (borrowed); NULL: host memory */
    const char *offload_dir;
    /* Kernel threads for planning, binding and running, whatever the calling thread has later. 0
     * (default): as many as the thread that compiles has */
    int threads;
    weft_program_observer *observe; /* of backends with operands in host memory; NULL: none */
    void *observe_user;
} weft_program_options;
/* Called on the caller's thread when a param or state of the store has its new value. The rest of
 * the run does not access the tensor, so the caller may use it. In-place updates: after the last
 * instruction that accesses the tensor. Other updates: after all nodes. NULL: no callback. */
typedef void (*weft_program_written)(void *user, const weft_tensor *tensor);
/* Communication of the last run: seconds in collectives, and the seconds in which this rank's
 * kernels waited for collectives. Also bytes that this rank sends per run, and requests (a
 * coalesced all-reduce is one). */
typedef struct weft_comm_times {
    double busy, exposed;
    int64_t wire_bytes;
    int requests;
} weft_comm_times;
static inline void weft_comm_times_add(weft_comm_times *to, weft_comm_times more)
{
    to->busy += more.busy;
    to->exposed += more.exposed;
    to->wire_bytes += more.wire_bytes;
    to->requests += more.requests;
}

/* Compares the list of collectives between all ranks of the mesh. Call before the first run after a
 * bind, on all ranks. Returns WEFT_E_COMM with both lists when two ranks differ. */
weft_status weft_program_compare(weft_program *program);
/* Address of a value's data; valid after bind. */
void *weft_program_locate(const weft_program *program, int32_t value);
/* Sets the address of every view: at bind, and after a swap of inputs. */
void weft_program_set_views(weft_program *program);

/* Compiles a graph after all passes for one rank of a mesh. The group is chosen at bind. `graph` is
 * borrowed and must outlive the program. Plans memory and reserves none. */
weft_status weft_program_compile(const weft_graph *graph, const weft_program_options *options,
                                 weft_program **out);
void weft_program_free(weft_program *program);
/* Host bytes of the compiled program's tables, bound or not, without the graph. */
int64_t weft_program_own_bytes(const weft_program *program);
const weft_backend *weft_program_backend(const weft_program *program);
const weft_memory_plan *weft_program_plan(const weft_program *program);
/* Bytes that weft_program_bind reserves: arena, workspace, inputs, communication scratch, and the
 * f64 copies of ref (sources, constants, inputs, outputs). A constant shared with other bound
 * programs is counted in full. */
int64_t weft_program_bytes(const weft_program *program);
/* Reserves the memory, and connects params and states to the store, which must contain all of them.
 * Connects collectives to `group`: mesh rank i is member i, and this rank must be the member that
 * the graph is for. Each bind may use another such group. NULL: only for a program of one rank. */
weft_status weft_program_bind(weft_program *program, weft_store *store, weft_group *group);
/* Binds programs that run one at a time, such as those of the buckets of one model. All share one
 * arena, workspace and scratch with the size of the largest. Outputs are valid until another of
 * these programs runs. On an error no program is bound. */
weft_status weft_programs_bind(weft_program *const *programs, int count, weft_store *store,
                               weft_group *group);
int64_t weft_programs_bytes(weft_program *const *programs, int count);
/* Binds `program` to the shared memory of the programs bound with `other`, and reserves only its
 * own memory. The programs must not run at the same time. Returns WEFT_E_ARG when the shared memory
 * is too small; see weft_program_fits. */
weft_status weft_program_bind_with(weft_program *program, weft_store *store, weft_group *group,
                                   const weft_program *other);
/* Returns true if the shared memory of `other`, which is bound, is large enough for `program`. */
bool weft_program_fits(const weft_program *program, const weft_program *other);
/* Attaches a bound program that is not running to another group, as the same member and with the
 * same memory. All ranks of the group compare their collectives before the next run. The comparison
 * also runs if `group` is this rank's current group, because other ranks may be new in it. */
weft_status weft_program_rebind(weft_program *program, weft_group *group);
/* Releases the memory. The program can be bound again. */
void weft_program_unbind(weft_program *program);
/* Buffers of this rank, valid until free or unbind: inputs to fill, outputs to read after a run.
 * NULL: unknown name. */
weft_tensor *weft_program_input(weft_program *program, const char *name);
const weft_tensor *weft_program_output(weft_program *program, const char *name);
weft_status weft_program_on_write(weft_program *program, weft_program_written written, void *user);
/* The i-th tensor that a bound program updates; NULL: `i` is past the last. */
const weft_tensor *weft_program_update(const weft_program *program, int i);
/* States outside the store (weft_attr_source.slot), in graph order: microbatch buffers that one
 * program writes and another reads. The caller owns their memory, sets `data` of each before a run,
 * and then calls weft_program_set_slots. */
weft_tensor *weft_program_slots(weft_program *program, int *count);
void weft_program_set_slots(weft_program *program);
/* double_inputs: an input of the other set, which runs read after the next
 * weft_program_swap_inputs(). NULL: no such name, or one set. */
weft_tensor *weft_program_next_input(weft_program *program, const char *name);
void weft_program_swap_inputs(weft_program *program);
/* profile: seconds by node, summed over all runs, and the number of runs. */
const double *weft_program_seconds(const weft_program *program, int64_t *runs);
weft_comm_times weft_program_comm_times(const weft_program *program);

#endif
