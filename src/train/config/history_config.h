/* Training of models that denoise a video section by section (WEFT_FRAME_CONDITION_HISTORY):
 * condition: history. A section of each clip has noise and loss, and the model sees other frames of
 * the clip as its history. */
#ifndef WEFT_TRAIN_CONFIG_HISTORY_CONFIG_H
#define WEFT_TRAIN_CONFIG_HISTORY_CONFIG_H

#include "base/config.h"

typedef enum weft_history_order {
    WEFT_HISTORY_ORDER_AUTO, /* of the weights, or reverse, as in generation */
    WEFT_HISTORY_ORDER_REVERSE,
    WEFT_HISTORY_ORDER_FORWARD
} weft_history_order;

typedef struct weft_history_config {
    int64_t window; /* frames of a section; 0 (default): of the weights, or the model's own */
    int sections;   /* weft_history_order */
} weft_history_config;
extern const weft_section weft_history_section;

typedef struct weft_run weft_run;
/* Rejects keys of the section without condition: history, and keys that cannot be combined with
 * condition: history. */
weft_status weft_history_check(const weft_run *run, const char *path);

#endif
