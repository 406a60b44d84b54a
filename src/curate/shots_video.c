#include "curate/shots.h"

#include "base/memory.h"

#include <string.h>

weft_status weft_shots_find(const char *path, const weft_shot_options *options, int threads,
                            weft_shot_list *out)
{
    weft_video_reader *reader = NULL;
    weft_shot_detector *detector = NULL;
    const weft_video_options o = {.format = WEFT_VIDEO_SMALL,
                                  .width = WEFT_SHOT_WIDTH,
                                  .height = WEFT_SHOT_HEIGHT,
                                  .threads = threads,
                                  .fast = true};
    weft_video_frame frame;
    bool got = true;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_video_reader_open(path, &o, &reader));
    WEFT_GO(weft_shot_detector_create(options, &detector));
    while (got) {
        WEFT_GO(weft_video_reader_next(reader, &frame, &got));
        if (got)
            WEFT_GO(weft_shot_detector_push(detector, &frame));
    }
    WEFT_GO(weft_shot_detector_finish(detector));
    if (weft_shot_detector_frames(detector) == 0) {
        status = weft_fail(WEFT_E_FORMAT, "%s: no frame can be decoded", path);
        goto out;
    }
    weft_shot_list list = {.frames = weft_shot_detector_frames(detector),
                           .fps = weft_video_reader_info(reader)->fps,
                           .errors = weft_video_reader_errors(reader)};
    const weft_boundary *b = weft_shot_detector_boundaries(detector, &list.count);
    list.boundary = weft_alloc((list.count + 1) * (int64_t)sizeof *b);
    if (!list.boundary) {
        status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
        goto out;
    }
    if (list.count)
        memcpy(list.boundary, b, (size_t)list.count * sizeof *b);
    *out = list;
out:
    weft_shot_detector_free(detector);
    weft_video_reader_close(reader);
    return status;
}

void weft_shot_list_free(weft_shot_list *list)
{
    weft_free(list->boundary);
    *list = (weft_shot_list){0};
}
