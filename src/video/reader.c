#include "video/reader.h"

#include "base/compare.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "video/exif.h"
#include "video/pixels.h"
#include "video/rate.h"
#include "video/reader_internal.h"
#include "video/tone.h"
#include "video/vectors.h"

#include <libavcodec/avcodec.h>
#include <libavutil/display.h>
#include <libavutil/dovi_meta.h>
#include <libavutil/pixdesc.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IO_BUFFER    65536
#define JUMP_SECONDS 1.0 /* backward step; more: another stream */

typedef struct source_input {
    weft_video_source source;
    int64_t at;
} source_input;

/* Position in the stream. */
typedef struct position {
    bool draining, ended;
    int64_t next_index;
    bool fresh;          /* nothing was read since the input was opened */
    bool held;           /* `frame` is decoded and not yet taken */
    int64_t skip_before; /* frames of smaller index are decoded, not delivered */
    double skip_seconds; /* and frames of earlier time */
    int64_t start_pts;   /* first frame's time; AV_NOPTS_VALUE: none yet */
    double last_seconds;
} position;

/* Damage found so far. */
typedef struct damage {
    bool broken; /* frames from broken_from on are damaged until the next key picture */
    int64_t broken_from;
    int64_t key_time;  /* time of the last packet marked as key */
    int64_t last_time; /* time of the last decoded frame; AV_NOPTS_VALUE: none */
    bool lost;         /* packets are missing before the next one of the stream */
    bool hole;         /* packets are missing just before hole_time */
    int64_t hole_time;
    bool cut_off; /* the file ends inside an element */
    int64_t errors;
    int consecutive_errors;
    atomic_int demux_complaints, decoder_complaints; /* see on_log */
    int demux_heard, decoder_heard;                  /* number of complaints already handled */
    atomic_bool starved;                             /* the decoder could not allocate a frame */
} damage;

/* Presentation times of all packets. */
typedef struct packet_index {
    int64_t *time; /* ascending; NULL: not built */
    int64_t count;
    bool usable;
} packet_index;

struct weft_video_reader {
    char *name; /* path, or name in messages */
    weft_video_options options;
    weft_video_info info;
    bool from_source;
    source_input input;
    AVIOContext *io; /* only from_source */
    AVFormatContext *demux;
    AVCodecContext *decoder;
    AVPacket *packet;
    AVFrame *frame;
    weft_converter *converter;
    int stream;
    double deadline;
    weft_motion *motion;
    int64_t motion_capacity;
    position at;
    damage damage;
    packet_index packets;
};

static int stall_callback(void *opaque)
{
    const weft_video_reader *r = opaque;
    return weft_now() > r->deadline;
}

static void reset_deadline(weft_video_reader *r)
{
    r->deadline = weft_now() + (r->options.stall_seconds > 0 ? r->options.stall_seconds : 30);
}

static int input_read(void *opaque, uint8_t *to, int size)
{
    source_input *in = opaque;
    const int64_t left = in->source.bytes - in->at, n = left < size ? left : size;
    if (n <= 0)
        return AVERROR_EOF;
    if (in->source.read(in->source.self, in->at, n, to) != WEFT_OK)
        return AVERROR(EIO);
    in->at += n;
    return (int)n;
}

static int64_t input_seek(void *opaque, int64_t offset, int whence)
{
    source_input *in = opaque;
    if (whence == AVSEEK_SIZE)
        return in->source.bytes;
    const int64_t base = whence == SEEK_CUR ? in->at : whence == SEEK_END ? in->source.bytes : 0;
    if (base + offset < 0 || base + offset > in->source.bytes)
        return AVERROR(EINVAL);
    return in->at = base + offset;
}

static weft_status memory_read(void *self, int64_t at, int64_t bytes, void *to)
{
    memcpy(to, (const uint8_t *)self + at, (size_t)bytes);
    return WEFT_OK;
}

/* FFmpeg allocates by sizes that the file states: a failed allocation is an error of the file. */
static weft_status_code fail_too_large(const char *name, const char *what)
{
    return weft_error(WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = name),
                      "%s: the file requires more memory than this process can have; it is "
                      "damaged, or too large for this machine",
                      what);
}

static weft_status_code fail_av(weft_message_class kind, const char *name, const char *what,
                                int error)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    if (error == AVERROR(ENOMEM))
        return fail_too_large(name, what);
    if (error == AVERROR(EACCES))
        kind = WEFT_MSG_PERMISSION_DENIED;
    if (error == -1) /* the generic error of many decoders, not an errno value */
        return weft_error(kind, WEFT_AT(.file = name), "%s", what);
    if (error == AVERROR(ENOENT))
        kind = WEFT_MSG_FILE_NOT_FOUND;
    if (error == AVERROR_EXIT)
        return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = name), "reading stalled");
    return weft_error(kind, WEFT_AT(.file = name), "%s (%s)", what,
                      av_make_error_string(text, sizeof text, error));
}

