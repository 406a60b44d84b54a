#include "video/sound_track.h"

#include "base/memory.h"
#include "video/sound_resample.h"

#include <libavcodec/avcodec.h>
#include <string.h>

enum { BITS_PER_CHANNEL = 96000 };

struct weft_sound_track {
    char *path;
    AVFormatContext *mux; /* borrowed */
    AVStream *stream;
    AVCodecContext *encoder;
    AVFrame *frame;
    AVPacket *packet;
    float *samples; /* [channels][count] at the encoder's rate */
    int64_t count, done;
    bool ended;
};

static weft_status_code fail(const weft_sound_track *t, const char *what, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    return weft_error(error == AVERROR(ENOSPC) ? WEFT_MSG_DISK_FULL : WEFT_MSG_FILE_IO,
                      WEFT_AT(.file = t->path), "%s (%s)", what,
                      av_make_error_string(text, sizeof text, error));
}

/* The lowest rate of the encoder that is at least `rate`, or its highest. */
static int rate_for(const AVCodec *codec, int64_t rate)
{
    int found = 0, highest = 0;
    for (const int *r = codec->supported_samplerates; r && *r; r++) {
        highest = *r > highest ? *r : highest;
        if (*r >= rate && (!found || *r < found))
            found = *r;
    }
    return found ? found : highest ? highest : (int)rate;
}

static weft_status open_encoder(weft_sound_track *t, const char *name, const weft_sound *s)
{
    const AVCodec *codec = avcodec_find_encoder_by_name(name);
    if (!codec)
        return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.file = t->path, .value = name),
                          "this FFmpeg has no encoder %s for sound", name);
    AVCodecContext *e = t->encoder = avcodec_alloc_context3(codec);
    WEFT_TRY(WEFT_ALLOCATED(e, "%s", t->path));
    e->sample_rate = rate_for(codec, s->rate);
    e->sample_fmt = codec->sample_fmts ? codec->sample_fmts[0] : AV_SAMPLE_FMT_FLTP;
    for (const enum AVSampleFormat *f = codec->sample_fmts; f && *f != AV_SAMPLE_FMT_NONE; f++)
        if (*f == AV_SAMPLE_FMT_FLTP || *f == AV_SAMPLE_FMT_FLT)
            e->sample_fmt = *f;
    av_channel_layout_default(&e->ch_layout, (int)s->channels);
    e->bit_rate = BITS_PER_CHANNEL * s->channels;
    e->time_base = (AVRational){1, e->sample_rate};
    e->flags |= AV_CODEC_FLAG_BITEXACT;
    if (t->mux->oformat->flags & AVFMT_GLOBALHEADER)
        e->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    const int error = avcodec_open2(e, codec, NULL);
    return error < 0 ? fail(t, "the encoder of sound does not start", error) : WEFT_OK;
}

static weft_status open_track(weft_sound_track *t, const char *encoder, const weft_sound *s)
{
    WEFT_TRY(open_encoder(t, encoder, s));
    WEFT_TRY(weft_sound_resample(t->path, s->samples, s->channels, s->count, s->rate,
                                 t->encoder->sample_rate, &t->samples, &t->count));
    t->stream = avformat_new_stream(t->mux, NULL);
    t->frame = av_frame_alloc();
    t->packet = av_packet_alloc();
    WEFT_TRY(WEFT_ALLOCATED(t->stream && t->frame && t->packet, "%s", t->path));
    t->stream->time_base = t->encoder->time_base;
    const int error = avcodec_parameters_from_context(t->stream->codecpar, t->encoder);
    return error < 0 ? fail(t, "the stream of sound cannot be described", error) : WEFT_OK;
}

weft_status weft_sound_track_open(const char *path, const char *encoder, const weft_sound *sound,
                                  AVFormatContext *mux, weft_sound_track **track)
{
    weft_sound_track *t;
    WEFT_TRY(WEFT_NEW(t, 1, "%s", path));
    weft_status_code status = WEFT_OK;
    t->mux = mux;
    t->path = weft_strdup(path);
    WEFT_GO(WEFT_ALLOCATED(t->path, "%s", path));
    WEFT_GO(open_track(t, encoder, sound));
    *track = t;
    return WEFT_OK;
out:
    weft_sound_track_free(t);
    return status;
}

/* Writes the encoder's finished packets to the file. */
static weft_status drain(weft_sound_track *t)
{
    for (;;) {
        int error = avcodec_receive_packet(t->encoder, t->packet);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return WEFT_OK;
        if (error < 0)
            return fail(t, "cannot encode the sound", error);
        av_packet_rescale_ts(t->packet, t->encoder->time_base, t->stream->time_base);
        t->packet->stream_index = t->stream->index;
        error = av_interleaved_write_frame(t->mux, t->packet);
        if (error < 0)
            return fail(t, "cannot write the sound to the file", error);
    }
}

/* Copies `count` samples into the frame, whose channels are planes or take turns. */
static void fill_frame(weft_sound_track *t, int64_t count)
{
    const int channels = t->encoder->ch_layout.nb_channels;
    const bool planes = av_sample_fmt_is_planar(t->encoder->sample_fmt) != 0;
    for (int c = 0; c < channels; c++)
        for (int64_t i = 0; i < count; i++) {
            float *to = (float *)(void *)t->frame->data[planes ? c : 0];
            to[planes ? i : i * channels + c] = t->samples[c * t->count + t->done + i];
        }
}

static weft_status write_frame(weft_sound_track *t, int64_t count)
{
    AVFrame *f = t->frame;
    av_frame_unref(f);
    f->nb_samples = (int)count;
    f->format = t->encoder->sample_fmt;
    f->sample_rate = t->encoder->sample_rate;
    int error = av_channel_layout_copy(&f->ch_layout, &t->encoder->ch_layout);
    error = error < 0 ? error : av_frame_get_buffer(f, 0);
    if (error < 0)
        return fail(t, "no buffer for sound", error);
    fill_frame(t, count);
    f->pts = t->done;
    t->done += count;
    error = avcodec_send_frame(t->encoder, f);
    return error < 0 ? fail(t, "cannot encode the sound", error) : drain(t);
}

weft_status weft_sound_track_write(weft_sound_track *t, double seconds, bool last)
{
    const int64_t size = t->encoder->frame_size > 0 ? t->encoder->frame_size : 1024;
    while (t->done < t->count &&
           (last || (double)(t->done + size) <= seconds * t->encoder->sample_rate)) {
        const int64_t left = t->count - t->done;
        if (left < size && !last)
            break;
        WEFT_TRY(write_frame(t, left < size ? left : size));
    }
    if (!last || t->ended)
        return WEFT_OK;
    t->ended = true;
    const int error = avcodec_send_frame(t->encoder, NULL);
    return error < 0 ? fail(t, "cannot encode the sound", error) : drain(t);
}

void weft_sound_track_free(weft_sound_track *t)
{
    if (!t)
        return;
    avcodec_free_context(&t->encoder);
    av_frame_free(&t->frame);
    av_packet_free(&t->packet);
    weft_free(t->samples);
    weft_free(t->path);
    weft_free(t);
}
