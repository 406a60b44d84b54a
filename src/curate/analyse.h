#ifndef WEFT_CURATE_ANALYSE_H
#define WEFT_CURATE_ANALYSE_H

#include "base/json.h"
#include "curate/curate.h"
#include "curate/curate_work.h"

void weft_heartbeat_beat(const weft_heartbeat *heart);
/* Reports a finished part of a job (weft_pool.part). */
void weft_heartbeat_part(const weft_heartbeat *heart);
/* Reports a model that a job has opened (weft_pool.loaded). */
void weft_heartbeat_loaded(const weft_heartbeat *heart);
void weft_curate_parts_free(weft_curate_parts *parts);
/* Decodes the video once and writes its record: properties, and shots with the area inside the
 * bars, scores and hashes. "reject": {operator, value, threshold, reason} is set where a filter
 * rejects the video, or for a transition between shots. "again" marks a fault that may not recur in
 * the next run. The caller owns *record and *parts. An unreadable video yields a record with a
 * reject, not an error. Errors are of memory only: WEFT_E_TOO_LARGE, WEFT_E_MEMORY. */
weft_status weft_curate_analyse(const char *path, const weft_curate_config *config, int threads,
                                const weft_heartbeat *heart, json_t **record,
                                weft_curate_parts *parts);
/* Reject object: {"operator","value","threshold","reason"}. */
json_t *weft_curate_reject(const char *operator_name, double value, double threshold,
                           const char *reason);

#endif
