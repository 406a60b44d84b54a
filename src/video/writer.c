#include "video/writer.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "video/frame_upload.h"
#include "video/image.h"
#include "video/palette.h"
#include "video/sound_track.h"
#include "video/video_encoder.h"

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
#include <strings.h>
#include <unistd.h>

#define TICKS 90000 /* ticks per second; fits all usual rates and variable ones */

enum { GIF_RATE = 50 }; /* maximum frames/s; viewers show faster ones at 10 */

typedef enum codec_kind { H264, VP9, GIF, PNG } codec_kind;

typedef struct format {
    const char *extension;
    codec_kind kind;
    const char *encoder; /* FFmpeg's encoder; its muxer is named like the extension. NULL: libpng */
    const char *sound;   /* encoder of sound; NULL: the format has no sound */
} format;

static const format formats[] = {{"mp4", H264, "libx264", "aac"},
                                 {"webm", VP9, "libvpx-vp9", "libopus"},
                                 {"gif", GIF, "gif", NULL},
                                 {"png", PNG, NULL, NULL}};

struct weft_video_writer {
    const format *format;
    char *path, *temporary;
    weft_video_writer_options options; /* without tags */
    json_t *tags;                      /* object of strings */
    AVFormatContext *mux;
    AVCodecContext *encoder;
    AVFrame *frame;           /* in memory */
    weft_frame_upload upload; /* of encoders that read NV12 */
    AVPacket *packet;
    struct SwsContext *scale;
    weft_palette *palette;
    weft_sound_track *sound; /* NULL: no sound */
    uint8_t *rgb;            /* one frame, for libswscale, the palette or libpng */
    int64_t frames, last_pts;
    bool header_written, finished;
};

static weft_status_code fail_av(const char *path, const char *what, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    const weft_message_class kind = error == AVERROR(ENOSPC)   ? WEFT_MSG_DISK_FULL
                                    : error == AVERROR(ENOMEM) ? WEFT_MSG_OUT_OF_MEMORY
                                    : error == AVERROR(EACCES) ? WEFT_MSG_PERMISSION_DENIED
                                                               : WEFT_MSG_FILE_IO;
    return weft_error(
        kind, WEFT_AT(.file = path), "%s (%s%s)", what,
        av_make_error_string(text, sizeof text, error),
        kind == WEFT_MSG_DISK_FULL ? "; free some space there or choose another folder" : "");
}

/* Status of an encoder error. x264 reports a failed allocation as a general error; a started
 * encoder has no other general error. The cause is thus the frame size, not the disk. */
static weft_status_code fail_encoder(const char *path, const char *what, int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    return weft_error(WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = path),
                      "%s (%s): the memory is too small for frames of this size", what,
                      av_make_error_string(text, sizeof text, error));
}

static const format *format_of(const char *path)
{
    const char *extension = weft_path_extension(path);
    for (int i = 0; i < WEFT_COUNT(formats); i++)
        if (!strcasecmp(extension, formats[i].extension))
            return &formats[i];
    return NULL;
}

bool weft_video_writer_knows(const char *path)
{
    return format_of(path) != NULL;
}

static bool has_encoder(const format *f)
{
    return !f->encoder || avcodec_find_encoder_by_name(f->encoder);
}

/* Formats that this FFmpeg can write: ".mp4, .webm, .gif, or .png for one frame". */
static const char *list_formats(char text[128])
{
    int length = 0;
    for (int i = 0; i < WEFT_COUNT(formats); i++)
        if (has_encoder(&formats[i]))
            length +=
                snprintf(text + length, 128 - (size_t)length, "%s.%s%s",
                         !length                  ? ""
                         : formats[i].kind == PNG ? ", or "
                                                  : ", ",
                         formats[i].extension, formats[i].kind == PNG ? " for one frame" : "");
    return text;
}

