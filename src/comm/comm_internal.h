/* Shared by the files of the communicator. */
#ifndef WEFT_RUNTIME_COMM_INTERNAL_H
#define WEFT_RUNTIME_COMM_INTERNAL_H

#include "kernel/sums.h"
#include "runtime/choices.h"
#include "runtime/comm.h"
#include "runtime/crew.h"

#include <pthread.h>

/* ---- an exchange --------------------------------------------------------------------------- */

/* A tensor of a bundle. */
typedef struct weft_piece {
    int64_t bytes;
    const void *in;
    void *out;
} weft_piece;

enum { WEFT_LANES = 2 };

/* A segment on its way through the rounds.
 *
 *   scratch of a lane  | work | terms: one slot per member, temp | staged messages of the round |
 *
 * The scratch is the device's like the tensors; nothing else is kept there. */
typedef struct weft_lane {
    bool running;
    int64_t step;        /* segment */
    int64_t first, next; /* moves of the round under way: [first, next) */
    int count, left;     /* messages of the round, and those that are not done, */
    atomic_int together; /* as the transport counts them */
    weft_message *message;
    int32_t *move; /* by message */
    char **staged; /* by message: its place in the scratch memory; NULL: where the data is */
    char *work, *term, *stage;
    void **slot; /* [2 ranks]: by member, its slot in `term` and where its term is */
    double time; /* modelled: how far it is */
} weft_lane;

/* How one algorithm does it. */
typedef struct weft_plan {
    weft_algorithm algorithm;
    weft_span span;
    weft_moves moves;
    int64_t segment,
        steps;    /* elements of a segment: the same on every rank; segments of this one */
    int64_t held; /* elements of a segment that are really there, at most */
    int widest;   /* messages of a round */
    int64_t work_bytes, slot_bytes, term_bytes, stage_bytes, lane_bytes;
} weft_plan;

enum { WEFT_EXCHANGE_NEW, WEFT_EXCHANGE_QUEUED, WEFT_EXCHANGE_DONE, WEFT_EXCHANGE_FAILED };

/* Flat: a vector that is cut in segments and each of them in chunks (all_reduce, broadcast, send).
 * Others: a block per chunk, cut in segments. */
struct weft_exchange {
    weft_comm *comm;
    weft_group *group;
    weft_channel channel;
    struct weft_queue *queue;
    weft_exchange *next; /* in the queue */
    atomic_int state;
    bool begun;     /* the progress thread has it in its hands */
    bool forgotten; /* nobody waits: the progress thread frees it */
    bool awaited;   /* somebody sleeps until it is done; under the communicator's mutex */
    char what[160]; /* "all_reduce of %12 on axis dp", for messages */
    weft_comm_op op;
    int argument, ranks, own;
    int64_t tag;
    weft_dtype dtype, sum_dtype;  /* of partial sums */
    int64_t element, sum_element; /* bytes */
    bool flat;
    int64_t count;                    /* flat: elements */
    weft_block *in_block, *out_block; /* else by chunk (weft_exchange_in) */
    /* only chunks in_at and out_at have a block: the only ones of in_block and out_block */
    bool sparse;
    int in_at, out_at;
    int64_t bytes; /* that the algorithm is chosen by */
    weft_plan plan;
    int64_t scratch_bytes; /* most of all algorithms */
    int64_t cut;           /* weft_exchange_cut; 0: as usual */
    weft_lane lane[WEFT_LANES];
    int lanes;
    /* Where the buffers are, and the order in which it copies and adds; the progress thread's while
     * the exchange is under way. */
    const weft_device *device;
    weft_device_stream *stream;
    const void *in;
    void *out, *scratch;
    weft_piece *piece; /* of a bundle, whose `in` and `out` are one place in the scratch memory */
    int piece_count;
    int64_t bundle_bytes;
    /* Modelled time, where the device has a clock (clock.now; NULL: it has none). Lanes take turns
     * then, round by round, so that what leaves first does not depend on real time. */
    weft_device_clock clock;
    int turn;
    double asked;    /* when its owner started it; a send: when its link is free */
    bool met;        /* its owner has waited for what it took */
    uint32_t number; /* in its queue */
    double port;     /* when the next of its messages may leave */
    double begin, end;
    double started, finished, waited;
    double last;     /* when something arrived or left */
    double handled;  /* seconds of copying and adding, beside what travels */
    weft_held *held; /* what a forgotten send sends; NULL: nothing that it holds */
    weft_arena *arena, *plan_arena;
};

static inline int64_t weft_block_count(const weft_block *block)
{
    return block->rows * block->row;
}

/* lane.c, on the progress thread. */
weft_status weft_exchange_begin(weft_comm *comm, weft_exchange *x);
/* *moved: something arrived or left; *finished: all of it. */
weft_status weft_exchange_advance(weft_comm *comm, weft_exchange *x, bool *moved, bool *finished);
void weft_exchange_cancel(weft_comm *comm, weft_exchange *x);
const char *weft_exchange_what(const weft_exchange *exchange);
/* comm.c: nobody will wait; takes over the exchange, and frees it when it is done. */
weft_status weft_exchange_start_forgotten(weft_exchange *x);
/* One rank: what it brings is the result. */
weft_status weft_exchange_copy(weft_exchange *x);

