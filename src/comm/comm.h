/* Internals of the communicator: transports, requests and the thread that advances them.
 *
 *     request    one collective or message of a rank (comm_request.c): blocks of two buffers, cut
 *        |       into segments that fit its scratch memory
 *     coll       this rank's sends and receives, round by round: a pure function of sizes. The
 *     schedule   algorithm is chosen by cost (coll_schedule.h, coll_algorithms.c)
 *        |
 *     segment    part of a tensor in flight through the rounds (comm_segment.c); two are in flight,
 *        |       so that one is added while the other is sent
 *     queue      requests of one group and channel, one at a time (comm.c). The progress thread
 *        |       advances the first request of every queue, so no queue waits for another
 *     transport  byte messages between ranks: MPI or threads of one process. Layers over it: a link
 *                model (link_model.c), and group numbers where tags are short (short_tags.c)
 *
 * A coalesced all-reduce is one all_reduce of several tensors. They are copied contiguously into
 * the scratch memory and back (coalesce.c chooses the tensors). */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

#include "comm/coll_tuning.h"
#include "plan/cluster/cluster.h"

#include <stdatomic.h>

typedef struct weft_comm weft_comm;

enum {
    WEFT_COMM_SEGMENT = 1 << 20, /* bytes of a segment */
    WEFT_COMM_SCRATCH = 4 << 20, /* approximate bytes of scratch memory for strided blocks */
    /* bytes of both on a virtual device, where each copy is a launch and a link sends 1 MiB in
     * about the latency of a message */
    WEFT_COMM_WIDE = 64 << 20,
    /* Largest all_reduce in bytes that is coalesced. Near this size, the time of the bytes exceeds
     * the latency of the collective (bench/ranks sums, docs/explanation/runtime.md). */
    WEFT_COMM_SMALL = 256 << 10,
    WEFT_COMM_BUNDLE = 1 << 20,    /* bytes of a coalesced all-reduce, at most */
    WEFT_COMM_BUNDLE_PIECES = 256, /* tensors of a coalesced all-reduce, at most */
    WEFT_COMM_NOTE = 200,          /* bytes of a control message */
    WEFT_TAG_BITS = 62,            /* bits of a message tag */
};

/* `rows` rows of `row` elements from element `start`; rows begin `stride` elements apart. */
typedef struct weft_block {
    int64_t start, rows, row, stride;
} weft_block;

/* ---- transport: point to point messages of bytes between ranks of the world ------------------ */

/* A message in flight. The poster owns the struct and does not move it until `done`. */
typedef struct weft_message {
    int peer;
    int64_t tag;
    bool receiving;
    void *data;
    int64_t bytes;
    bool meta; /* meta device: only the arrival is signalled, `data` is not accessed */
    atomic_bool done;
    bool taken; /* set by the poster: done, not late, and counted */
    /* set by the transport: */
    union {
        void *pointer;
        int64_t number;
    } handle;
    struct weft_message *next;
    /* allocated by the transport as a copy of a sent message without a matching receive */
    bool envelope;
    double due; /* link model: seconds at which it may be done; 0: not known yet */
    /* Link model: `there` is the arrival time if the sender knows it, otherwise 0.
     *
     * Simulated time: `from` is the earliest departure, `left` the departure, `there` the arrival.
     * The poster sets all three to the same time, a link model moves the last two, and the
     * transport passes `there` to the receiver. */
    bool timed;
    double from, left, there;
    bool apart; /* timed, but its transfer time is reported separately (weft_simulated_links) */
    /* Number of unfinished messages that the poster waits for together. The transport decrements it
     * and wakes the poster at 0. NULL: the message is waited for alone. */
    atomic_int *together;
} weft_message;

typedef struct weft_simulated_links weft_simulated_links;
struct weft_coll_plans;

/* Functions are called from one thread at a time. Messages between two ranks with the same tag
 * arrive in the order of sending. */
