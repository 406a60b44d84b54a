/* Programs: a graph compiled once, every buffer placed, run many times without allocating.
 *
 *   store (params, states)  <-- shared by programs: buckets, sampling, EMA
 *   program = graph after passes + memory plan + instructions
 *   comm    = ranks of the mesh
 *
 * The reference backend keeps floats as f64. Callers do not see it: inputs are filled and outputs
 * read in the graph's types, and the store holds the graph's types too. A source's f64 value
 * survives from run to run as long as the store holds its rounding, so that ref steps do not lose
 * precision to the store; what somebody else writes into the store is taken over. Option `wide`
 * shows inputs and outputs as f64. */
#ifndef WEFT_RUNTIME_RUNTIME_H
#define WEFT_RUNTIME_RUNTIME_H

#include "graph/trace.h"
#include "kernel/kernel.h"
#include "pass/pass.h"

/* ---- communicator -------------------------------------------------------------------------- */
typedef struct weft_comm weft_comm;
/* All ranks of this job; one rank when not started by mpirun (MPI is not even initialised then).
 * Raw MPI calls live in runtime/comm_mpi.c. MPI can be started once per process. */
weft_status weft_comm_open_mpi(weft_comm **comm);
/* `ranks` communicators of one process, to be used from one thread each: any world size without
 * MPI. */
weft_status weft_comm_open_fake(int ranks, weft_comm **comms);
/* Rank `rank` of such a world, and none of the others: for all of a set-up that exchanges nothing.
 */
weft_status weft_comm_open_fake_alone(int ranks, int rank, weft_comm **comm);
/* Fake only: the rank behaves from now on as if its process had been killed. */
void weft_comm_fake_kill(weft_comm *comm);
void weft_comm_free(weft_comm *comm);
int weft_comm_rank(const weft_comm *comm);
int weft_comm_ranks(const weft_comm *comm);
/* Seconds after which a wait fails with WEFT_E_COMM naming the ranks that are missing (default
 * 120). A rank whose process on this machine has died is noticed within about a second. */
void weft_comm_set_deadline(weft_comm *comm, double seconds);
/* False when the process of `rank` is known to be gone; `who` (200 bytes) says what it was. By any
 * thread. */
bool weft_comm_alive(weft_comm *comm, int rank, char *who);
/* Seconds that this rank's threads have waited so far for others. */
double weft_comm_waited(weft_comm *comm);
/* Tells the other ranks that this one leaves, with this thread's error message: their waits end at
 * once. A failed run does it by itself; whoever leaves a job of several ranks for another reason
 * calls it before weft_comm_free. */
void weft_comm_give_up(weft_comm *comm);
/* From here to the call with NULL this rank is busy with something that the others wait for
 * ("writing the checkpoint of step 40"): their waits last as long as it is alive and says so. Not
 * nested. */
void weft_comm_busy(weft_comm *comm, const char *what);
weft_status weft_comm_barrier(weft_comm *comm);
weft_status weft_comm_broadcast(weft_comm *comm, void *data, int64_t bytes, int root);
/* out: ranks x bytes, in the order of the ranks. */
weft_status weft_comm_all_gather(weft_comm *comm, const void *data, int64_t bytes, void *out);
/* The same bits everywhere. */
weft_status weft_comm_sum(weft_comm *comm, double *values, int64_t count);
/* WEFT_E_CANCELLED on every rank where one of them was interrupted (base/interrupt.h), so that they
 * leave together; a barrier. */
weft_status weft_comm_interrupt_check(weft_comm *comm);

/* A group is an ordered list of ranks of the job in which this rank is. Making one sends nothing:
 * the ranks of a group make it when they need it, by the same list. Owned by the communicator,
 * which gives the same one for the same list. */
typedef struct weft_group weft_group;
weft_status weft_comm_group(weft_comm *comm, const int *ranks, int count, weft_group **group);
/* Of the same list there is one group for each `purpose` (a number; 0: weft_comm_group's), with
 * queues of its own: what is exchanged in one does not wait for another. */
weft_status weft_comm_group_for(weft_comm *comm, const int *ranks, int count, uint64_t purpose,
                                weft_group **group);
/* All ranks, in order. */
weft_status weft_comm_world(weft_comm *comm, weft_group **group);
/* The ranks that differ from member `index` of the mesh in their coordinate on `axis` only, in the
 * order of that coordinate. The mesh is laid over `base`: member i of the mesh is member i of it.
 */
weft_status weft_comm_axis_group(const weft_group *base, const weft_mesh *mesh, int index, int axis,
                                 weft_group **group);
