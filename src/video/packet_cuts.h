/* Lossless cuts: spans of coded frames that can be copied to another file without encoding.
 *
 *     decode order   I0 P3 B1 B2 P6 B4 B5 I7 P10 B8 B9       numbers: order of presentation
 *     a span begins at I0 or I7, and ends at 0, 3, 6, 7 or 10
 *
 * A span begins at a key frame. It ends at a frame that, with all frames before it, is the first
 * part of the decode order: the span then needs no later packet. Leading frames of the first key
 * frame (open GOP) are not in the span. */
#ifndef WEFT_VIDEO_PACKET_CUTS_H
#define WEFT_VIDEO_PACKET_CUTS_H

#include "base/status.h"
#include "video/reader.h"
#include "video/writer.h"

#include <stdbool.h>
#include <stdint.h>

/* Called every few hundred packets, so that a long file does not look like a hang. */
typedef struct weft_packet_watch {
    void (*beat)(void *user);
    void *user;
} weft_packet_watch;

typedef struct weft_packet_cuts {
    int64_t frames; /* 0: the packets of the video cannot be cut, or not in an .mp4 */
    bool *starts;   /* owned; by frame in order of presentation: a span can begin here */
    bool *ends;     /* owned; a span can end here */
} weft_packet_cuts;

/* Reads all packets of a video, undecoded. A video with missing times, damaged or hidden packets,
 * or a codec that .mp4 does not have, has no cuts (frames 0). */
weft_status weft_packet_cuts_read(const char *path, weft_packet_watch watch,
                                  weft_packet_cuts *cuts);
void weft_packet_cuts_free(weft_packet_cuts *cuts);
/* Moves *start and *end inward to a span that can be copied. False: none is inside. */
bool weft_packet_cuts_trim(const weft_packet_cuts *cuts, int64_t *start, int64_t *end);

/* Frames start .. end, with cuts at both ends. */
typedef struct weft_packet_span {
    int64_t start, end;
    const char *path; /* of the .mp4, written directly: the caller renames it */
    const weft_video_tag *tags;
    int tag_count;
    /* Seconds of sound from the first frame on, encoded as AAC; 0: no sound. One read of the source
     * takes at most stall_seconds (0: 30) */
    double sound_seconds, stall_seconds;
    bool copied; /* result; false: the container or its writer refuses the packets */
} weft_packet_span;

/* Copies spans, ascending and separate, in one pass. Times begin at 0. The caller compares the
 * decoded frames: a key frame may refer to earlier frames although its container marks it. */
weft_status weft_packet_spans_copy(const char *path, weft_packet_watch watch,
                                   weft_packet_span *spans, int64_t count);
/* Compares the format and all samples of two decoded frames (weft_video_reader_picture). */
bool weft_pictures_are_equal(const AVFrame *a, const AVFrame *b);

#endif
