/* The layout of a job on several ranks, as `weft estimate --parallel auto` names it:
 * "cfg=2 cp=2 context={ulysses: 1, ring: 2}, weights stream". Functions of text. */
#ifndef WEFT_SERVE_JOB_LAYOUT_H
#define WEFT_SERVE_JOB_LAYOUT_H

#include "base/json.h"

#include <stdint.h>

enum { WEFT_JOB_LAYOUT = 128, WEFT_JOB_LAYOUT_KEYS = 12 };

/* Removes what the server has added to a request: "layout", "ranks" and "degrees". Returns these
 * members (json_decref); NULL: out of memory. */
json_t *weft_job_layout_take(json_t *request);
/* The member of "degrees" for a number of ranks; NULL: none. */
const json_t *weft_job_layout_degree(const json_t *request, int64_t ranks);
/* Product of the degrees. */
int64_t weft_job_layout_ranks(const char *layout);
/* Whether the weights are streamed. */
bool weft_job_layout_streams(const char *layout);
/* Splits a layout into values of --parallel, which are in `text`. Returns their number. */
int weft_job_layout_split(const char *layout, char text[WEFT_JOB_LAYOUT],
                          char *keys[WEFT_JOB_LAYOUT_KEYS]);

#endif
