/* Videos and images that are read without data shards: the files of a folder or bucket.
 *
 *     a/b.mp4            the video, whose key is a/b
 *     a/b.txt            its caption
 *     a/b.json           its metadata, with or without a caption
 *     a/b.vtt            cues, which are the captions of its clips
 *     captions.csv       captions by file, in the root
 *
 * In a folder that `weft curate` wrote, clips/ID.mp4 has the metadata metas/ID.json and the key ID.
 * The file .weft-videos.index of the root stores sizes and lengths, if the storage is writable. The
 * next start opens only new and changed videos. */
#ifndef WEFT_DATA_LOOSE_VIDEOS_H
#define WEFT_DATA_LOOSE_VIDEOS_H

#include "data/index.h"

/* Everything is in the arena of weft_loose_videos_find. */
typedef struct weft_loose_video {
    /* facts of the complete video; `part` has the video first, then its other files */
    weft_sample sample;
    const char *const *file; /* [sample.part_count] names of the parts in the storage */
    const char *caption;     /* of captions.csv; NULL: none */
    uint64_t stamp;          /* changes when one of the files is rewritten */
} weft_loose_video;

typedef struct weft_loose_videos {
    weft_loose_video *video; /* sorted by name; weft_free */
    int64_t count;
    int64_t opened; /* videos that were not in the stored index */
} weft_loose_videos;

/* Finds the videos below the root of a storage. `split` not NULL: videos in the folder of this
 * name; without such a folder the split "train" has all videos. No videos is not an error. */
weft_status weft_loose_videos_find(weft_storage *storage, const char *split, weft_arena *arena,
                                   weft_loose_videos *videos);

#endif
