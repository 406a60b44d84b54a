#ifndef WEFT_CURATE_SHOT_FILTER_H
#define WEFT_CURATE_SHOT_FILTER_H

#include "base/json.h"
#include "curate/curate.h"

/* Reject reason of a shot, from the scores in its record; new reference. NULL: the shot is
 * accepted. */
json_t *weft_curate_filter(const weft_curate_config *config, const json_t *shot);

#endif
