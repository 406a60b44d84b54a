/* Types shared by the files of the communicator. */
#ifndef WEFT_COMM_COMM_INTERNAL_H
#define WEFT_COMM_COMM_INTERNAL_H

#include "comm/coll_tuning.h"
#include "comm/comm.h"
#include "comm/crew.h"
#include "comm/group.h"
#include "kernel/kernel.h"
#include "kernel/sums.h"

#include <pthread.h>

/* ---- requests -------------------------------------------------------------------------------- */

/* Tensor of a coalesced all-reduce. */
typedef struct weft_piece {
    int64_t bytes;
    const void *in;
    void *out;
} weft_piece;

enum { WEFT_COMM_SEGMENTS_MOST = 2 };

/* Pinned memory of a communicator, for messages of a device that is apart. Progress thread only. */
typedef struct weft_pinned {
    struct weft_pinned *next; /* next free one */
    const weft_device *device;
    int64_t bytes;
    char *data;
} weft_pinned;

/* Segment in flight.
 *
 *   scratch of a segment  | work | terms: one slot per member, temp | staged messages of round |
 *
 * The scratch is in the memory of the tensors' device and holds nothing else. */
typedef struct weft_comm_segment {
    bool running;
    int64_t step;        /* index of the segment in the tensor */
    int64_t first, next; /* schedule steps of the current round: [first, next) */
    int count, left;     /* posted messages of the round; unfinished messages */
    /* Devices that are apart: messages that are posted when the stream has reached `packed`; 0: all
     * are posted */
    int made;
    weft_event packed;
    atomic_int together; /* unfinished messages, counted by the transport */
    weft_message *message;
    int32_t *coll_step; /* step by message */
    char **staged;      /* by message: address in the scratch memory; NULL: sent from the data */
    /* Devices that are apart: by message, its address on the device; and the pinned memory of all
     * messages of a round. `pinned` is taken from the communicator, from begin to end of a request
     * that was bound without pinned memory of its own. */
    char **distant;
    struct weft_link_message *direct; /* messages of a round, over connections of devices */
    char *wire;
    weft_pinned *pinned;
    char *work, *term, *staging;
    void **slot; /* [2 ranks]: by member, its slot in `term` and the address of its term */
    double time; /* simulated time up to which it has progressed */
} weft_comm_segment;

/* Collective plan: one algorithm with its schedule and its scratch layout. It depends on the kind
 * of request and the member only, so simulated ranks share plans (coll_plans.h). */
typedef struct weft_coll_plan {
    weft_algorithm algorithm;
    weft_span span;
    weft_coll_schedule schedule;
    int64_t segment,
        steps;    /* elements of a segment, equal on all ranks; number of segments on this rank */
    int64_t held; /* largest number of elements of a segment that this rank holds */
    int widest;   /* messages of the largest round */
    int64_t work_bytes, slot_bytes, term_bytes, staging_bytes, segment_bytes;
    int64_t round_bytes; /* of all messages of the largest round */
} weft_coll_plan;

enum {
    WEFT_COMM_REQUEST_NEW,
    WEFT_COMM_REQUEST_QUEUED,
    WEFT_COMM_REQUEST_DONE,
    WEFT_COMM_REQUEST_FAILED
};

/* Blocks of a tensor by collective chunk, computed when they are read: a list for every rank of
 * thousands of ranks would have thousands of entries for each request.
 *
 * Chunk c is part c along a dim of `length`, with `outer` rows of `inner` elements per index. With
 * `at` >= 0, chunk `at` is `one` and all other chunks are empty. */
typedef struct weft_blocks {
    int at;
    weft_block one;
    int64_t length, outer, inner;
} weft_blocks;

/* Operation, types and blocks of a request, set when it is created.
 *
 * Flat requests (all_reduce, broadcast, send) cut a vector into segments and each segment into
 * collective chunks. Other requests have one block per collective chunk and cut it into
 * segments. */
