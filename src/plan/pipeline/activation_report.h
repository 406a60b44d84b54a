/* Items and choices as JSON, text and a picture. */
#ifndef WEFT_PLAN_KEEP_REPORT_H
#define WEFT_PLAN_KEEP_REPORT_H

#include "base/json.h"
#include "plan/pipeline/keep.h"

/* {"items": [{"name", "bytes", "recompute", "offload", "count"}], "window": seconds} */
weft_status weft_keep_items_from_json(weft_arena *arena, const json_t *json, const char *name,
                                      weft_keep_item **item, int64_t *items, double *window);
#define WEFT_MEMORY_FORMAT "weft.memory/1"
/* {"format": "weft.memory/1", "limit", "kept", "seconds", "proved", "items": [...]} */
json_t *weft_keep_choice_json(const weft_keep_item *item, int64_t items, double limit,
                              const weft_keep_choice *greedy, const weft_keep_choice *exact);
void weft_keep_choice_print(const weft_keep_item *item, int64_t items, double limit,
                            const weft_keep_choice *greedy, const weft_keep_choice *exact,
                            weft_buf *out);
/* A bar per item: kept, recomputed, offloaded. Appends an SVG document. */
void weft_keep_choice_draw(const weft_keep_item *item, int64_t items,
                           const weft_keep_choice *choice, weft_buf *out);

#endif