/* Index of the stream that ffmpeg selects: the one with the most pixels that is not a cover image
 * and has a decoder. -1: none; `why` is then the codec of a stream without a decoder. */
static int choose_stream(const AVFormatContext *demux, const AVCodec **codec,
                         char why[AV_FOURCC_MAX_STRING_SIZE])
{
    int best = -1;
    int64_t best_pixels = -1;
    why[0] = 0;
    for (unsigned i = 0; i < demux->nb_streams; i++) {
        const AVStream *s = demux->streams[i];
        if (s->codecpar->codec_type != AVMEDIA_TYPE_VIDEO ||
            (s->disposition & AV_DISPOSITION_ATTACHED_PIC))
            continue;
        const AVCodec *c = avcodec_find_decoder(s->codecpar->codec_id);
        if (!c) {
            if (s->codecpar->codec_id != AV_CODEC_ID_NONE)
                snprintf(why, AV_FOURCC_MAX_STRING_SIZE, "%s",
                         avcodec_get_name(s->codecpar->codec_id));
            else /* the codec is unknown to FFmpeg; the container names it */
                av_fourcc_make_string(why, s->codecpar->codec_tag);
            continue;
        }
        const int64_t pixels = (int64_t)s->codecpar->width * s->codecpar->height;
        if (pixels > best_pixels) {
            best_pixels = pixels;
            best = (int)i;
            *codec = c;
        }
    }
    return best;
}

static int stream_rotation(AVStream *stream)
{
    const uint8_t *matrix = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, NULL);
    const double angle =
        matrix ? -av_display_rotation_get((const int32_t *)(const void *)matrix) : NAN;
    return isnan(angle) ? 0 : (int)((lround(angle / 90) % 4 + 4) % 4) * 90;
}

/* Orientation of a photograph. FFmpeg reports it only with the decoded frame, but sizes are needed
 * earlier. */
static int photo_rotation(const weft_video_reader *r)
{
    struct stat st;
    const weft_video_source *source = &r->input.source;
    FILE *f = !r->from_source && stat(r->name, &st) == 0 && S_ISREG(st.st_mode)
                  ? fopen(r->name, "rb")
                  : NULL;
    uint8_t *head = f || r->from_source ? weft_alloc(WEFT_EXIF_BYTES) : NULL;
    int64_t bytes = head && f ? (int64_t)fread(head, 1, WEFT_EXIF_BYTES, f) : 0;
    if (head && r->from_source) {
        bytes = source->bytes < WEFT_EXIF_BYTES ? source->bytes : WEFT_EXIF_BYTES;
        bytes = source->read(source->self, 0, bytes, head) == WEFT_OK ? bytes : 0;
    }
    const int rotation = weft_exif_rotation(head, bytes);
    weft_free(head);
    if (f)
        fclose(f);
    return rotation;
}

static void fill_info(weft_video_reader *r, double fps)
{
    AVStream *s = r->demux->streams[r->stream];
    const AVCodecParameters *par = s->codecpar;
    weft_video_info *info = &r->info;
    *info = (weft_video_info){.coded_width = par->width, .coded_height = par->height};
    info->fps = fps;
    if (s->duration != AV_NOPTS_VALUE && s->duration > 0)
        info->seconds = (double)s->duration * av_q2d(s->time_base);
    else if (r->demux->duration != AV_NOPTS_VALUE && r->demux->duration > 0)
        info->seconds = (double)r->demux->duration / AV_TIME_BASE;
    info->frames = s->nb_frames > 0 ? s->nb_frames : llround(info->seconds * info->fps);
    info->bit_rate = par->bit_rate > 0 ? par->bit_rate : r->demux->bit_rate;
    info->rotation = par->codec_id == AV_CODEC_ID_MJPEG && !stream_rotation(s) ? photo_rotation(r)
                                                                               : stream_rotation(s);
    const AVRational sar =
        s->sample_aspect_ratio.num ? s->sample_aspect_ratio : par->sample_aspect_ratio;
    info->pixel_aspect = sar.num > 0 && sar.den > 0 ? av_q2d(sar) : 1;
    if (info->pixel_aspect < 0.1 || info->pixel_aspect > 10)
        info->pixel_aspect = 1;
    int64_t w = llround((double)par->width * info->pixel_aspect), h = par->height;
    if (info->rotation == 90 || info->rotation == 270) {
        const int64_t t = w;
        w = h;
        h = t;
    }
    info->width = w;
    info->height = h;
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(par->format);
    info->bit_depth = desc ? desc->comp[0].depth : 8;
    info->hdr = weft_transfer_is_hdr(par->color_trc);
    const char *transfer = av_color_transfer_name(par->color_trc);
    snprintf(info->transfer, sizeof info->transfer, "%s", transfer ? transfer : "unknown");
    info->interlaced = par->field_order > AV_FIELD_PROGRESSIVE;
    for (unsigned i = 0; i < r->demux->nb_streams; i++) {
        const AVStream *other = r->demux->streams[i];
        info->has_audio |= other->codecpar->codec_type == AVMEDIA_TYPE_AUDIO;
        info->other_streams += other->codecpar->codec_type == AVMEDIA_TYPE_VIDEO &&
                               (int)i != r->stream &&
                               !(other->disposition & AV_DISPOSITION_ATTACHED_PIC);
    }
    snprintf(info->codec, sizeof info->codec, "%s", avcodec_get_name(par->codec_id));
    snprintf(info->pixel_format, sizeof info->pixel_format, "%s", desc ? desc->name : "unknown");
    snprintf(info->container, sizeof info->container, "%s", r->demux->iformat->name);
}

