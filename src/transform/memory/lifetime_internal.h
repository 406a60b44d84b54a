/* Internals of the lifetime pass, shared by lifetime.c and views.c. */
#ifndef WEFT_TRANSFORM_MEMORY_LIFETIME_INTERNAL_H
#define WEFT_TRANSFORM_MEMORY_LIFETIME_INTERNAL_H

#include "graph/op.h"
#include "transform/memory/lifetime.h"

/* Live range of a value that owns its storage. */
typedef struct life {
    int32_t last;      /* last node that uses the bytes, running requests included */
    int32_t last_read; /* last node that reads the value */
    int32_t landed;    /* while sharing: node from which no earlier collective sends the bytes */
    int32_t goal;      /* source that may be updated in place with this value; -1: none */
    bool pinned;       /* live to the end: an output, or an update to copy */
} life;

typedef struct lifetime {
    const weft_graph *graph;
    const weft_lifetime_options *options;
    weft_memory_plan *plan;
    int32_t nodes, values;
    life *life; /* one per value */
} lifetime;

#endif