weft_status weft_video_writer_check(const char *path, int64_t frames, double fps)
{
    const format *f = format_of(path);
    char list[128];
    if (!f)
        return weft_error(
            WEFT_MSG_FILE_NAME, WEFT_AT(.file = path, .value = weft_path_extension(path)),
            "videos are not written as .%s; use %s", weft_path_extension(path), list_formats(list));
    if (!has_encoder(f))
        return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.file = path, .value = f->encoder),
                          "this FFmpeg has no encoder %s for .%s. Install a libavcodec that has it "
                          "(Debian's libavcodec59), or write %s.",
                          f->encoder, f->extension, list_formats(list));
    if (f->kind == PNG && frames > 1)
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = path, WEFT_NUMBER(frames)),
                          "a .png has one frame, and the video has %" PRId64
                          ". Set the number of frames "
                          "to 1, or write .mp4, .webm or .gif.",
                          frames);
    if (f->kind == GIF && fps > GIF_RATE)
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = path, WEFT_NUMBER(fps)),
                          "the rate is %g frames/s, and viewers show a .gif at up to %d. Set a "
                          "lower rate, or write .mp4 or .webm.",
                          fps, GIF_RATE);
    return WEFT_OK;
}

/* On natural video, VP9 and H.264 of equal crf have the same PSNR within 0.5 dB. */
static void set_quality(weft_video_writer *w)
{
    char crf[16];
    snprintf(crf, sizeof crf, "%d", w->options.crf > 0 ? w->options.crf : 18);
    av_opt_set(w->encoder->priv_data, "crf", crf, 0);
}

/* Returns FFmpeg's error, or 0. */
static int set_codec(weft_video_writer *w)
{
    AVCodecContext *e = w->encoder;
    const char *own = w->options.encoder;
    const bool even = w->options.width % 2 == 0 && w->options.height % 2 == 0;
    e->pix_fmt = even ? AV_PIX_FMT_YUV420P : AV_PIX_FMT_YUV444P;
    e->color_range = AVCOL_RANGE_MPEG;
    e->colorspace = AVCOL_SPC_BT709;
    e->color_primaries = AVCOL_PRI_BT709;
    e->color_trc = AVCOL_TRC_BT709;
    if (own && strcmp(own, w->format->encoder) != 0)
        return weft_video_encoder_set(e, own, w->options.crf > 0 ? w->options.crf : 18,
                                      w->options.preset);
    switch (w->format->kind) {
    case H264:
        set_quality(w);
        av_opt_set(e->priv_data, "preset", w->options.preset ? w->options.preset : "medium", 0);
        /* x264's vector code for the macroblock tree reads uninitialised memory, so that small
         * frames differ between runs. Without the tree, the output is deterministic. */
        av_opt_set(e->priv_data, "x264-params", "mbtree=0", 0);
        break;
    case VP9:
        e->bit_rate = 0; /* constant quality */
        e->profile = even ? FF_PROFILE_VP9_0 : FF_PROFILE_VP9_1;
        set_quality(w);
        av_opt_set(e->priv_data, "deadline", "good", 0);
        av_opt_set(e->priv_data, "cpu-used", "2", 0);
        break;
    case GIF:
    case PNG:
        e->pix_fmt = AV_PIX_FMT_PAL8;
        e->color_range = AVCOL_RANGE_UNSPECIFIED;
        e->colorspace = AVCOL_SPC_UNSPECIFIED;
        break;
    }
    return 0;
}

