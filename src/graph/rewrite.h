/* Copying a graph node by node into a new one: what the passes that keep values but change nodes
 * share. */
#ifndef WEFT_PASS_REWRITE_H
#define WEFT_PASS_REWRITE_H

#include "pass/pass.h"

typedef struct weft_rewrite {
    const weft_graph *from;
    weft_graph *to;
    weft_value *map; /* by value of `from`: its copy, WEFT_NONE before that */
} weft_rewrite;

weft_status weft_rewrite_begin(const weft_graph *from, weft_rewrite *rewrite);
/* Copies a node with its layouts, its inputs taken through `map` (NULL: rewrite->map), which gets
 * the outputs. */
void weft_rewrite_node(weft_rewrite *rewrite, int32_t node, weft_value *map);
/* Outputs and updates; checks the new graph (verified where assert is on). Frees all but *out. */
weft_status weft_rewrite_finish(weft_rewrite *rewrite, const char *pass, weft_graph **out);
/* The same without these: the caller has made its own. */
weft_status weft_rewrite_check(weft_rewrite *rewrite, const char *pass, weft_graph **out);
void weft_rewrite_abandon(weft_rewrite *rewrite);
/* A state that is no store's (weft_attr_source.slot), of this type and shape, laid out so; `away`:
 * and lies elsewhere. */
weft_value weft_rewrite_slot(weft_graph *to, const char *name, const weft_value_info *like,
                             bool away);

/* The first node of the backward; the node count: there is none. */
int32_t weft_rewrite_backward(const weft_graph *g);
/* A copy of `g` whose backward makes the results of `chosen` nodes (by index) again; nodes of
 * `away` (NULL: none) are marked so. */
weft_status weft_rewrite_again(const weft_graph *g, const bool *chosen, const bool *away,
                               const char *pass, weft_graph **out);

/* Something that is fetched from elsewhere. */
typedef struct weft_need {
    int32_t value;  /* that is elsewhere */
    int32_t reader; /* the first node that wants it */
    int32_t start;  /* the node before which it is fetched */
    int64_t bytes;
} weft_need;
/* Sorts them by readers and sets the starts, at `begin` at the earliest, so that no more than *room
 * bytes (0: what the two largest need, which it is set to) are there before their use. */
void weft_needs_start(weft_need *needs, int64_t count, int32_t begin, int64_t *room);

/* A rewrite of a graph whose values lie elsewhere for a while. */
typedef struct weft_moving {
    weft_rewrite r;
    const weft_graph *g;
    weft_arena *arena; /* of the pass */
    int32_t nodes, values;
    int32_t *root;    /* by value: the one that it is another name of, or itself */
    bool *leaves;     /* by root: it does; the pass sets that */
    weft_value *late; /* by value: what readers of what was fetched get; WEFT_NONE at first */
    weft_need *needs;
    int64_t count, capacity, room;
} weft_moving;
/* `pass`: its name, for messages. */
weft_status weft_moving_begin(const weft_graph *g, const char *pass, int64_t room, weft_moving *m);
/* Also behind weft_rewrite_finish. */
void weft_moving_free(weft_moving *m);
weft_status weft_moving_need(weft_moving *m, int32_t value, int32_t reader);
/* The copy (graph op offload or fetch) of a value of the new graph, in the scope of `beside`. */
weft_value weft_moving_emit(weft_moving *m, weft_op op, weft_value in, const weft_node *beside,
                            bool backward);

/* Length of "transformer.blocks.3" in the scope of what that block does; 0: in no block. */
size_t weft_scope_block(const char *scope);

/* In the graph's type. */
int64_t weft_value_bytes(const weft_graph *g, weft_value v);
/* '*' is any text, also none. */
bool weft_name_matches(const char *pattern, const char *name);

#endif
