/* The page of a curation (`weft curate --report`): funnel, operators, clusters, histograms of
 * scores with their limits, and example frames of rejects. Private to curate/. */
#ifndef WEFT_CURATE_CURATE_PAGE_H
#define WEFT_CURATE_CURATE_PAGE_H

#include "curate/curate_plan.h"

/* Writes the page after the lists are published. */
weft_status weft_curate_page_write(const weft_curate_plan *plan, const weft_curate_report *report,
                                   const char *path);

#endif