static void close_input(weft_video_reader *r)
{
    avcodec_free_context(&r->decoder);
    avformat_close_input(&r->demux);
    if (r->io) {
        av_freep(&r->io->buffer);
        avio_context_free(&r->io);
    }
}

static weft_status open_demuxer(weft_video_reader *r)
{
    r->demux = avformat_alloc_context();
    WEFT_TRY(WEFT_ALLOCATED(r->demux, "%s", r->name));
    r->demux->opaque = r;
    r->demux->interrupt_callback = (AVIOInterruptCB){stall_callback, r};
    if (r->from_source) {
        uint8_t *buffer = av_malloc(IO_BUFFER);
        r->input.at = 0;
        r->io = buffer ? avio_alloc_context(buffer, IO_BUFFER, 0, &r->input, input_read, NULL,
                                            input_seek)
                       : NULL;
        if (!r->io) {
            av_free(buffer);
            return weft_no_memory("%s", r->name);
        }
        r->demux->pb = r->io;
    }
    reset_deadline(r);
    /* "file:" keeps names such as "a:b.mp4" from being taken for protocols. */
    char *url = NULL;
    if (!r->from_source) {
        weft_buf text = {0};
        weft_buf_printf(&text, "file:%s", r->name);
        WEFT_TRY(weft_buf_check(&text));
        url = text.data;
    }
    int error = avformat_open_input(&r->demux, url, NULL, NULL);
    weft_free(url);
    if (error < 0)
        return fail_av(WEFT_MSG_VIDEO_UNREADABLE, r->name, "this is not a readable video file",
                       error);
    reset_deadline(r);
    error = avformat_find_stream_info(r->demux, NULL);
    if (error < 0)
        return fail_av(WEFT_MSG_VIDEO_UNREADABLE, r->name, "no stream can be read", error);
    return WEFT_OK;
}

/* Allocates a frame of the decoder. Some decoders report a failure as damaged data or conceal it,
 * so the reader records the failure here. */
static int get_frame_buffer(AVCodecContext *decoder, AVFrame *frame, int flags)
{
    weft_video_reader *r = decoder->opaque;
    const int error = avcodec_default_get_buffer2(decoder, frame, flags);
    if (error == AVERROR(ENOMEM))
        atomic_store(&r->damage.starved, true);
    return error;
}

static void use_frame_buffers(AVCodecContext *decoder)
{
    decoder->get_buffer2 = get_frame_buffer;
#if LIBAVCODEC_VERSION_MAJOR < 60 /* later versions always assume thread safety */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    decoder->thread_safe_callbacks = 1;
#pragma GCC diagnostic pop
#endif
}

static weft_status open_decoder(weft_video_reader *r)
{
    const AVCodec *codec = NULL;
    char missing[AV_FOURCC_MAX_STRING_SIZE];
    r->stream = choose_stream(r->demux, &codec, missing);
    if (r->stream < 0 && missing[0])
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_AT(.file = r->name, .value = missing),
                          "FFmpeg has no decoder for the codec %s", missing);
    if (r->stream < 0)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = r->name),
                          "the file has no video stream");
    AVStream *s = r->demux->streams[r->stream];
    for (unsigned i = 0; i < r->demux->nb_streams; i++)
        if ((int)i != r->stream)
            r->demux->streams[i]->discard = AVDISCARD_ALL;
    if (s->codecpar->width < 1 || s->codecpar->height < 1)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = r->name),
                          "the video stream does not state its frame size");
    const AVDOVIDecoderConfigurationRecord *dolby =
        (const AVDOVIDecoderConfigurationRecord *)(const void *)av_stream_get_side_data(
            s, AV_PKT_DATA_DOVI_CONF, NULL);
    if (dolby && dolby->dv_profile == 5)
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_AT(.file = r->name),
                          "the colours of Dolby Vision profile 5 cannot be read. Convert the file "
                          "to another profile.");
    r->decoder = avcodec_alloc_context3(codec);
    WEFT_TRY(WEFT_ALLOCATED(r->decoder, "%s", r->name));
    int error = avcodec_parameters_to_context(r->decoder, s->codecpar);
    r->decoder->opaque = r;
    use_frame_buffers(r->decoder);
    r->decoder->pkt_timebase = s->time_base;
    r->decoder->thread_count = r->options.threads > 0 ? r->options.threads : 1;
    if (r->options.fast) {
        r->decoder->skip_loop_filter = AVDISCARD_ALL;
        r->decoder->flags2 |= AV_CODEC_FLAG2_FAST;
    }
    if (r->options.motion_vectors)
        r->decoder->flags2 |= AV_CODEC_FLAG2_EXPORT_MVS;
    if (error >= 0)
        error = avcodec_open2(r->decoder, codec, NULL);
    if (error < 0)
        return fail_av(WEFT_MSG_VIDEO_UNSUPPORTED, r->name, "the decoder does not start", error);
    return WEFT_OK;
}

