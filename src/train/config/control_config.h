/* Training with control videos (depth, edges, poses): condition: control. */
#ifndef WEFT_TRAIN_CONFIG_CONTROL_CONFIG_H
#define WEFT_TRAIN_CONFIG_CONTROL_CONFIG_H

#include "base/config.h"

typedef struct weft_control_config {
    const char *path; /* data set with the keys of data.path; "": none */
} weft_control_config;
extern const weft_section weft_control_section;

typedef struct weft_run weft_run;
/* Requires the data set of control videos exactly if condition is control, and rejects keys that
 * cannot be combined with condition: control. */
weft_status weft_control_check(const weft_run *run, const char *path);

#endif
