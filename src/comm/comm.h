/* Inside the communicator: transports, exchanges, and the thread that drives them.
 *
 *     exchange   what a collective does to two buffers (exchange.c): blocks of tensors, cut in
 *        |       segments that fit its scratch memory
 *     moves      whom this rank sends what, round by round: a pure function (moves.h), chosen by
 *        |       cost (algorithm.c)
 *     lane       one segment on its way through the rounds (lane.c); two are under way, so that one
 *        |       is added up while the other travels
 *     queue      of a group and channel: one exchange after the other (comm.c). The progress thread
 *        |       advances the first of every queue, so that none waits for another queue's
 *     transport  messages of bytes between ranks: MPI, threads of one process; a link model may be
 *                put over it (link.c), and one that numbers groups where tags are short (number.c)
 *
 * A bundle is one all_reduce of several tensors, copied behind one another into the scratch memory
 * and back (bundle.c says which). */
#ifndef WEFT_RUNTIME_COMM_H
#define WEFT_RUNTIME_COMM_H

#include "plan/cluster/cluster.h"
#include "runtime/choices.h"
#include "runtime/runtime.h"

#include <stdatomic.h>

enum {
    WEFT_COMM_SEGMENT = 1 << 20, /* bytes of a tensor that go through the rounds at a time, */
    WEFT_COMM_SCRATCH = 4 << 20, /* and of scratch memory, where blocks are strided; about */
    /* Both on a modelled device: copies are launches there, and links pass a MiB in the time that a
     * message begins in. */
    WEFT_COMM_WIDE = 64 << 20,
    /* An all_reduce of so many bytes joins a bundle: about where the time of the bytes overtakes
     * that of the exchange (bench/ranks sums, docs/runtime.md); */
    WEFT_COMM_SMALL = 256 << 10,
    WEFT_COMM_BUNDLE = 1 << 20,    /* bytes of a bundle at most, */
    WEFT_COMM_BUNDLE_PIECES = 256, /* and tensors */
    WEFT_COMM_NOTE = 200,          /* bytes of a control message */
    WEFT_TAG_BITS = 62,            /* of the tags of messages */
};

/* rows x row elements, each row `stride` elements after the one before, from element `start`. */
typedef struct weft_block {
    int64_t start, rows, row, stride;
} weft_block;

/* ---- transport: point to point messages of bytes between ranks of the world ---------------- */

/* A message under way. Whoever posts it owns it and keeps it in place until it is done. */
typedef struct weft_message {
    int peer;
    int64_t tag;
    bool receiving;
    void *data;
    int64_t bytes;
    bool hollow; /* only the news that it came travels: `data` is not touched */
    atomic_bool done;
    bool taken; /* the poster's: done, not late, and counted */
    /* the transport's own: */
    union {
        void *pointer;
        int64_t number;
    } handle;
    struct weft_message *next;
    bool envelope; /* made by the transport, in the place of one that has left */
    double due;    /* link model: when it may be done; 0: not known yet */
    /* With a link model: when it is there, where its sender can tell; 0: it cannot.
     * With modelled time: from when on it may leave, when it has left, and is there. The sender's
     * poster sets all three to the same, a link model moves the last two, and the transport hands
     * the last one to who receives it. */
    bool timed;
    double from, left, there;
    bool apart; /* timed, and the time that it takes is told apart from it (weft_turns) */
    /* Of the messages that its poster waits for together, those that are not done: a transport that
     * wakes posters counts down and wakes with the last. NULL: it is waited for alone. */
    atomic_int *together;
} weft_message;

typedef struct weft_turns weft_turns;

/* All functions are called from one thread at a time. Messages between two ranks with the same tag
 * arrive in the order of sending. */
typedef struct weft_transport {
    int rank, ranks;
    int tag_bits;      /* of a tag; with fewer than WEFT_TAG_BITS groups are numbered (number.c) */
    const int *node;   /* by rank: the machine; NULL: one. Read when the communicator is made */
    void *self, *core; /* core: `self` of the innermost one, where others are put over it */
    weft_status (*post)(void *self, weft_message *m);
    weft_status (*test)(void *self, weft_message *m); /* sets done; not called after that */
    /* A message that is done is not to be taken as such yet (link model). NULL: none is. */
    bool (*late)(void *self, weft_message *m);
    /* When the first of those will be that `late` held back since this was set to 0; 0: none. NULL:
     * there is no `late`. */
    double *due;
    /* Nobody touches the memory of an unfinished message afterwards. */
    void (*cancel)(void *self, weft_message *m);
    /* Control messages: fire and forget; poll gives one that has arrived, from *peer (-1: none). */
    void (*note)(void *self, int peer, const char text[WEFT_COMM_NOTE]);
    void (*poll)(void *self, int *peer, char text[WEFT_COMM_NOTE]);
    void (*flush)(void *self); /* lets notes leave, for a moment; NULL: they leave at once */
    /* Sleeps until something may have come, so many seconds at most; NULL: who waits must ask.
     * `wake` ends that, from any thread. */
    void (*sleep)(void *self, double seconds);
    void (*wake)(void *self);
    /* With a crew (runtime/crew.h): its thread drives this rank, and who would end a sleep calls
     * `poke` instead; NULL: no longer. Of the innermost transport (`core`). */
    struct weft_crew *crew; /* NULL: the communicator has a thread of its own */
    void (*hear)(void *core, void (*poke)(void *user), void *user);
    /* With modelled time: takes the link to `peer` for so many bytes from `when` on, or from when
     * it is free, which is returned. The owner's thread calls it. NULL: links are always free. */
    double (*reserve)(void *self, int peer, int64_t bytes, double when);
    /* With modelled time, on links that ranks share, what goes to or comes from single ranks; NULL:
     * they share none. */
    weft_turns *turns;
    /* False when the process of `peer` is known to be gone; `who` says what it was ("pid 123 on
     * a"). The one function that other threads call at any time, too. */
    bool (*alive)(void *self, int peer, char who[WEFT_COMM_NOTE]);
    void (*free)(void *self, bool broken); /* broken: do not wait for anybody */
} weft_transport;

