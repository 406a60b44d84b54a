/* Measured seconds of a machine's kernels, and what nodes of a graph take by them.
 *
 * A rate is one node that was timed: its op and the shapes of its operands. The time of another
 * node is that of the nearest ones of the same op (by the logarithms of their dims), scaled by the
 * work: what was timed with the same shapes is taken as it is. Exchanges between ranks are timed by
 * op and size. */
#ifndef WEFT_PLAN_RATES_H
#define WEFT_PLAN_RATES_H

#include "graph/graph.h"
#include "plan/cost/op_list.h"

enum { WEFT_RATE_KEY = 320, WEFT_RATE_DIMS = 40 };

typedef struct weft_rate {
    const char *key; /* weft_rate_key: "linear f32[1,256,384] f32[1536,384] -> f32[1,256,1536]" */
    double flops, bytes; /* of the op's cost row */
    double seconds;
} weft_rate;

/* An exchange that was timed. */
typedef struct weft_wire_rate {
    const char *op;       /* "all_reduce"; "send" is from one rank to another */
    int64_t ranks, bytes; /* bytes: of the tensor, or what all ranks' parts make of it */
    double seconds;
} weft_wire_rate;

/* A whole program that was timed as it runs, with what its exchanges and kernels lose to each other
 * on this machine. */
typedef struct weft_program_rate {
    uint64_t id;      /* weft_rates_program_id */
    const char *what; /* for people */
    double seconds;
} weft_program_rate;

typedef struct weft_rates {
    weft_rate *item; /* arena; sorted by key */
    int64_t count;
    int64_t threads;      /* that they were measured with, */
    int64_t ranks;        /* in each of so many processes at the same time; 0: as 1 */
    weft_wire_rate *wire; /* arena; of one op and number of ranks in rising order of bytes */
    int64_t wires;
    double drag;  /* of an exchange's seconds, the share that kernels beside it take longer */
    double touch; /* seconds of a byte of memory that is used for the first time; 0: not measured */
    weft_program_rate *program; /* borrowed */
    int64_t programs;
} weft_rates;

/* What distinguishes a node for its kernel. */
void weft_rate_key(const weft_graph *graph, int32_t node, char text[WEFT_RATE_KEY]);
/* Sorts and checks: keys once, numbers finite and positive. WEFT_E_FORMAT. */
weft_status weft_rates_check(weft_rates *rates, const char *where);

/* Of a node with this key and cost; *exact: it was timed itself. NAN: no node of its op was. */
double weft_rates_seconds(const weft_rates *rates, const char *key, double flops, double bytes,
                          bool *exact);

/* Of an exchange, between the sizes that were timed; NAN: none of this op and so many ranks was. */
double weft_rates_wire_seconds(const weft_rates *rates, const char *op, int64_t ranks,
                               double bytes);

/* Of a compiled program: its graph and the mesh that this is for. */
uint64_t weft_rates_program_id(const weft_graph *graph);
/* The program of this graph; NULL: it was not timed. */
const weft_program_rate *weft_rates_program(const weft_rates *rates, const weft_graph *graph);

/* Appends what a price rests on where that is not mostly a profile of its own shapes: `rates` is
 * NULL, or less than half of its kernels' seconds, the share `exact`, was measured at them, as by
 * a profile of another model. `measure`: what would be nearer. */
void weft_rates_tell_basis(const weft_rates *rates, double exact, const char *measure,
                           weft_buf *out);

/* What a node is limited by, from its op. */
weft_work weft_node_work(const weft_node *node);

#endif
