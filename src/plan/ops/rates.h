/* Measured seconds of a machine's kernels, and estimates of graph nodes by these seconds.
 *
 * A rate is one timed node: its op and the shapes of its operands. A node with the same shapes gets
 * the measured time. Any other node gets the times of the nearest rates of its op (by the
 * logarithms of the dims), scaled by the work. Keys have the types of all operands, so f32 and bf16
 * have rates of their own. Collectives and messages are timed by op and size. */
#ifndef WEFT_PLAN_OPS_RATES_H
#define WEFT_PLAN_OPS_RATES_H

#include "graph/graph.h"
#include "plan/ops/op_list.h"

enum { WEFT_RATE_KEY = 320, WEFT_RATE_DIMS = 40 };

typedef struct weft_rate {
    const char *key; /* weft_rate_key: "linear f32[1,256,384] f32[1536,384] -> f32[1,256,1536]" */
    double flops, bytes; /* from the op's cost row */
    double seconds;
} weft_rate;

/* Timed collective or message. */
typedef struct weft_wire_rate {
    const char *op;       /* "all_reduce"; "send" is from one rank to another */
    int64_t ranks, bytes; /* bytes: of the tensor, or of all ranks' parts together */
    double seconds;
} weft_wire_rate;

/* Timed execution of a complete program, including the mutual slowdown of communication and kernels
 * on this machine. */
typedef struct weft_program_rate {
    uint64_t id;      /* weft_rates_program_id */
    const char *what; /* description for messages */
    double seconds;
} weft_program_rate;

typedef struct weft_rates {
    weft_rate *item; /* arena; sorted by key */
    int64_t count;
    int64_t threads;      /* threads used in the measurement */
    int64_t ranks;        /* processes measured at the same time; 0: one */
    weft_wire_rate *wire; /* arena; ascending bytes for one op and number of ranks */
    int64_t wires;
    double slowdown; /* slowdown of kernels during communication, as a share of its seconds */
    double touch;    /* seconds per byte of memory on first use; 0: not measured */
    weft_program_rate *program; /* borrowed */
    int64_t programs;
} weft_rates;

/* Writes the key of a node: all properties that its kernel depends on. */
void weft_rate_key(const weft_graph *graph, int32_t node, char text[WEFT_RATE_KEY]);
/* Writes the key that the node would have with f32 in place of bf16. Returns the bytes of its
 * operands and results then. */
int64_t weft_rate_key_f32(const weft_graph *graph, int32_t node, char text[WEFT_RATE_KEY]);
/* Sorts and checks the rates: unique keys, finite and positive numbers. WEFT_E_FORMAT. */
weft_status weft_rates_check(weft_rates *rates, const char *where);

/* Returns the seconds of a node with this key and cost. *exact: the node itself was timed. NAN: no
 * node of its op was timed. */
double weft_rates_seconds(const weft_rates *rates, const char *key, double flops, double bytes,
                          bool *exact);

/* Whether a node of this key's op was timed with a first operand of bf16. */
bool weft_rates_has_bf16(const weft_rates *rates, const char *key);

/* Returns the seconds of a collective or message, interpolated between timed sizes. NAN: none with
 * this op and number of ranks was timed. */
double weft_rates_wire_seconds(const weft_rates *rates, const char *op, int64_t ranks,
                               double bytes);

/* Returns the id of a compiled program: of its graph and the graph's mesh. */
uint64_t weft_rates_program_id(const weft_graph *graph);
/* Returns the rate of this graph's program; NULL: not timed. */
const weft_program_rate *weft_rates_program(const weft_rates *rates, const weft_graph *graph);

/* Appends a note on the basis of an estimate if it is not mostly measured at its own shapes. This
 * is the case if `rates` is NULL, or if `exact`, the measured share of its kernel seconds, is below
 * half. An example is a profile of another model. `measure`: the measurement that would improve the
 * estimate. */
void weft_rates_format_basis(const weft_rates *rates, double exact, const char *measure,
                             weft_buf *out);

/* Returns the limit of a node, derived from its op. */
weft_work weft_node_work(const weft_node *node);

#endif
