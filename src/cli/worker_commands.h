/* The commands of the server to `weft worker`, and the state that they change. */
#ifndef WEFT_CLI_WORKER_COMMANDS_H
#define WEFT_CLI_WORKER_COMMANDS_H

#include "base/json.h"
#include "comm/comm.h"
#include "generate/generator/resident_weights.h"

#include <pthread.h>

/* Lives as long as the process. */
typedef struct weft_worker_state {
    weft_resident_weights *resident;
    weft_comm *comm;
    int leader;  /* rank that reads the commands */
    bool leads;  /* this rank is the leader */
    int wake[2]; /* a job has ended: weights may become due */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* members that need the lock */
    json_t *job;     /* the next one; NULL: none */
    int64_t running; /* number of the running job; 0: none */
    bool ended;      /* no further command comes */
} weft_worker_state;

/* A thread that reads commands until the end of standard input. Takes a weft_worker_state. */
void *weft_worker_listen(void *user);

#endif
