/* The state of a source video as JSON, for a resident child, whose memory is older. Private to
 * curate/. */
#ifndef WEFT_CURATE_SOURCE_REQUEST_H
#define WEFT_CURATE_SOURCE_REQUEST_H

#include "curate/curate_plan.h"

/* Record, scores and embeddings of a source; new reference, NULL: out of memory. The JSON shares
 * the record and the scores. */
json_t *weft_source_request_make(const weft_curate_plan *plan, const weft_curate_source *source);
/* Replaces the state of the source that the request names, in the plan of the child. */
weft_status weft_source_request_apply(weft_curate_plan *plan, const json_t *request,
                                      weft_curate_source **source);

#endif
