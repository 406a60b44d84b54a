#include "video/writer.h"

#include "base/fs.h"
#include "base/memory.h"
#include "video/image.h"

#include <errno.h>
#include <fcntl.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICKS 90000 /* per second: every usual rate and any variable one */

struct weft_video_writer {
    char *path, *temporary;
    weft_video_writer_options options;
    AVFormatContext *mux;
    AVCodecContext *encoder;
    AVFrame *frame;
    AVPacket *packet;
    struct SwsContext *scale;
    uint8_t *rgb; /* what goes to libswscale */
    int64_t frames, last_pts;
    bool header_written, finished;
};

static weft_status_code fail_av(const char *path, const char *what, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    weft_status_code code = error == AVERROR(ENOSPC)   ? WEFT_E_SPACE
                            : error == AVERROR(ENOMEM) ? WEFT_E_MEMORY
                            : error == AVERROR(EACCES) ? WEFT_E_PERMISSION
                                                       : WEFT_E_IO;
    return weft_fail(
        code, "%s: %s (%s%s)", path, what, av_make_error_string(text, sizeof text, error),
        code == WEFT_E_SPACE ? "; free some space there or choose another folder" : "");
}

/* x264 reports a failed allocation as a general error, and nothing else of a started encoder is
 * one: an error of the encoder is an error of the frames' size, not of the disk. */
static weft_status_code fail_encoder(const char *path, const char *what, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    return weft_fail(WEFT_E_TOO_LARGE, "%s: %s (%s): too little memory for frames of this size",
                     path, what, av_make_error_string(text, sizeof text, error));
}

static weft_status open_encoder(weft_video_writer *w)
{
    const weft_video_writer_options *o = &w->options;
    const AVCodec *codec = avcodec_find_encoder_by_name("libx264");
    if (!codec)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: this FFmpeg has no libx264 encoder; install Debian's libavcodec59",
                         w->path);
    w->encoder = avcodec_alloc_context3(codec);
    if (!w->encoder)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", w->path);
    AVCodecContext *e = w->encoder;
    const bool even = o->width % 2 == 0 && o->height % 2 == 0;
    e->width = (int)o->width;
    e->height = (int)o->height;
    e->pix_fmt = even ? AV_PIX_FMT_YUV420P : AV_PIX_FMT_YUV444P;
    e->time_base = (AVRational){1, TICKS};
    e->framerate = av_d2q(o->fps, 1001000);
    e->gop_size = (int)(o->key_interval > 0 ? o->key_interval : lround(fmax(1, o->fps * 2)));
    e->thread_count = o->threads > 0 ? o->threads : 1;
    e->color_range = AVCOL_RANGE_MPEG;
    e->colorspace = AVCOL_SPC_BT709;
    e->color_primaries = AVCOL_PRI_BT709;
    e->color_trc = AVCOL_TRC_BT709;
    e->sample_aspect_ratio = (AVRational){1, 1};
    if (w->mux->oformat->flags & AVFMT_GLOBALHEADER)
        e->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    char crf[16];
    snprintf(crf, sizeof crf, "%d", o->crf > 0 ? o->crf : 18);
    av_opt_set(e->priv_data, "crf", crf, 0);
    av_opt_set(e->priv_data, "preset", o->preset ? o->preset : "medium", 0);
    /* x264's vector code for the macroblock tree reads memory that was never written, so that small
     * pictures come out differently from one run to the next; without it the same frames always
     * give the same bytes. */
    av_opt_set(e->priv_data, "x264-params", "mbtree=0", 0);
    int error = avcodec_open2(e, codec, NULL);
    if (error < 0)
        return error == AVERROR_EXTERNAL || error == AVERROR(ENOMEM)
                   ? fail_encoder(w->path, "the H.264 encoder does not start", error)
                   : fail_av(w->path, "the H.264 encoder does not start", error);
    return WEFT_OK;
}

static weft_status open_muxer(weft_video_writer *w)
{
    int error = avformat_alloc_output_context2(&w->mux, NULL, "mp4", w->temporary);
    if (error < 0)
        return fail_av(w->path, "no mp4 writer", error);
    WEFT_TRY(open_encoder(w));
    AVStream *s = avformat_new_stream(w->mux, NULL);
    if (!s)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", w->path);
    s->time_base = w->encoder->time_base;
    s->avg_frame_rate = w->encoder->framerate;
    avcodec_parameters_from_context(s->codecpar, w->encoder);
    for (int i = 0; i < w->options.tag_count; i++)
        av_dict_set(&w->mux->metadata, w->options.tags[i].key, w->options.tags[i].value, 0);
    weft_buf url = {0};
    weft_buf_printf(&url, "file:%s", w->temporary);
    WEFT_TRY(weft_buf_check(&url));
    error = avio_open(&w->mux->pb, url.data, AVIO_FLAG_WRITE);
    weft_buf_free(&url);
    if (error < 0)
        return fail_av(w->path, "cannot be written", error);
    /* Tags other than the well-known need use_metadata_tags; faststart puts the index first. */
    AVDictionary *flags = NULL;
    av_dict_set(&flags, "movflags", "use_metadata_tags+faststart", 0);
    w->mux->flags |= AVFMT_FLAG_BITEXACT; /* no library version, no time of day: reruns are equal */
    error = avformat_write_header(w->mux, &flags);
    av_dict_free(&flags);
    if (error < 0)
        return fail_av(w->path, "the header cannot be written", error);
    w->header_written = true;
    return WEFT_OK;
}

