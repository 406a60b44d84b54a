#include "video/video_encoder.h"

#include "base/config.h"
#include "base/memory.h"
#include "video/frame_upload.h"

#include <libavcodec/avcodec.h>
#include <libavutil/opt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BEST = 1, X264_PRESETS = 10 };

typedef struct encoder {
    const char *name, *quality, *speed; /* options for crf and preset */
    const char *standard;               /* preset; NULL: the driver's */
    int worst;                          /* largest crf */
    const char *more[2];                /* a further option and its value */
    const char *device;                 /* FFmpeg's type of a device that the encoder is given */
    const char *needs;                  /* of hardware encoders, for messages */
} encoder;

#define NVENC       "It needs an NVIDIA GPU with NVENC and its driver."
#define RENDER_NODE "its driver, and access to its render node (such as /dev/dri/renderD128)."
#define VAAPI       "It needs a GPU with VAAPI, " RENDER_NODE
#define QSV         "It needs an Intel GPU with Quick Sync Video, " RENDER_NODE

/* x265 works with one thread, so that its bytes do not depend on the machine. SVT-AV1 is not here,
 * because version 1.4 does not end in a process of a curation. */
static const encoder encoders[] = {
    {"libx264", "crf", "preset", "veryfast", 51, {"x264-params", "mbtree=0"}},
    {"libx265", "crf", "preset", "fast", 51, {"x265-params", "pools=none:frame-threads=1:info=0"}},
    {"libaom-av1", "crf", "cpu-used", "6", 63, {NULL, NULL}},
    {"libvpx-vp9", "crf", "cpu-used", "2", 63, {"deadline", "good"}},
    {"h264_nvenc", "cq", "preset", "p4", 51, {"rc", "vbr"}, NULL, NVENC},
    {"hevc_nvenc", "cq", "preset", "p4", 51, {"rc", "vbr"}, NULL, NVENC},
    {"av1_nvenc", "cq", "preset", "p4", 51, {"rc", "vbr"}, NULL, NVENC},
    {"h264_vaapi",
     "global_quality",
     "compression_level",
     NULL,
     51,
     {"rc_mode", "CQP"},
     "vaapi",
     VAAPI},
    {"hevc_vaapi",
     "global_quality",
     "compression_level",
     NULL,
     51,
     {"rc_mode", "CQP"},
     "vaapi",
     VAAPI},
    {"av1_vaapi",
     "global_quality",
     "compression_level",
     NULL,
     63,
     {"rc_mode", "CQP"},
     "vaapi",
     VAAPI},
    {"h264_qsv", "global_quality", "preset", "medium", 51, {NULL, NULL}, "qsv", QSV},
    {"hevc_qsv", "global_quality", "preset", "medium", 51, {NULL, NULL}, "qsv", QSV},
    {"av1_qsv", "global_quality", "preset", "medium", 51, {NULL, NULL}, "qsv", QSV},
};

static const char *const x264_presets[X264_PRESETS] = {
    "ultrafast", "superfast", "veryfast", "faster",   "fast",
    "medium",    "slow",      "slower",   "veryslow", "placebo"};

static const encoder *find_encoder(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(encoders); i++)
        if (strcmp(encoders[i].name, name) == 0)
            return &encoders[i];
    return NULL;
}

static bool is_of_x264(const char *preset)
{
    for (int i = 0; i < X264_PRESETS; i++)
        if (strcmp(preset, x264_presets[i]) == 0)
            return true;
    return false;
}

/* x264's presets are x265's as well; other encoders replace an x264 preset by their standard. QSV
 * has some of x264's presets. It has its standard for "veryfast", the standard of the setting. */
static const char *preset_of(const encoder *e, const char *preset)
{
    static const char *const of_qsv[] = {"faster", "fast", "medium", "slow", "slower", "veryslow"};
    if (!preset || !preset[0])
        return e->standard;
    for (int i = 0; i < WEFT_COUNT(of_qsv); i++)
        if (strstr(e->name, "_qsv") && !strcmp(preset, of_qsv[i]))
            return preset;
    return is_of_x264(preset) && strncmp(e->name, "libx26", 6) != 0 ? e->standard : preset;
}