static weft_status open_encoder(weft_video_writer *w)
{
    const weft_video_writer_options *o = &w->options;
    const AVCodec *codec =
        avcodec_find_encoder_by_name(o->encoder ? o->encoder : w->format->encoder);
    if (!codec)
        return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.file = w->path, .value = o->encoder),
                          "this FFmpeg has no encoder %s", o->encoder);
    w->encoder = avcodec_alloc_context3(codec);
    WEFT_TRY(WEFT_ALLOCATED(w->encoder, "%s", w->path));
    AVCodecContext *e = w->encoder;
    e->width = (int)o->width;
    e->height = (int)o->height;
    e->time_base = (AVRational){1, TICKS};
    e->framerate = av_d2q(o->fps, 1001000);
    e->gop_size = (int)(o->key_interval > 0 ? o->key_interval : lround(fmax(1, o->fps * 2)));
    e->thread_count = o->threads > 0 ? o->threads : 1;
    e->sample_aspect_ratio = (AVRational){1, 1};
    if (w->mux->oformat->flags & AVFMT_GLOBALHEADER)
        e->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    int error = set_codec(w);
    if (error >= 0)
        error = avcodec_open2(e, codec, NULL);
    if (error < 0)
        return error == AVERROR_EXTERNAL || error == AVERROR(ENOMEM)
                   ? fail_encoder(w->path, "the encoder does not start", error)
                   : fail_av(w->path, "the encoder does not start", error);
    return w->format->kind == GIF ? weft_palette_create(o->width, &w->palette) : WEFT_OK;
}

static weft_status open_muxer(weft_video_writer *w)
{
    int error = avformat_alloc_output_context2(&w->mux, NULL, w->format->extension, w->temporary);
    if (error < 0)
        return fail_av(w->path, "this FFmpeg does not write the format", error);
    WEFT_TRY(open_encoder(w));
    AVStream *s = avformat_new_stream(w->mux, NULL);
    WEFT_TRY(WEFT_ALLOCATED(s, "%s", w->path));
    s->time_base = w->encoder->time_base;
    s->avg_frame_rate = w->encoder->framerate;
    avcodec_parameters_from_context(s->codecpar, w->encoder);
    if (s->codecpar->codec_id == AV_CODEC_ID_HEVC) /* for players of Apple */
        s->codecpar->codec_tag = MKTAG('h', 'v', 'c', '1');
    if (w->options.sound && w->options.sound->samples && w->format->sound)
        WEFT_TRY(
            weft_sound_track_open(w->path, w->format->sound, w->options.sound, w->mux, &w->sound));
    w->options.sound = NULL; /* borrowed until here */
    const char *key;
    json_t *value;
    json_object_foreach(w->tags, key, value)
        av_dict_set(&w->mux->metadata, key, json_string_value(value), 0);
    weft_buf url = {0};
    weft_buf_printf(&url, "file:%s", w->temporary);
    WEFT_TRY(weft_buf_check(&url));
    error = avio_open(&w->mux->pb, url.data, AVIO_FLAG_WRITE);
    weft_buf_free(&url);
    if (error < 0)
        return fail_av(w->path, "the file cannot be written", error);
    /* Tags other than the well-known need use_metadata_tags; faststart puts the index first. */
    AVDictionary *flags = NULL;
    if (w->format->kind == H264)
        av_dict_set(&flags, "movflags", "use_metadata_tags+faststart", 0);
    /* no library version or time of day: reruns are identical */
    w->mux->flags |= AVFMT_FLAG_BITEXACT;
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
    WEFT_TRY(WEFT_ALLOCATED(w->frame && w->packet, "%s", w->path));
    w->frame->format =
        weft_frame_upload_needed(w->encoder) ? AV_PIX_FMT_YUV420P : w->encoder->pix_fmt;
    w->frame->width = w->encoder->width;
    w->frame->height = w->encoder->height;
    int error = av_frame_get_buffer(w->frame, 0);
    return error < 0 ? fail_av(w->path, "no frame buffer", error) : WEFT_OK;
}

/* NULL: out of memory. */
static json_t *copy_tags(const weft_video_writer_options *o)
{
    json_t *tags = json_object();
    for (int i = 0; tags && i < o->tag_count; i++)
        if (o->tags[i].value &&
            json_object_set_new(tags, o->tags[i].key, json_string(o->tags[i].value))) {
            json_decref(tags);
            tags = NULL;
        }
    return tags;
}