weft_comm *weft_group_comm(const weft_group *group);
int weft_group_count(const weft_group *group);
int weft_group_index(const weft_group *group);           /* of this rank in the list */
int weft_group_rank(const weft_group *group, int index); /* in the job */
uint64_t weft_group_id(const weft_group *group);         /* of the list; the same on all ranks */
/* As those of the communicator, among the group's ranks; root and order: those of the list. */
weft_status weft_group_barrier(weft_group *group);
weft_status weft_group_broadcast(weft_group *group, void *data, int64_t bytes, int root);
weft_status weft_group_all_gather(weft_group *group, const void *data, int64_t bytes, void *out);
weft_status weft_group_sum(weft_group *group, double *values, int64_t count);

/* What an exchange is for. Exchanges of one group and channel run one after the other, in the order
 * of starting, which is the same on all its ranks; others do not wait for them. */
typedef enum weft_channel {
    WEFT_CHANNEL_LAYERS,    /* inside a layer: what its next node needs */
    WEFT_CHANNEL_GRADIENTS, /* sums that only the update needs */
    WEFT_CHANNEL_STAGES,    /* between stages of a pipeline */
    WEFT_CHANNEL_HANDOFF,   /* between groups of a cascade */
    WEFT_CHANNEL_CONTROL,   /* the communicator's own: barriers, checks, small sums */
    WEFT_CHANNEL_COUNT
} weft_channel;

/* To and from member `peer`. A send keeps a copy and returns at once: two ranks may both send
 * before they receive. Messages between two members of a group arrive in the order of sending. */
weft_status weft_group_send(weft_group *group, weft_channel channel, int peer, const void *data,
                            int64_t bytes);
weft_status weft_group_recv(weft_group *group, weft_channel channel, int peer, void *data,
                            int64_t bytes);

/* ---- store --------------------------------------------------------------------------------- */
typedef struct weft_store weft_store;
weft_store *weft_store_create(void);
/* In the memory of a device other than the host; on a hollow one there are no values. */
weft_store *weft_store_create_on(const weft_device *device);
const weft_device *weft_store_device(const weft_store *store);
void weft_store_free(weft_store *store);
/* What this rank holds of a tensor: the box [start, start + shape) of `whole` (runtime/part.h). */
typedef struct weft_tensor {
    const char *name; /* owned by the store */
    weft_dtype dtype;
    weft_shape shape; /* of the own part */
    void *data;       /* owned by the store, on its device; 64-byte aligned */
    weft_shape whole;
    int64_t start[WEFT_MAX_RANK];
    /* Where several ranks hold the same part, which copy this is, and how many there are (0: as 1).
     * -1: each rank's own content, a part of nothing (its own contribution to a sum). */
    int replica, replicas;
    bool mapped; /* kept elsewhere: on the host `data` is a file's; see weft_tensor_drop */
    bool frozen; /* a parameter that is not trained */
    bool lent;   /* `data` is another store's */
} weft_tensor;
weft_tensor *weft_store_find(weft_store *store, const char *name);   /* NULL: none */
int64_t weft_store_index(const weft_store *store, const char *name); /* -1: none */
int64_t weft_store_count(const weft_store *store);
weft_tensor *weft_store_at(weft_store *store, int64_t index); /* in order of adding */
/* A whole tensor of zeros. */
weft_status weft_store_add(weft_store *store, const char *name, weft_dtype dtype, weft_shape shape,
                           weft_tensor **out);
/* Zeros of the name, type and part of `like`. */
weft_status weft_store_add_like(weft_store *store, const weft_tensor *like, weft_tensor **out);
/* The tensor of another store, whose memory stays that one's and must outlive this one's use. */
weft_status weft_store_lend(weft_store *store, const weft_tensor *tensor);
/* Adds every param and state of `graph` that is not there yet, initialised as the graph says; the
 * part is that of the graph's rank in its mesh. */
weft_status weft_store_init(weft_store *store, const weft_graph *graph, uint64_t seed);
/* True for params and states, but for those in records (weft_attr_source.slot). */
bool weft_store_keeps(const weft_node *node);
/* The same for one of them. */
weft_status weft_store_init_value(weft_store *store, const weft_graph *graph, weft_value value,
                                  uint64_t seed);
int64_t weft_store_bytes(const weft_store *store); /* but those elsewhere, */
int64_t weft_store_away_bytes(const weft_store *store);
/* From here on states whose names match one of `patterns` (borrowed) and that are large enough
 * (pass/pass.h, weft_offload_state), and parameters that the pass stream says so of, are kept in
 * files of the folder `dir` (borrowed; NULL: in memory). */
void weft_store_keep_away(weft_store *store, const char *const *patterns, int count,
                          const char *dir);
