/* Layout search of generation: estimates and sorts all layouts, and chooses one for the ranks of a
 * run. */
#ifndef WEFT_ESTIMATE_GENERATION_GENERATION_LAYOUTS_H
#define WEFT_ESTIMATE_GENERATION_GENERATION_LAYOUTS_H

#include "comm/comm.h"
#include "estimate/generation/generation_estimate.h"
#include "estimate/layout_variants.h"
#include "plan/layout/layout_list.h"

/* Visits the layouts of the estimator's ranks (weft_layout_variants). cfg x dp is at most the rows
 * of the batch. The estimator's cluster is not used. */
weft_status weft_generation_layouts(const weft_generation_estimator *estimator,
                                    weft_layout_visit visit, void *user);
/* Estimates and sorts every layout, in the estimator's arena; estimates are
 * weft_generation_estimate. Layouts whose weights do not fit are also estimated with weight
 * streaming. */
weft_status weft_generation_search(const weft_generation_estimator *estimator,
                                   weft_layout_list *layouts);
/* Prints one line per layout: the first ten. With `explain`, prints all, with the reason why each
 * lost. */
void weft_generation_print(const weft_generation_estimator *estimator,
                           const weft_layout_list *layouts, bool explain, weft_buf *out);

/* Collective. Rank 0 chooses the best layout for the ranks of `comm`: sets the degrees and stream,
 * and prints the choice. options->memory 0: the free memory of the machines. */
weft_status weft_generation_choose(const weft_generation_estimator *estimator, weft_comm *comm,
                                   weft_parallel *parallel, bool *stream);
/* Collective. Rank 0 resolves `auto` in the slices of `parallel`, for its degrees, by the seconds
 * of a step (slices_search.h). `out` gets a line about the choice and the next best one. */
weft_status weft_generation_choose_comm_overlap(const weft_generation_estimator *estimator,
                                                weft_comm *comm, bool stream,
                                                weft_parallel *parallel, weft_buf *out);

#endif
