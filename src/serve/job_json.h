/* Jobs in the forms of /v1/videos and of /v1/jobs. No member has a path. */
#ifndef WEFT_SERVE_JOB_JSON_H
#define WEFT_SERVE_JOB_JSON_H

#include "serve/server_parts.h"

/* "queued", "in_progress", "completed" or "failed". */
const char *weft_job_json_status(weft_queue_state state);
/* Adds the predicted end of a job; `deadline`: 0: none. */
void weft_job_json_add_end(json_t *json, const weft_queue_forecast *forecast, double deadline);
/* NULL: out of memory. The lock is held. */
json_t *weft_job_json_video(const weft_server *server, const weft_queue_job *job);
/* Adds the job's place in `queue` (weft_server_queue). */
json_t *weft_job_json_job(const weft_server *server, const weft_queue_job *job,
                          const weft_queue_view *queue);

#endif
