#include "generate/jobs/video_continuation.h"

#include "base/memory.h"
#include "base/rng.h"

#include <string.h>

int64_t weft_continuation_windows(int64_t frames, int64_t window, int64_t shared)
{
    const int64_t step = window - shared, rest = frames - window;
    return shared && step > 0 && rest > 0 ? 1 + (rest + step - 1) / step : 1;
}

weft_status weft_continuation_open(int64_t frames, int64_t window, int64_t shared, int64_t pixels,
                                   weft_continuation *c)
{
    *c = (weft_continuation){.frames = frames,
                             .window = window,
                             .shared = shared,
                             .count = weft_continuation_windows(frames, window, shared),
                             .frame = 3 * pixels};
    c->tail = shared ? weft_calloc(shared * c->frame, sizeof *c->tail) : NULL;
    return !shared || c->tail ? WEFT_OK : weft_no_memory("the frames that windows share");
}

void weft_continuation_close(weft_continuation *c)
{
    weft_free(c->tail);
    *c = (weft_continuation){0};
}

void weft_continuation_push(weft_continuation *c, int64_t first, int64_t count, const float *frames,
                            int64_t *from, int64_t *fresh)
{
    const int64_t begin = c->at * (c->window - c->shared) + first, end = begin + count;
    for (int64_t i = 0; i < count && c->tail; i++) {
        const int64_t tail_frame = first + i - (c->window - c->shared);
        if (tail_frame >= 0)
            memcpy(c->tail + tail_frame * c->frame, frames + i * c->frame,
                   (size_t)c->frame * sizeof *frames);
    }
    if (c->at == 0 && first == 0)
        c->written = 0;
    *from = c->written > begin ? c->written - begin : 0;
    *from = *from < count ? *from : count;
    *fresh = (end < c->frames ? end : c->frames) - begin - *from;
    *fresh = *fresh > 0 ? *fresh : 0;
    c->written += *fresh;
}

uint64_t weft_continuation_seed(const weft_continuation *c, uint64_t seed)
{
    return c->at ? weft_seed_mix(seed, (uint64_t)c->at) >> 2 : seed;
}