weft_status weft_video_writer_open(const char *path, const weft_video_writer_options *options,
                                   weft_video_writer **out)
{
    if (options->width < 1 || options->height < 1 || options->width > 16384 ||
        options->height > 16384)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = path),
                          "the frame size %" PRId64 " x %" PRId64 " is outside 1 to 16384",
                          options->width, options->height);
    if (!(options->fps > 0) || options->fps > 1000)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.file = path, WEFT_NUMBER(options->fps)),
                          "the rate of %g frames/s is outside 0 to 1000", options->fps);
    WEFT_TRY(weft_video_writer_check(path, 0, options->fps));
    const char *level = getenv("WEFT_LOG");
    av_log_set_level(level && strcmp(level, "debug") == 0 ? AV_LOG_VERBOSE : AV_LOG_QUIET);
    weft_video_writer *w = weft_alloc(sizeof *w);
    weft_buf temporary = {0};
    weft_buf_printf(&temporary, "%s.tmp.%d", path, (int)getpid());
    json_t *tags = copy_tags(options);
    if (!w || !(w->path = weft_strdup(path)) || !tags || temporary.failed) {
        weft_buf_free(&temporary);
        json_decref(tags);
        weft_free(w ? w->path : NULL);
        weft_free(w);
        return weft_no_memory("%s", path);
    }
    w->format = format_of(path);
    w->temporary = temporary.data;
    w->options = *options;
    w->options.tags = NULL;
    w->tags = tags;
    w->last_pts = -1;
    weft_status_code status = w->format->kind == PNG ? WEFT_OK : open_writer(w);
    if (status != WEFT_OK) {
        weft_video_writer_close(w);
        return status;
    }
    *out = w;
    return WEFT_OK;
}

/* Writes the encoder's finished packets to the file. */
static weft_status drain(weft_video_writer *w)
{
    for (;;) {
        int error = avcodec_receive_packet(w->encoder, w->packet);
        if (error == AVERROR(EAGAIN) || error == AVERROR_EOF)
            return WEFT_OK;
        if (error < 0)
            return fail_encoder(w->path, "cannot encode a frame", error);
        const AVStream *s = w->mux->streams[0];
        if (w->packet->duration <= 0)
            w->packet->duration = llround(TICKS / w->options.fps);
        av_packet_rescale_ts(w->packet, w->encoder->time_base, s->time_base);
        w->packet->stream_index = 0;
        error = av_interleaved_write_frame(w->mux, w->packet);
        if (error >= 0 && w->mux->pb->error < 0)
            error = w->mux->pb->error;
        if (error < 0)
            return fail_av(w->path, "cannot write to the file", error);
    }
}

/* Encodes w->frame; its planes are filled. */
static weft_status encode(weft_video_writer *w, double seconds)
{
    int64_t pts = seconds >= 0 ? llround(seconds * TICKS)
                               : llround((double)w->frames * TICKS / w->options.fps);
    if (pts <= w->last_pts)
        pts = w->last_pts + 1;
    w->last_pts = pts;
    w->frame->pts = pts;
    w->frames++;
    int error = weft_frame_upload_needed(w->encoder)
                    ? weft_frame_upload_send(&w->upload, w->encoder, w->frame)
                    : avcodec_send_frame(w->encoder, w->frame);
    if (error < 0)
        return fail_encoder(w->path, "cannot encode a frame", error);
    WEFT_TRY(drain(w));
    return w->sound ? weft_sound_track_write(w->sound, (double)pts / TICKS, false) : WEFT_OK;
}

/* Allocates one RGB frame, with the bytes that libswscale reads past its end. */
static weft_status need_rgb(weft_video_writer *w)
{
    if (!w->rgb)
        w->rgb = weft_alloc_aligned(w->options.width * w->options.height * 3 + 64);
    return WEFT_ALLOCATED(w->rgb, "%s", w->path);
}

