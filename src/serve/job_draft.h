/* A request for a job while it is read: fields, files, terms, and the job that it varies. */
#ifndef WEFT_SERVE_JOB_DRAFT_H
#define WEFT_SERVE_JOB_DRAFT_H

#include "serve/serve_request.h"
#include "serve/video_request.h"

/* Lives while a request is read. Free with weft_job_draft_free. */
typedef struct weft_job_draft {
    json_t *fields, *request;
    json_t *base;                             /* the request of the job to vary; NULL: none */
    char names[WEFT_INPUTS][WEFT_INPUT_NAME]; /* of the uploads in the job's folder */
    const char *files[WEFT_INPUTS]; /* names of all inputs in the job's folder; NULL: none */
    bool of_base[WEFT_INPUTS];      /* the file is the one of the job to vary */
    weft_request_terms terms;
    char fingerprint[33];
    json_t *layout; /* of the job to vary, as of weft_job_layout_take; NULL: none */
} weft_job_draft;

/* Reads a new job. `base`: the job to vary; NULL: none. */
weft_status weft_job_draft_read(weft_serve_request *request, const weft_queue_job *base,
                                weft_job_draft *draft);
/* Reads the changes of a job, whose terms stay unless they are given. */
weft_status weft_job_draft_read_changes(weft_serve_request *request, const weft_queue_job *job,
                                        weft_job_draft *draft);
void weft_job_draft_free(weft_job_draft *draft);

#endif