typedef struct weft_comm_spec {
    weft_comm_op op;
    int argument; /* peer, root or shift */
    int ranks, own;
    weft_dtype dtype, sum_dtype;  /* sum_dtype: of partial sums */
    int64_t element, sum_element; /* bytes */
    bool flat;
    int64_t count;       /* elements (flat) */
    weft_blocks in, out; /* not flat; read with weft_comm_request_in (comm_request.h) */
    int64_t bytes;       /* bytes by which the algorithm is chosen */
} weft_comm_spec;

/* Buffers of a request and their device, set before its first run. */
typedef struct weft_comm_buffers {
    /* Device of the buffers, and the stream of its copies and additions. The progress thread uses
     * both while the request is in flight. */
    const weft_device *device;
    weft_device_stream *stream;
    weft_event ready; /* after which the request begins on the stream, if `follows` */
    bool follows;
    const void *in;
    void *out, *scratch;
    char *wire;     /* pinned memory of messages; NULL: the communicator's is used */
    uint32_t *gate; /* of a stream that waits for the request; NULL: the host waits */
    /* tensors of a coalesced all-reduce; its `in` and `out` are one buffer in the scratch memory */
    weft_piece *piece;
    int piece_count;
    int64_t coalesced_bytes;
} weft_comm_buffers;

/* State of a run, from start to end. */
typedef struct weft_comm_run {
    weft_comm_request *next; /* next in the queue */
    atomic_int state;
    bool begun;     /* started by the progress thread */
    bool forgotten; /* detached: freed by the progress thread */
    bool awaited;   /* a thread sleeps until it is done; guarded by the communicator's mutex */
    int64_t tag;
    double started, finished, waited;
    double last;    /* time of the last arrival or departure */
    double handled; /* seconds of copying and adding that are not transfers */
    /* Devices that are apart: position after the last work; set while it is not reached */
    weft_event ended;
    bool ending;
    bool linked; /* all its work is on the stream already */
    /* A stream waits at the gate for `turn`, between two positions. The time when the first was
     * reached counts as the start of the wait; 0: not yet */
    uint32_t turn;
    weft_event hold_begun, hold_ended;
    atomic_bool holding;
    weft_device_stream *holder;
    double held_since;
    weft_send_buffer *held; /* buffer of a detached send; NULL: none */
} weft_comm_run;

/* State of a run in simulated time. The clock is set with the device. */
typedef struct weft_comm_simulated {
    /* Clock of the device; clock.now NULL: none. Segments then progress alternately, round by
     * round, so that the order of messages does not depend on real time. */
    weft_device_clock clock;
    int next_segment;
    double asked;    /* time at which its owner started it; for a send: at which its link is free */
    bool met;        /* its owner's clock includes its time */
    uint32_t number; /* sequence number in its queue */
    double port;     /* time at which its next message may leave */
    double begin, end;
    /* Run of all members in one thread (simulated_collective.h). NULL: messages are posted to the
     * transport */
    struct weft_simulated_collective *together;
} weft_comm_simulated;

struct weft_comm_request {
    weft_arena *arena; /* contains the request; NULL: it is allocated alone */
    const char *what;  /* "all_reduce of %12 on axis dp", for error messages */
    /* Request of an equal rank whose `what` and pieces this one shares; borrowed. NULL: none */
    const weft_comm_request *like;
    weft_comm_spec spec;
    /* Chosen when the request is created, and again when it is attached. */
    weft_algorithm algorithm;
    weft_span span;
    /* Plan of `algorithm`, and progress of its schedule. NULL: no plan yet (requests with `like`).
     */
    const weft_coll_plan *plan;
    weft_comm_segment *segment;
    int segments;
    weft_arena *plan_arena; /* memory of plan and segments; NULL: not owned */
    int64_t scratch_bytes;  /* maximum over all algorithms */
    int64_t wire_bytes;     /* pinned memory, maximum over all algorithms */
    int64_t cut;            /* segment bytes set by weft_comm_request_cut; 0: default */
    weft_comm_buffers buffers;
    /* set when the request is attached */
    weft_comm *comm;
    weft_group *group;
    weft_channel channel;
    struct weft_queue *queue;
    weft_comm_run run;
    weft_comm_simulated simulated;
    weft_sent sent; /* messages and bytes sent by this rank in all runs */
};