/* Somebody has read or written its data: they leave this process' memory if they are a file's. */
void weft_tensor_drop(const weft_tensor *tensor);
/* `bytes` of them from byte `at` on. */
void weft_tensor_drop_part(const weft_tensor *tensor, int64_t at, int64_t bytes);

/* ---- program ------------------------------------------------------------------------------- */
typedef struct weft_program weft_program;
typedef struct weft_program_options {
    const weft_backend *backend; /* NULL: cpu */
    const weft_mesh *mesh;       /* the mesh the graph was sharded for */

    bool guard;         /* guard bytes around every buffer, checked after each run (tests) */
    bool profile;       /* time every node */
    bool wide;          /* ref: inputs and outputs are its own f64 instead of the graph's types */
    bool double_inputs; /* two sets of inputs: one to fill while the other is computed with */
    bool no_overlap;    /* wait for every collective where it starts (to measure) */
    bool no_views;      /* every slice and concat copies */
    bool no_bundle;     /* every all_reduce is an exchange of its own (to measure) */
    /* The axis along which ranks run other programs than this one, stages of a pipeline: a rank may
     * have no exchange that another has, so only what is exchanged on it is compared; NULL: none */
    const char *apart;
    /* What graph op offload moves goes to an unnamed file in this folder (borrowed); NULL: to the
     * host's memory */
    const char *away;
    /* Of kernels; 0: as many as the calling thread has. Planned for, bound for and run with,
     * whatever it has then */
    int threads;
} weft_program_options;
/* Takes a graph that passes have finished with; `graph` is borrowed and must outlive the program.
 * The program is for one rank of a mesh, wherever that mesh is laid later. Plans memory, allocates
 * nothing yet. */
weft_status weft_program_compile(const weft_graph *graph, const weft_program_options *options,
                                 weft_program **out);
/* The program of rank `rank` of the mesh whose nodes have the shapes of those of `like`: it shares
 * the plan, code and tables of `like` (borrowed, not bound) and has exchanges and streams of its
 * own. It has a few KiB, and any number of twins may run at the same time. It needs no store.
 * WEFT_E_ARG: `like` offloads, has a profile or is bound, or a device has memory. */
weft_status weft_program_twin(const weft_program *like, const weft_backend *backend, int rank,
                              weft_program **out);
void weft_program_free(weft_program *program);
/* Bytes that the compiled program itself keeps, bound or not; its graph is not among them. */
int64_t weft_program_own_bytes(const weft_program *program);
const weft_backend *weft_program_backend(const weft_program *program);
const weft_memory_plan *weft_program_plan(const weft_program *program);
/* Bytes that weft_program_bind reserves: arena, workspace, inputs, scratch of the collectives, and
 * for ref its f64 copies of sources, constants, inputs and outputs. A constant that other bound
 * programs have too, which share it, is counted all the same. */
int64_t weft_program_bytes(const weft_program *program);
/* Reserves the memory, connects params and states to the store, which must have all of them, and
 * collectives to the group: rank i of the mesh is its member i, and this rank's number in it is the
 * one that the graph is for. Any such group will do, another one after each unbind; NULL for a
 * program of one rank. */
weft_status weft_program_bind(weft_program *program, weft_store *store, weft_group *group);
/* The same for programs that run one at a time, as those of the buckets of one model: arena,
 * workspace and scratch are one for all, of the largest. Outputs are then valid until another of
 * them runs. Binds all or none. */
weft_status weft_programs_bind(weft_program *const *programs, int count, weft_store *store,
                               weft_group *group);
int64_t weft_programs_bytes(weft_program *const *programs, int count);
/* Bytes elsewhere that they take when they are bound together (graph op offload). */
int64_t weft_programs_away_bytes(weft_program *const *programs, int count);
/* One more program that runs when none of those bound with `other` does: it passes through their
 * memory and reserves what is its own. Of WEFT_E_ARG where that memory is too small for it, see
 * weft_program_fits. */
weft_status weft_program_bind_beside(weft_program *program, weft_store *store, weft_group *group,
                                     const weft_program *other);
/* The memory that `other`, which is bound, passes through is enough for `program`. */
bool weft_program_fits(const weft_program *program, const weft_program *other);
/* A bound program that is not running goes on as the same member of another group, with its memory
 * as it is. The ranks of the group compare what they will exchange before it runs, also where this
 * rank was in that group before: others may not have been. */
weft_status weft_program_move(weft_program *program, weft_group *group);
/* Gives that memory back; the program can be bound again. */
void weft_program_unbind(weft_program *program);
/* Local (this rank's) buffers, valid until free or unbind: inputs to fill, outputs to read after a
 * run. NULL: no such name. */