/* ---- groups and queues --------------------------------------------------------------------- */

/* Exchanges that follow one another: the collectives of a group and channel, or what goes to or
 * comes from one of its members. */
typedef struct weft_queue {
    weft_exchange *head, *tail; /* head runs */
    struct weft_queue *next;    /* of the queues with something to do */
    struct weft_queue *also;    /* of the group's queues to and from single members */
    bool active;
    uint32_t sequence;
    uint32_t key; /* peer, direction, channel */
    atomic_int waiters;
    _Atomic double waiting_since; /* seconds; since 0: nobody waits */
    double end;                   /* modelled: of the last one that is done */
} weft_queue;

struct weft_group {
    weft_comm *comm;
    weft_group *next;
    weft_arena *arena;
    uint64_t id;
    int64_t tag;
    int count, own;
    int *rank;
    weft_span span;
    weft_queue collective[WEFT_CHANNEL_COUNT];
    weft_queue *single;
};
/* Makes the queue if it is not there; under the communicator's mutex. NULL: no memory. */
weft_queue *weft_group_queue(weft_group *group, weft_channel channel, int peer, bool receiving);
void weft_groups_free(weft_group *group);

/* ---- the communicator ---------------------------------------------------------------------- */

/* What a rank says that it does, when it is asked. */
typedef struct weft_answer {
    double asked; /* when; what was said before a wait began is no answer in it */
    bool gone;    /* its process was, when it was looked at last */
    char text[WEFT_COMM_NOTE];
} weft_answer;

/* What costs have chosen for exchanges of one kind. */
typedef struct weft_chosen {
    weft_comm_op op;
    weft_span span; /* ranks 0: nothing is here */
    int64_t bytes;
    bool narrow;
    weft_algorithm algorithm;
} weft_chosen;

/* Of the kinds of exchanges that were bound last, by their hash: programs go to ever new groups, of
 * few different shapes, and to weigh all algorithms takes longer than everything else of it. */
enum { WEFT_CHOSEN = 256 };

/* The block of chunk `chunk`; a count of 0: nothing. */
static inline const weft_block *weft_exchange_in(const weft_exchange *x, int chunk)
{
    static const weft_block none = {0};
    return !x->sparse ? &x->in_block[chunk] : chunk == x->in_at ? x->in_block : &none;
}
static inline const weft_block *weft_exchange_out(const weft_exchange *x, int chunk)
{
    static const weft_block none = {0};
    return !x->sparse ? &x->out_block[chunk] : chunk == x->out_at ? x->out_block : &none;
}

struct weft_comm {
    weft_transport transport;
    int rank, ranks;
    int *node; /* by rank */
    weft_link_costs costs;
    weft_choices choices;            /* before costs; the same on all ranks */
    weft_chosen chosen[WEFT_CHOSEN]; /* by costs; under the mutex */
    _Atomic double deadline;
    atomic_int waiters;
    atomic_bool stop, abandoned;
    bool running, gave_up;
    bool told_all; /* the progress thread's: one that gave up has told this rank, and so all */
    pthread_t thread;
    weft_crew_member member; /* with a crew instead of a thread */
    pthread_mutex_t mutex;   /* guards queues, fresh, groups, broken, message, busy */
    pthread_cond_t queued, finished;
    weft_queue *fresh; /* became active, not yet seen by the progress thread */
    weft_group *groups, *world;
    weft_status_code broken;
    char message[1400];
    char busy[WEFT_COMM_NOTE]; /* what this rank says that it does; "": nothing */
    atomic_bool is_busy;
    _Atomic int64_t messages, bytes;
    double waited; /* seconds; under the mutex */
    /* the progress thread's own */
    weft_queue *active;
    weft_answer *answer; /* by rank */
    double noted, checked, told, busy_heard;
};

/* Messages over the links of a cluster, in modelled time (turns.c): rank r is its device r, and the
 * cluster is borrowed. Calls are a rank's own thread's, but `break`. */
weft_turns *weft_turns_create(int ranks, const weft_cluster *cluster); /* NULL: no memory */
void weft_turns_free(weft_turns *turns);                               /* accepts NULL */
/* An exchange begins; is about to be waited for. */
weft_status weft_turns_begin(weft_turns *turns, int rank, const weft_exchange *x);
void weft_turns_wait(weft_turns *turns, int rank, const weft_exchange *x);
/* It is done as far as its threads go: waits until it is by the clocks, too, and puts the times of
 * a send or receive in it. */
weft_status weft_turns_go_on(weft_turns *turns, int rank, weft_exchange *x);
/* A send or receive that is not waited for yet has passed by `now`. */
bool weft_turns_passed(weft_turns *turns, int rank, const weft_exchange *x, double now);
void weft_turns_leave(weft_turns *turns, int rank);
/* Nobody waits for turns any more. */
void weft_turns_break(weft_turns *turns);

/* Tags carry what they belong to, so that what is mixed up never meets:
 *
 *   | group: 50 bits | to one member: 1 | channel: 3 | sequence: 7 | segment: 1 |
 */
enum { WEFT_TAG_LOW = 12 };
int64_t weft_group_tag(uint64_t id);
/* number.c: gives a transport of fewer bits tags of WEFT_TAG_BITS. */
weft_status weft_transport_number(weft_transport *transport);

#endif
