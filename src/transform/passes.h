/* The list of passes: names, effects and order. Training, generation and inspection all run this
 * list, so that inspection shows the graphs that run.
 *
 *   graph of complete tensors
 *      | WEFT_PASS_WHOLE: token_sharding; shard, with layer_slices and early_exchange; narrow
 *   graph of one rank, forward
 *      | the caller adds gradients and optimizer
 *   graph of one rank
 *      | WEFT_PASS_RANK: recompute, reshard_after_forward, fuse, cfg_branches, comm_order, offload,
 *      |                 weight_streaming, pointwise
 *   graph that is compiled into a program
 *      | views: at memory planning (weft_program_options.no_views) */
#ifndef WEFT_TRANSFORM_PASSES_H
#define WEFT_TRANSFORM_PASSES_H

#include "base/config.h"
#include "graph/mesh.h"
#include "transform/memory/saved_activations.h"
#include "transform/numeric/cfg_branches.h"
#include "transform/sharding/recipes.h"

/* Effect of a pass on rounding. The memory limit, measured rates and other inputs that may differ
 * between two starts of a run may only enable passes that preserve rounding. */
typedef enum weft_pass_rounding {
    WEFT_ROUNDING_PRESERVED, /* bitwise identical results; verified after each pass */
    WEFT_ROUNDING_CHANGED    /* other order of sums, product sizes or types */
} weft_pass_rounding;

/* ROW(member, name, earlier name or NULL, default, rounding, description), in execution order. */
#define WEFT_PASS_LIST(ROW)                                                                        \
    ROW(tokens, "token_sharding", "tokens", true, CHANGED,                                         \
        "moves noise, target and loss to local tokens, if an axis splits the tokens")              \
    ROW(slice, "layer_slices", "slice", true, CHANGED,                                             \
        "cuts layers with independent groups into slices, each with its own exchange")             \
    ROW(lift, "early_exchange", "lift", true, PRESERVED,                                           \
        "starts the exchanges of the first slices during the previous layer")                      \
    ROW(recompute, "recompute", NULL, true, PRESERVED,                                             \
        "recomputes nodes in the backward, selected by memory.recompute or memory.limit")          \
    ROW(regather, "reshard_after_forward", "regather", true, PRESERVED,                            \
        "gathers or rounds parameters again in the backward, in place of saving the results")      \
    ROW(fuse, "fuse", NULL, true, PRESERVED,                                                       \
        "moves an activation into the linear before it, if it is the only consumer")               \
    ROW(halves, "cfg_branches", "halves", true, CHANGED,                                           \
        "computes products of the CFG branches in sequence, and rows equal in both once")          \
    ROW(order, "comm_order", "order", true, PRESERVED,                                             \
        "starts collectives early, moves work after their starts, removes dead nodes")             \
    ROW(offload, "offload", NULL, true, PRESERVED,                                                 \
        "offloads values selected by memory.offload or memory.limit, and fetches them for use")    \
    ROW(stream, "weight_streaming", "stream", true, PRESERVED,                                     \
        "fetches large weights from their files for each use (--weights stream)")                  \
    ROW(pointwise, "pointwise", NULL, true, PRESERVED,                                             \
        "joins chains of elementwise ops into one kernel each (backend cuda)")                     \
    ROW(views, "views", NULL, true, PRESERVED,                                                     \
        "makes slices and concats of contiguous rows views, without a copy")

/* true: the pass runs. weft_pass_section defines the config section `passes`. */
typedef struct weft_pass_switches {
#define WEFT_PASS_MEMBER(member, name, earlier, fallback, rounding, help) bool member;
    WEFT_PASS_LIST(WEFT_PASS_MEMBER)
#undef WEFT_PASS_MEMBER
} weft_pass_switches;
extern const weft_section weft_pass_section;
/* Default of each switch, from WEFT_PASS_LIST. */
extern const weft_pass_switches weft_pass_defaults;
/* Sets switches by "NAME=off" or "NAME=on"; the error lists the names. */
weft_status weft_pass_switch(weft_pass_switches *switches, const char *text);

typedef enum weft_pass_phase { WEFT_PASS_WHOLE, WEFT_PASS_RANK } weft_pass_phase;

/* Inputs of the passes; borrowed. */
typedef struct weft_pass_setup {
    const weft_pass_switches *switches; /* NULL: weft_pass_defaults */
    const weft_mesh *mesh;              /* NULL or one rank: no sharding */
    int rank;
    const weft_recipe *recipe;      /* required with more than one rank */
    bool bf16_compute, bf16_reduce; /* models compute in bf16; gradients are all-reduced in bf16 */
    bool tf32_compute;              /* operands of products may be rounded to TF32 */
    const char *const *recompute;
    int recompute_count;
    const weft_activation_plan *activations; /* plan chosen for memory.limit; NULL: none */
    const char *const *offload_states;       /* patterns of states to offload between runs */
    int offload_state_count;
    bool cfg_branches;                 /* a denoising batch has both CFG branches on this rank */
    const weft_cfg_inputs *cfg_inputs; /* inputs with equal branches; NULL: none are known */
    bool pointwise; /* one kernel may compute a chain (weft_backend.joins_pointwise) */
    bool stream;    /* weight streaming: parameters are fetched for each use */
    /* maximum bytes of copies in flight per direction, and of parameters gathered ahead of use.
     * 0: bytes of the two largest, or with weight streaming bytes of the largest block */
    int64_t prefetch_bytes;
    /* Called with the graph before the passes of WEFT_PASS_RANK. NULL: not called */
    weft_status (*inspect)(void *user, const weft_graph *graph);
    void *inspect_user;
} weft_pass_setup;

/* Effect of a pass, computed from the graphs before and after it. */
typedef struct weft_pass_report {
    const char *name, *help;
    bool ran;          /* true: enabled and applicable */
    bool off;          /* true: disabled */
    int32_t nodes[2];  /* before and after */
    weft_cost cost[2]; /* cost of the complete graph; bytes are kernel traffic */
    int64_t peak[2];   /* bytes of the arena of a run, without in-place kernels */
    double seconds;    /* run time of the pass */
    char changed[320]; /* op counts that changed, and the pass's own message */
} weft_pass_report;

enum { WEFT_PASS_REPORTS = 16 };
typedef struct weft_pass_log {
    int count;
    weft_pass_report report[WEFT_PASS_REPORTS];
} weft_pass_log;

/* Runs the passes of `phase` and replaces *graph by the result. Frees the intermediate graphs, and
 * the input graph unless `keep_input`. If `log` is not NULL, each pass appends a report, which
 * costs a memory plan per pass. Returns WEFT_E_INTERNAL if a pass changes rounding although its row
 * declares PRESERVED. */
weft_status weft_passes_run(weft_pass_phase phase, const weft_pass_setup *setup, bool keep_input,
                            weft_graph **graph, weft_pass_log *log);
/* Returns the rounding declared by the pass `name`, which may also be `shard` or `narrow`. */
weft_pass_rounding weft_pass_rounding_of(const char *name);
/* Prints a table with one line per pass. */
void weft_pass_log_print(const weft_pass_log *log, weft_buf *out);

#endif
