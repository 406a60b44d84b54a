/* The data report of a training stage: printed when the stage begins and ends, and written next to
 * the run's metrics. */
#ifndef WEFT_TRAIN_MONITOR_DATA_REPORT_H
#define WEFT_TRAIN_MONITOR_DATA_REPORT_H

#include "comm/comm.h"
#include "data/loader_report.h"
#include "data/loader_share.h"
#include "format/log/metrics.h"

/* Collective. Shares the outcomes of samples that a rank failed to decode. All ranks must have
 * opened the same data set. */
weft_status weft_data_report_merge(weft_comm *comm, weft_loader *loader);
/* Prints the lines of weft_loader_format_report after `title`. *report (new reference):
 * weft_loader_report_json, with the lines as "summary" and the keys of `more` (NULL: none). */
weft_status weft_data_report_make(const weft_loader *loader, const char *title, json_t *more,
                                  json_t **report);
/* Collective. *read (new reference): {"read_bytes": [bytes]}, the bytes of samples that each rank
 * read for the batches of its loader. */
weft_status weft_data_report_reads(weft_comm *comm, const weft_loader *loader, json_t **read);
/* Prints the summary of a data report. */
void weft_data_report_print(const json_t *report, const char *title);

/* The metrics samples/NAME: samples of a step by source, over all ranks. */
typedef struct weft_source_metrics {
    int count; /* sources; 0: a single path */
    weft_metric *metric;
    char (*name)[WEFT_SOURCE_NAME_BYTES + 16];
    int64_t *before; /* items until the step before */
} weft_source_metrics;
/* Begins before the first step with a loader. Frees what `metrics` had. */
weft_status weft_source_metrics_begin(const weft_loader *loader, weft_source_metrics *metrics);
/* Sets the metrics of the step that ended. */
void weft_source_metrics_update(const weft_loader *loader, weft_source_metrics *metrics);
void weft_source_metrics_free(weft_source_metrics *metrics);

#endif