/* FFmpeg reports some damage only in its log: a demuxer that searches for the next readable
 * position, HEVC pictures with missing references. The context of the line identifies the reader;
 * contexts of decoding threads copy `opaque`. */
static void on_log(void *context, int level, const char *format, va_list arguments)
{
    const AVClass *class = context && level <= AV_LOG_ERROR ? *(const AVClass **)context : NULL;
    if (class && class == avformat_get_class()) {
        const AVFormatContext *demux = context;
        weft_video_reader *r = demux->opaque;
        if (r)
            atomic_fetch_add(&r->damage.demux_complaints, 1);
    } else if (class && class == avcodec_get_class()) {
        const AVCodecContext *decoder = context;
        weft_video_reader *r = decoder->codec_id == AV_CODEC_ID_HEVC ? decoder->opaque : NULL;
        if (r)
            atomic_fetch_add(&r->damage.decoder_complaints, 1);
    }
    av_log_default_callback(context, level, format, arguments);
}

/* True if complaints arrived since the last call; marks them as handled. */
static bool complained(atomic_int *complaints, int *heard)
{
    const int count = atomic_load(complaints), before = *heard;
    *heard = count;
    return count != before;
}

/* Marks a damaged packet or picture: frames at `time` and later may be predicted from it. */
static void break_from(weft_video_reader *r, int64_t time)
{
    r->damage.broken_from =
        r->damage.broken && r->damage.broken_from < time ? r->damage.broken_from : time;
    r->damage.broken = true;
}

/* Marks damage after the last decoded frame. */
static void break_after(weft_video_reader *r)
{
    break_from(r, r->damage.last_time == AV_NOPTS_VALUE ? AV_NOPTS_VALUE : r->damage.last_time + 1);
}

static void begin_reading(weft_video_reader *r)
{
    complained(&r->damage.demux_complaints, &r->damage.demux_heard);
    complained(&r->damage.decoder_complaints, &r->damage.decoder_heard);
    r->damage.last_time = AV_NOPTS_VALUE;
    r->damage.lost = r->damage.hole = r->damage.cut_off = false;
    r->at.draining = r->at.ended = r->at.held = false;
    r->at.next_index = 0;
    r->at.skip_before = 0;
    r->at.skip_seconds = 0;
    r->at.last_seconds = -1;
    r->damage.broken = false;
    r->damage.consecutive_errors = 0;
}

/* Opens or reopens the input at its start. */
static weft_status open_input(weft_video_reader *r)
{
    close_input(r);
    WEFT_TRY(open_demuxer(r));
    WEFT_TRY(open_decoder(r));
    bool lost = complained(&r->damage.demux_complaints, &r->damage.demux_heard);
    if (lost) { /* lost among probed packets that wait in the queue: read again */
        const int64_t start = r->demux->streams[r->stream]->start_time;
        lost = av_seek_frame(r->demux, r->stream, start == AV_NOPTS_VALUE ? 0 : start,
                             AVSEEK_FLAG_BACKWARD) < 0;
    }
    begin_reading(r);
    if (lost)
        break_after(r);
    r->at.fresh = true;
    return WEFT_OK;
}

/* Continues reading at the key frame before `pts`. */
static weft_status jump(weft_video_reader *r, int64_t pts, bool *done)
{
    *done = av_seek_frame(r->demux, r->stream, pts, AVSEEK_FLAG_BACKWARD) >= 0;
    if (!*done) { /* some containers seek only after a fresh start */
        WEFT_TRY(open_input(r));
        *done = av_seek_frame(r->demux, r->stream, pts, AVSEEK_FLAG_BACKWARD) >= 0;
    }
    avcodec_flush_buffers(r->decoder);
    begin_reading(r);
    r->at.fresh = false; /* resets again after the restart */
    return WEFT_OK;
}

/* Sets the largest rectangle with the output's aspect inside the source frame. */
static void cover_crop(const weft_video_info *info, weft_video_options *o)
{
    const double aspect = (double)o->width / (double)o->height;
    int64_t w = info->width, h = info->height;
    if ((double)w / (double)h > aspect)
        w = llround((double)h * aspect);
    else
        h = llround((double)w / aspect);
    o->crop_w = w < 1 ? 1 : w > info->width ? info->width : w;
    o->crop_h = h < 1 ? 1 : h > info->height ? info->height : h;
    o->crop_x = llround((double)(info->width - o->crop_w) * o->cover_x);
    o->crop_y = llround((double)(info->height - o->crop_h) * o->cover_y);
}

