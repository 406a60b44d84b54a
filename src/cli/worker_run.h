/* The work of `weft worker`. serve/worker_messages.h has its commands and reports. The worker and
 * the weights that it has loaded stay between jobs.
 *
 * Several ranks, started by mpirun, generate each job together. The launcher connects the server to
 * one rank, the leader, which broadcasts the jobs and reports their ends. The error of a job ends
 * all ranks, because their communicator has failed. */
#ifndef WEFT_CLI_WORKER_RUN_H
#define WEFT_CLI_WORKER_RUN_H

#include "base/status.h"

#include <stdint.h>

/* Generates the jobs of standard input until its end. `idle`: seconds without a use after which
 * weights are unloaded; 0: never. `ranks`: processes of the launcher; several lock the file
 * `lock` of the working folder. */
weft_status weft_worker_generate(double idle, int64_t ranks, const char *lock);

#endif
