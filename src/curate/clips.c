/* Curation, second job: the accepted shots of a video as files, encoded or copied. */
#include "curate/clips.h"

#include "curate/curate_work.h"

#include "base/fs.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/lossless_clips.h"
#include "video/reader.h"
#include "video/sound_reader.h"
#include "video/writer.h"

#include <math.h>
#include <string.h>

/* Size of a clip cut out as w x h: scaled down to the longest side, even. */
static void clip_size(const weft_curate_config *c, int64_t w, int64_t h, int64_t *cw, int64_t *ch)
{
    const int64_t longest = w > h ? w : h;
    double scale = 1;
    if (c->clips.max_side > 0 && longest > c->clips.max_side)
        scale = (double)c->clips.max_side / (double)longest;
    *cw = llround((double)w * scale) / 2 * 2;
    *ch = llround((double)h * scale) / 2 * 2;
    *cw = *cw < 2 ? 2 : *cw;
    *ch = *ch < 2 ? 2 : *ch;
}

void weft_curate_fit_window(json_t *meta)
{
    json_t *windows = json_object_get(meta, "windows");
    if (json_array_size(windows) == 1)
        json_object_set(json_array_get(windows, 0), "end_frame", json_object_get(meta, "frames"));
}

static weft_status write_meta(const weft_curate_clip *clip, int64_t w, int64_t h, int64_t frames,
                              double fps, bool has_sound)
{
    if (json_object_get(json_object_get(clip->meta, "written_with"), "sound"))
        json_object_set_new(clip->meta, "sound", json_boolean(has_sound));
    /* The short names are for weft's loader, the long ones for other curation tools. */
    json_object_set_new(clip->meta, "frames", json_integer(frames));
    json_object_set_new(clip->meta, "fps", json_real(fps));
    json_object_set_new(clip->meta, "seconds", json_real(clip->seconds));
    json_object_set_new(clip->meta, "width", json_integer(w));
    json_object_set_new(clip->meta, "height", json_integer(h));
    json_object_set_new(clip->meta, "framerate", json_real(fps));
    json_object_set_new(clip->meta, "num_frames", json_integer(frames));
    weft_curate_fit_window(clip->meta);
    return weft_json_save(clip->meta_path, clip->meta);
}

/* Maps any read failure to an error of the source, so that it does not look like a full output
 * disk. */
static weft_status_code reading_failed(weft_status_code status)
{
    return status == WEFT_OK || status == WEFT_E_MEMORY || status == WEFT_E_TOO_LARGE
               ? status
               : weft_error(WEFT_MSG_VIDEO_UNREADABLE, weft_error_fields(), "%s",
                            weft_error_text());
}

/* Selects the source frames nearest to the times k / fps, for a clip with a lower rate. */
typedef struct thinning {
    double fps, half; /* fps 0: all frames; half: of the mean time between source frames */
    int64_t next;     /* k */
} thinning;

static thinning thinning_of(const weft_curate_config *c, const weft_curate_clip *clip)
{
    const bool lower = c->clips.fps > 0 && clip->fps > c->clips.fps * 1.001;
    return (thinning){.fps = lower ? c->clips.fps : 0, .half = 0.5 / fmax(clip->fps, 1e-3)};
}

/* Whether the frame at *seconds of the clip is kept; its time in the clip replaces *seconds. */
static bool keeps(thinning *t, double *seconds)
{
    if (t->fps <= 0)
        return true;
    const int64_t k = (int64_t)floor((*seconds + t->half) * t->fps + 1e-6);
    if (k < t->next)
        return false;
    *seconds = (double)k / t->fps;
    t->next = k + 1;
    return true;
}

/* Opens the file of a clip that begins with `frame`. */
static weft_status open_clip(const char *source, const weft_curate_clip *clip,
                             const weft_curate_config *config, const weft_video_frame *frame,
                             double fps, weft_video_writer **writer, bool *has_sound)
{
    const weft_video_tag tag = {"comment", clip->id};
    weft_sound sound = {0};
    float *samples = NULL;
    if (config->clips.sound)
        WEFT_TRY(reading_failed(weft_sound_read_part(source, config->stall_seconds, frame->seconds,
                                                     clip->seconds, &samples, &sound)));
    const weft_video_writer_options o = {.width = frame->width,
                                         .height = frame->height,
                                         .fps = fps > 0 ? fps : fmin(clip->fps, 1000),
                                         .crf = (int)config->clips.crf,
                                         .preset = config->clips.preset,
                                         .encoder = config->clips.encoder,
                                         .key_interval = config->clips.key_interval,
                                         .threads = 1, /* same bytes on any machine */
                                         .tags = &tag,
                                         .tag_count = 1,
                                         .sound = samples ? &sound : NULL};
    *has_sound = samples != NULL;
    const weft_status_code status = weft_video_writer_open(clip->path, &o, writer);
    weft_free(samples);
    return status;
}

