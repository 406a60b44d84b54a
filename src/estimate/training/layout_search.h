/* Layout search: estimates and sorts all layouts of a run for a given number of ranks. */
#ifndef WEFT_ESTIMATE_TRAINING_LAYOUT_SEARCH_H
#define WEFT_ESTIMATE_TRAINING_LAYOUT_SEARCH_H

#include "estimate/layout_variants.h"
#include "estimate/training/layout_estimate.h"
#include "plan/layout/layout_list.h"

/* Parts of the seconds of a step: compute, exposed communication, optimizer, pipeline bubbles. */
enum { WEFT_LAYOUT_CAUSES = 4 };

/* Visits the layouts of a run on `ranks` ranks (weft_layout_variants), with the run's `order`. */
weft_status weft_layouts_visit(const weft_run *run, const weft_run_models *models, int ranks,
                               weft_layout_visit visit, void *self);
/* Estimates and sorts every layout, in the estimator's arena. */
weft_status weft_layouts_search(const weft_layout_estimator *estimator, weft_layout_list *layouts);
const weft_layout_estimate *weft_layouts_at(const weft_layout_list *layouts, int64_t index);
/* Prints one line per layout: the first ten. With `explain`, prints all, with memory contents and
 * the reason why each lost. */
void weft_layouts_print(const weft_layout_estimator *estimator, const weft_layout_list *layouts,
                        bool explain, weft_buf *out);

/* Sets *context to the fastest attention split over the cp ranks, for run->parallel with context
 * auto. Appends a line that compares the alternatives to `out`. */
weft_status weft_layouts_context(const weft_layout_estimator *estimator, weft_cp_config *context,
                                 weft_buf *out);

#endif
