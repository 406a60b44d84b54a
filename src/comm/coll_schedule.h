/* This rank's sends and receives in a collective: pure functions of sizes.
 *
 * A collective works on `chunks`: parts of the tensor, numbered alike on all ranks. A schedule
 * lists the steps of one rank. Steps of one round run at the same time; the next round begins when
 * they are done. A request executes a schedule on real memory (comm_segment.c). A test executes the
 * schedules of 1,024 ranks in one thread.
 *
 * Sums. Every algorithm adds along one tree over the ranks, which depends on their number only:
 *
 *     7 ranks    0 1   2 3   4 5   6         with p = 4, the largest power of two in 7, the first
 *                 \ /   \ /   \ /   |        2 (7 - p) ranks are pairs; then neighbours join
 *                  +     +     +    |
 *                   \   /       \  /
 *                     +          +
 *                       \      /
 *                          +
 *
 * A sum is therefore bitwise identical on all ranks, for every algorithm, size and timing. The
 * position of an element in a segment or coalesced all-reduce has no effect either. bf16 and f16
 * are added in f32 and rounded once. */
#ifndef WEFT_COMM_COLL_SCHEDULE_H
#define WEFT_COMM_COLL_SCHEDULE_H

#include "base/memory.h"

typedef enum weft_comm_op {
    WEFT_COMM_ALL_REDUCE,
    WEFT_COMM_ALL_GATHER,
    WEFT_COMM_REDUCE_SCATTER,
    WEFT_COMM_ALL_TO_ALL,
    WEFT_COMM_BROADCAST,  /* argument: the root */
    WEFT_COMM_RING_SHIFT, /* argument: the shift, of either sign */
    WEFT_COMM_SEND,       /* argument: the other member */
    WEFT_COMM_RECV,
    WEFT_COMM_RELAY, /* each rank to the next; the last sends nothing, the first receives nothing */
    WEFT_COMM_OP_COUNT
} weft_comm_op;

typedef enum weft_algorithm {
    WEFT_ALGORITHM_DIRECT,       /* every rank to every rank, in one round */
    WEFT_ALGORITHM_PAIRWISE,     /* every rank to every rank, a few peers per round */
    WEFT_ALGORITHM_DOUBLING,     /* exchange with the neighbour at distance 1, 2, 4, ... */
    WEFT_ALGORITHM_HALVING,      /* exchange of halves: reduce-scatter, then all-gather */
    WEFT_ALGORITHM_HIERARCHICAL, /* inside nodes, between their first ranks, inside nodes */
    WEFT_ALGORITHM_TREE,         /* binomial, from the root */
    WEFT_ALGORITHM_RING,         /* sends to the next rank, in segments */
    WEFT_ALGORITHM_COUNT
} weft_algorithm;

enum {
    WEFT_DIRECT_RANKS = 8,       /* most ranks of a direct collective; peers of a pairwise round */
    WEFT_DIRECT_BYTES = 64 << 10 /* most bytes of a direct sum */
};

typedef enum weft_coll_step_kind {
    WEFT_COLL_STEP_SEND,
    WEFT_COLL_STEP_RECEIVE,     /* receive into the result */
    WEFT_COLL_STEP_ADD,         /* receive and add to the result */
    WEFT_COLL_STEP_RECEIVE_TERM /* receive and keep for the sum of all terms */
} weft_coll_step_kind;

/* Send or receive of `count` collective chunks first, first + stride, ..., modulo the number of
 * chunks. */
typedef struct weft_coll_step {
    int32_t round, peer; /* peer: member of the group */
    int32_t first, count, stride;
    uint8_t kind;
    bool from_in; /* true: sends this rank's input; false: sends the current result */
} weft_coll_step;

typedef struct weft_coll_schedule {
    weft_coll_step *step; /* sorted by round, receives first within a round. Owned: heap */
    int64_t count, capacity;
    int rounds;     /* maximum over the ranks */
    int chunks;     /* collective chunks of the tensor */
    int copy_own;   /* chunk of the input copied into the result before round 0; -1: none */
    bool copy_all;  /* all chunks are copied */
    bool partials;  /* partial sums are sent, and the result buffer holds them */
    bool pipelined; /* segments follow each other through the ranks */
    int sum_after;  /* round after which all terms of sum_chunk are added; -1: never */
    int sum_chunk;
} weft_coll_schedule;

/* Nodes of the members of a group. */
typedef struct weft_span {
    int ranks;
    int nodes;
    int per_node; /* consecutive members on one node if equal for all nodes; otherwise 0 */
} weft_span;

/* Returns the span of members whose nodes are node[0 .. ranks - 1]. */
weft_span weft_span_of(const int *node, int ranks);
static inline bool weft_span_equal(const weft_span *a, const weft_span *b)
{
    return a->ranks == b->ranks && a->nodes == b->nodes && a->per_node == b->per_node;
}

/* Returns false if the algorithm cannot perform the collective on `span`. is_16bit: elements of 2
 * bytes. */
bool weft_algorithm_fits(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                         int64_t bytes, bool is_16bit);
/* Makes the schedule of rank `own`. The caller frees it with weft_coll_schedule_free. */
weft_status weft_coll_schedule_make(weft_algorithm algorithm, weft_comm_op op,
                                    const weft_span *span, int own, int argument,
                                    weft_coll_schedule *schedule);
void weft_coll_schedule_free(weft_coll_schedule *schedule);

const char *weft_comm_op_name(weft_comm_op op);
const char *weft_algorithm_name(weft_algorithm algorithm);

/* ---- cost ------------------------------------------------------------------------------------ */

/* Seconds per message and per byte, [0] inside a node and [1] between nodes, and seconds per byte
 * added. */
typedef struct weft_link_costs {
    double message[2], byte[2], add;
} weft_link_costs;

#endif
