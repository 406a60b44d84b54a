/* Shot boundaries: hard cuts and gradual transitions of one pass over small frames. */
#ifndef WEFT_CURATE_SHOTS_H
#define WEFT_CURATE_SHOTS_H

#include "base/status.h"
#include "video/reader.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_shot_method {
    WEFT_SHOTS_STRUCTURE, /* our own: motion-compensated structure, straight paths, uniform runs */
    WEFT_SHOTS_CONTENT,   /* mean HSV difference against a threshold */
    WEFT_SHOTS_ADAPTIVE,  /* the same against its neighbourhood */
    WEFT_SHOTS_FADE,      /* mean luma against a threshold */
    WEFT_SHOTS_NETWORK,   /* TransNetV2 (curate/transnet.h), whose weights are given */
    WEFT_SHOTS_METHODS
} weft_shot_method;

typedef struct weft_shot_options {
    weft_shot_method method;
    const char *weights; /* of the network, borrowed; NULL: none */
    /* 0: the method's own: content 27, adaptive ratio 3, fade luma 12, transnetv2 0.5 (a
     * probability); structure 1 (a factor on its thresholds: lower finds more). */
    double threshold;
    int64_t min_frames; /* shortest shot; 0: structure 4, transnetv2 any, others 15 */
    /* Levels: what lies between two pictures that differ by less may be mixed of them; 0: every
     * frame is decoded, as for the named methods always. */
    double mix;
    double fps;  /* frames a second: how long transitions are in frames; 0: 25 */
    int threads; /* of the network; 0: as many as the calling thread has */
} weft_shot_options;

/* A hard cut has start == end == the first frame of the new shot. A gradual transition covers the
 * mixed frames start .. end, inclusive. */
typedef struct weft_boundary {
    int64_t start, end;
    bool gradual;
    double score; /* how far above the threshold; 1 is at it */
} weft_boundary;

typedef struct weft_shot_detector weft_shot_detector;

/* Size of the WEFT_VIDEO_SMALL frames that the detector wants. */
enum { WEFT_SHOT_WIDTH = 64, WEFT_SHOT_HEIGHT = 36 };

weft_status weft_shot_detector_create(const weft_shot_options *options, weft_shot_detector **out);
/* Frames in order, in WEFT_VIDEO_SMALL form of the size above. Memory is bounded: a window of
 * frames is kept, and the boundaries. */
weft_status weft_shot_detector_push(weft_shot_detector *detector, const weft_video_frame *frame);
weft_status weft_shot_detector_finish(weft_shot_detector *detector);
/* Ascending; complete after finish; borrowed until free. */
const weft_boundary *weft_shot_detector_boundaries(const weft_shot_detector *detector,
                                                   int64_t *count);
void weft_shot_detector_free(weft_shot_detector *detector); /* accepts NULL */

/* For weft_video_scan with these options (a weft_shot_options): whether the frames between two,
 * WEFT_SHOT_LEAVE_OUT at most, may be mixed of them. The two show the same picture, so that a cut
 * between them is one of a flash. */
enum { WEFT_SHOT_LEAVE_OUT = 5 };
bool weft_shot_alike(const void *shot_options, const weft_video_frame *before,
                     const weft_video_frame *after);

/* Boundaries of one file, with what is needed to print them. */
typedef struct weft_shot_list {
    weft_boundary *boundary; /* owned */
    int64_t count;
    int64_t frames;
    int64_t decoded; /* of them; the others were mixed of their neighbours */
    double fps;      /* average */
    int64_t errors;  /* packets that could not be decoded */
} weft_shot_list;

/* Finds the boundaries of `path`, decoding with `threads` threads; their number does not change the
 * result. */
weft_status weft_shots_find(const char *path, const weft_shot_options *options, int threads,
                            weft_shot_list *out);
void weft_shot_list_free(weft_shot_list *list);

#endif
