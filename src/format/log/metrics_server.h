/* Figures of a running command for Prometheus: GET /metrics on a thread of its own. Not by
 * libmicrohttpd, because only `weft serve` depends on it: curation and training work without it. */
#ifndef WEFT_FORMAT_LOG_METRICS_SERVER_H
#define WEFT_FORMAT_LOG_METRICS_SERVER_H

#include "base/memory.h"

/* Appends the head of a metric, in Prometheus' text format. `type`: "gauge" or "counter". */
void weft_metric_text_head(weft_buf *text, const char *name, const char *type, const char *help);
/* Appends a sample. `label` NULL: no label. Quotes, backslashes and new lines of `of` are
 * escaped. */
void weft_metric_text_value(weft_buf *text, const char *name, const char *label, const char *of,
                            double value);
/* Appends a metric with one sample and no label. */
void weft_metric_text_one(weft_buf *text, const char *name, const char *type, const char *help,
                          double value);

typedef struct weft_metrics_server weft_metrics_server;
/* Listens at `address` ("127.0.0.1:9464"; port 0: any free port), the value of the option
 * --metrics, and prints the URL. WEFT_E_ARG: not an address; WEFT_E_IO: it cannot be used. */
weft_status weft_metrics_server_open(const char *address, weft_metrics_server **server);
/* Replaces the text of the next replies, which is copied. Accepts NULL. */
weft_status weft_metrics_server_publish(weft_metrics_server *server, const weft_buf *text);
/* Whether the text is older than half a second, so that publishing is worth its price. NULL: no. */
bool weft_metrics_server_is_due(const weft_metrics_server *server);
/* Accepts NULL. */
void weft_metrics_server_close(weft_metrics_server *server);

#endif
