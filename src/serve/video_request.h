/* The request for a video: fields of JSON or of a form, checked against the model, in one form. */
#ifndef WEFT_SERVE_VIDEO_REQUEST_H
#define WEFT_SERVE_VIDEO_REQUEST_H

#include "serve/input_files.h"
#include "serve/served_model.h"

enum { WEFT_REQUEST_ID = 128, WEFT_REQUEST_PROMPT = 32768, WEFT_REQUEST_URL = 1024 };
/* Largest seed: 2^53 - 1, which every client of JSON sends exactly. */
#define WEFT_REQUEST_SEED INT64_C(9007199254740991)

/* Fields about the job and not about the video. */
typedef struct weft_request_terms {
    char request_id[WEFT_REQUEST_ID + 1]; /* "": none */
    int64_t priority;
    double deadline;                    /* seconds since 1970; 0: none */
    char webhook[WEFT_REQUEST_URL + 1]; /* "": none */
} weft_request_terms;

/* Reads the fields of a request. In a form every value is a string, so numbers may be strings.
 * `files`: names of the inputs in the job's folder; NULL: none. *request: all values of the video,
 * with the model's values for unset ones (json_decref). WEFT_E_ARG: the error's key is the
 * field. `base`: the request of a job to vary, whose fields are used where `fields` has none;
 * NULL: none. `coarse_fps`: rate of the coarse video; 0: unknown, or none. `terms` has the values
 * of absent fields. */
weft_status weft_video_request_read(const json_t *fields, const json_t *base,
                                    const char *const files[WEFT_INPUTS], double coarse_fps,
                                    const weft_served_model *models, int count,
                                    weft_request_terms *terms, json_t **request);
/* The model of a request; NULL: it is not served any more. */
const weft_served_model *weft_video_request_model(const json_t *request,
                                                  const weft_served_model *models, int count);
/* Sets `preview` of a request with all its steps to the one of the fields or of the job to vary. A
 * number that may be above the steps that run is reduced. */
weft_status weft_video_request_read_preview(const json_t *fields, const json_t *base,
                                            json_t *request);
/* Length of the video of a request; 0: the model is not served any more. */
double weft_video_request_seconds(const json_t *request, const weft_served_model *models,
                                  int count);
/* Removes what a client cannot send. */
void weft_video_request_show(json_t *request);
/* Hash of a request and of its uploaded files, 32 digits: equal for equal requests. */
weft_status weft_video_request_fingerprint(const json_t *request, const char *file_hashes,
                                           char out[33]);
/* The line of JSON for `weft generate --prompts` (heap, weft_free; NULL: out of memory). */
char *weft_video_request_line(const json_t *request);

#endif
