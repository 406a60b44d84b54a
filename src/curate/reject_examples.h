/* Example frames of the rejects of each operator, for the page of a curation. Private to
 * curate/. */
#ifndef WEFT_CURATE_REJECT_EXAMPLES_H
#define WEFT_CURATE_REJECT_EXAMPLES_H

#include "curate/curate_plan.h"

/* Appends up to four frames per operator, with source, time, score and limit. Frames are decoded by
 * child processes; an example that cannot be decoded has its text only. */
weft_status weft_reject_examples_add(const weft_curate_plan *plan, weft_buf *page);

#endif
