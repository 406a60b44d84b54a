/* Shots by TransNetV2, on small frames. Private to shot detection. */
#ifndef WEFT_CURATE_SHOTS_SHOTS_NETWORK_H
#define WEFT_CURATE_SHOTS_SHOTS_NETWORK_H

#include "curate/shots/shots.h"

typedef struct weft_network_shots weft_network_shots;
weft_status weft_network_shots_create(const weft_shot_options *options, weft_network_shots **out);
weft_status weft_network_shots_push(weft_network_shots *n, const weft_video_frame *frame);
/* Transfers the list to the caller (heap). */
weft_status weft_network_shots_finish(weft_network_shots *n, weft_boundary **list, int64_t *count);
void weft_network_shots_free(weft_network_shots *n); /* accepts NULL */

#endif
