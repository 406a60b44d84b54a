#include "video/sound_reader.h"

#include "base/memory.h"
#include "video/reader_internal.h"
#include "video/sound_resample.h"

#include <libavcodec/avcodec.h>
#include <libavutil/channel_layout.h>
#include <libswresample/swresample.h>
#include <math.h>
#include <string.h>

enum { MARGIN = 1024 }; /* samples decoded before and after the part, for the resampler */
static const double preroll = 0.5, /* seconds decoded before the part: decoders overlap blocks */
    jitter = 0.02;                 /* seconds by which times of packets are rounded */

/* A stream of sound, and the samples of the part at its own rate. */
typedef struct sound_stream {
    weft_video_reader *reader;
    const char *name;
    AVFormatContext *demux;
    AVStream *stream;
    AVCodecContext *decoder;
    SwrContext *mixer; /* to floats in planes, with the channels of the request */
    AVPacket *packet;
    AVFrame *frame, *mixed;
    int64_t rate, channels;
    double start;          /* of the part, in the container's time */
    int64_t margin, count; /* samples before the part, and all samples */
    int64_t next;          /* index after the last decoded sample; INT64_MIN: none yet */
    float *samples;        /* [channels][count], index `margin` is the start of the part */
} sound_stream;

static weft_status_code fail(const sound_stream *s, const char *what, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    if (error == AVERROR(ENOMEM))
        return weft_no_memory("%s", s->name);
    return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = s->name), "%s (%s)", what,
                      av_make_error_string(text, sizeof text, error));
}

/* Opens the decoder of the stream that ffmpeg selects. Without one, s->decoder stays NULL. */
static weft_status open_decoder(sound_stream *s)
{
    const AVCodec *codec = NULL;
    s->demux = weft_video_reader_demuxer(s->reader);
    const int index = av_find_best_stream(s->demux, AVMEDIA_TYPE_AUDIO, -1, -1, &codec, 0);
    if (index < 0 || !codec)
        return WEFT_OK;
    s->stream = s->demux->streams[index];
    for (unsigned i = 0; i < s->demux->nb_streams; i++)
        s->demux->streams[i]->discard = (int)i == index ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
    AVCodecContext *d = avcodec_alloc_context3(codec);
    WEFT_TRY(WEFT_ALLOCATED(d, "%s", s->name));
    int error = avcodec_parameters_to_context(d, s->stream->codecpar);
    d->pkt_timebase = s->stream->time_base;
    error = error < 0 ? error : avcodec_open2(d, codec, NULL);
    if (error < 0 || d->sample_rate <= 0) {
        avcodec_free_context(&d);
        return error == AVERROR(ENOMEM) ? weft_no_memory("%s", s->name) : WEFT_OK;
    }
    s->decoder = d;
    s->rate = d->sample_rate;
    return WEFT_OK;
}

/* Sets the range of samples. The margin is a whole number of samples at both rates, so that the
 * start of the part is a sample of the resampled sound. */
static weft_status set_range(sound_stream *s, const weft_sound_request *q)
{
    const AVStream *video = weft_video_reader_stream(s->reader);
    const double first = video->start_time == AV_NOPTS_VALUE
                             ? 0
                             : (double)video->start_time * av_q2d(video->time_base);
    const int64_t unit = s->rate / av_gcd(s->rate, q->rate);
    s->start = first + q->start_seconds;
    s->channels = q->channels;
    s->margin = (MARGIN + unit - 1) / unit * unit;
    s->count = 2 * s->margin + (int64_t)ceil((double)q->count * (double)s->rate / (double)q->rate);
    s->next = INT64_MIN;
    s->packet = av_packet_alloc();
    s->frame = av_frame_alloc();
    s->mixed = av_frame_alloc();
    WEFT_TRY(WEFT_ALLOCATED(s->packet && s->frame && s->mixed, "%s", s->name));
    WEFT_TRY(WEFT_NEW(s->samples, s->channels * s->count, "%s", s->name));
    memset(s->samples, 0, (size_t)(s->channels * s->count) * sizeof *s->samples);
    const double from = s->start - (double)s->margin / (double)s->rate - preroll;
    if (from > 0) /* a file that cannot be positioned is decoded from its first packet */
        av_seek_frame(s->demux, s->stream->index, (int64_t)(from / av_q2d(s->stream->time_base)),
                      AVSEEK_FLAG_BACKWARD);
    return WEFT_OK;
}

