/* The methods content, adaptive and fade, on small frames. Private to shot detection. */
#ifndef WEFT_CURATE_SHOTS_SHOTS_CLASSIC_H
#define WEFT_CURATE_SHOTS_SHOTS_CLASSIC_H

#include "curate/shots/shots.h"

typedef struct weft_classic_shots weft_classic_shots;
weft_status weft_classic_shots_create(const weft_shot_options *options, weft_classic_shots **out);
weft_status weft_classic_shots_push(weft_classic_shots *c, const weft_video_frame *frame);
/* Transfers the list to the caller (heap). */
weft_status weft_classic_shots_finish(weft_classic_shots *c, weft_boundary **list, int64_t *count);
void weft_classic_shots_free(weft_classic_shots *c); /* accepts NULL */

#endif
