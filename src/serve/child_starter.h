/* A process of weft that is linked and has no thread: it forks the server's children. A program
 * with 150 libraries needs 40 ms of processor time for its symbols, and a fork 2 ms.
 *
 *     server ── order, descriptors ──> weft child-starter ── fork ──> (ends) ── fork ──> child
 *
 * The process between them ends at once, and the server adopts the child, as if it had started the
 * child itself. The starter knows neither tokens nor the queue. */
#ifndef WEFT_SERVE_CHILD_STARTER_H
#define WEFT_SERVE_CHILD_STARTER_H

#include "serve/child_process.h"

/* The verb of the starter. */
#define WEFT_CHILD_STARTER "child-starter"

/* A message of the server, before the texts: the working folder, then argv[1..count-1]. Each text
 * has its NUL. The descriptors are standard input, output and error, then the lock. */
typedef struct weft_child_order {
    int32_t count, niceness, last_signal, descriptors;
} weft_child_order;

enum { WEFT_CHILD_ORDER_BYTES = 1 << 16, WEFT_CHILD_DESCRIPTORS = 4 };

/* The first message of the starter is 0: it is ready. The answer to an order is the number of the
 * child's process, or -1. */
typedef int32_t weft_child_answer;

/* The main thread's. Zero-initialised: none is started. */
typedef struct weft_child_starter {
    const char *program; /* path of weft */
    const char *folder;  /* its working folder */
    weft_child process;
    int socket;
    bool ready;
    int answer_ms; /* of the wait for an answer; 0: a second. A request to stop ends the wait. */
    int failures;  /* starters that did not answer; after some, none is started any more */
} weft_child_starter;

/* Starts the process, if there is none. It is ready later. */
void weft_child_starter_open(weft_child_starter *starter);
/* Starts a child. streams: its standard input, output and error. Returns its process, or 0: the
 * starter is not ready, or has failed and will be replaced. */
pid_t weft_child_starter_fork(weft_child_starter *starter, const weft_child_start_options *options,
                              const int streams[3]);
void weft_child_starter_close(weft_child_starter *starter);

#endif
