/* /v1/videos: the shape that the Python client `openai` speaks. Called with the lock. */
#ifndef WEFT_SERVE_VIDEOS_API_H
#define WEFT_SERVE_VIDEOS_API_H

#include "serve/serve_request.h"

/* Creates a job. The answer is a video, or with `as_job` a job. `base`: id of a job to vary; NULL:
 * none. `only_price`: answers the price and adds nothing. */
typedef struct weft_videos_form {
    bool as_job, only_price;
    const char *base;
} weft_videos_form;
weft_serve_reply weft_videos_create(weft_serve_request *request, const weft_videos_form *form);
/* Reads the job of a path: status 404 in `reply` if it does not exist. */
bool weft_videos_find(weft_server *server, const char *id, weft_queue_job *job,
                      weft_serve_reply *reply);
/* Lists videos, or with `as_jobs` jobs. */
weft_serve_reply weft_videos_list(weft_serve_request *request, bool as_jobs);
weft_serve_reply weft_videos_get(weft_serve_request *request, const char *id, bool as_job);
weft_serve_reply weft_videos_delete(weft_serve_request *request, const char *id);
weft_serve_reply weft_videos_content(weft_serve_request *request, const char *id);

#endif
