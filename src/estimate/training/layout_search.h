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

/* Visits every product of dp, fsdp, ep (models with experts), tp, cp and pp that makes the ranks,
 * with
 *
 *   zero          0 to 2 with dp, else 0
 *   sequence      off and on with tp
 *   context       every pair of ulysses and ring that makes cp; of models that split heads between
 *                 frames and places (STDiT3, Latte) also with kind heads
 *   schedule      gpipe, 1f1b, interleaved, wave and zero-bubble with pp
 *   microbatches  with pp every divisor of the batches from pp to 4 pp; without such a divisor the
 *                 largest number that the run permits
 *
 * `order` is the run's; virtual_stages and slices are the defaults. Layouts that the run refuses
 * are visited too. */
typedef weft_status_code (*weft_layout_visit)(void *self, const weft_parallel *parallel);
weft_status weft_layouts_visit(const weft_run *run, const weft_run_models *models, int ranks,
                               weft_layout_visit visit, void *self);
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