/* Takes over `transport` (also when it fails). */
weft_status weft_comm_create(const weft_transport *transport, weft_comm **comm);

typedef struct weft_link_speed {
    double bytes_per_second, latency; /* seconds; a speed of 0: nothing is delayed */
} weft_link_speed;

enum { WEFT_LINK_PAIRS = 16 };

/* Links of ranks on nodes of `per_node` each, as they would be: a message is done when it would be
 * there. Messages between two nodes follow one another; inside a node those of one rank do. */
typedef struct weft_link_model {
    weft_link_speed between, inside;
    int per_node;
    /* Of modelled time (kernel/virtual/virtual.h): messages of devices with a clock carry when they
     * are there, nothing is late, and those of other devices take no time. What a rank sends to
     * another node, or inside its own, follows one another. Ranks of one process only. */
    bool clocked;
    /* With it: what goes to single ranks (sends; collectives do not) shares the links of this
     * cluster, of which rank r is device r, as the event simulator has it: messages of one rank to
     * another follow one another, all others have fair parts of the links that they pass. Each
     * rank's thread ends with weft_comm_leave. Borrowed until the communicators are freed. NULL:
     * ranks share no links. */
    const weft_cluster *cluster;
    int pairs; /* of nodes that have another link than `between`, the same in both directions */
    struct {
        int node[2];
        weft_link_speed link;
    } pair[WEFT_LINK_PAIRS];
} weft_link_model;
/* "1 Gbit/s, 50 us, 2 per node; inside 20 Gbit/s, 5 us; 0-2 0.1 Gbit/s, 1000 us": between nodes,
 * then what differs. May be left out: the ranks of a node (1), `inside` (nothing is delayed), pairs
 * of nodes. */
weft_status weft_link_model_parse(const char *text, weft_link_model *model);
/* Puts the model over `transports` of ranks of one process, or over one. */
weft_status weft_transport_link(weft_transport *transport, int count, const weft_link_model *model);
weft_status weft_comm_open_fake_linked(int ranks, const weft_link_model *model, weft_comm **comms);
/* With tags of so few bits, as MPI has them. */
weft_status weft_comm_open_fake_narrow(int ranks, int tag_bits, weft_comm **comms);

/* The last that the thread of a rank does that shares ports in modelled time. */
void weft_comm_leave(weft_comm *comm);

/* Measured between ranks 0 and 1 and the first of another node, by all ranks together; what is not
 * there to be measured keeps its default. */
weft_status weft_comm_measure(weft_comm *comm, weft_link_costs *costs);
/* From here on collectives are chosen by the rows of a table (runtime/choices.h; taken, and left
 * empty), where it has some, else by costs. The same on all ranks. */
void weft_comm_choose_by(weft_comm *comm, weft_choices *choices);
/* The same by the file that rank 0's WEFT_COLLECTIVES names, if it names one; collective. */
weft_status weft_comm_choose_by_file(weft_comm *comm);
/* By all ranks together: this rank's links to its neighbours in a ring of its machine's ranks, and
 * in one of those that have its place on other machines, at a time with everybody else's; of two
 * the better one, so that a slow neighbour does not count. A speed of 0: there is none. */
weft_status weft_comm_measure_links(weft_comm *comm, weft_link_speed *inside,
                                    weft_link_speed *between);
/* Messages and bytes that this rank has sent so far. */
void weft_comm_sent(weft_comm *comm, int64_t *messages, int64_t *bytes);

/* ---- exchanges ----------------------------------------------------------------------------- */

typedef struct weft_exchange weft_exchange;

/* A collective of `ranks` ranks, of which this is number `own`: `op` with `attr` (its axis is not
 * looked at), local shapes. The element type is that of the storage. It can be planned with, and
 * run once it is attached to a group. */
weft_status weft_exchange_create(int ranks, int own, weft_op op, const weft_attr_comm *attr,
                                 const weft_shape *in, const weft_shape *out, weft_dtype dtype,
                                 const char *what, weft_exchange **exchange);
/* One all_reduce of `pieces` tensors of count[i] elements. */
weft_status weft_exchange_create_bundle(int ranks, int own, weft_dtype dtype, const int64_t *count,
                                        int pieces, const char *what, weft_exchange **exchange);
