/* The main thread's work: one worker, and one estimate for prices. */
#ifndef WEFT_SERVE_SUPERVISOR_H
#define WEFT_SERVE_SUPERVISOR_H

#include "serve/server_parts.h"

/* Removes files that no job has, and of deleted and cancelled jobs, after an earlier server's end.
 * Waits until an earlier server's worker has ended. */
weft_status weft_supervisor_recover(weft_server *server);
/* Works until the process is interrupted. Then stops the worker, whose state is saved. */
weft_status weft_supervisor_run(weft_server *server);

#endif
