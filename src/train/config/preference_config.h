/* Preference tuning (Diffusion-DPO; Wallace et al. 2024): pairs of a preferred and a rejected
 * clip. */
#ifndef WEFT_TRAIN_CONFIG_PREFERENCE_CONFIG_H
#define WEFT_TRAIN_CONFIG_PREFERENCE_CONFIG_H

#include "base/config.h"

typedef struct weft_preference_config {
    const char *rejected; /* data set with the keys of data.path; "": off */
    double beta;          /* weight of the distance from the model before the training */
} weft_preference_config;
extern const weft_section weft_preference_section;

typedef struct weft_run weft_run;
/* Rejects keys that cannot be combined with preference tuning. */
weft_status weft_preference_check(const weft_run *run, const char *path);

#endif