/* Index of the first sample of the frame. Times near the end of the previous frame are rounded ones
 * of adjacent frames. */
static int64_t index_of(const sound_stream *s)
{
    const int64_t pts = s->frame->best_effort_timestamp;
    if (pts == AV_NOPTS_VALUE)
        return s->next == INT64_MIN ? s->margin : s->next;
    const double seconds = (double)pts * av_q2d(s->stream->time_base) - s->start;
    const int64_t at = s->margin + llround(seconds * (double)s->rate);
    const bool adjacent =
        s->next != INT64_MIN && fabs((double)(at - s->next)) < jitter * (double)s->rate;
    return adjacent ? s->next : at;
}

/* Converts the frame to floats with the channels of the request. */
static weft_status mix(sound_stream *s)
{
    AVFrame *m = s->mixed;
    if (!s->frame->ch_layout.nb_channels || s->frame->ch_layout.order == AV_CHANNEL_ORDER_UNSPEC)
        av_channel_layout_default(&s->frame->ch_layout, s->decoder->ch_layout.nb_channels);
    av_frame_unref(m);
    m->format = AV_SAMPLE_FMT_FLTP;
    m->sample_rate = s->frame->sample_rate;
    av_channel_layout_default(&m->ch_layout, (int)s->channels);
    if (!s->mixer && !(s->mixer = swr_alloc()))
        return weft_no_memory("%s", s->name);
    const int error = swr_convert_frame(s->mixer, m, s->frame);
    if (error == AVERROR_INPUT_CHANGED || error == AVERROR_OUTPUT_CHANGED)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = s->name),
                          "the sound changes its number of channels or its rate");
    return error < 0 ? fail(s, "the sound cannot be converted", error) : WEFT_OK;
}

static weft_status take_frame(sound_stream *s)
{
    const int64_t at = index_of(s), frames = s->frame->nb_samples;
    s->next = at + frames;
    if (s->next <= 0 || at >= s->count)
        return WEFT_OK;
    WEFT_TRY(mix(s));
    const int64_t first = at < 0 ? -at : 0, made = s->mixed->nb_samples,
                  last = at + made > s->count ? s->count - at : made;
    for (int64_t c = 0; c < s->channels && first < last; c++)
        memcpy(s->samples + c * s->count + at + first, (const float *)s->mixed->data[c] + first,
               (size_t)(last - first) * sizeof(float));
    return WEFT_OK;
}

/* Takes all frames that the decoder has. Damaged packets are skipped. */
static weft_status take_frames(sound_stream *s)
{
    for (;;) {
        const int error = avcodec_receive_frame(s->decoder, s->frame);
        if (error == AVERROR(ENOMEM))
            return weft_no_memory("%s", s->name);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return WEFT_OK;
        if (error >= 0)
            WEFT_TRY(take_frame(s));
    }
}

static weft_status decode(sound_stream *s)
{
    bool more = true;
    while (more && (s->next == INT64_MIN || s->next < s->count)) {
        weft_video_reader_demuxer(s->reader); /* a new time limit */
        const int error = av_read_frame(s->demux, s->packet);
        if (error == AVERROR_EXIT)
            return fail(s, "reading stalled", error);
        more = error >= 0;
        if (more && s->packet->stream_index != s->stream->index) {
            av_packet_unref(s->packet);
            continue;
        }
        const int sent = avcodec_send_packet(s->decoder, more ? s->packet : NULL);
        av_packet_unref(s->packet);
        if (sent == AVERROR(ENOMEM))
            return weft_no_memory("%s", s->name);
        WEFT_TRY(take_frames(s));
    }
    return WEFT_OK;
}

