#include "video/sound_resample.h"

#include "base/memory.h"

#include <libavutil/channel_layout.h>
#include <libswresample/swresample.h>
#include <math.h>
#include <string.h>

/* libswresample takes 64 channels. */
enum { MOST_CHANNELS = 64 };

static weft_status_code fail(const char *name, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    if (error == AVERROR(ENOMEM))
        return weft_no_memory("%s", name);
    return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.file = name),
                      "the sound cannot be resampled (%s)",
                      av_make_error_string(text, sizeof text, error));
}

static weft_status open_resampler(const char *name, int64_t channels, int64_t from_rate,
                                  int64_t to_rate, SwrContext **swr)
{
    AVChannelLayout layout;
    av_channel_layout_default(&layout, (int)channels);
    int error = swr_alloc_set_opts2(swr, &layout, AV_SAMPLE_FMT_FLTP, (int)to_rate, &layout,
                                    AV_SAMPLE_FMT_FLTP, (int)from_rate, 0, NULL);
    error = error < 0 ? error : swr_init(*swr);
    av_channel_layout_uninit(&layout);
    return error < 0 ? fail(name, error) : WEFT_OK;
}

/* Converts all samples into `to` [channels][count], and fills what is missing with zeros. */
static weft_status convert(const char *name, SwrContext *swr, const float *samples,
                           int64_t channels, int64_t given, float *to, int64_t count)
{
    int64_t done = 0;
    const uint8_t *in[MOST_CHANNELS];
    uint8_t *out[MOST_CHANNELS];
    for (int64_t c = 0; c < channels; c++)
        in[c] = (const uint8_t *)(samples + c * given);
    for (bool first = true; done < count; first = false) {
        for (int64_t c = 0; c < channels; c++)
            out[c] = (uint8_t *)(to + c * count + done);
        const int made =
            swr_convert(swr, out, (int)(count - done), first ? in : NULL, first ? (int)given : 0);
        if (made < 0)
            return fail(name, made);
        done += made;
        if (!made && !first)
            break;
    }
    for (int64_t c = 0; c < channels && done < count; c++)
        memset(to + c * count + done, 0, (size_t)(count - done) * sizeof *to);
    return WEFT_OK;
}

weft_status weft_sound_resample(const char *name, const float *samples, int64_t channels,
                                int64_t count, int64_t from_rate, int64_t to_rate, float **made,
                                int64_t *made_count)
{
    SwrContext *swr = NULL;
    float *to = NULL;
    weft_status_code status = WEFT_OK;
    *made_count = llround((double)count * (double)to_rate / (double)from_rate);
    if (channels > MOST_CHANNELS || count > INT32_MAX || *made_count > INT32_MAX)
        return weft_error(WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = name, WEFT_NUMBER(count)),
                          "%" PRId64 " samples of %" PRId64 " channels are too many", count,
                          channels);
    WEFT_GO(WEFT_NEW(to, channels * *made_count + 1, "%s", name));
    if (from_rate == to_rate || !count)
        memcpy(to, samples, (size_t)(channels * *made_count) * sizeof *to);
    else {
        WEFT_GO(open_resampler(name, channels, from_rate, to_rate, &swr));
        WEFT_GO(convert(name, swr, samples, channels, count, to, *made_count));
    }
    *made = to;
    to = NULL;
out:
    swr_free(&swr);
    weft_free(to);
    return status;
}
