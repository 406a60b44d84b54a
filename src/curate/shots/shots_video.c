#include "curate/shots/shots_video.h"

#include "curate/shots/shots.h"

#include "base/memory.h"
#include "video/scan.h"

#include <string.h>

typedef struct pass {
    const weft_shot_options *options;
    weft_shot_detector *detector;
    double fps;
} pass;

static weft_status_code begin(void *user, const weft_video_info *info)
{
    pass *p = user;
    weft_shot_detector_free(p->detector);
    p->detector = NULL;
    p->fps = info->fps;
    weft_shot_options o = *p->options;
    o.fps = info->fps;
    return weft_shot_detector_create(&o, &p->detector);
}

static weft_status_code take(void *user, const weft_video_frame *frame,
                             const weft_video_frame *large)
{
    (void)large;
    return weft_shot_detector_push(((pass *)user)->detector, frame);
}

weft_status weft_shots_find(const char *path, const weft_shot_options *options, int threads,
                            weft_shot_list *out)
{
    pass p = {.options = options};
    const weft_scan_options o = {.width = WEFT_SHOT_WIDTH,
                                 .height = WEFT_SHOT_HEIGHT,
                                 .threads = threads,
                                 .leave_out = WEFT_SHOT_LEAVE_OUT};
    const weft_scan_visitor visitor = {&p, begin, take, weft_shot_alike, options};
    weft_scan_result seen;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_video_scan(path, &o, &visitor, &seen));
    WEFT_GO(weft_shot_detector_finish(p.detector));
    if (seen.frames == 0)
        WEFT_GO(weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = path),
                           "no frame of the video can be decoded"));
    weft_shot_list list = {
        .frames = seen.frames, .decoded = seen.decoded, .fps = p.fps, .errors = seen.errors};
    const weft_boundary *b = weft_shot_detector_boundaries(p.detector, &list.count);
    list.boundary = weft_calloc(list.count + 1, sizeof *b);
    WEFT_GO(WEFT_ALLOCATED(list.boundary, "%s", path));
    if (list.count)
        memcpy(list.boundary, b, (size_t)list.count * sizeof *b);
    *out = list;
out:
    weft_shot_detector_free(p.detector);
    return status;
}

void weft_shot_list_free(weft_shot_list *list)
{
    weft_free(list->boundary);
    *list = (weft_shot_list){0};
}
