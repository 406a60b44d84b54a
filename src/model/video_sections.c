#include "model/video_sections.h"

#include <string.h>

const int64_t weft_history_frames[WEFT_HISTORY_SCALES] = {1, 2, 16};

int64_t weft_video_section_first(const weft_video_sections *s, int64_t at)
{
    if (s->shared || s->blocks)
        return s->first + at * (s->frames - s->shared);
    return !s->precedes + (s->forward ? at : s->count - 1 - at) * s->frames;
}

/* First frame of a scale in the history, counted in frames from the section on. */
static int64_t distance(int scale)
{
    int64_t frames = 0;
    for (int i = 0; i < scale; i++)
        frames += weft_history_frames[i];
    return frames;
}

int64_t weft_video_section_source(const weft_video_sections *s, int64_t at, int scale, int64_t i,
                                  bool last)
{
    const int64_t first = weft_video_section_first(s, at), end = 1 + s->count * s->frames;
    if (scale == 0 && i-- == 0)
        return s->image ? WEFT_HISTORY_IMAGE : s->precedes && at == 0 ? WEFT_HISTORY_ZEROS : 0;
    if (s->forward) {
        const int64_t frame = first - distance(scale + 1) + i;
        return frame >= 0           ? frame
               : -frame <= s->given ? WEFT_HISTORY_GIVEN + 1 + frame
                                    : WEFT_HISTORY_ZEROS;
    }
    const int64_t frame = first + s->frames + distance(scale) + i;
    if (frame < end)
        return frame;
    return last && scale == 0 && at == 0 ? WEFT_HISTORY_LAST_IMAGE : WEFT_HISTORY_ZEROS;
}

/* Sections between the image and section `at`. The positions of long videos are limited, as in the
 * published pipeline. */
static int64_t padding(const weft_video_sections *s, int64_t at)
{
    const int64_t left = s->count - 1 - at;
    if (s->count <= 4 || left < 2)
        return left;
    return at == 0 ? 3 : 2;
}

int64_t weft_video_section_index(const weft_video_sections *s, int64_t at, int64_t i)
{
    return 1 + (s->forward ? distance(WEFT_HISTORY_SCALES) : padding(s, at) * s->frames) + i;
}

int64_t weft_video_section_history_index(const weft_video_sections *s, int64_t at, int scale,
                                         int64_t i)
{
    if (scale == 0 && i-- == 0)
        return 0;
    if (s->forward)
        return 1 + distance(WEFT_HISTORY_SCALES) - distance(scale + 1) + i;
    return weft_video_section_index(s, at, s->frames) + distance(scale) + i;
}

weft_status weft_trained_sections_read(const json_t *settings, const char *where,
                                       weft_trained_sections *trained)
{
    const char *order;
    WEFT_TRY(weft_json_get_string_or(settings, "sections", where, "", &order));
    WEFT_TRY(weft_json_get_i64_or(settings, "window", where, 0, &trained->window));
    trained->forward = !strcmp(order, "forward");
    return trained->window >= 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_VALUE,
                            WEFT_AT(.file = where, .key = "window", WEFT_NUMBER(trained->window)),
                            "a section has at least one frame, not %" PRId64
                            ". Write the length of the training.",
                            trained->window);
}
