/* Ranks that hold up the others: from the pace of all (train/bulletin.h), by windows of steps.
 *
 *   a rank's own work   kernels + data, as it is and with its kernels divided by its share of the
 *                       FLOPs: uneven parts are no straggling, nor is a small part that costs more
 *                       than its share
 *   slow                both above (1 + share) times the median of the ranks', as means of a window
 *
 * A pure core: no clock, no messages. What is said is one line when a rank becomes slow, again
 * after 2, 4, 8, ... windows in which it still is, and one when it no longer is. */
#ifndef WEFT_TRAIN_STRAGGLERS_H
#define WEFT_TRAIN_STRAGGLERS_H

#include "base/log.h"
#include "train/bulletin.h"

typedef struct weft_straggler_config {
    double share;  /* slower than the median by more than this */
    int64_t steps; /* of a window; 0: nobody looks */
} weft_straggler_config;

typedef struct weft_stragglers weft_stragglers;
/* `flops`: of a step, by rank (copied); NULL: all alike. */
weft_status weft_stragglers_create(const weft_straggler_config *config, int ranks,
                                   const double *flops, weft_stragglers **stragglers);
void weft_stragglers_free(weft_stragglers *stragglers); /* accepts NULL */
/* The pace of every rank in a step; lines about it are added to `told`. */
void weft_stragglers_note(weft_stragglers *stragglers, const weft_pace *pace, weft_buf *told);

#endif
