/* Changes the rate of sound (libswresample). */
#ifndef WEFT_VIDEO_SOUND_RESAMPLE_H
#define WEFT_VIDEO_SOUND_RESAMPLE_H

#include "base/status.h"

#include <stdint.h>

/* Returns round(count to_rate / from_rate) samples of `samples` [channels][count] at `to_rate`,
 * heap, owned by the caller: sample i is at the time i / to_rate. At equal rates a copy. `name` is
 * for messages. */
weft_status weft_sound_resample(const char *name, const float *samples, int64_t channels,
                                int64_t count, int64_t from_rate, int64_t to_rate, float **made,
                                int64_t *made_count);

#endif
