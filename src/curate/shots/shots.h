/* Shot detection: hard cuts and gradual transitions in one pass over small frames. */
#ifndef WEFT_CURATE_SHOTS_SHOTS_H
#define WEFT_CURATE_SHOTS_SHOTS_H

#include "base/status.h"
#include "video/reader.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_shot_method {
    /* weft's method: motion-compensated structure, straight paths, uniform runs */
    WEFT_SHOTS_STRUCTURE,
    WEFT_SHOTS_CONTENT,  /* mean HSV difference, compared with a threshold */
    WEFT_SHOTS_ADAPTIVE, /* mean HSV difference compared with its neighbourhood */
    WEFT_SHOTS_FADE,     /* mean luma against a threshold */
    WEFT_SHOTS_NETWORK,  /* TransNetV2 (transnet.h); needs weights */
    WEFT_SHOTS_METHODS
} weft_shot_method;

typedef struct weft_shot_options {
    weft_shot_method method;
    const char *weights; /* weights file of the network, borrowed; NULL: none */
    /* Threshold of the method. 0: the default: content 27, adaptive ratio 3, fade luma 12,
     * transnetv2 0.5 (a probability), structure 1 (a factor on its thresholds: a lower value finds
     * more). */
    double threshold;
    int64_t min_frames; /* shortest shot; 0: structure 4, transnetv2 any, others 15 */
    /* Pixel value difference below which the frames between two frames may be interpolated. 0:
     * every frame is decoded. The methods content, adaptive and fade always decode every frame. */
    double mix;
    double fps;  /* frames a second, for the length of transitions; 0: 25 */
    int threads; /* network threads; 0: the calling thread's number */
} weft_shot_options;

/* A hard cut has start == end == the first frame of the new shot. A gradual transition covers the
 * mixed frames start .. end, inclusive. */
typedef struct weft_boundary {
    int64_t start, end;
    bool gradual;
    double score; /* multiple of the threshold; at least 1 */
} weft_boundary;

typedef struct weft_shot_detector weft_shot_detector;

/* Size of the WEFT_VIDEO_SMALL frames of the detector. */
enum { WEFT_SHOT_WIDTH = 64, WEFT_SHOT_HEIGHT = 36 };

weft_status weft_shot_detector_create(const weft_shot_options *options, weft_shot_detector **out);
/* Takes the frames in order, in WEFT_VIDEO_SMALL form of the size above. Memory is bounded: a
 * window of frames and the list of boundaries. */
weft_status weft_shot_detector_push(weft_shot_detector *detector, const weft_video_frame *frame);
weft_status weft_shot_detector_finish(weft_shot_detector *detector);
/* Boundaries, ascending; complete after finish; borrowed until free. */
const weft_boundary *weft_shot_detector_boundaries(const weft_shot_detector *detector,
                                                   int64_t *count);
void weft_shot_detector_free(weft_shot_detector *detector); /* accepts NULL */

/* Callback for weft_video_scan; `shot_options` is a weft_shot_options. True if the frames between
 * `before` and `after`, at most WEFT_SHOT_LEAVE_OUT, may be interpolated. The two frames show the
 * same content, so a cut between them belongs to a flash. */
enum { WEFT_SHOT_LEAVE_OUT = 5 };
bool weft_shot_alike(const void *shot_options, const weft_video_frame *before,
                     const weft_video_frame *after);

/* Boundaries of one file, with the figures for printing. */
typedef struct weft_shot_list {
    weft_boundary *boundary; /* owned */
    int64_t count;
    int64_t frames;
    int64_t decoded; /* frames decoded; the rest are interpolated */
    double fps;      /* average */
    int64_t errors;  /* packets that could not be decoded */
} weft_shot_list;

#endif
