/* Inside the communicator: exchanges, the progress thread that runs them, and the transport under
 * it.
 *
 * Every collective is one or two rounds of "send block S_j to rank j, receive block R_j from rank
 * j" with strided blocks; a reducing round adds what arrives in the order of the ranks, so that the
 * sum depends neither on timing nor on how buffers were bundled, and every rank gets the same bits.
 *
 *   all_reduce      round 1: S_j = part j of in, reduce -> own part of out; round 2: all parts to
 * everybody (small ones: everything to everybody, one reducing round) all_gather      S_j = in, R_j
 * = block j of out along dim reduce_scatter  S_j = block j of in,          reduce -> out all_to_all
 * S_j = block j along dim2,     R_j = block j of out along dim ring_shift      to rank + shift,
 * from rank - shift
 *
 * Rounds are cut in segments that fit the scratch memory. Exchanges of a communicator run one after
 * the other in the order of starting, which is the same on all ranks. A bundle is one all_reduce of
 * several tensors, copied behind one another into the scratch memory and back (runtime/bundle.c
 * says which). */
#ifndef WEFT_RUNTIME_COMM_H
#define WEFT_RUNTIME_COMM_H

#include "runtime/runtime.h"

enum {
    WEFT_COMM_MAX_RANKS = 1024,  /* of one group */
    WEFT_COMM_SCRATCH = 4 << 20, /* bytes that an exchange may use for packing, about */
    WEFT_COMM_DIRECT = 16 << 10, /* all_reduce below so many bytes takes one round */
    WEFT_COMM_SMALL =
        256 << 10, /* an all_reduce of so many bytes joins a bundle: about where the time of the */
                   /* bytes overtakes that of the exchange (bench/ranks sums, docs/runtime.md) */
    WEFT_COMM_BUNDLE = 1 << 20,    /* bytes of a bundle at most, */
    WEFT_COMM_BUNDLE_PIECES = 256, /* and tensors */
    WEFT_COMM_NOTE = 200,          /* bytes of a control message */
};

/* rows x row elements, each row `stride` elements after the one before, from element `start`. */
typedef struct weft_block {
    int64_t start, rows, row, stride;
} weft_block;

/* ---- transport: point to point messages of bytes between ranks of the world ---------------- */

/* All functions are called from one thread at a time. Slots name pending messages: 0 .. slots-1. */
typedef struct weft_transport {
    int rank, ranks;
    void *self;
    weft_status (*reserve)(void *self, int slots); /* grows the table of pending messages */
    weft_status (*send)(void *self, int slot, int peer, int tag, const void *data, int64_t bytes);
    weft_status (*recv)(void *self, int slot, int peer, int tag, void *data, int64_t bytes);
    weft_status (*test)(void *self, int slot, bool *done);
    void (*cancel)(void *self); /* all pending messages; their memory may be freed afterwards */
    /* Control messages: fire and forget; poll gives one that has arrived, from *peer (-1: none). */
    void (*note)(void *self, int peer, const char text[WEFT_COMM_NOTE]);
    void (*poll)(void *self, int *peer, char text[WEFT_COMM_NOTE]);
    /* False when the process of `peer` is known to be gone; `who` says what it was ("pid 123 on
     * a"). */
    bool (*alive)(void *self, int peer, char who[WEFT_COMM_NOTE]);
    void (*free)(void *self, bool broken); /* broken: do not wait for anybody */
} weft_transport;

/* Takes over `transport` (also when it fails). */
weft_status weft_comm_create(const weft_transport *transport, weft_comm **comm);

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
/* To the group that runs it, of as many ranks, in which this rank is number `own`; again, to
 * another one, when it is not under way. Sends nothing. */
weft_status weft_exchange_attach(weft_exchange *exchange, weft_group *group, weft_channel channel);
void weft_exchange_free(weft_exchange *exchange);
int64_t weft_exchange_scratch(const weft_exchange *exchange); /* bytes */
/* Bytes that this rank sends in one run. */
int64_t weft_exchange_wire_bytes(const weft_exchange *exchange);
/* Buffers, before the first start; they stay the same. `in` may be `out` for all_reduce. */
void weft_exchange_bind(weft_exchange *exchange, const void *in, void *out, void *scratch);
/* The same for a bundle: its scratch, and then each piece. */
void weft_exchange_bind_bundle(weft_exchange *exchange, void *scratch);
void weft_exchange_bind_piece(weft_exchange *exchange, int piece, const void *in, void *out);
void weft_exchange_start(weft_exchange *exchange);
/* WEFT_E_COMM with the missing ranks after the communicator's deadline. */
weft_status weft_exchange_wait(weft_exchange *exchange);
/* Seconds that the last run took on the lane, and those that the caller spent in wait. */
double weft_exchange_seconds(const weft_exchange *exchange, double *waited);

#endif