/* Resamples the part with its margins, and copies the part. */
static weft_status deliver(const sound_stream *s, const weft_sound_request *q, float *samples)
{
    float *made;
    int64_t count;
    WEFT_TRY(weft_sound_resample(s->name, s->samples, s->channels, s->count, s->rate, q->rate,
                                 &made, &count));
    const int64_t first = s->margin * q->rate / s->rate;
    for (int64_t c = 0; c < q->channels; c++)
        memcpy(samples + c * q->count, made + c * count + first,
               (size_t)q->count * sizeof *samples);
    weft_free(made);
    return WEFT_OK;
}

static weft_status read_part(sound_stream *s, const weft_sound_request *q, float *samples)
{
    WEFT_TRY(set_range(s, q));
    WEFT_TRY(decode(s));
    return deliver(s, q, samples);
}

static void close_stream(sound_stream *s)
{
    avcodec_free_context(&s->decoder);
    swr_free(&s->mixer);
    av_packet_free(&s->packet);
    av_frame_free(&s->frame);
    av_frame_free(&s->mixed);
    weft_free(s->samples);
    weft_video_reader_close(s->reader);
}

/* Reads from an open video, and closes it. */
static weft_status read_sound(weft_video_reader *reader, const char *name,
                              const weft_sound_request *q, float *samples, bool *has_sound)
{
    sound_stream s = {.reader = reader, .name = name};
    weft_status_code status = WEFT_OK;
    *has_sound = false;
    memset(samples, 0, (size_t)(q->channels * q->count) * sizeof *samples);
    WEFT_GO(open_decoder(&s));
    if (!s.decoder)
        goto out;
    WEFT_GO(read_part(&s, q, samples));
    *has_sound = true;
out:
    close_stream(&s);
    return status;
}

static const weft_video_options small = {.format = WEFT_VIDEO_SMALL, .width = 8, .height = 8};

weft_status weft_sound_read_memory(const void *bytes, int64_t size, const char *name,
                                   const weft_sound_request *request, float *samples,
                                   bool *has_sound)
{
    weft_video_reader *reader;
    WEFT_TRY(weft_video_reader_open_memory(bytes, size, name, &small, &reader));
    return read_sound(reader, name, request, samples, has_sound);
}

weft_status weft_sound_read_source(const weft_video_source *source, const char *name,
                                   const weft_sound_request *request, float *samples,
                                   bool *has_sound)
{
    weft_video_reader *reader;
    WEFT_TRY(weft_video_reader_open_source(source, name, &small, &reader));
    return read_sound(reader, name, request, samples, has_sound);
}

weft_status weft_sound_read_part(const char *path, double stall_seconds, double start_seconds,
                                 double seconds, float **samples, weft_sound *sound)
{
    weft_video_options options = small;
    sound_stream s = {.name = path};
    weft_status_code status = WEFT_OK;
    *samples = NULL;
    *sound = (weft_sound){0};
    options.stall_seconds = stall_seconds;
    WEFT_TRY(weft_video_reader_open(path, &options, &s.reader));
    WEFT_GO(open_decoder(&s));
    if (!s.decoder)
        goto out;
    const weft_sound_request part = {.start_seconds = start_seconds,
                                     .channels = s.decoder->ch_layout.nb_channels > 1 ? 2 : 1,
                                     .count = llround(seconds * (double)s.rate),
                                     .rate = s.rate};
    WEFT_GO(WEFT_NEW(*samples, part.channels * part.count + 1, "%s: its sound", path));
    WEFT_GO(read_part(&s, &part, *samples));
    *sound = (weft_sound){*samples, part.channels, part.count, part.rate};
out:
    if (status != WEFT_OK) {
        weft_free(*samples);
        *samples = NULL;
    }
    close_stream(&s);
    return status;
}
