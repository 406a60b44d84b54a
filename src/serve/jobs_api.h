/* /v1/jobs: weft's own requests. Called with the lock. */
#ifndef WEFT_SERVE_JOBS_API_H
#define WEFT_SERVE_JOBS_API_H

#include "serve/serve_request.h"

/* Cancels, pauses or resumes a job. The answer waits until the worker has stopped. */
weft_serve_reply weft_jobs_change(weft_serve_request *request, const char *id,
                                  weft_queue_event event);
/* Moves a queued job directly before or after another one: the field `before` or `after` is an id.
 */
weft_serve_reply weft_jobs_move(weft_serve_request *request, const char *id);

#endif
