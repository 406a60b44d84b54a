/* The two curation jobs that run in child processes. Private to curate/. */
#ifndef WEFT_CURATE_WORK_H
#define WEFT_CURATE_WORK_H

#include "base/json.h"
#include "curate/curate.h"
#include "curate/duplicates/keypoints.h"

#include <stdint.h>

/* Sent every few dozen frames; the parent treats silence as a hang. */
typedef struct weft_heartbeat {
    int fd;           /* -1: none */
    int64_t memory;   /* bytes the process can reserve; 0 (default): no limit */
    int64_t resident; /* resident bytes when the process began */
} weft_heartbeat;

/* Thumbnails and keypoints of a video, in order of time, to find partial duplicates
 * (keypoints.h). */
typedef struct weft_curate_parts {
    weft_thumbnail *thumbnail;
    weft_keypoints *keypoints;
    int64_t thumbnails, keypoint_frames;
} weft_curate_parts;

/* One clip to be written: frames start .. end (inclusive) of a source. */
typedef struct weft_curate_clip {
    const char *path; /* path of the clip */
    const char *meta_path;
    json_t *meta; /* borrowed; gets width, height, ... after the clip is written */
    int64_t start, end;
    double fps, seconds; /* mean rate; duration including the last frame */
    int64_t crop[4];     /* x, y, w, h in display pixels; w 0: no crop */
    bool copy;           /* the coded frames may be copied: both ends are cuts of the packets */
    const char *id;
} weft_curate_clip;

#endif