static weft_status check_options(const weft_video_reader *r)
{
    const weft_video_options *o = &r->options;
    if (o->width < 0 || o->height < 0 || o->width > 32768 || o->height > 32768)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = r->name),
                          "the frame size %" PRId64 " x %" PRId64 " is outside 1 to 32768",
                          o->width, o->height);
    if (o->format == WEFT_VIDEO_SMALL && (o->width == 0 || o->height == 0))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = r->name),
                          "small frames need a width and a height");
    if (o->crop_w < 0 || o->crop_h < 0 || o->crop_x < 0 || o->crop_y < 0 ||
        o->crop_x + o->crop_w > r->info.width || o->crop_y + o->crop_h > r->info.height)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = r->name),
                          "the crop %" PRId64 "x%" PRId64 "+%" PRId64 "+%" PRId64
                          " is outside the frame of %" PRId64 " x %" PRId64,
                          o->crop_w, o->crop_h, o->crop_x, o->crop_y, r->info.width,
                          r->info.height);
    return WEFT_OK;
}

static weft_status open_reader(weft_video_reader *r, const weft_video_options *options)
{
    const char *level = getenv("WEFT_LOG");
    av_log_set_level(level && strcmp(level, "debug") == 0 ? AV_LOG_VERBOSE : AV_LOG_QUIET);
    av_log_set_callback(on_log);
    if (options)
        r->options = *options;
    r->at.start_pts = AV_NOPTS_VALUE;
    r->packet = av_packet_alloc();
    r->frame = av_frame_alloc();
    WEFT_TRY(WEFT_ALLOCATED(r->packet && r->frame, "%s", r->name));
    WEFT_TRY(open_input(r));
    bool sure;
    double fps = weft_rate_claimed(r->demux, r->stream, &sure);
    if (!sure) {
        reset_deadline(r);
        const double measured = weft_rate_measured(r->demux, r->stream, r->packet);
        fps = measured > 0 ? measured : fps;
        WEFT_TRY(open_input(r));
    }
    fill_info(r, fps);
    if (r->options.cover && r->options.width > 0 && r->options.height > 0)
        cover_crop(&r->info, &r->options);
    WEFT_TRY(check_options(r));
    if (r->options.width == 0 || r->options.height == 0) {
        r->options.width = r->options.crop_w ? r->options.crop_w : r->info.width;
        r->options.height = r->options.crop_h ? r->options.crop_h : r->info.height;
    }
    return weft_converter_create(&r->options, r->info.rotation, r->info.width, r->info.height,
                                 &r->converter);
}

/* Refuses a Git LFS pointer, which the demuxers would take for a damaged video. */
static weft_status check_pointer(const char *path, int64_t bytes)
{
    char *data;
    if (bytes > WEFT_LFS_POINTER_MOST)
        return WEFT_OK;
    WEFT_TRY(weft_file_read(path, WEFT_LFS_POINTER_MOST, &data, &bytes));
    weft_free(data);
    return WEFT_OK;
}

weft_status weft_video_reader_open(const char *path, const weft_video_options *options,
                                   weft_video_reader **out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
    if (S_ISDIR(st.st_mode) && access(path, R_OK | X_OK) != 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the folder");
    if (S_ISDIR(st.st_mode))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = path),
                          "this is a folder, not a video file");
    if (S_ISREG(st.st_mode) && st.st_size == 0)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = path), "the file is empty");
    if (S_ISREG(st.st_mode))
        WEFT_TRY(check_pointer(path, st.st_size));
    weft_video_reader *r = weft_alloc(sizeof *r);
    if (!r || !(r->name = weft_strdup(path))) {
        weft_free(r);
        return weft_no_memory("%s", path);
    }
    weft_status_code status = open_reader(r, options);
    if (status != WEFT_OK) {
        weft_video_reader_close(r);
        return status;
    }
    *out = r;
    return WEFT_OK;
}

weft_status weft_video_reader_open_memory(const void *bytes, int64_t size, const char *name,
                                          const weft_video_options *options,
                                          weft_video_reader **out)
{
    const weft_video_source source = {.self = (void *)bytes, .bytes = size, .read = memory_read};
    if (size > 0)
        WEFT_TRY(weft_lfs_pointer_refuse(name, bytes, size));
    return weft_video_reader_open_source(&source, name, options, out);
}

weft_status weft_video_reader_open_source(const weft_video_source *source, const char *name,
                                          const weft_video_options *options,
                                          weft_video_reader **out)
{
    if (source->bytes <= 0)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = name), "the file is empty");
    weft_video_reader *r = weft_alloc(sizeof *r);
    if (!r || !(r->name = weft_strdup(name))) {
        weft_free(r);
        return weft_no_memory("%s", name);
    }
    r->from_source = true;
    r->input = (source_input){.source = *source};
    weft_status_code status = open_reader(r, options);
    if (status != WEFT_OK) {
        weft_video_reader_close(r);
        return status;
    }
    *out = r;
    return WEFT_OK;
}