static inline int64_t weft_block_count(const weft_block *block)
{
    return block->rows * block->row;
}

/* ---- groups and queues ----------------------------------------------------------------------- */

/* Requests that run one at a time: the collectives of a group and channel, or the messages to or
 * from one member. */
typedef struct weft_queue {
    weft_comm_request *head, *tail; /* head is the running request */
    struct weft_queue *next;        /* next queue with requests */
    struct weft_queue *also;        /* next of the group's queues to and from single members */
    bool active;
    uint32_t sequence;
    uint32_t key; /* peer, direction, channel */
    atomic_int waiters;
    _Atomic double waiting_since; /* start of the wait in seconds; 0: no waiter */
    double end;                   /* simulated end of the last finished request */
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
    /* Connections of the ranks' devices (comm_link.h); link NULL: none. `asked`: the ranks know
     * whether they can connect. `is_fast`: sums in the order of the library */
    const struct weft_device_links *links;
    struct weft_device_link *link;
    bool asked, is_fast;
};

/* ---- the communicator ------------------------------------------------------------------------ */

/* Last reply of a rank to a status question. */
typedef struct weft_peer_status {
    double asked; /* time of the question; replies from before a wait do not count */
    bool gone;    /* its process had exited at the last check */
    char text[WEFT_COMM_NOTE];
} weft_peer_status;

/* Algorithm chosen by cost for requests of one kind. */
typedef struct weft_coll_selection {
    weft_comm_op op;
    weft_span span; /* ranks 0: empty entry */
    int64_t bytes;
    bool is_16bit;
    weft_algorithm algorithm;
} weft_coll_selection;

/* Entries of the cache of chosen algorithms, by hash of the request kind. Programs bind requests to
 * new groups of few different shapes, and comparing all algorithms takes longer than the rest of
 * binding. */
enum { WEFT_COLL_SELECTION = 256 };

/* Costs by which algorithms are chosen, and the choices so far. */
typedef struct weft_coll_choice {
    weft_link_costs costs;
    weft_coll_tuning tuning; /* precedes `costs`; equal on all ranks */
    /* chosen by `costs`; guarded by the mutex */
    weft_coll_selection selection[WEFT_COLL_SELECTION];
} weft_coll_choice;

/* The progress thread, or the membership in a crew that replaces it. */
typedef struct weft_comm_thread {
    pthread_t id;
    weft_crew_member member; /* used with a crew instead of `id` */
    atomic_bool stop, abandoned;
    bool running, gave_up;
} weft_comm_thread;

/* Observations of other ranks; progress thread only. */
typedef struct weft_comm_watch {
    bool notified_all;             /* a failed rank has notified this rank, and so all ranks */
    weft_peer_status *peer_status; /* by rank */
    double noted, checked, busy_sent, busy_heard;
} weft_comm_watch;

/* Totals over all requests. */
typedef struct weft_comm_total {
    _Atomic int64_t messages, bytes;
    double waited; /* seconds; guarded by the mutex */
} weft_comm_total;

struct weft_comm {
    weft_transport transport;
    int rank, ranks;
    int *node; /* node by rank */
    weft_coll_choice choice;
    weft_comm_thread thread;
    weft_comm_watch watch;
    _Atomic double deadline;
    atomic_int waiters;
    pthread_mutex_t mutex; /* guards queues, fresh, groups, broken, error, busy */
    pthread_cond_t queued, finished;
    weft_queue *fresh;   /* queues that became active and are new to the progress thread */
    weft_queue *active;  /* progress thread only */
    weft_pinned *pinned; /* free ones */
    weft_group *groups, *world;
    weft_status_code broken;
    weft_error_copy *error;    /* error that ended communication; NULL: out of memory */
    char busy[WEFT_COMM_NOTE]; /* activity that this rank reports; "": none */
    atomic_bool is_busy;
    weft_comm_total total;
};

/* Message tags identify the group, channel, request and segment, so that unrelated messages never
 * match:
 *
 *   | group: 50 bits | to one member: 1 | channel: 3 | sequence: 7 | segment: 1 | */
enum { WEFT_TAG_LOW = 12 };

#endif