typedef struct weft_transport {
    int rank, ranks;
    int tag_bits;      /* bits of a tag; below WEFT_TAG_BITS groups are numbered (short_tags.c) */
    const int *node;   /* machine by rank, read by weft_comm_create; NULL: one machine */
    void *self, *core; /* core: `self` of the innermost transport if layers are over it */
    weft_status (*post)(void *self, weft_message *m);
    weft_status (*test)(void *self, weft_message *m); /* sets `done`; not called after that */
    /* Returns true while a message that is done must not be taken yet (link model). NULL: never. */
    bool (*late)(void *self, weft_message *m);
    /* Earliest time at which a message that `late` held back may be taken, since `due` was set to
     * 0. 0: none. NULL: no `late`. */
    double *due;
    /* Afterwards the memory of an unfinished message is not accessed. */
    void (*cancel)(void *self, weft_message *m);
    /* Control messages, sent without acknowledgement. `poll` returns one that has arrived and sets
     * *peer to its sender (-1: none). */
    void (*note)(void *self, int peer, const char text[WEFT_COMM_NOTE]);
    void (*poll)(void *self, int *peer, char text[WEFT_COMM_NOTE]);
    /* waits briefly for notes to be sent; NULL: notes are sent at once */
    void (*flush)(void *self);
    /* Sleeps until a message may have arrived, at most `seconds`. `wake` ends the sleep from any
     * thread. NULL: the caller must poll. */
    void (*sleep)(void *self, double seconds);
    void (*wake)(void *self);
    /* The crew's thread drives this rank (comm/crew.h). The transport then calls `poke` instead of
     * ending a sleep; poke NULL: no longer. Takes the innermost transport (`core`). */
    struct weft_crew *crew; /* NULL: the communicator has its own thread */
    void (*set_wakeup)(void *core, void (*poke)(void *user), void *user);
    /* Simulated time: reserves the link to `peer` for `bytes` and returns the start, which is
     * `when` or the time at which the link is free. Called by the owner's thread. NULL: links are
     * always free. */
    double (*reserve)(void *self, int peer, int64_t bytes, double when);
    /* Simulated time: sets the departure and arrival of a timed message of a collective. NULL:
     * `post` sets them. */
    void (*time)(void *self, weft_message *m);
    /* Plans of collectives that the ranks of this process share (coll_plans.h). NULL: none */
    struct weft_coll_plans *plans;
    /* Simulated time: messages to and from single ranks over links that ranks share. NULL: no
     * shared links. */
    weft_simulated_links *links;
    /* Returns false if the process of `peer` is known to have exited; `who` describes the process
     * ("pid 123 on a"). The only function that other threads may call at any time. */
    bool (*alive)(void *self, int peer, char who[WEFT_COMM_NOTE]);
    void (*free)(void *self, bool broken); /* broken: do not wait for other ranks */
} weft_transport;

/* Takes ownership of `transport`, also on failure. */
weft_status weft_comm_create(const weft_transport *transport, weft_comm **comm);

typedef struct weft_link_speed {
    double bytes_per_second, latency; /* latency in seconds; a speed of 0: no delay */
} weft_link_speed;

enum { WEFT_LINK_PAIRS = 16 };

/* Simulates links of ranks on nodes of `per_node` ranks: a message is done when it would arrive
 * over these links. Messages between two nodes are sent one at a time; within a node, the messages
 * of one rank are. */
typedef struct weft_link_model {
    weft_link_speed between, inside;
    int per_node;
    /* Simulated time (kernel/virtual/virtual.h). Messages of devices with a clock carry their
     * arrival time and are never late; messages of other devices take no time. Messages from a rank
     * to another node, or within its node, are sent one at a time. Ranks of one process only. */
    bool clocked;
    /* Only with `clocked`: the cluster of whose links the messages to single ranks share the
     * bandwidth; rank r is device r. Collectives do not share links.
     *
     * As in the event simulator, messages between the same two ranks are sent one at a time. All
     * others share each link fairly. Each rank's thread ends with weft_comm_leave. Borrowed until
     * the communicators are freed. NULL: no shared links. */
    const weft_cluster *cluster;
    int pairs; /* node pairs with another link than `between`, equal in both directions */
    struct {
        int node[2];
        weft_link_speed link;
    } pair[WEFT_LINK_PAIRS];
} weft_link_model;