static weft_status open_writer(weft_video_writer *w)
{
    WEFT_TRY(open_muxer(w));
    w->frame = av_frame_alloc();
    w->packet = av_packet_alloc();
    if (!w->frame || !w->packet)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", w->path);
    w->frame->format = w->encoder->pix_fmt;
    w->frame->width = w->encoder->width;
    w->frame->height = w->encoder->height;
    int error = av_frame_get_buffer(w->frame, 0);
    return error < 0 ? fail_av(w->path, "no frame buffer", error) : WEFT_OK;
}

weft_status weft_video_writer_open(const char *path, const weft_video_writer_options *options,
                                   weft_video_writer **out)
{
    if (options->width < 1 || options->height < 1 || options->width > 16384 ||
        options->height > 16384)
        return weft_fail(WEFT_E_ARG, "%s: frame size %lld x %lld is outside 1 .. 16384", path,
                         (long long)options->width, (long long)options->height);
    if (!(options->fps > 0) || options->fps > 1000)
        return weft_fail(WEFT_E_ARG, "%s: %g frames/s is outside 0 .. 1000", path, options->fps);
    const char *level = getenv("WEFT_LOG");
    av_log_set_level(level && strcmp(level, "debug") == 0 ? AV_LOG_VERBOSE : AV_LOG_QUIET);
    weft_video_writer *w = weft_alloc(sizeof *w);
    weft_buf temporary = {0};
    weft_buf_printf(&temporary, "%s.tmp.%d", path, (int)getpid());
    if (!w || !(w->path = weft_strdup(path)) || temporary.failed) {
        weft_buf_free(&temporary);
        weft_free(w ? w->path : NULL);
        weft_free(w);
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    }
    w->temporary = temporary.data;
    w->options = *options;
    w->last_pts = -1;
    weft_status_code status = open_writer(w);
    if (status != WEFT_OK) {
        weft_video_writer_close(w);
        return status;
    }
    *out = w;
    return WEFT_OK;
}

/* Moves what the encoder has ready to the file. */
static weft_status drain(weft_video_writer *w)
{
    for (;;) {
        int error = avcodec_receive_packet(w->encoder, w->packet);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return WEFT_OK;
        if (error < 0)
            return fail_encoder(w->path, "encoding fails", error);
        const AVStream *s = w->mux->streams[0];
        if (w->packet->duration <= 0)
            w->packet->duration = llround(TICKS / w->options.fps);
        av_packet_rescale_ts(w->packet, w->encoder->time_base, s->time_base);
        w->packet->stream_index = 0;
        error = av_interleaved_write_frame(w->mux, w->packet);
        if (error >= 0 && w->mux->pb->error < 0)
            error = w->mux->pb->error;
        if (error < 0)
            return fail_av(w->path, "writing fails", error);
    }
}

/* Encodes w->frame after its planes were filled. */
static weft_status encode(weft_video_writer *w, double seconds)
{
    int64_t pts = seconds >= 0 ? llround(seconds * TICKS)
                               : llround((double)w->frames * TICKS / w->options.fps);
    if (pts <= w->last_pts)
        pts = w->last_pts + 1;
    w->last_pts = pts;
    w->frame->pts = pts;
    w->frames++;
    int error = avcodec_send_frame(w->encoder, w->frame);
    if (error < 0)
        return fail_encoder(w->path, "encoding fails", error);
    return drain(w);
}

/* The picture's own pixels, and what libswscale reads behind the last one. */
static weft_status need_rgb(weft_video_writer *w)
{
    if (!w->rgb)
        w->rgb = weft_alloc_aligned(w->options.width * w->options.height * 3 + 64);
    return w->rgb ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "%s: out of memory", w->path);
}

static weft_status put_rgb(weft_video_writer *w, const uint8_t *rgb, int64_t stride, double seconds)
{
    const int64_t row = w->options.width * 3;
    WEFT_TRY(need_rgb(w));
    for (int64_t y = 0; y < w->options.height && rgb != w->rgb; y++)
        memcpy(w->rgb + y * row, rgb + y * stride, (size_t)row);
    int error = av_frame_make_writable(w->frame);
    if (error < 0)
        return fail_av(w->path, "no frame buffer", error);
    const int width = w->encoder->width, height = w->encoder->height;
    w->scale = sws_getCachedContext(
        w->scale, width, height, AV_PIX_FMT_RGB24, width, height, w->encoder->pix_fmt,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT, NULL, NULL, NULL);
    if (!w->scale)
        return weft_fail(WEFT_E_MEMORY, "%s: no colour conversion", w->path);
    const int *matrix = sws_getCoefficients(SWS_CS_ITU709);
    sws_setColorspaceDetails(w->scale, matrix, 1, matrix, 0, 0, 1 << 16, 1 << 16);
    const uint8_t *const from[4] = {w->rgb};
    const int from_stride[4] = {3 * width};
    sws_scale(w->scale, from, from_stride, 0, height, w->frame->data, w->frame->linesize);
    return encode(w, seconds);
}