int weft_video_encoder_set(AVCodecContext *context, const char *name, int crf, const char *preset)
{
    const encoder *e = find_encoder(name);
    char quality[16];
    if (!e)
        return 0;
    const char *speed = preset_of(e, preset);
    snprintf(quality, sizeof quality, "%d", crf);
    context->bit_rate = 0; /* constant quality */
    /* options of FFmpeg itself or of the encoder */
    av_opt_set(context, e->quality, quality, AV_OPT_SEARCH_CHILDREN);
    if (speed)
        av_opt_set(context, e->speed, speed, AV_OPT_SEARCH_CHILDREN);
    if (e->more[0])
        av_opt_set(context->priv_data, e->more[0], e->more[1], 0);
    return e->device ? weft_frame_upload_open(context, e->device) : 0;
}

/* Encoders of weft's table that this FFmpeg has. */
static const char *list_encoders(char text[256])
{
    int length = 0;
    for (int i = 0; i < WEFT_COUNT(encoders); i++)
        if (avcodec_find_encoder_by_name(encoders[i].name))
            length += snprintf(text + length, 256 - (size_t)length, "%s%s", length ? ", " : "",
                               encoders[i].name);
    return text;
}

/* First error that FFmpeg logs on this thread, such as "Cannot load libcuda.so.1"; "" if none. */
static _Thread_local char first_error[128];

/* FFmpeg logs why it finds no device as information: "Cannot open DRM render node for device 0." */
static bool is_reason(int level, const char *format)
{
    return level <= AV_LOG_ERROR || (level <= AV_LOG_VERBOSE && strncmp(format, "Cannot ", 7) == 0);
}

static void keep_error(void *object, int level, const char *format, va_list values)
{
    (void)object;
    if (!is_reason(level, format) || first_error[0])
        return;
    vsnprintf(first_error, sizeof first_error, format, values);
    first_error[strcspn(first_error, "\n")] = 0;
}

/* Sets, opens and closes the encoder. Returns FFmpeg's error, which `first_error` may explain. */
static int start_encoder(AVCodecContext *context, const AVCodec *codec, int crf, const char *preset)
{
    first_error[0] = 0;
    av_log_set_level(AV_LOG_ERROR);
    av_log_set_callback(keep_error);
    int error = weft_video_encoder_set(context, codec->name, crf, preset);
    if (error >= 0)
        error = avcodec_open2(context, codec, NULL);
    avcodec_free_context(&context);
    av_log_set_callback(av_log_default_callback);
    av_log_set_level(AV_LOG_QUIET);
    return error;
}

/* Starts the encoder for a small video. */
static weft_status try_encoder(const encoder *e, const AVCodec *codec, int crf, const char *preset,
                               const char *key)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    AVCodecContext *context = avcodec_alloc_context3(codec);
    WEFT_TRY(WEFT_ALLOCATED(context, "an encoder"));
    context->width = 256;
    context->height = 144;
    context->pix_fmt = AV_PIX_FMT_YUV420P;
    context->time_base = (AVRational){1, 25};
    context->thread_count = 1;
    const int error = start_encoder(context, codec, crf, preset);
    if (error >= 0)
        return WEFT_OK;
    const char *speed = preset_of(e, preset);
    return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.key = key, .value = e->name),
                      "the encoder %s does not start with the preset '%s' (%s). %s", e->name,
                      speed ? speed : "",
                      first_error[0] ? first_error : av_make_error_string(text, sizeof text, error),
                      e->needs ? e->needs : "Give another preset, or another encoder.");
}

weft_status weft_video_encoder_check(const char *name, int crf, const char *preset, const char *key)
{
    const encoder *e = find_encoder(name);
    const AVCodec *codec = e ? avcodec_find_encoder_by_name(name) : NULL;
    char list[256] = "";
    if (!e)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key, .value = name),
                          "'%s' is not an encoder that weft sets; use one of %s", name,
                          list_encoders(list));
    if (!codec)
        return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_AT(.key = key, .value = name),
                          "this FFmpeg has no encoder %s; use one of %s", name,
                          list_encoders(list));
    if (crf < BEST || crf > e->worst)
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = key, WEFT_NUMBER(crf)),
                          "the quality %d is outside %d to %d of %s", crf, BEST, e->worst, name);
    if (strncmp(name, "libx26", 6) == 0 && preset && preset[0] && !is_of_x264(preset))
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = "clips.preset", .value = preset),
                          "'%s' is not a preset of %s; use one of ultrafast, superfast, veryfast, "
                          "faster, fast, medium, slow, slower, veryslow, placebo",
                          preset, name);
    return strcmp(name, "libx264") == 0 ? WEFT_OK : try_encoder(e, codec, crf, preset, key);
}