/* Last call of a rank's thread whose messages share links in simulated time. */
void weft_comm_leave(weft_comm *comm);

/* Returns the number of messages and bytes that this rank has sent. */
void weft_comm_sent(weft_comm *comm, int64_t *messages, int64_t *bytes);

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct weft_comm_request weft_comm_request;
struct weft_device_stream; /* kernel/kernel.h */

/* Freeing a request that is in flight makes the communicator fail. */
void weft_comm_request_free(weft_comm_request *request);
typedef struct weft_sent {
    int64_t messages, bytes;
} weft_sent;
/* Reference-counted bytes in host memory, also held by sends in flight. The last release frees
 * them. */
typedef struct weft_send_buffer weft_send_buffer;
void weft_comm_request_start(weft_comm_request *request);
/* Starts the request after the work that `stream`, of the same device, has now. The caller waits
 * for that work unless the device is apart. */
weft_status weft_comm_request_start_after(weft_comm_request *request,
                                          struct weft_device_stream *stream);
/* Waits for a started request. Returns WEFT_E_COMM and names the missing ranks after the
 * communicator's deadline. */
weft_status weft_comm_request_wait(weft_comm_request *request);
/* Waits until one of `count` started requests has ended, until `also` returns true, or for
 * `seconds`. `also` is called first and after each wake-up, such as by weft_comm_nudge; NULL: not
 * called. weft_comm_request_wait returns the request's result. */
void weft_comm_request_wait_any(weft_comm *comm, weft_comm_request *const *requests, int count,
                                double seconds, bool (*also)(void *user), void *user);
/* Wakes weft_comm_request_wait_any. Thread-safe. */
void weft_comm_nudge(weft_comm *comm);
/* Returns true if the request was started and has ended, so that waiting for it takes no time. */
bool weft_comm_request_done(const weft_comm_request *request);
/* Returns the seconds of communication of the last run. *waited: seconds that the caller spent in
 * wait. */
double weft_comm_request_seconds(const weft_comm_request *request, double *waited);

/* Functions for simulated_links.c, which holds started requests. `enqueue` puts a request into its
 * queue, and fails it if the communicator has ended. `end`: it is done, or has failed. `is_next`:
 * the communicator works, and no earlier request of the queue is in flight. */
void weft_comm_request_enqueue(weft_comm_request *request);
void weft_comm_request_end(weft_comm_request *request, bool done);
bool weft_comm_request_is_next(const weft_comm_request *request);

/* comm.c: starts a request without a waiter. Takes ownership and frees the request when it is
 * done. */
weft_status weft_comm_request_start_detached(weft_comm_request *x);

void weft_comm_free(weft_comm *comm);
int weft_comm_rank(const weft_comm *comm);
int weft_comm_ranks(const weft_comm *comm);
/* Seconds after which a wait fails with WEFT_E_COMM and names the missing ranks (default 120). The
 * exit of a process on this machine is detected within about a second. */
void weft_comm_set_deadline(weft_comm *comm, double seconds);
/* Returns false if the process of `rank` is known to have exited; `who` (200 bytes) describes the
 * process. Thread-safe. */
bool weft_comm_alive(weft_comm *comm, int rank, char *who);
/* Returns the seconds that this rank's threads have waited for other ranks. */
double weft_comm_waited(weft_comm *comm);
/* Notifies the other ranks that this rank leaves, with this thread's error message; their waits end
 * at once. A failed run calls it automatically. A rank that leaves for another reason must call it
 * before weft_comm_free. */
void weft_comm_abort(weft_comm *comm);
/* Marks this rank as busy with `what` ("writing the checkpoint of step 40") until the call with
 * NULL. While this rank is alive and reports it, waits of other ranks do not time out. Calls do not
 * nest. */
void weft_comm_set_busy(weft_comm *comm, const char *what);

#endif
