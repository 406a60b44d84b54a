/* Shared by comm.c (queue and thread) and exchange.c (what is sent where). */
#ifndef WEFT_RUNTIME_COMM_INTERNAL_H
#define WEFT_RUNTIME_COMM_INTERNAL_H

#include "runtime/comm.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct weft_round {
    weft_block *send, *recv; /* by member of the group; a count of 0: nothing */
    bool reduce;   /* add what comes to the own send block; the result is dense at recv[own] */
    bool from_out; /* sends from `out`, which an earlier round filled */
    int64_t steps; /* segments of the longest block of this rank */
} weft_round;

/* A tensor of a bundle. */
typedef struct weft_piece {
    int64_t bytes;
    const void *in;
    void *out;
} weft_piece;

enum { WEFT_EXCHANGE_NEW, WEFT_EXCHANGE_QUEUED, WEFT_EXCHANGE_DONE, WEFT_EXCHANGE_FAILED };

struct weft_exchange {
    weft_comm *comm;
    weft_group *at;
    weft_channel channel;
    weft_exchange *next; /* in the queue */
    atomic_int state;
    char what[160]; /* "all_reduce of %12 on axis dp", for messages */
    int tag;
    const int *group; /* ranks of the job */
    int group_count, own;
    weft_dtype dtype;
    int64_t element; /* bytes */
    int64_t segment; /* elements; the same on every rank */
    weft_round round[2];
    int round_count;
    const void *in;
    void *out;
    weft_piece *piece; /* of a bundle, whose `in` and `out` are one place in the scratch memory */
    int piece_count;
    int64_t bundle_bytes;
    char **pack, **unpack; /* by member, in the scratch memory */
    const void **term;
    bool packs, unpacks; /* which of the two sets is needed */
    int64_t slot_bytes;
    double started, finished, waited;
    weft_arena *arena;
};

static inline int64_t weft_block_count(const weft_block *block)
{
    return block->rows * block->row;
}
const char *weft_exchange_what(const weft_exchange *exchange);

typedef enum weft_world_op {
    WEFT_WORLD_BARRIER,
    WEFT_WORLD_BROADCAST,
    WEFT_WORLD_ALL_GATHER,
    WEFT_WORLD_SUM
} weft_world_op;
weft_status weft_exchange_create_world(weft_comm *comm, weft_world_op op, weft_dtype dtype,
                                       int64_t count, int root, weft_exchange **exchange);

struct weft_group {
    weft_comm *comm;
    weft_group *next;
    weft_arena *arena;
    uint64_t id;
    int count, own;
    int *rank;
    uint32_t sequence[WEFT_CHANNEL_COUNT];
};
void weft_groups_free(weft_group *group);

typedef struct weft_pending {
    int peer;
    bool receiving, done;
} weft_pending;

typedef struct weft_answer {
    bool asked;
    char text[WEFT_COMM_NOTE];
} weft_answer;

struct weft_comm {
    weft_transport transport;
    int rank, ranks;
    _Atomic double deadline, waiting_since; /* seconds; since 0: nobody waits */
    atomic_int waiters;
    atomic_bool stop;
    bool running, gave_up;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards head, tail, broken, message, sequence */
    pthread_cond_t queued, finished;
    weft_exchange *head, *tail; /* head runs */
    weft_group *groups, *world;
    weft_status_code broken;
    char message[1024];
    /* the progress thread's own */
    weft_exchange *current;
    weft_pending *pending; /* by slot */
    int pending_count;
    int *missing;
    weft_answer *answer; /* by rank */
};

#endif