/* Converts w->rgb to the planes of w->frame. */
static weft_status convert(weft_video_writer *w)
{
    const int width = w->encoder->width, height = w->encoder->height;
    w->scale = sws_getCachedContext(
        w->scale, width, height, AV_PIX_FMT_RGB24, width, height, w->frame->format,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP | SWS_BITEXACT, NULL, NULL, NULL);
    WEFT_TRY(WEFT_ALLOCATED(w->scale, "%s: the colour conversion", w->path));
    const int *matrix = sws_getCoefficients(SWS_CS_ITU709);
    sws_setColorspaceDetails(w->scale, matrix, 1, matrix, 0, 0, 1 << 16, 1 << 16);
    const uint8_t *const from[4] = {w->rgb};
    const int from_stride[4] = {3 * width};
    sws_scale(w->scale, from, from_stride, 0, height, w->frame->data, w->frame->linesize);
    return WEFT_OK;
}

static weft_status put_rgb(weft_video_writer *w, const uint8_t *rgb, int64_t stride, double seconds)
{
    const int64_t row = w->options.width * 3;
    if (w->format->kind == PNG)
        WEFT_TRY(weft_video_writer_check(w->path, ++w->frames, 0));
    WEFT_TRY(need_rgb(w));
    for (int64_t y = 0; y < w->options.height && rgb != w->rgb; y++)
        memcpy(w->rgb + y * row, rgb + y * stride, (size_t)row);
    if (w->format->kind == PNG)
        return WEFT_OK;
    int error = av_frame_make_writable(w->frame);
    if (error < 0)
        return fail_av(w->path, "no frame buffer", error);
    if (w->palette)
        weft_palette_draw(w->palette, w->rgb, w->options.height, (uint32_t *)w->frame->data[1],
                          w->frame->data[0], w->frame->linesize[0]);
    else
        WEFT_TRY(convert(w));
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
        return weft_error(WEFT_MSG_VIDEO_FRAMES, WEFT_AT(.file = w->path),
                          "a frame has %" PRId64 " x %" PRId64 " pixels, and the video %" PRId64
                          " x %" PRId64,
                          frame->width, frame->height, w->options.width, w->options.height);
    if (!frame->plane[1])
        return put_rgb(w, frame->plane[0], frame->stride[0], seconds);
    if (!w->frame || w->frame->format != AV_PIX_FMT_YUV420P)
        return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.file = w->path),
                          "4:2:0 frames need an even size and .mp4 or .webm; give RGB24");
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

/* Replaces the last byte of the file, which ends a .gif, by `block`. */
static weft_status replace_end(const weft_video_writer *w, const weft_buf *block)
{
    FILE *file = fopen(w->temporary, "r+b");
    weft_status_code status = WEFT_OK;
    if (!file || fseek(file, -1, SEEK_END) != 0 || fgetc(file) != ';' ||
        fseek(file, -1, SEEK_END) != 0 || fwrite(block->data, (size_t)block->len, 1, file) != 1)
        status = weft_error_errno(WEFT_AT(.file = w->path), "cannot write to the file");
    const bool closed = !file || fclose(file) == 0;
    WEFT_TRY(status);
    return closed ? WEFT_OK
                  : weft_error_errno(WEFT_AT(.file = w->path), "cannot write to the file");
}

/* Writes the tags of a .gif, which has no tag fields, as JSON in a comment block before the end of
 * the file. */
static weft_status comment(const weft_video_writer *w)
{
    char *text = weft_json_line(w->tags);
    WEFT_TRY(WEFT_ALLOCATED(text, "%s", w->path));
    weft_buf block = {0};
    const size_t length = strlen(text);
    weft_buf_append(&block, "\x21\xfe", 2);
    for (size_t at = 0; at < length; at += 255) {
        const uint8_t part = (uint8_t)(length - at < 255 ? length - at : 255);
        weft_buf_append(&block, &part, 1);
        weft_buf_append(&block, text + at, part);
    }
    weft_buf_append(&block, "\0;", 2); /* end of the comment, end of the file */
    weft_free(text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&block));
    WEFT_GO(replace_end(w, &block));
