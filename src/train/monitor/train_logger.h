/* What a run says on rank 0: metrics.jsonl and TensorBoard events (format/metrics.h), and the
 * progress line. */
#ifndef WEFT_TRAIN_METER_H
#define WEFT_TRAIN_METER_H

#include "base/log.h"
#include "base/memory.h"

enum { WEFT_METER_EXTRAS = 8 }; /* what an objective tells beside its loss, at most */

typedef struct weft_step_figures {
    int64_t step; /* from 1: steps done */
    const char *stage;
    double loss, grad_norm, lr, seconds;
    bool skipped;
    int64_t skipped_total, samples, tokens; /* of this step, over all ranks */
    double flops;                           /* of this step, over all ranks */
    int bucket;                             /* -1: the stage has one */
    double extra[WEFT_METER_EXTRAS];
    const char *extra_name[WEFT_METER_EXTRAS]; /* NULL: none */
} weft_step_figures;

typedef struct weft_meter weft_meter;
/* `step`: steps done before; what the folder says of later ones, by a run that was killed, is
 * removed. */
weft_status weft_meter_open(const char *run, int64_t step, int64_t total, int64_t log_every,
                            double peak_gflops, weft_meter **meter);
weft_status weft_meter_note(weft_meter *meter, const weft_step_figures *figures);
/* Rate of the last steps as a share of the peak, at most 1. 0: no peak is known. */
double weft_meter_share(const weft_meter *meter);
/* What was noted is in the files when it returns. */
weft_status weft_meter_flush(weft_meter *meter);
/* Accepts NULL; reports what could not be written. */
weft_status weft_meter_close(weft_meter *meter);

#endif