const weft_video_info *weft_video_reader_info(const weft_video_reader *r)
{
    return &r->info;
}

weft_status weft_video_reader_packet(weft_video_reader *r, AVPacket *packet, bool *got)
{
    r->at.fresh = false;
    for (;;) {
        reset_deadline(r);
        const int error = av_read_frame(r->demux, packet);
        if (error == AVERROR_EXIT)
            return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = r->name), "reading stalled");
        if (error == AVERROR(ENOMEM))
            return fail_too_large(r->name, "a packet cannot be read");
        if (error < 0 && error != AVERROR_EOF)
            r->damage.errors++;
        *got = error >= 0;
        const bool lost = complained(&r->damage.demux_complaints, &r->damage.demux_heard);
        if (!*got) {
            r->damage.cut_off |= lost || error != AVERROR_EOF;
            r->damage.errors += lost && error == AVERROR_EOF;
            return WEFT_OK;
        }
        if (packet->stream_index == r->stream) {
            if (lost || r->damage.lost)
                packet->flags |= AV_PKT_FLAG_CORRUPT; /* preceding data is missing */
            r->damage.lost = false;
            if (packet->flags & AV_PKT_FLAG_CORRUPT)
                r->damage.errors++;
            return WEFT_OK;
        }
        r->damage.lost |= lost;
        av_packet_unref(packet);
    }
}

/* Sends the next packet to the decoder; *more is false after the last packet. */
static weft_status feed(weft_video_reader *r, bool *more)
{
    for (;;) {
        WEFT_TRY(weft_video_reader_packet(r, r->packet, more));
        if (!*more) {
            if (!r->at.draining)
                avcodec_send_packet(r->decoder, NULL);
            r->at.draining = true;
            return WEFT_OK;
        }
        if (r->packet->flags & AV_PKT_FLAG_KEY)
            r->damage.key_time = r->packet->pts;
        const int error = avcodec_send_packet(r->decoder, r->packet);
        if (r->packet->flags & AV_PKT_FLAG_CORRUPT) {
            r->damage.hole = true;
            r->damage.hole_time = r->packet->pts;
        }
        if (error < 0 || (r->packet->flags & AV_PKT_FLAG_CORRUPT))
            break_from(r, r->packet->dts != AV_NOPTS_VALUE ? r->packet->dts : r->packet->pts);
        av_packet_unref(r->packet);
        if (error == AVERROR(ENOMEM) || atomic_load(&r->damage.starved))
            return fail_too_large(r->name, "a packet cannot be decoded");
        if (error >= 0)
            return WEFT_OK;
        r->damage.errors++;
        if (++r->damage.consecutive_errors > 1000)
            return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = r->name),
                              "1000 packets in sequence cannot be decoded");
    }
}

/* Decodes into r->frame without converting. */
static weft_status decode_frame(weft_video_reader *r, bool *got)
{
    *got = r->at.held;
    r->at.held = false;
    while (!*got && !r->at.ended) {
        const int error = avcodec_receive_frame(r->decoder, r->frame);
        if (error == AVERROR(ENOMEM) || atomic_load(&r->damage.starved))
            return fail_too_large(r->name, "a frame cannot be decoded");
        if (error == 0) {
            r->damage.consecutive_errors = 0;
            *got = true;
            return WEFT_OK;
        }
        if (error == AVERROR_EOF) {
            r->at.ended = true;
            return WEFT_OK;
        }
        if (error != AVERROR(EAGAIN)) {
            r->damage.errors++;
            break_after(r);
            if (++r->damage.consecutive_errors > 1000)
                return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = r->name),
                                  "the decoder failed 1000 times in sequence");
            if (!r->at.draining)
                continue;
        }
        if (r->at.draining && error == AVERROR(EAGAIN)) { /* a decoder that does not drain */
            r->at.ended = true;
            return WEFT_OK;
        }
        bool more = true;
        if (!r->at.draining)
            WEFT_TRY(feed(r, &more));
    }
    return WEFT_OK;
}

/* True if the current frame, or a frame used to predict it, is damaged. */
static bool is_damaged(weft_video_reader *r)
{
    const AVFrame *f = r->frame;
    const int64_t time = f->best_effort_timestamp;
    if (complained(&r->damage.decoder_complaints, &r->damage.decoder_heard))
        break_after(r);
    r->damage.last_time = time;
    if (f->decode_error_flags || (f->flags & AV_FRAME_FLAG_CORRUPT)) {
        break_from(r, time);
        return true;
    }
    if (!r->damage.broken || (time != AV_NOPTS_VALUE && time < r->damage.broken_from))
        return false;
    /* Damage can make a picture look like a key picture. The container's key flags are not affected
     * by this damage. */
    r->damage.broken = !f->key_frame || time != r->damage.key_time;
    return r->damage.broken;
}

