/* A file of a storage as the source of a video reader, which reads only the parts it needs. */
#ifndef WEFT_DATA_STORAGE_VIDEO_H
#define WEFT_DATA_STORAGE_VIDEO_H

#include "storage/storage.h"
#include "video/reader.h"

typedef struct weft_storage_video {
    weft_video_source source;
    weft_storage *storage; /* borrowed, as the name */
    const char *name;
    int64_t read; /* bytes so far */
    weft_status_code status;
    weft_error_copy *error; /* the first error of the storage */
} weft_storage_video;

/* Sets `source` of a file. `video` must not move until its end. */
void weft_storage_video_begin(weft_storage *storage, const char *name, int64_t bytes,
                              weft_storage_video *video);
/* Returns the first error of the storage, whose effect is otherwise only a damaged video, else
 * `status`, the result of the reader. */
weft_status weft_storage_video_end(weft_storage_video *video, weft_status_code status);

#endif
