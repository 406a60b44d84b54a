/* /v1/videos: the shape that the Python client `openai` speaks. Called with the lock. */
#ifndef WEFT_SERVE_VIDEOS_API_H
#define WEFT_SERVE_VIDEOS_API_H

#include "serve/serve_request.h"

/* Whether a request sees a job. Jobs of other tokens are hidden; jobs without a token are not. */
bool weft_videos_are_seen(const weft_serve_request *request, const weft_queue_job *job);
/* Reads the job of a path: status 404 in `reply` if it does not exist or is hidden. */
bool weft_videos_find(const weft_serve_request *request, const char *id, weft_queue_job *job,
                      weft_serve_reply *reply);
/* A job as a video or, with its place in the queue, as a job. */
weft_serve_reply weft_videos_answer(weft_server *server, const weft_queue_job *job, bool as_job);
/* Lists videos, or with `as_jobs` jobs, of which a query can select a part. */
weft_serve_reply weft_videos_list(weft_serve_request *request, bool as_jobs);
weft_serve_reply weft_videos_get(weft_serve_request *request, const char *id, bool as_job);
weft_serve_reply weft_videos_delete(weft_serve_request *request, const char *id);
weft_serve_reply weft_videos_content(weft_serve_request *request, const char *id);
/* A file that the job was created with, by the field of its form. */
weft_serve_reply weft_videos_input(weft_serve_request *request, const char *id, const char *field);
/* The last preview of a job: an image of its middle frame. */
weft_serve_reply weft_videos_preview(weft_serve_request *request, const char *id);

#endif
