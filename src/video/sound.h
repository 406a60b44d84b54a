/* Sound of a video. */
#ifndef WEFT_VIDEO_SOUND_H
#define WEFT_VIDEO_SOUND_H

#include <stdint.h>

typedef struct weft_sound {
    const float *samples; /* [channels][count] in [-1,1], borrowed; NULL: no sound */
    int64_t channels, count;
    int64_t rate; /* samples per second */
} weft_sound;

#endif
