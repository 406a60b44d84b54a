/* All layouts of a run over so many ranks, by what they cost. */
#ifndef WEFT_TRAIN_LAYOUTS_H
#define WEFT_TRAIN_LAYOUTS_H

#include "train/layout_price.h"

typedef struct weft_layouts {
    /* The pricer's arena. The best first: those that fit, by seconds; those that do not; those that
     * cannot be */
    weft_layout_price *item;
    int64_t count, fitting, legal;
    double seconds; /* that the search took */
} weft_layouts;

/* Every product of degrees that makes the ranks, with zero 0 to 2 where there is dp, with and
 * without sequence, every pair of ulysses and ring, and all schedules over as many microbatches as
 * divide the batches, 1 to 4 for each rank of pp. Of the run's own section only `order` is kept. */
typedef weft_status_code (*weft_layout_visit)(void *self, const weft_parallel *parallel);
weft_status weft_layouts_visit(const weft_run *run, int ranks, weft_layout_visit visit, void *self);
/* The price of each. */
weft_status weft_layouts_search(const weft_pricer *pricer, weft_layouts *layouts);
/* A line each; the first ten, or with `explain` all, why they lost and what memory holds. */
void weft_layouts_print(const weft_pricer *pricer, const weft_layouts *layouts, bool explain,
                        weft_buf *out);
/* Why layout `index` is not the best one. */
void weft_layouts_why(const weft_layouts *layouts, int64_t index, weft_buf *out);

/* For run->parallel with context auto: the cheaper way to split attention over its cp ranks, set in
 * *context; `told` gets a line on how they compare. */
weft_status weft_layouts_context(const weft_pricer *pricer, weft_context *context, weft_buf *told);

#endif