weft_status weft_video_writer_rgb(weft_video_writer *w, const uint8_t *rgb, int64_t stride)
{
    return put_rgb(w, rgb, stride, -1);
}

weft_status weft_video_writer_frame(weft_video_writer *w, const weft_video_frame *frame,
                                    double seconds)
{
    if (frame->width != w->options.width || frame->height != w->options.height)
        return weft_fail(WEFT_E_SHAPE, "%s: a frame of %lld x %lld for a video of %lld x %lld",
                         w->path, (long long)frame->width, (long long)frame->height,
                         (long long)w->options.width, (long long)w->options.height);
    if (!frame->plane[1])
        return put_rgb(w, frame->plane[0], frame->stride[0], seconds);
    if (w->encoder->pix_fmt != AV_PIX_FMT_YUV420P)
        return weft_fail(WEFT_E_UNSUPPORTED, "%s: 4:2:0 frames need an even size, give RGB24",
                         w->path);
    int error = av_frame_make_writable(w->frame);
    if (error < 0)
        return fail_av(w->path, "no frame buffer", error);
    for (int p = 0; p < 3; p++)
        for (int64_t y = 0; y < (p ? frame->height / 2 : frame->height); y++)
            memcpy(w->frame->data[p] + y * w->frame->linesize[p],
                   frame->plane[p] + y * frame->stride[p],
                   (size_t)(p ? frame->width / 2 : frame->width));
    return encode(w, seconds);
}

weft_status weft_video_writer_float(weft_video_writer *w, const float *red, const float *green,
                                    const float *blue)
{
    const int64_t area = w->options.width * w->options.height;
    WEFT_TRY(need_rgb(w));
    for (int64_t i = 0; i < area; i++) {
        w->rgb[i * 3] = weft_float_to_u8(red[i]);
        w->rgb[i * 3 + 1] = weft_float_to_u8(green[i]);
        w->rgb[i * 3 + 2] = weft_float_to_u8(blue[i]);
    }
    return put_rgb(w, w->rgb, w->options.width * 3, -1);
}

weft_status weft_video_writer_finish(weft_video_writer *w)
{
    if (w->frames == 0)
        return weft_fail(WEFT_E_ARG, "%s: a video needs at least one frame", w->path);
    int error = avcodec_send_frame(w->encoder, NULL);
    if (error < 0)
        return fail_encoder(w->path, "encoding fails", error);
    WEFT_TRY(drain(w));
    error = av_write_trailer(w->mux);
    if (error >= 0 && w->mux->pb->error < 0)
        error = w->mux->pb->error;
    if (error >= 0)
        error = avio_closep(&w->mux->pb);
    if (error < 0)
        return fail_av(w->path, "writing fails", error);
    const int fd = open(w->temporary, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        weft_status_code status = weft_fail_errno("%s: fsync", w->temporary);
        if (fd >= 0)
            close(fd);
        return status;
    }
    close(fd);
    if (rename(w->temporary, w->path) != 0)
        return weft_fail_errno("%s: rename", w->path);
    w->finished = true;
    return WEFT_OK;
}

void weft_video_writer_close(weft_video_writer *w)
{
    if (!w)
        return;
    avcodec_free_context(&w->encoder);
    if (w->mux) {
        if (w->mux->pb)
            avio_closep(&w->mux->pb);
        avformat_free_context(w->mux);
    }
    if (!w->finished && w->temporary)
        unlink(w->temporary);
    av_frame_free(&w->frame);
    av_packet_free(&w->packet);
    sws_freeContext(w->scale);
    weft_free(w->rgb);
    weft_free(w->path);
    weft_free(w->temporary);
    weft_free(w);
}

weft_status weft_video_write_clip(const char *path, const float *clip, int64_t frames,
                                  bool channels_first, const weft_video_writer_options *options)
{
    weft_video_writer *w;
    WEFT_TRY(weft_video_writer_open(path, options, &w));
    const int64_t area = options->width * options->height, volume = area * frames;
    weft_status_code status = WEFT_OK;
    uint8_t *rgb = weft_alloc_aligned(area * 3 + 64);
    if (!rgb)
        status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    for (int64_t t = 0; status == WEFT_OK && t < frames; t++) {
        if (channels_first) {
            const float *at = clip + t * area;
            status = weft_video_writer_float(w, at, at + volume, at + 2 * volume);
            continue;
        }
        weft_clip_to_u8(clip + t * area * 3, 1, options->height, options->width, false, rgb);
        status = weft_video_writer_rgb(w, rgb, options->width * 3);
    }
    if (status == WEFT_OK)
        status = weft_video_writer_finish(w);
    weft_free(rgb);
    weft_video_writer_close(w);
    return status;
}