static double frame_seconds(weft_video_reader *r, bool *jump)
{
    const AVStream *s = r->demux->streams[r->stream];
    const int64_t pts = r->frame->best_effort_timestamp;
    const double tick = r->info.fps > 0 ? 1 / r->info.fps : 0.04;
    double seconds;
    if (pts == AV_NOPTS_VALUE) {
        seconds = r->at.last_seconds < 0 ? 0 : r->at.last_seconds + tick;
    } else {
        if (r->at.start_pts == AV_NOPTS_VALUE)
            r->at.start_pts = pts;
        seconds = (double)(pts - r->at.start_pts) * av_q2d(s->time_base);
    }
    if (seconds < r->at.last_seconds - JUMP_SECONDS) { /* a joined stream with its own time base */
        *jump = true;
        seconds = r->at.last_seconds + tick;
        r->at.start_pts = pts - (int64_t)llround(seconds / av_q2d(s->time_base));
    } else if (seconds <= r->at.last_seconds && r->at.last_seconds >= 0) { /* damage */
        seconds = r->at.last_seconds + tick * 1e-3;
    }
    r->at.last_seconds = seconds;
    return seconds;
}

weft_status weft_video_reader_next(weft_video_reader *r, weft_video_frame *frame, bool *got)
{
    for (;;) {
        bool have;
        WEFT_TRY(decode_frame(r, &have));
        if (!have) {
            *got = false;
            return WEFT_OK;
        }
        weft_video_frame out = {.index = r->at.next_index++};
        out.seconds = frame_seconds(r, &out.jump);
        out.damaged = is_damaged(r);
        if (r->damage.hole && r->frame->best_effort_timestamp >= r->damage.hole_time) {
            out.jump = out.lost = true;
            r->damage.hole = false;
        }
        if (out.index < r->at.skip_before || out.seconds < r->at.skip_seconds)
            continue;
        out.key = r->frame->key_frame;
        weft_status_code status = weft_converter_run(r->converter, r->frame, &out);
        if (status != WEFT_OK) {
            char where[32];
            snprintf(where, sizeof where, "frame %" PRId64, out.index);
            return weft_error_at(status, WEFT_AT(.file = r->name, .key = where));
        }
        WEFT_TRY(weft_motion_export(r->frame, &r->info, &r->motion, &r->motion_capacity,
                                    &out.motion_count));
        out.motion = out.motion_count ? r->motion : NULL;
        *frame = out;
        *got = true;
        return WEFT_OK;
    }
}

/* Reads the presentation times of all packets. The index is used only if every packet has a
 * distinct time, so that the i-th time is the i-th frame. */
static weft_status build_index(weft_video_reader *r)
{
    int64_t capacity = 0, count = 0, *times = NULL;
    if (!r->at.fresh)
        WEFT_TRY(open_input(r));
    r->at.fresh = false;
    const int64_t back = llround(JUMP_SECONDS / av_q2d(r->demux->streams[r->stream]->time_base));
    bool usable = true;
    for (;;) {
        reset_deadline(r);
        const int error = av_read_frame(r->demux, r->packet);
        if (error < 0) {
            usable &= error == AVERROR_EOF;
            break;
        }
        if (r->packet->stream_index == r->stream && !(r->packet->flags & AV_PKT_FLAG_DISCARD)) {
            usable &= count == 0 || r->packet->pts > times[count - 1] - back;
            usable &= r->packet->pts != AV_NOPTS_VALUE && !(r->packet->flags & AV_PKT_FLAG_CORRUPT);
            if (weft_grow((void **)&times, count, &capacity, sizeof *times) != WEFT_OK) {
                weft_free(times);
                av_packet_unref(r->packet);
                return weft_no_memory("%s: the frame index", r->name);
            }
            times[count++] = r->packet->pts;
        }
        av_packet_unref(r->packet);
    }
    if (count)
        qsort(times, (size_t)count, sizeof *times, weft_compare_i64);
    for (int64_t i = 1; i < count; i++)
        usable &= times[i] > times[i - 1];
    weft_free(r->packets.time);
    r->packets.time = times;
    r->packets.count = count;
    r->packets.usable = usable && count > 0 && r->damage.errors == 0;
    return WEFT_OK;
}

/* Position of `pts` in the index, or -1. */
static int64_t index_of(const weft_video_reader *r, int64_t pts)
{
    const int64_t *at = bsearch(&pts, r->packets.time, (size_t)r->packets.count,
                                sizeof *r->packets.time, weft_compare_i64);
    return at ? at - r->packets.time : -1;
}

/* Continues reading at the key frame before frame `target` of the index. If that position is
 * unknown, reading continues at the start. */
