/* Metrics of a run: named numbers per step, for TensorBoard and as JSON lines.
 *
 *   <folder>/metrics.jsonl                {"step": 12, "seconds": 3.4, "loss": 0.12, ...} a line
 *   <folder>/events.out.tfevents...       the same as scalars */
#ifndef WEFT_FORMAT_LOG_METRICS_H
#define WEFT_FORMAT_LOG_METRICS_H

#include "base/memory.h"
#include "format/log/tfevents.h"

typedef struct weft_metric {
    const char *name; /* "loss", "train/grad_norm" */
    double value;     /* not finite: null in JSON */
} weft_metric;

typedef struct weft_metrics weft_metrics;
/* `step`: the first step to write. Removes lines of an earlier run from that step on, and a line
 * that a kill truncated. A resumed run therefore writes the file of an uninterrupted run. */
weft_status weft_metrics_open(const char *folder, int64_t step, weft_metrics **metrics);
/* Written through at once: a killed run has every line. */
weft_status weft_metrics_write(weft_metrics *metrics, int64_t step, const weft_metric *metric,
                               int count);
/* The event file, for images and text. */
weft_tfevents *weft_metrics_events(weft_metrics *metrics);
/* Accepts NULL; frees whatever the status is. */
weft_status weft_metrics_close(weft_metrics *metrics);

/* The values of `name` in a metrics.jsonl: *step and *value are heap arrays of *count (weft_free).
 * Skips lines without `name`; a null is NaN. Ignores an incomplete last line, which a killed run
 * leaves. WEFT_E_FORMAT names the first damaged line, or the file if it has no complete line. */
weft_status weft_metrics_read(const char *path, const char *name, double **step, double **value,
                              int64_t *count);

#endif
