/* The training log of rank 0: metrics.jsonl, TensorBoard events (format/log/metrics.h) and the
 * progress line. */
#ifndef WEFT_TRAIN_MONITOR_TRAIN_LOGGER_H
#define WEFT_TRAIN_MONITOR_TRAIN_LOGGER_H

#include "base/log.h"
#include "base/memory.h"
#include "exec/measure_products.h"
#include "format/log/metrics.h"
#include "format/log/metrics_server.h"

enum { WEFT_TRAIN_LOGGER_EXTRAS = 8 }; /* maximum metrics of an objective besides its loss */

typedef struct weft_step_figures {
    int64_t step; /* steps done, from 1 */
    const char *train_stage;
    double loss, grad_norm, lr, seconds;
    bool skipped;
    int64_t skipped_total, samples, tokens; /* totals of this step over all ranks */
    double flops;                           /* FLOPs of this step over all ranks */
    double bf16_flops;                      /* part of `flops` in bf16 */
    int bucket;                             /* -1: the stage has a single bucket */
    double extra[WEFT_TRAIN_LOGGER_EXTRAS];
    const char *extra_name[WEFT_TRAIN_LOGGER_EXTRAS]; /* NULL: none */
    const weft_metric *more;                          /* [more_count] further metrics; borrowed */
    int more_count;
} weft_step_figures;

typedef struct weft_train_logger weft_train_logger;
/* The figures of the last step for Prometheus, in its text format. */
typedef struct weft_train_rates {
    double samples_per_second, tokens_per_second, flops_per_second, remaining_seconds;
    int64_t samples, total; /* samples since the start; steps of the run */
} weft_train_rates;
void weft_train_metrics_print(const weft_step_figures *figures, const weft_train_rates *rates,
                              weft_buf *text);
/* `step`: steps already done. Removes entries of later steps, which a killed run may have written.
 * `peak`: rates of all ranks together; f32 0: not known. */
weft_status weft_train_logger_open(const char *run, int64_t step, int64_t total, int64_t log_every,
                                   weft_peak_gflops peak, weft_train_logger **meter);
/* Publishes the figures of every step there; `server` is borrowed. */
void weft_train_logger_publish_to(weft_train_logger *meter, weft_metrics_server *server);
weft_status weft_train_logger_record(weft_train_logger *meter, const weft_step_figures *figures);
/* Seconds of the last steps' FLOPs at the peak of their types, as a share of the seconds of the
 * steps, at most 1. 0: the peak is unknown. */
double weft_train_logger_share(const weft_train_logger *meter);
/* Writes all recorded events to the TensorBoard file. */
weft_status weft_train_logger_flush(weft_train_logger *meter);
/* Accepts NULL. Returns the error of a failed write. */
weft_status weft_train_logger_close(weft_train_logger *meter);

#endif