static weft_status go_to(weft_video_reader *r, int64_t target)
{
    if (r->packets.usable && target < r->packets.count) {
        /* Two attempts: the second starts one second earlier, for leading pictures with earlier
         * references. */
        for (int64_t back = 0; back < 2; back++) {
            const AVRational tb = r->demux->streams[r->stream]->time_base;
            bool have;
            WEFT_TRY(
                jump(r, r->packets.time[target] - (back ? llround(1 / av_q2d(tb)) : 0), &have));
            if (!have)
                break;
            WEFT_TRY(decode_frame(r, &have));
            const int64_t first = have ? index_of(r, r->frame->best_effort_timestamp) : -1;
            if (first < 0 || first > target)
                continue;
            if (r->at.start_pts == AV_NOPTS_VALUE)
                r->at.start_pts = r->packets.time[0];
            r->at.held = true;
            r->at.next_index = first;
            r->at.skip_before = target;
            return WEFT_OK;
        }
    }
    WEFT_TRY(open_input(r));
    r->at.skip_before = target;
    return WEFT_OK;
}

weft_status weft_video_reader_seek(weft_video_reader *r, int64_t target)
{
    if (target < 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = r->name, WEFT_NUMBER(target)),
                          "frame %" PRId64 " does not exist; frame numbers start at 0", target);
    if (target >= r->at.next_index &&
        target - r->at.next_index < 32) { /* near: continue decoding */
        r->at.skip_before = target;
        return WEFT_OK;
    }
    if (!r->packets.time)
        WEFT_TRY(build_index(r));
    return go_to(r, target);
}

weft_status weft_video_reader_seek_time(weft_video_reader *r, double seconds)
{
    if (!r->packets.time)
        WEFT_TRY(build_index(r));
    if (!r->packets.usable)
        return open_input(r);
    const double tick = av_q2d(r->demux->streams[r->stream]->time_base);
    int64_t low = 0, high = r->packets.count; /* the first later time is in low .. high */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if ((double)(r->packets.time[middle] - r->packets.time[0]) * tick <= seconds)
            low = middle + 1;
        else
            high = middle;
    }
    return go_to(r, low > 0 ? low - 1 : 0);
}

weft_status weft_video_reader_seek_near(weft_video_reader *r, double seconds)
{
    const double frame = r->info.fps > 0 ? 1 / r->info.fps : 0.04;
    int64_t start = r->demux->streams[r->stream]->start_time;
    /* later attempts start earlier, for leading pictures with earlier references */
    for (int back = 0; start != AV_NOPTS_VALUE && back < 8; back = 2 * back + 1) {
        const double tick = av_q2d(r->demux->streams[r->stream]->time_base);
        const int64_t pts = start + llround((seconds - back) / tick);
        bool have;
        if (pts <= start)
            break;
        WEFT_TRY(jump(r, pts, &have));
        if (!have)
            break;
        WEFT_TRY(decode_frame(r, &have));
        const int64_t time = have ? r->frame->best_effort_timestamp : AV_NOPTS_VALUE;
        if (time == AV_NOPTS_VALUE || time > pts)
            continue;
        r->at.start_pts = start;
        r->at.held = true;
        r->at.skip_seconds = seconds - frame;
        return WEFT_OK;
    }
    WEFT_TRY(open_input(r));
    r->at.skip_seconds = seconds - frame;
    return WEFT_OK;
}

const AVStream *weft_video_reader_stream(const weft_video_reader *r)
{
    return r->demux->streams[r->stream];
}

AVFormatContext *weft_video_reader_demuxer(weft_video_reader *r)
{
    reset_deadline(r);
    return r->demux;
}

const AVFrame *weft_video_reader_picture(const weft_video_reader *r)
{
    return r->frame;
}

int64_t weft_video_reader_errors(const weft_video_reader *r)
{
    return r->damage.errors;
}

bool weft_video_ended_early(const weft_video_info *info, double last_seconds, bool cut_off)
{
    const double tick = info->fps > 0 ? 1 / info->fps : 0.04;
    const double promised = cut_off ? info->seconds - tick : info->seconds * 0.9 - 0.5;
    return info->seconds > 0 && last_seconds + tick < promised;
}

bool weft_video_reader_truncated(const weft_video_reader *r)
{
    return r->at.ended && weft_video_ended_early(&r->info, r->at.last_seconds, r->damage.cut_off);
}

void weft_video_reader_close(weft_video_reader *r)
{
    if (!r)
        return;
    close_input(r);
    av_packet_free(&r->packet);
    av_frame_free(&r->frame);
    weft_converter_free(r->converter);
    weft_free(r->motion);
    weft_free(r->packets.time);
    weft_free(r->name);
    weft_free(r);
}

const char *weft_video_reader_tag(const weft_video_reader *r, const char *key)
{
    const AVDictionaryEntry *tag = av_dict_get(r->demux->metadata, key, NULL, 0);
    return tag ? tag->value : NULL;
}

weft_status weft_video_probe(const char *path, weft_video_info *info)
{
    weft_video_reader *r;
    const weft_video_options tiny = {.format = WEFT_VIDEO_SMALL, .width = 16, .height = 16};
    WEFT_TRY(weft_video_reader_open(path, &tiny, &r));
    *info = r->info;
    weft_video_reader_close(r);
    return WEFT_OK;
}
