#ifndef WEFT_CURATE_SHOTS_SHOTS_VIDEO_H
#define WEFT_CURATE_SHOTS_SHOTS_VIDEO_H

#include "curate/shots/shots.h"

/* Finds the boundaries of `path`, decoding with `threads` threads. The thread count does not change
 * the result. */
weft_status weft_shots_find(const char *path, const weft_shot_options *options, int threads,
                            weft_shot_list *out);
void weft_shot_list_free(weft_shot_list *list);

#endif
