/* The ranks of `weft worker`: the leader sends jobs to the other ranks. */
#ifndef WEFT_CLI_WORKER_RANKS_H
#define WEFT_CLI_WORKER_RANKS_H

#include "cli/worker_commands.h"

/* Opens the communicator of `ranks` ranks, and finds the leader. Several ranks lock the file `lock`
 * of the working folder. */
weft_status weft_worker_open_ranks(weft_worker_state *worker, int64_t ranks, const char *lock);
/* The leader's side of weft_worker_receive_job. `job` NULL: the end. */
weft_status weft_worker_send_job(const weft_worker_state *worker, const json_t *job);
/* *job: owned; NULL at the end. */
weft_status weft_worker_receive_job(const weft_worker_state *worker, json_t **job);

#endif
