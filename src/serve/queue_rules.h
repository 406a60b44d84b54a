/* The rules of the server's queue as functions of numbers: states of a job, transitions, and the
 * order that users set. plan/queue/queue_policy.h has the policies.
 *
 *     queued ──start──> running ──finished──> completed
 *       │ ^               │ ├──failed──> failed
 *       │ │resume         │ ├──crashed──> queued; the second time: parked
 *       v │               │ └──stopped, or the server ended──> queued
 *     paused <──stopped── pausing (pause)
 *                         cancelling (cancel) ──stopped──> cancelled
 *                         deleting (delete) ──any end──> the job is removed
 *
 * A pause, cancel or delete of a running job is acknowledged when the worker has ended. A worker
 * that finishes its video before it stops completes a job that is pausing or cancelling. */
#ifndef WEFT_SERVE_QUEUE_RULES_H
#define WEFT_SERVE_QUEUE_RULES_H

#include "plan/queue/queue_policy.h"

typedef enum weft_queue_state {
    WEFT_QUEUE_QUEUED,
    WEFT_QUEUE_RUNNING,
    WEFT_QUEUE_PAUSING,
    WEFT_QUEUE_CANCELLING,
    WEFT_QUEUE_DELETING,
    WEFT_QUEUE_PAUSED,
    WEFT_QUEUE_CANCELLED,
    WEFT_QUEUE_COMPLETED,
    WEFT_QUEUE_FAILED,
    WEFT_QUEUE_PARKED,
    WEFT_QUEUE_STATES
} weft_queue_state;

typedef enum weft_queue_event {
    WEFT_QUEUE_START,
    WEFT_QUEUE_PAUSE,
    WEFT_QUEUE_RESUME,
    WEFT_QUEUE_CANCEL,
    WEFT_QUEUE_DELETE,
    WEFT_QUEUE_FINISHED, /* the worker wrote the video */
    WEFT_QUEUE_STOPPED,  /* the worker saved its state and ended */
    WEFT_QUEUE_REFUSED,  /* the worker ended with an error */
    WEFT_QUEUE_CRASHED,  /* the worker was killed */
    WEFT_QUEUE_LOST,     /* the server ended while the worker ran */
    WEFT_QUEUE_EVENTS
} weft_queue_event;

/* Crashes of its worker after which a job is parked. */
enum { WEFT_QUEUE_CRASHES = 2 };

/* "queued"; in the store and in responses. */
const char *weft_queue_state_name(weft_queue_state state);
/* WEFT_QUEUE_STATES: no state has this name. */
weft_queue_state weft_queue_state_find(const char *name);
/* The state after an event; WEFT_QUEUE_STATES: the event is not allowed in this state. `crashes`:
 * crashes of the job's workers, with the one that this event reports. */
weft_queue_state weft_queue_next(weft_queue_state state, weft_queue_event event, int64_t crashes);
/* Whether LOST leads to the same state with the transition as without it, so that the transition
 * may be lost when the machine fails. A crash counts, and is never lost. */
bool weft_queue_may_be_lost(weft_queue_state before, weft_queue_event event, weft_queue_state next);
/* Whether a worker has the job. */
bool weft_queue_is_held(weft_queue_state state);
/* Whether the values of the job can be edited. */
bool weft_queue_can_edit(weft_queue_state state);
/* Whether no event but RESUME and DELETE changes the state any more. */
bool weft_queue_is_final(weft_queue_state state);

/* Sorts jobs: held jobs, then by descending priority, then by rank, which is the order of the
 * policy fifo. */
void weft_queue_sort(weft_queue_entry *entries, int64_t count);
/* Moves the job `number` directly before the job `other`, or after it: the job gets the priority of
 * `other`, and the ranks of the jobs of this priority are permuted. `entries` must be sorted, and
 * is sorted after the call. False, without a change: one of the two is held or does not exist, or
 * both are the same. */
bool weft_queue_move(weft_queue_entry *entries, int64_t count, int64_t number, int64_t other,
                     bool after);

#endif