out:
    weft_buf_free(&block);
    return status;
}

/* Flushes the encoder, and closes the file. */
static weft_status end_file(weft_video_writer *w)
{
    int error = avcodec_send_frame(w->encoder, NULL);
    if (error < 0)
        return fail_encoder(w->path, "cannot encode a frame", error);
    WEFT_TRY(drain(w));
    if (w->sound)
        WEFT_TRY(weft_sound_track_write(w->sound, 0, true));
    error = av_write_trailer(w->mux);
    if (error >= 0 && w->mux->pb->error < 0)
        error = w->mux->pb->error;
    if (error >= 0)
        error = avio_closep(&w->mux->pb);
    if (error < 0)
        return fail_av(w->path, "cannot write to the file", error);
    return w->format->kind == GIF ? comment(w) : WEFT_OK;
}

weft_status weft_video_writer_finish(weft_video_writer *w)
{
    if (w->frames == 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = w->path),
                          "a video needs at least one frame");
    if (w->format->kind == PNG)
        return weft_png_write_tagged(w->path, w->rgb, w->options.width, w->options.height, w->tags);
    WEFT_TRY(end_file(w));
    const int fd = open(w->temporary, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        weft_status_code status = weft_error_errno(WEFT_AT(.file = w->temporary),
                                                   "cannot write the file to the disk (fsync)");
        if (fd >= 0)
            close(fd);
        return status;
    }
    close(fd);
    if (rename(w->temporary, w->path) != 0)
        return weft_error_errno(WEFT_AT(.file = w->path), "cannot rename the finished file");
    w->finished = true;
    return WEFT_OK;
}

void weft_video_writer_close(weft_video_writer *w)
{
    if (!w)
        return;
    avcodec_free_context(&w->encoder);
    weft_sound_track_free(w->sound);
    if (w->mux) {
        if (w->mux->pb)
            avio_closep(&w->mux->pb);
        avformat_free_context(w->mux);
    }
    if (!w->finished && w->temporary)
        unlink(w->temporary);
    av_frame_free(&w->frame);
    weft_frame_upload_free(&w->upload);
    av_packet_free(&w->packet);
    sws_freeContext(w->scale);
    weft_palette_free(w->palette);
    json_decref(w->tags);
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
    WEFT_GO(WEFT_ALLOCATED(rgb, "%s", path));
    for (int64_t t = 0; t < frames; t++) {
        if (channels_first) {
            const float *at = clip + t * area;
            WEFT_GO(weft_video_writer_float(w, at, at + volume, at + 2 * volume));
            continue;
        }
        weft_clip_to_u8(clip + t * area * 3, 1, options->height, options->width, false, rgb);
        WEFT_GO(weft_video_writer_rgb(w, rgb, options->width * 3));
    }
    WEFT_GO(weft_video_writer_finish(w));
out:
    weft_free(rgb);
    weft_video_writer_close(w);
    return status;
}

static char *comment_tag(const char *comment, const char *path, const char *key)
{
    json_t *tags = NULL;
    char *value = NULL;
    if (comment && weft_json_parse(comment, (int64_t)strlen(comment), path, &tags) == WEFT_OK) {
        const char *text = json_string_value(json_object_get(tags, key));
        value = text ? weft_strdup(text) : NULL;
        json_decref(tags);
    }
    return value;
}

char *weft_video_writer_tag(const char *path, const char *key)
{
    const format *f = format_of(path);
    weft_video_reader *reader;
    if (f && f->kind == PNG)
        return weft_png_tag(path, key);
    if (weft_video_reader_open(path, NULL, &reader) != WEFT_OK)
        return NULL;
    const bool gif = f && f->kind == GIF;
    const char *text = weft_video_reader_tag(reader, gif ? "comment" : key);
    char *value = gif ? comment_tag(text, path, key) : text ? weft_strdup(text) : NULL;
    weft_video_reader_close(reader);
    return value;
}