/* `count` elements to or from member `peer`. Those to one peer follow one another, and so do those
 * from one; nothing else waits for them. */
weft_status weft_exchange_create_send(int ranks, int own, int peer, int64_t count, weft_dtype dtype,
                                      const char *what, weft_exchange **exchange);
weft_status weft_exchange_create_recv(int ranks, int own, int peer, int64_t count, weft_dtype dtype,
                                      const char *what, weft_exchange **exchange);
/* From member `root` to all; `in` is `out`. */
weft_status weft_exchange_create_broadcast(int ranks, int own, int root, int64_t count,
                                           weft_dtype dtype, const char *what,
                                           weft_exchange **exchange);
/* So many bytes in the place of WEFT_COMM_SEGMENT and WEFT_COMM_SCRATCH, on all its ranks; before
 * it is bound. */
weft_status weft_exchange_cut(weft_exchange *exchange, int64_t bytes);
/* To the group that runs it, of as many ranks, in which this rank is number `own`; again, to
 * another one, when it is not under way. Sends nothing. */
weft_status weft_exchange_attach(weft_exchange *exchange, weft_group *group, weft_channel channel);
/* One that is under way takes the communicator down with it. */
void weft_exchange_free(weft_exchange *exchange);
/* Bytes: enough for every algorithm, so the same whatever group it is attached to. */
int64_t weft_exchange_scratch(const weft_exchange *exchange);
/* Bytes that it keeps as long as it is there, beside its buffers. */
int64_t weft_exchange_own_bytes(const weft_exchange *exchange);
/* Bytes that this rank sends in one run. */
int64_t weft_exchange_wire_bytes(const weft_exchange *exchange);
/* The device of its buffers, and a stream that nobody else uses while the exchange is under way
 * (exchanges of one communicator may share one); the host's if never called. What is copied and
 * added is the device's work; messages leave when the stream has come to them. On a hollow device
 * messages have their sizes, for link models and counts, and no content. */
void weft_exchange_set_device(weft_exchange *exchange, const weft_device *device,
                              weft_device_stream *stream);
/* Bytes of the host that several hold, sends under way among them; the last one frees them. */
typedef struct weft_held weft_held;
weft_status weft_held_create(int64_t bytes, weft_held **held);
void *weft_held_data(weft_held *held);   /* a multiple of 64 bytes */
void weft_held_release(weft_held *held); /* accepts NULL */
/* weft_group_send without a copy: the `bytes` at `data`, which lie in `held` and stay as they are
 * until all have let go of it. They leave when `stream` has come to them: on a device with a clock
 * the message takes its time. `stream` NULL: at once. */
weft_status weft_group_send_held(weft_group *group, weft_channel channel, int peer, weft_held *held,
                                 const void *data, int64_t bytes, const weft_device *device,
                                 weft_device_stream *stream);
/* The same in modelled time at *when instead of the time of the device's user, for a thread that
 * sends while that user is ahead. `when` outlives the send. */
weft_status weft_group_send_held_at(weft_group *group, weft_channel channel, int peer,
                                    weft_held *held, const void *data, int64_t bytes,
                                    const weft_device *device, weft_device_stream *stream,
                                    double *when);
/* Buffers, before the first start; they stay the same. `in` may be `out` for all_reduce. */
void weft_exchange_bind(weft_exchange *exchange, const void *in, void *out, void *scratch);
/* The same for a bundle: its scratch, and then each piece. */
void weft_exchange_bind_bundle(weft_exchange *exchange, void *scratch);
void weft_exchange_bind_piece(weft_exchange *exchange, int piece, const void *in, void *out);
void weft_exchange_start(weft_exchange *exchange);
/* WEFT_E_COMM with the missing ranks after the communicator's deadline. */
weft_status weft_exchange_wait(weft_exchange *exchange);
/* Waits until one of `count` started exchanges is over, or until `also` (NULL: never) returns true,
 * which is asked at first and after each weft_comm_nudge. weft_exchange_wait gives its result. */
void weft_exchange_wait_any(weft_comm *comm, weft_exchange *const *exchange, int count,
                            bool (*also)(void *user), void *user);
/* Wakes weft_exchange_wait_any, from any thread. */
void weft_comm_nudge(weft_comm *comm);
/* True: it was started and is over, and waiting for it takes no time. */
bool weft_exchange_done(const weft_exchange *exchange);
/* Seconds that the last run took on the wire, and those that the caller spent in wait. */
double weft_exchange_seconds(const weft_exchange *exchange, double *waited);

/* Adds the last run of a send or a receive, which is over, and what it is for: "microbatch 3". */
weft_status weft_timeline_add_exchange(weft_timeline *timeline, const weft_exchange *exchange,
                                       const char *what);

/* Collective over every group that `exchange` is attached to, and over `also` (NULL: none): the
 * ranks of each compare what they will exchange on it, in this order. WEFT_E_COMM on all of them
 * when two differ, with both lists around the first place where they do. */
weft_status weft_exchanges_check(weft_exchange *const *exchange, int count, weft_group *const *also,
                                 int also_count);

#endif
