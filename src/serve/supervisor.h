/* The main thread's work: the workers of all groups, and one estimate for prices. */
#ifndef WEFT_SERVE_SUPERVISOR_H
#define WEFT_SERVE_SUPERVISOR_H

#include "serve/server_parts.h"

/* Lock held, any thread; call before the store applies PAUSE, CANCEL or DELETE. If the worker has
 * the job, it is asked to stop now: its step ends while the change is written to the disk. The
 * state of a job that is cancelled or deleted is not saved. If the change cannot be stored, the job
 * resumes at its last saved step. */
void weft_supervisor_hasten(weft_server *server, const char *id, weft_queue_event event);
/* Works until the process is interrupted. Then stops the workers, whose state is saved. */
weft_status weft_supervisor_run(weft_server *server);

#endif
