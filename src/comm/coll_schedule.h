/* What a rank sends and receives in a collective: pure functions of numbers.
 *
 * A collective works on `chunks`: pieces of the tensor that all ranks count alike. A schedule is
 * the list of one rank's moves; moves of one round go at the same time, and the next round begins
 * when they are done. An exchange interprets schedules over real memory (runtime/lane.c), a test
 * plays those of 1,024 ranks in one thread.
 *
 * Sums. Every algorithm adds along one tree over the ranks, given by their number alone:
 *
 *     7 ranks    0 1   2 3   4 5   6         with p = 4, the largest power of two in 7, the first
 *                 \ /   \ /   \ /   |        2 (7 - p) ranks are pairs; then neighbours join
 *                  +     +     +    |
 *                   \   /       \  /
 *                     +          +
 *                       \      /
 *                          +
 *
 * so a sum has the same bits on all ranks, whatever the algorithm, the size, the place of the
 * element in a bundle or segment, and the timing. bf16 and f16 are added in f32, rounded once. */
#ifndef WEFT_RUNTIME_MOVES_H
#define WEFT_RUNTIME_MOVES_H

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
    WEFT_COMM_RELAY, /* each to the next one; the last sends nothing, the first gets nothing */
    WEFT_COMM_OP_COUNT
} weft_comm_op;

typedef enum weft_algorithm {
    WEFT_ALGORITHM_DIRECT,       /* everybody's to everybody, in one round */
    WEFT_ALGORITHM_PAIRWISE,     /* the same, a few peers a round */
    WEFT_ALGORITHM_DOUBLING,     /* with the neighbour at distance 1, 2, 4, ... */
    WEFT_ALGORITHM_HALVING,      /* the same with halves: scatter the sum, gather it again */
    WEFT_ALGORITHM_HIERARCHICAL, /* inside nodes, between their first ranks, inside nodes */
    WEFT_ALGORITHM_TREE,         /* binomial, from the root */
    WEFT_ALGORITHM_RING,         /* to the next rank, in segments */
    WEFT_ALGORITHM_COUNT
} weft_algorithm;

enum {
    WEFT_DIRECT_RANKS = 8,       /* everybody to everybody at most, and peers of a pairwise round */
    WEFT_DIRECT_BYTES = 64 << 10 /* of a sum that goes direct, at most */
};

typedef enum weft_move_kind {
    WEFT_MOVE_SEND,
    WEFT_MOVE_PLACE, /* receive into the result */
    WEFT_MOVE_ADD,   /* receive and add to the result */
    WEFT_MOVE_TERM   /* receive and keep, for the sum of all terms */
} weft_move_kind;

/* Chunks first, first + stride, ..., `count` of them, modulo the number of chunks. */
typedef struct weft_move {
    int32_t round, peer; /* peer: member of the group */
    int32_t first, count, stride;
    uint8_t kind;
    bool from_in; /* a send: what this rank brought; else: the result as it is */
} weft_move;

typedef struct weft_moves {
    weft_move *move; /* by round; in a round receives first. Owned: heap */
    int64_t count, room;
    int rounds;    /* of the rank that has most */
    int chunks;    /* of the tensor */
    int copy_own;  /* before all: this chunk of what it brought is put into the result; -1: none, */
    bool copy_all; /* or all chunks are */
    bool partials; /* sums of some ranks travel, and the result is their place on the way */
    bool pipelined; /* segments follow one another through the ranks */
    int sum_after;  /* behind this round all terms of chunk sum_chunk are added up; -1: never */
    int sum_chunk;
} weft_moves;

/* Where the members of a group are. */
typedef struct weft_span {
    int ranks;
    int nodes;
    int per_node; /* neighbours in the list on one node, when that is the same everywhere; else 0 */
} weft_span;

/* How the members of a group lie, by the node of each. */
weft_span weft_span_of(const int *node, int ranks);
static inline bool weft_span_equal(const weft_span *a, const weft_span *b)
{
    return a->ranks == b->ranks && a->nodes == b->nodes && a->per_node == b->per_node;
}

/* False: this algorithm is not one for the collective among so many ranks. Narrow: of 2 bytes. */
bool weft_algorithm_fits(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                         int64_t bytes, bool narrow);
/* Rank `own`'s list; free with weft_moves_free. */
weft_status weft_moves_make(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                            int own, int argument, weft_moves *schedule);
void weft_moves_free(weft_moves *schedule);

const char *weft_comm_op_name(weft_comm_op op);
const char *weft_algorithm_name(weft_algorithm algorithm);

/* ---- cost ---------------------------------------------------------------------------------- */

/* Seconds per message and per byte, inside a node and between nodes, and per byte added up. */
typedef struct weft_link_costs {
    double message[2], byte[2], add;
} weft_link_costs;
extern const weft_link_costs weft_link_costs_default;

/* Of `bytes` (all_reduce, broadcast, send: the tensor; others: what all members' parts make), in
 * segments of at most `segment` bytes. */
weft_status weft_algorithm_cost(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                                int64_t bytes, const weft_link_costs *costs, double *seconds);
/* The cheapest that fits; of equals the first of the enum. The same on all ranks. `seconds`: what
 * it costs; NULL: nobody asks, and where one fits nothing is weighed. */
weft_status weft_algorithm_choose(weft_comm_op op, const weft_span *span, int64_t bytes,
                                  bool narrow, const weft_link_costs *costs,
                                  weft_algorithm *algorithm, double *seconds);
/* For each collective, what is chosen by size, what it costs, and where one overtakes another. */
weft_status weft_algorithm_table(const weft_span *span, const weft_link_costs *costs,
                                 weft_buf *text);

#endif
