#include "curate/lossless_clips.h"

#include "base/memory.h"
#include "curate/analyse.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Allowed difference of times: containers round to milliseconds. */
static const double time_error = 0.002;

/* Decoded frames are compared before their conversion, so the converted ones are tiny. */
const weft_video_options weft_lossless_options = {
    .format = WEFT_VIDEO_SMALL, .width = 16, .height = 16};

weft_status weft_lossless_clips_add(weft_lossless_clips *list, const weft_curate_clip *clip)
{
    const int64_t i = list->count;
    int64_t spans = list->capacity, clips = list->capacity, tags = list->capacity;
    weft_buf path = {0};
    WEFT_TRY(weft_grow((void **)&list->span, i, &spans, sizeof *list->span));
    WEFT_TRY(weft_grow((void **)&list->clip, i, &clips, sizeof *list->clip));
    WEFT_TRY(weft_grow((void **)&list->tag, i, &tags, sizeof *list->tag));
    list->capacity = spans;
    weft_buf_printf(&path, "%s.tmp.%d", clip->path, (int)getpid());
    WEFT_TRY(weft_buf_check(&path));
    list->clip[i] = clip;
    list->tag[i] = (weft_video_tag){"comment", clip->id};
    list->span[i] = (weft_packet_span){.start = clip->start,
                                       .end = clip->end,
                                       .path = path.data,
                                       .sound_seconds = list->sound ? clip->seconds : 0,
                                       .stall_seconds = list->stall_seconds};
    list->count++;
    return WEFT_OK;
}

static void beat(void *user)
{
    weft_heartbeat_beat(user);
}

weft_status weft_lossless_clips_copy(weft_lossless_clips *list, const char *source,
                                     const weft_heartbeat *heart)
{
    const weft_packet_watch watch = {beat, (void *)heart};
    for (int64_t i = 0; i < list->count; i++) {
        list->span[i].tags = &list->tag[i];
        list->span[i].tag_count = 1;
    }
    return list->count ? weft_packet_spans_copy(source, watch, list->span, list->count) : WEFT_OK;
}

void weft_lossless_clips_free(weft_lossless_clips *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        unlink(list->span[i].path);
        weft_free((void *)list->span[i].path);
    }
    weft_free(list->span);
    weft_free(list->clip);
    weft_free(list->tag);
    *list = (weft_lossless_clips){0};
}

/* ---- comparison ---------------------------------------------------------------------------- */

/* Decodes the next frame of the source that is not before `start`. */
static weft_status source_frame(weft_video_reader *reader, int64_t start,
                                const weft_heartbeat *heart, weft_video_frame *frame, bool *got)
{
    do {
        WEFT_TRY(weft_video_reader_next(reader, frame, got));
        if (*got && frame->index % 16 == 0)
            weft_heartbeat_beat(heart);
    } while (*got && frame->index < start);
    return WEFT_OK;
}

/* Compares the facts that a file has next to its coded frames. */
static bool same_facts(const weft_video_info *a, const weft_video_info *b)
{
    return a->width == b->width && a->height == b->height && a->rotation == b->rotation &&
           a->hdr == b->hdr && strcmp(a->transfer, b->transfer) == 0;
}

/* Compares all frames of a copy. A copy that cannot be read is not equal. */
static weft_status compare(const weft_curate_clip *clip, weft_video_reader *reader,
                           weft_video_reader *copy, const weft_heartbeat *heart, bool *equal)
{
    weft_video_frame from, to;
    double first[2] = {0};
    bool got = true, more = true;
    *equal = same_facts(weft_video_reader_info(reader), weft_video_reader_info(copy));
    for (int64_t t = clip->start; t <= clip->end && *equal; t++) {
        WEFT_TRY(source_frame(reader, clip->start, heart, &from, &got));
        *equal = got && from.index == t && weft_video_reader_next(copy, &to, &more) == WEFT_OK &&
                 more && !to.damaged &&
                 weft_pictures_are_equal(weft_video_reader_picture(reader),
                                         weft_video_reader_picture(copy));
        if (*equal && t == clip->start) {
            first[0] = from.seconds;
            first[1] = to.seconds;
        }
        *equal = *equal && fabs((from.seconds - first[0]) - (to.seconds - first[1])) <= time_error;
    }
    *equal = *equal && weft_video_reader_next(copy, &to, &more) == WEFT_OK && !more &&
             weft_video_reader_errors(copy) == 0;
    return WEFT_OK;
}

/* Gives the file its name, after its data are on the disk. */
static weft_status finish(const char *temporary, const char *path)
{
    const int fd = open(temporary, O_RDONLY | O_CLOEXEC);
    const bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    if (!synced || rename(temporary, path) != 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot write the file to the disk");
    return WEFT_OK;
}

weft_status weft_lossless_clip_accept(const weft_lossless_clips *list, const weft_curate_clip *clip,
                                      weft_video_reader *reader, const weft_heartbeat *heart,
                                      weft_video_info *info, bool *equal)
{
    weft_video_reader *copy = NULL;
    int64_t i = 0;
    *equal = false;
    while (i < list->count && list->clip[i] != clip)
        i++;
    if (i == list->count || !list->span[i].copied ||
        weft_video_reader_open(list->span[i].path, &weft_lossless_options, &copy) != WEFT_OK)
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    *info = *weft_video_reader_info(copy);
    WEFT_GO(compare(clip, reader, copy, heart, equal));
    if (*equal)
        WEFT_GO(finish(list->span[i].path, clip->path));
out:
    weft_video_reader_close(copy);
    return status;
}
