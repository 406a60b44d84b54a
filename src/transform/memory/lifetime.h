#ifndef WEFT_TRANSFORM_MEMORY_LIFETIME_H
#define WEFT_TRANSFORM_MEMORY_LIFETIME_H

#include "base/dtype.h"
#include "graph/op.h"

struct lifetime;

/* Memory area of a value. */
typedef enum weft_region {
    WEFT_REGION_ARENA,    /* activations: `offset` in the program's arena */
    WEFT_REGION_STORE,    /* params, states: memory of the store or of a slot */
    WEFT_REGION_INPUT,    /* `offset` in the input area */
    WEFT_REGION_CONSTANT, /* `offset` in the constant area, if the backend copies constants */
    WEFT_REGION_OFFLOAD,  /* `offset` in the offload buffer, except states */
} weft_region;
typedef struct weft_allocation {
    weft_region region; /* region of the storage; alias: region of its root */
    int64_t offset;     /* bytes in the region; -1: in the store, or an alias */
    int64_t bytes;      /* size in the backend's type, rounded up to 64 */
    int32_t alias_of;   /* value id whose storage this one shares; -1: none */
    int64_t shift;      /* alias: offset in bytes from alias_of */
    /* Live range as node indices, inclusive. last = node count: live to the end of the run and
     * until the next one. The storage of a concat is live from the first part that is computed in
     * place */
    int32_t first, last;
} weft_allocation;
/* Properties of a backend for the pass; all members may be 0. */
typedef struct weft_lifetime_options {
    void *user;
    /* Returns the workspace bytes of the kernel for `node`. NULL: none. */
    int64_t (*workspace)(void *user, const weft_graph *g, int32_t node);
    /* Bytes of one element in storage (ref keeps floats as f64); NULL: weft_dtype_bytes. */
    int64_t (*element_bytes)(void *user, weft_dtype dtype);
    /* Returns the nodes after the last use of a value during which no other value uses its bytes,
     * so that kernels which are launched together do not conflict. NULL: none. */
    int32_t (*idle)(void *user, const weft_graph *g, int32_t value);
    int64_t guard; /* free bytes before and after every arena buffer, a multiple of 64 */
    bool in_place; /* kernels overwrite inputs where the op's row allows it */
    bool no_views; /* slices and concats copy */
    /* only reshape and vary share storage, so that every value is readable after the run */
    bool no_alias;
} weft_lifetime_options;
typedef struct weft_memory_plan {
    weft_allocation *allocation; /* one per value id; owned */
    int32_t count;
    int32_t *wait; /* per node: see weft_comm_waits; owned */
    /* Per node: true if the node executes nothing, because its result is existing bytes (reshape,
     * vary, and slices and concats without a copy); owned */
    bool *view;
    int32_t node_count;
    int64_t arena_bytes;     /* activations: bytes to reserve */
    int64_t live_bytes;      /* peak of live bytes over nodes: lower bound of arena_bytes */
    int64_t workspace_bytes; /* the largest kernel workspace, reserved once */
    int64_t source_bytes;    /* resident params and states of this graph on this rank */
    int64_t streamed_bytes;  /* offloaded params (pass weight_streaming) */
    int64_t input_bytes;
    int64_t constant_bytes;
    int64_t offloaded_bytes; /* bytes of the offload buffer */
} weft_memory_plan;

/* Bytes of a value in the backend's type, not rounded. */
int64_t weft_lifetime_bytes(const struct lifetime *l, int32_t value);
/* Sets `last` and `last_read` of all values from the graph and the current aliases. */
void weft_lifetime_set_lives(struct lifetime *l);

/* Plans the memory of a graph. Storage is shared in these cases: reshape and vary share their
 * input. A slice of contiguous rows shares its input. Parts of a concat are computed in place. An
 * output takes the storage of an input that dies there, if the kernel allows it. An update
 * overwrites its source if no later node reads the old value. `options` NULL: no workspace, no
 * in-place kernels. */
weft_status weft_pass_lifetime(const weft_graph *g, const weft_lifetime_options *options,
                               weft_memory_plan *plan);
void weft_memory_plan_free(weft_memory_plan *plan);
/* The value that owns v's storage (v if it is not an alias). */
int32_t weft_memory_plan_root(const weft_memory_plan *plan, int32_t value);
/* Offset of v in that storage, in bytes. */
int64_t weft_memory_plan_shift(const weft_memory_plan *plan, int32_t value);

#endif
