/* Inside the lifetime pass: lifetime.c and views.c. */
#ifndef WEFT_PASS_LIFETIME_H
#define WEFT_PASS_LIFETIME_H

#include "pass/pass.h"

/* Of a value that is its own storage. */
typedef struct life {
    int32_t last;   /* the last node during which its bytes are in use, under way included */
    int32_t reader; /* the last node that reads it */
    int32_t landed; /* while sharing: no collective seen so far sends it from this node on */
    int32_t goal;   /* the source whose new value it is, if it may be written there; -1: none */
    bool pinned;    /* in use to the end: an output, or a new value that is copied then */
} life;

typedef struct lifetime {
    const weft_graph *graph;
    const weft_lifetime_options *options;
    weft_memory_plan *plan;
    int32_t nodes, values;
    life *life; /* by value */
} lifetime;

/* Bytes of a value as the backend keeps it, not rounded. */
int64_t weft_lifetime_bytes(const lifetime *l, int32_t value);
/* `last` and `reader` from the graph and the aliases as they are. */
void weft_lifetime_set_lives(lifetime *l);
/* Chooses the slices and concats that copy nothing: sets alias_of, shift, first and view. */
weft_status weft_lifetime_find_views(lifetime *l);

#endif
