/* Tables of videos on several devices, and figures of their replays, as text and JSON. */
#ifndef WEFT_PLAN_ELASTIC_REPORT_H
#define WEFT_PLAN_ELASTIC_REPORT_H

#include "base/json.h"
#include "base/memory.h"
#include "plan/queue/elastic_replay.h"

/* Reads a table as JSON: {"sizes": [{"name": "81x480x832", "steps": 30, "step_seconds":
 * [8, 4.1, 2.2, 1.2], "decode_seconds": 1.7, "share": 1}, ...]}. A size without all
 * step_seconds has no further degrees. */
weft_status weft_elastic_table_read(const char *path, weft_elastic_table *table);
/* A table with a row per policy. */
void weft_elastic_scores_print(const weft_elastic_score *scores, int count, weft_buf *out);
/* The figures with the rules (json_decref). NULL: out of memory. */
json_t *weft_elastic_scores_json(const weft_elastic_score *scores, int count,
                                 const weft_elastic_rules *rules);

#endif
