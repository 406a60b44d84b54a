/* /v1/jobs: weft's own requests. Called with the lock. */
#ifndef WEFT_SERVE_JOBS_API_H
#define WEFT_SERVE_JOBS_API_H

#include "serve/http_request.h"

/* Cancels, pauses or resumes a job. The answer waits until the worker has stopped. */
weft_http_reply weft_jobs_change(weft_http_request *request, const char *id,
                                 weft_queue_event event);

#endif
