/* Whether pictures that look odd are damaged, by decoding them once more.
 *
 * Entropy coded data have no check of their own: changed bytes decode to something. But whoever
 * reads on from a changed byte reads something else until the end, and does not come to the end of
 * the picture with the last byte of its data. So
 *
 *     other bytes at the end of the data    must change the picture     (else some are left over)
 *     more bytes behind the end             must not change it          (else some were missing)
 *
 * This is a proof and not a guess: it asks nothing about how pictures look. It takes some decoding
 * per picture, so that the caller says which pictures are in doubt. */
#ifndef WEFT_VIDEO_PROOF_H
#define WEFT_VIDEO_PROOF_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A frame that looks odd. */
typedef struct weft_doubt {
    double seconds;
    float leap; /* by how much it differs from what was to be expected; levels */
    bool wide;  /* it is the likeliest up to the next key picture, where damage seems to end */
} weft_doubt;

/* Frames from `from` to before `until` are damaged or may be predicted from what is; seconds as of
 * weft_video_frame. */
typedef struct weft_damage {
    double from, until;
} weft_damage;

typedef struct weft_proof_options {
    double stall_seconds;     /* 0: 30 */
    int64_t most;             /* pictures that are decoded for it, about */
    void (*beat)(void *user); /* called every few dozen of them; NULL: nobody waits */
    void *user;
} weft_proof_options;

typedef struct weft_proof {
    weft_damage *span; /* ascending; owned by the caller */
    int64_t spans;
    int64_t asked;   /* doubts that were looked into */
    int64_t decoded; /* pictures that were decoded for it */
} weft_proof;

/* Looks into the frames of `doubts`, ascending by time (seconds as of weft_video_frame): of HEVC
 * and VP9, and key pictures of H.264. Of other codecs, and where times do not tell the frames,
 * nothing is found; neither where no picture beside it ends with its data: then its encoder fills
 * them up.
 * Errors as in weft_video_reader_open and _next. */
weft_status weft_video_prove(const char *path, const weft_doubt *doubts, int64_t count,
                             const weft_proof_options *options, weft_proof *out);

#endif
