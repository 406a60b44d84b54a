/* Programs: compile a graph for a backend, bind the program to memory, and run it. Also tensors,
 * weights and ranks. */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "weft/core.h"
#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ranks ----------------------------------------------------------------------------------- */

/* A communicator: this process's rank in a job. Collective functions are called by all ranks in
 * the same order. After WEFT_E_COMM a communicator can only be freed. */
typedef struct weft_comm weft_comm;
/* The ranks of a communicator, which owns it. */
typedef struct weft_group weft_group;

/* All ranks of the job that mpirun started; one rank without mpirun. At most once per process.
 * Free with weft_comm_free. */
weft_status_code weft_comm_open_mpi(weft_comm **comm);
/* `ranks` communicators of this process in comms[ranks], each for a thread of the caller. */
weft_status_code weft_comm_open_threads(int ranks, weft_comm **comms);
void weft_comm_free(weft_comm *comm);
int weft_comm_rank(const weft_comm *comm);
int weft_comm_ranks(const weft_comm *comm);
/* Seconds after which a wait fails with WEFT_E_COMM and names the missing ranks (default 120). */
void weft_comm_set_deadline(weft_comm *comm, double seconds);
/* Notifies the other ranks that this rank leaves because of its last error. Call before
 * weft_comm_free after an error outside of a collective function. */
void weft_comm_abort(weft_comm *comm);
/* Collective. Sums values[count] over the ranks; bitwise identical on all ranks. */
weft_status_code weft_comm_sum(weft_comm *comm, double *values, int64_t count);
/* The group of all ranks. Nothing is sent. */
weft_status_code weft_comm_world(weft_comm *comm, weft_group **group);

/* ---- tensors and stores ---------------------------------------------------------------------- */

/* A tensor, or this rank's shard of one. Belongs to a store or a program. */
typedef struct weft_tensor weft_tensor;

typedef struct weft_tensor_description {
    size_t size;
    const char *name; /* valid as long as the tensor */
    weft_dtype dtype;
    weft_shape shape; /* of the shard */
    weft_shape whole; /* of the complete tensor */
} weft_tensor_description;
weft_status_code weft_tensor_describe(const weft_tensor *tensor,
                                      weft_tensor_description *description);
/* The elements of the shard, aligned to 64 bytes. Do not access them during a run. NULL: the host
 * cannot access them; use the functions below. */
void *weft_tensor_data(weft_tensor *tensor);
/* Copies the shard's elements from or to values[count], which are converted from or to f32.
 * WEFT_E_SHAPE: `count` is not the number of elements. WEFT_E_UNSUPPORTED: an integer type. */
weft_status_code weft_tensor_put_f32(weft_tensor *tensor, const float *values, int64_t count);
weft_status_code weft_tensor_get_f32(const weft_tensor *tensor, float *values, int64_t count);

/* Parameters and states by name. */
typedef struct weft_store weft_store;

/* NULL: out of memory. Free with weft_store_free, after the programs that use the store. */
weft_store *weft_store_create(void);
void weft_store_free(weft_store *store);
/* Adds every parameter and state of `graph` that the store lacks, with the graph's initial values,
 * which depend on `seed` and the name only. */
weft_status_code weft_store_init(weft_store *store, const weft_graph *graph, uint64_t seed);
weft_tensor *weft_store_find(weft_store *store, const char *name); /* NULL: none */
int64_t weft_store_count(const weft_store *store);
/* Tensor `index` in the order of adding. */
weft_tensor *weft_store_at(weft_store *store, int64_t index);

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct weft_weights_options {
    size_t size;
    const char *prefix; /* prefix of names in the graph that files lack; NULL: "" */
    int partial;        /* loading, 1: the file may have tensors that the graph lacks */
    /* saving: element type F32, BF16 or F16, bytes of a file (0: one file), and the files' stem
     * (NULL: "model") */
    weft_dtype dtype;
    int64_t max_file_bytes;
    const char *stem;
} weft_weights_options;
/* Fills the parameters of `graph` in the store from a file or folder: safetensors, GGUF or torch.
 * Each rank reads its shards. One error lists all missing and unknown tensors, and leaves the
 * store unchanged. `options` NULL: defaults. */
weft_status_code weft_store_load(weft_store *store, const weft_graph *graph, const char *path,
                                 const weft_weights_options *options);
/* Writes the complete parameters of `graph` to <folder>/<stem>.safetensors. Collective with
 * `comm`; NULL: one rank. `options` NULL: defaults. */
weft_status_code weft_store_save(weft_store *store, weft_comm *comm, const weft_graph *graph,
                                 const char *folder, const weft_weights_options *options);

/* ---- programs -------------------------------------------------------------------------------- */

typedef struct weft_program weft_program;

typedef struct weft_compile_options {
    size_t size;
    const char *backend; /* "cpu", "ref", ...; NULL: "cpu" */
    int threads;         /* kernel threads; 0 (default): the calling thread's number */
    int profile;         /* 1: time every node, for weft_program_write_timeline */
    int guard;           /* 1: check guard bytes around every buffer after each run */
} weft_compile_options;
/* Compiles a graph and plans its memory; reserves none. `graph` is borrowed and must outlive the
 * program. `options` NULL: defaults. WEFT_E_ARG: no such backend. Free with
 * weft_program_free. */
weft_status_code weft_program_create(const weft_graph *graph, const weft_compile_options *options,
                                     weft_program **program);
void weft_program_free(weft_program *program);
/* Bytes that weft_program_bind will reserve: the memory of a run without parameters and states. */
int64_t weft_program_bytes(const weft_program *program);
/* Reserves the memory, and connects the program to the store, which must contain all parameters
 * and states. `group`: one member per rank of the mesh; NULL: one rank. */
weft_status_code weft_program_bind(weft_program *program, weft_store *store, weft_group *group);
/* Runs a bound program. Collective over the ranks of its group. */
weft_status_code weft_program_run(weft_program *program);
/* Tensors of this rank, valid until the program is freed: inputs to fill before a run,
 * outputs to read after a run. NULL: no such name. */
weft_tensor *weft_program_input(weft_program *program, const char *name);
const weft_tensor *weft_program_output(weft_program *program, const char *name);
/* weft_tensor_put_f32 and weft_tensor_get_f32 by name. WEFT_E_ARG: no such input or output,
 * or the program is not bound. */
weft_status_code weft_program_put(weft_program *program, const char *name, const float *values,
                                  int64_t count);
weft_status_code weft_program_get(const weft_program *program, const char *name, float *values,
                                  int64_t count);

/* Writes the last run of a program with `profile` (kernels, waits and collectives of this rank) in
 * Chrome's trace format, for Perfetto (ui.perfetto.dev). WEFT_E_ARG: no `profile`, or no run. */
weft_status_code weft_program_write_timeline(const weft_program *program, const char *path);

#ifdef __cplusplus
}
#endif

#endif
