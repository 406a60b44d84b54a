/* The lock of a worker, so that two servers in sequence never have two workers. */
#ifndef WEFT_SERVE_WORKER_LOCK_H
#define WEFT_SERVE_WORKER_LOCK_H

#include "serve/server_parts.h"

/* *fd: the locked file; -1: a process of an earlier worker has the lock. */
weft_status weft_worker_try_lock(const weft_server *server, int64_t group, int *fd);
/* Waits until no worker of an earlier server runs in a group. */
weft_status weft_worker_wait(const weft_server *server, int64_t group);

#endif
