/* Copies a graph node by node into a new one, for passes that keep values but change nodes. */
#ifndef WEFT_GRAPH_REWRITE_H
#define WEFT_GRAPH_REWRITE_H

#include "base/memory.h"
#include "graph/graph.h"
#include "graph/op.h"

typedef struct weft_rewrite {
    const weft_graph *from;
    weft_graph *to;
    weft_value *map; /* by value of `from`: its copy; WEFT_NONE: not copied yet */
} weft_rewrite;

weft_status weft_rewrite_begin(const weft_graph *from, weft_rewrite *rewrite);
/* Copies a node with its layouts. Maps its inputs through `map` (NULL: rewrite->map), and sets the
 * entries of its outputs. */
void weft_rewrite_node(weft_rewrite *rewrite, int32_t node, weft_value *map);
/* Copies outputs and updates, and checks the new graph (verifies it in builds with assert). Frees
 * everything but *out. */
weft_status weft_rewrite_finish(weft_rewrite *rewrite, const char *pass, weft_graph **out);
/* Like weft_rewrite_finish, but the caller has emitted outputs and updates. */
weft_status weft_rewrite_check(weft_rewrite *rewrite, const char *pass, weft_graph **out);
void weft_rewrite_abandon(weft_rewrite *rewrite);
/* A state outside the store (weft_attr_source.slot) with the type, shape and layout of `like`.
 * `offloaded`: in the offload buffer. */
weft_value weft_rewrite_slot(weft_graph *to, const char *name, const weft_value_info *like,
                             bool offloaded);

/* The fetch of one offloaded value. */
typedef struct weft_prefetch {
    int32_t value;    /* offloaded value */
    int32_t consumer; /* first node that reads it */
    int32_t start;    /* node before which the fetch starts */
    int64_t bytes;
} weft_prefetch;

/* A rewrite of a graph that offloads some of its values. */
typedef struct weft_offload_rewrite {
    weft_rewrite r;
    const weft_graph *g;
    weft_arena *arena; /* arena of the pass */
    int32_t nodes, values;
    int32_t *root;    /* by value: the value that it is an alias of, or itself */
    bool *leaves;     /* by root: offloaded; set by the pass */
    weft_value *late; /* by value: the fetched copy for its readers; WEFT_NONE at first */
    weft_prefetch *needs;
    int64_t count, capacity, prefetch_bytes;
} weft_offload_rewrite;

/* Bytes of the value in its dtype. */
int64_t weft_value_bytes(const weft_graph *g, weft_value v);
/* '*' matches any text, also an empty one. */
bool weft_name_matches(const char *pattern, const char *name);

#endif
