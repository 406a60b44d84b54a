/* Creation, prices and edits of jobs. Called with the lock. */
#ifndef WEFT_SERVE_JOB_CREATE_H
#define WEFT_SERVE_JOB_CREATE_H

#include "serve/serve_request.h"

/* Form of the answer, and what is asked. */
typedef struct weft_create_form {
    bool as_job;      /* the answer is a job; else a video */
    bool only_price;  /* answers the price, and adds nothing */
    const char *base; /* id of a job to vary; NULL: none */
} weft_create_form;
/* Creates a job. The answer waits for the price of its size. */
weft_serve_reply weft_job_create(weft_serve_request *request, const weft_create_form *form);
/* Changes values of a queued or paused job, with the price of the new values. */
weft_serve_reply weft_job_edit(weft_serve_request *request, const char *id);

#endif
