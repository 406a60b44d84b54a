/* Detects stragglers, ranks that delay the others, from the timings of all ranks (rank_telemetry.h)
 * in windows of steps.
 *
 *   work    kernels + data seconds; also with the kernels divided by the rank's share of the FLOPs.
 *           Neither a larger share nor a small but expensive share makes a rank a straggler
 *   slow    both are above (1 + share) times the median of the ranks, as means of a window
 *
 * Without clock or messages. One line reports a rank that becomes slow, again after 2, 4, 8, ...
 * slow windows, and when the rank is no longer slow. */
#ifndef WEFT_TRAIN_MONITOR_STRAGGLERS_H
#define WEFT_TRAIN_MONITOR_STRAGGLERS_H

#include "base/log.h"
#include "train/config/train_config.h"
#include "train/monitor/rank_telemetry.h"

typedef struct weft_stragglers weft_stragglers;
/* `flops`: FLOPs of a step by rank (copied). NULL: equal. */
weft_status weft_stragglers_create(const weft_straggler_config *config, int ranks,
                                   const double *flops, weft_stragglers **stragglers);
void weft_stragglers_free(weft_stragglers *stragglers); /* accepts NULL */
/* Records the timings of every rank in a step. Appends report lines to `out`. */
void weft_stragglers_record(weft_stragglers *stragglers, const weft_step_timing *pace,
                            weft_buf *out);

#endif
