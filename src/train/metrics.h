/* What a run says: metrics.jsonl (and TensorBoard events) on rank 0, and the progress line. */
#ifndef WEFT_TRAIN_METRICS_H
#define WEFT_TRAIN_METRICS_H

#include "base/log.h"
#include "base/memory.h"

typedef struct weft_step_figures {
    int64_t step; /* from 1: steps done */
    const char *stage;
    double loss, grad_norm, lr, seconds;
    bool skipped;
    int64_t skipped_total, samples, tokens; /* of this step, over all ranks */
    double flops;                           /* of this step, over all ranks */
    double extra[2];
    const char *extra_name[2]; /* NULL: none */
} weft_step_figures;

typedef struct weft_metrics weft_metrics;
/* Opens <run>/metrics.jsonl; lines of steps after `step` (a run that is resumed from before them) are removed. */
weft_status weft_metrics_open(const char *run, int64_t step, int64_t total, int64_t log_every, double peak_gflops,
                              weft_metrics **metrics);
weft_status weft_metrics_note(weft_metrics *metrics, const weft_step_figures *figures);
weft_status weft_metrics_close(weft_metrics *metrics); /* accepts NULL; reports what could not be written */

#endif