/* Copies frames start .. end. The reader is positioned at or before start. */
static weft_status copy_span(const char *source, weft_video_reader *reader,
                             const weft_curate_clip *clip, const weft_curate_config *config,
                             const weft_heartbeat *heart)
{
    weft_video_writer *writer = NULL;
    weft_video_frame frame;
    bool got = true, has_sound = false;
    double first = 0;
    int64_t written = 0, kept = 0, w = 0, h = 0;
    thinning thin = thinning_of(config, clip);
    weft_status_code status = WEFT_OK;
    while (written <= clip->end - clip->start) {
        WEFT_GO(reading_failed(weft_video_reader_next(reader, &frame, &got)));
        if (!got)
            break;
        if (frame.index % 16 == 0)
            weft_heartbeat_beat(heart);
        if (frame.index < clip->start)
            continue;
        if (!writer) {
            WEFT_GO(open_clip(source, clip, config, &frame, thin.fps, &writer, &has_sound));
            first = frame.seconds;
            w = frame.width;
            h = frame.height;
        }
        double seconds = frame.seconds - first;
        written++;
        if (!keeps(&thin, &seconds))
            continue;
        WEFT_GO(weft_video_writer_frame(writer, &frame, seconds));
        kept++;
    }
    if (written <= clip->end - clip->start)
        WEFT_GO(weft_error(
            WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = clip->path, WEFT_NUMBER(clip->end)),
            "the video ends before frame %" PRId64 ", which was decoded before", clip->end));
    WEFT_GO(weft_video_writer_finish(writer));
    if (config->clips.cut == WEFT_CUT_KEY_FRAMES)
        json_object_set_new(clip->meta, "lossless", json_false());
    status = write_meta(clip, w, h, kept, thin.fps > 0 ? thin.fps : clip->fps, has_sound);
out:
    weft_video_writer_close(writer);
    return status;
}

bool weft_curate_clip_is_written(const weft_curate_clip *clip)
{
    static const char *const how[] = {"written_with", "crop_source"};
    json_t *meta = NULL;
    bool same =
        weft_path_exists(clip->meta_path) && weft_json_load(clip->meta_path, &meta) == WEFT_OK;
    for (int i = 0; same && i < WEFT_COUNT(how); i++) {
        const json_t *is = json_object_get(meta, how[i]),
                     *wanted = json_object_get(clip->meta, how[i]);
        same = (!is && !wanted) || json_equal(is, wanted);
    }
    json_decref(meta);
    return same;
}

static bool same_crop(const weft_curate_clip *a, const weft_curate_clip *b)
{
    return memcmp(a->crop, b->crop, sizeof a->crop) == 0;
}

/* Copies the coded frames of the clips of a source, and compares all decoded frames with the
 * source's. Clips that differ remain unwritten. */
static weft_status copy_clips(const char *source, const weft_curate_clip *clips, int64_t count,
                              const weft_curate_config *config, int threads,
                              const weft_heartbeat *heart)
{
    weft_lossless_clips list = {.sound = config->clips.sound,
                                .stall_seconds = config->stall_seconds};
    weft_video_options o = weft_lossless_options;
    weft_video_reader *reader = NULL;
    weft_video_info info;
    bool equal;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count; i++)
        if (clips[i].copy && !weft_curate_clip_is_written(&clips[i]))
            WEFT_GO(weft_lossless_clips_add(&list, &clips[i]));
    if (list.count == 0)
        goto out;
    WEFT_GO(reading_failed(weft_lossless_clips_copy(&list, source, heart)));
    o.threads = threads;
    o.stall_seconds = config->stall_seconds;
    WEFT_GO(reading_failed(weft_video_reader_open(source, &o, &reader)));
    for (int64_t i = 0; i < list.count; i++) {
        const weft_curate_clip *clip = list.clip[i];
        WEFT_GO(weft_lossless_clip_accept(&list, clip, reader, heart, &info, &equal));
        json_object_set_new(clip->meta, "lossless", json_boolean(equal));
        if (equal)
            WEFT_GO(write_meta(clip, info.width, info.height, clip->end - clip->start + 1,
                               clip->fps, info.has_audio));
    }
out:
    weft_video_reader_close(reader);
    weft_lossless_clips_free(&list);
    return status;
}

/* Encodes the clips of one crop in one pass. Frame numbers count from the start, so no seek is
 * needed. */
static weft_status write_group(const char *source, const weft_curate_clip *clips, int64_t count,
                               const weft_curate_clip *like, const weft_curate_config *config,
                               int threads, const weft_heartbeat *heart)
{
    weft_video_info info;
    WEFT_TRY(reading_failed(weft_video_probe(source, &info)));
    weft_video_options o = {.format = WEFT_VIDEO_YUV420P,
                            .threads = threads,
                            .stall_seconds = config->stall_seconds,
                            .crop_x = like->crop[0],
                            .crop_y = like->crop[1],
                            .crop_w = like->crop[2],
                            .crop_h = like->crop[3]};
    clip_size(config, o.crop_w ? o.crop_w : info.width, o.crop_h ? o.crop_h : info.height, &o.width,
              &o.height);
    weft_video_reader *reader;
    WEFT_TRY(reading_failed(weft_video_reader_open(source, &o, &reader)));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count; i++)
        if (same_crop(&clips[i], like) && !weft_curate_clip_is_written(&clips[i]))
            WEFT_GO(copy_span(source, reader, &clips[i], config, heart));
out:
    weft_video_reader_close(reader);
    return status;
}

weft_status weft_curate_write_clips(const char *source, const weft_curate_clip *clips,
                                    int64_t count, const weft_curate_config *config, int threads,
                                    const weft_heartbeat *heart)
{
    WEFT_TRY(copy_clips(source, clips, count, config, threads, heart));
    for (int64_t i = 0; i < count; i++) /* a group has all clips of the crop */
        if (!weft_curate_clip_is_written(&clips[i]))
            WEFT_TRY(write_group(source, clips, count, &clips[i], config, threads, heart));
    return WEFT_OK;
}
