/* The server's state, shared by the HTTP thread and the main thread. */
#ifndef WEFT_SERVE_SERVER_PARTS_H
#define WEFT_SERVE_SERVER_PARTS_H

#include "serve/access_tokens.h"
#include "serve/child_process.h"
#include "serve/connections.h"
#include "serve/prices.h"
#include "serve/queue_store.h"
#include "serve/served_model.h"
#include "serve/server.h"

#include <pthread.h>

typedef struct weft_serve_request weft_serve_request;
typedef struct weft_event_stream weft_event_stream;

/* Progress of the running job, from the worker's messages. */
typedef struct weft_worker_progress {
    int64_t done, total; /* steps and videos; total 0: unknown */
    double seconds_left; /* negative: unknown */
} weft_worker_progress;

typedef struct weft_server {
    const weft_serve_options *options;
    char program[4096]; /* path of weft */
    char *state;        /* absolute path */
    char *cluster;      /* --on for a child in another folder: absolute if it is a file; or NULL */
    weft_served_model *models;
    int model_count;
    weft_access_tokens tokens; /* count 0: no authentication */
    int wake[2];               /* a pipe that ends the main thread's wait */
    struct MHD_Daemon *daemon;
    weft_connections connections; /* of the HTTP thread */

    pthread_mutex_t lock; /* of the members below and the store */
    weft_queue_store *store;
    weft_prices prices;
    bool stopping;
    char running[WEFT_QUEUE_ID]; /* job of the worker; "": none */
    weft_worker_progress progress;
    double since;                /* weft_now() of the worker's start */
    weft_serve_request *waiting; /* suspended requests */
    weft_event_stream *streams;
    int64_t responses[6]; /* by the first digit of the status */
    int64_t workers, crashes;
    int64_t heartbeats; /* grows every 15 s; streams send a comment, which finds left clients */
} weft_server;

/* Seconds since 1970. */
double weft_server_time(void);
/* Ends the wait of the main thread; any thread. */
void weft_server_wake(weft_server *server);
/* Lock held: a job has changed. Waiting requests and event streams look again. */
void weft_server_changed(weft_server *server);
/* "STATE/jobs/ID" (heap, weft_free; NULL: out of memory). */
char *weft_server_job_folder(const weft_server *server, const char *id);

#endif
