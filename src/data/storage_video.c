#include "data/storage_video.h"

#include "base/memory.h"

static weft_status read_part(void *self, int64_t at, int64_t bytes, void *to)
{
    weft_storage_video *v = self;
    const weft_status_code status = weft_storage_read(v->storage, v->name, at, bytes, to);
    v->read += status == WEFT_OK ? bytes : 0;
    if (status != WEFT_OK && v->status == WEFT_OK) {
        v->status = status;
        v->error = weft_error_save();
    }
    return status;
}

void weft_storage_video_begin(weft_storage *storage, const char *name, int64_t bytes,
                              weft_storage_video *video)
{
    *video = (weft_storage_video){.source = {.self = video, .bytes = bytes, .read = read_part},
                                  .storage = storage,
                                  .name = name};
}

weft_status weft_storage_video_end(weft_storage_video *video, weft_status_code status)
{
    if (video->status != WEFT_OK)
        status = weft_error_restore(video->error);
    weft_free(video->error);
    video->error = NULL;
    return status;
}