weft_tensor *weft_program_input(weft_program *program, const char *name);
const weft_tensor *weft_program_output(weft_program *program, const char *name);
weft_status weft_program_run(weft_program *program);
/* In the runs that follow `written` is called, on the caller's thread, as soon as a param or state
 * of the store has its new value, which nothing behind it in the program reads or writes: after the
 * node that made it where it is made in place, else after all nodes. It is the caller's from then
 * on. NULL: nobody is told. */
typedef void (*weft_program_written)(void *user, const weft_tensor *tensor);
weft_status weft_program_watch(weft_program *program, weft_program_written written, void *user);
/* The i-th of those that a bound program writes; NULL: there are no more. */
const weft_tensor *weft_program_update(const weft_program *program, int i);
/* States that are not the store's (weft_attr_source.slot), in the order of the graph: what passes
 * from one program to another, in records of which there may be many. Their bytes are the caller's:
 * `data` of each is set before a run, and weft_program_point tells the program. */
weft_tensor *weft_program_slots(weft_program *program, int *count);
void weft_program_point(weft_program *program);
/* double_inputs: the other set, for the run after the next weft_program_swap_inputs(). */
weft_tensor *weft_program_next_input(weft_program *program, const char *name);
void weft_program_swap_inputs(weft_program *program);
/* profile: seconds and calls per node index. */
const double *weft_program_seconds(const weft_program *program, int64_t *runs);
/* Of a step of a timeline: the exchange that it is, by all who take part in it (a group of the
 * trace; -1: none) and the queue that it waits in; or that it only waits for something. */
typedef struct weft_timeline_note {
    int32_t group, channel;
    bool waits;
    double handling; /* of the exchange: copies and sums that what travels has to wait for */
} weft_timeline_note;
/* What took place on one rank of a job, as a trace of one device and its times. Zero-initialise;
 * everything heap, owned. */
typedef struct weft_timeline {
    weft_trace trace;
    weft_timeline_note *note; /* by step of the trace */
    int64_t note_room;
    double *start, *end; /* by step of the trace: seconds since its origin */
    int64_t start_room, end_room;
    double origin; /* when it was opened, by weft_now() */
    int rank;
    int32_t last; /* step of the compute stream; -1: none yet */
} weft_timeline;
weft_timeline weft_timeline_open(int rank, int ranks);
void weft_timeline_free(weft_timeline *timeline);
/* Something from `begin` to `end` (weft_now()) that has no program: a wait (on the compute stream),
 * a task. */
weft_status weft_timeline_add(weft_timeline *timeline, weft_trace_stream stream, const char *name,
                              double begin, double end);
/* profile: the last run of a program: kernels, waits for collectives (named "wait: ..."), and the
 * collectives themselves on their own stream, each with what it was started after. WEFT_E_ARG
 * without profile or before a run. */
weft_status weft_timeline_add_program(weft_timeline *timeline, const weft_program *program);
/* Chrome's trace format, for Perfetto, with what a replay needs beside it; and back. */
weft_status weft_timeline_write(const weft_timeline *timeline, const char *path);
weft_status weft_timeline_read(const char *path, weft_timeline *timeline);
/* The timelines of all `count` ranks (in any order) as one trace that can be simulated: kernels and
 * what lies between them take the seconds that they took, exchanges are of all their ranks and have
 * bytes, waits take what they must. *executed: seconds from the opening of the timelines
 * (weft_timeline_open_together) to the end of the last one. WEFT_E_FORMAT names the rank and the
 * exchange where they do not belong to one run, or where stages of a pipeline send. */
weft_status weft_timelines_join(const weft_timeline *timeline, int count, weft_trace *out,
                                double *executed);
/* Of the last run: seconds that collectives took, and the part of them in which this rank's kernels
 * had to wait; the bytes this rank sends in a run, and in how many exchanges (a bundle is one). */
typedef struct weft_comm_times {
    double busy, exposed;
    int64_t wire_bytes;
    int exchanges;
} weft_comm_times;
weft_comm_times weft_program_comm_times(const weft_program *program);
static inline void weft_comm_times_add(weft_comm_times *to, weft_comm_times more)
{
    to->busy += more.busy;
    to->exposed += more.exposed;
    to->wire_bytes += more.wire_bytes;
    to->exchanges += more.exchanges;
}
/* Of the last run: bytes that were copied elsewhere and back, the seconds of the copies, and the
 * part of them that this rank's kernels had to wait. */
typedef struct weft_away_times {
    int64_t out, back;
    double busy, exposed;
} weft_away_times;
weft_away_times weft_program_away_times(const weft_program *program);
static inline void weft_away_times_add(weft_away_times *to, weft_away_times more)
{
    to->out += more.out;
    to->back += more.back;
    to->busy += more.busy;
    to->exposed += more.exposed;
}

#endif
