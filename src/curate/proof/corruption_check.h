/* Detects damaged coded pictures by decoding suspect pictures again with altered data.
 *
 * Entropy coded data have no checksum: changed bytes decode to a wrong picture. But decoding stays
 * wrong after a changed byte, and does not end the picture with the last byte of its data.
 * Therefore
 *
 *     other bytes at the end of the data    must change the picture    (else some bytes are unused)
 *     more bytes past the end               must not change it          (else some were missing)
 *
 * The result is a proof and does not depend on the appearance of the picture. Each check decodes
 * several pictures, so the caller selects the suspects. */
#ifndef WEFT_CURATE_PROOF_CORRUPTION_CHECK_H
#define WEFT_CURATE_PROOF_CORRUPTION_CHECK_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* A frame selected for the check. */
typedef struct weft_suspect_frame {
    double seconds;
    float jump; /* difference from the expected frame, in pixel values */
    bool wide;  /* likeliest frame before the next key picture, where damage seems to end */
} weft_suspect_frame;

/* Frames in [from, until) are damaged, or may be predicted from damaged ones. Seconds as in
 * weft_video_frame. */
typedef struct weft_damage {
    double from, until;
} weft_damage;

typedef struct weft_corruption_options {
    double stall_seconds;     /* 0: 30 */
    int64_t most;             /* approximate maximum of decoded pictures */
    void (*beat)(void *user); /* called every few dozen pictures; NULL: not called */
    void *user;
} weft_corruption_options;

typedef struct weft_corruption_report {
    weft_damage *span; /* ascending; owned by the caller */
    int64_t spans;
    int64_t asked;   /* suspects examined */
    int64_t decoded; /* pictures decoded for the check */
} weft_corruption_report;

/* Examines the frames of `suspects`, ascending by time (seconds as in weft_video_frame): all
 * pictures of HEVC and VP9, key pictures of H.264. Finds nothing for other codecs, and where times
 * do not identify frames. Finds nothing where no neighbouring picture ends with its data, since the
 * encoder then pads pictures. Errors as in weft_video_reader_open and _next. */
weft_status weft_video_check_corruption(const char *path, const weft_suspect_frame *suspects,
                                        int64_t count, const weft_corruption_options *options,
                                        weft_corruption_report *out);

#endif
