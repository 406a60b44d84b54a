/* Passes: named functions from graph to graph. Each leaves its input alone and returns a new graph in
 * *out (freed by the caller), or says in weft_pass_report what it changed. The verifier runs behind
 * each in tests and debug builds. Any pass can be switched off by name. */
#ifndef WEFT_PASS_PASS_H
#define WEFT_PASS_PASS_H

#include "graph/graph.h"

/* ---- shard (design: layouts and collectives) ---- */
/* A recipe is data: patterns over names of params, inputs, states and outputs ('*' any text) -> layout
 * on one axis. First match wins; what nothing matches is R. */
typedef struct weft_recipe_row { const char *pattern; const char *axis; weft_layout layout; } weft_recipe_row;
typedef struct weft_recipe { const char *name; const weft_recipe_row *row; int count; } weft_recipe;
/* Data parallel: inputs "batch.*" are S(0) on dp, everything else R. */
extern const weft_recipe weft_recipe_dp;
/* The graph of `rank`: local shapes, conversions inserted as ops, outputs converted to R unless the
 * recipe says otherwise. Forward graphs only: autodiff runs on the result. */
weft_status weft_pass_shard(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph **out);

/* ---- recompute ---- */
/* Outputs of forward nodes whose scope or op name matches one of `patterns` are not kept for the backward:
 * their nodes are emitted again just before the first backward consumer. Bitwise. */
weft_status weft_pass_recompute(const weft_graph *g, const char *const *patterns, int count, weft_graph **out);

/* ---- fuse: linear + bias + activation where nothing else reads the value between; close ---- */
weft_status weft_pass_fuse(const weft_graph *g, weft_graph **out);

/* ---- order: collectives as early, their first use as late as dependencies allow; dead nodes go ---- */
weft_status weft_pass_order(const weft_graph *g, weft_graph **out);

/* ---- lifetime: a place for every buffer ---- */
typedef struct weft_place {
    int64_t offset;      /* bytes in the arena; -1: not there (source in the store, or an alias) */
    int64_t bytes;       /* rounded up to 64 */
    int32_t alias_of;    /* value id that this one shares storage with, or -1 */
    int32_t first, last; /* node indices between which it is live, inclusive */
} weft_place;
typedef struct weft_memory_plan {
    weft_place *place; /* by value id; owned */
    int32_t count;
    int64_t arena_bytes;     /* activations: the peak, exactly what is reserved */
    int64_t workspace_bytes; /* the largest kernel workspace, reserved once */
    int64_t source_bytes;    /* params and states of this graph on this rank */
    int64_t input_bytes;
} weft_memory_plan;
/* Bytes of scratch that the backend's kernel for `node` needs. */
typedef int64_t weft_workspace_fn(void *user, const weft_graph *g, int32_t node);
weft_status weft_pass_lifetime(const weft_graph *g, weft_workspace_fn *workspace, void *user, weft_memory_plan *plan);
/* Independent of how the plan was made: recomputes liveness and proves that no two live buffers overlap. */
weft_status weft_memory_plan_check(const weft_graph *g, const weft_memory_plan *plan);
void weft_memory_plan_free(weft_memory_plan *plan);

#endif
