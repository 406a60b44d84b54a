/* One pass over a video for analysis: every frame in order, at small sizes, on several threads.
 * H.264 pictures that resemble their neighbours are interpolated and not decoded.
 *
 *   presentation   P0  b1  B2  b3  P4        decoding order   P0 P4 B2 b1 b3
 *                   \_____alike?___/
 *
 * A B picture is between two pictures that were decoded before it. The scan skips the B picture
 * if the callback `alike` accepts these two. The frame is then a mixture of the two, weighted by
 * its time and marked as mixed. Otherwise the picture is decoded, and `alike` is called for the
 * shorter intervals on both sides of it. A later P picture that refers to a skipped picture uses
 * the similar picture decoded before it.
 *
 * The stream is split at its IDR pictures, which do not depend on earlier pictures. One thread
 * decodes each part, so the frames depend only on the file, not on the number of threads. The
 * reader decodes every frame of other codecs and of irregular H.264 (damage, missing times,
 * interlaced pictures); damaged H.264 on one thread. */
#ifndef WEFT_VIDEO_SCAN_H
#define WEFT_VIDEO_SCAN_H

#include "video/reader.h"

/* Maximum bytes of decoded frames that wait for the visitor, for any number of threads and any
 * video length. One frame may exceed the limit. */
enum { WEFT_SCAN_WAITING = 8 << 20 };

typedef struct weft_scan_options {
    int64_t width, height;             /* size of WEFT_VIDEO_SMALL frames */
    int64_t large_width, large_height; /* size of a second form of each frame; 0: none */
    int threads;                       /* 0: 1 */
    /* maximum consecutive skipped frames; 0: every frame is decoded */
    int64_t leave_out;
    bool motion_vectors;
    double stall_seconds; /* 0: 30 */
} weft_scan_options;

typedef struct weft_scan_visitor {
    void *user;
    /* Called when the pass begins. If the stream proves irregular, the pass restarts and calls
     * begin again; the visitor discards all earlier frames. */
    weft_status_code (*begin)(void *user, const weft_video_info *info);
    /* Called with the next frame; `large` is NULL without a second size. Frames are borrowed until
     * the return. H.264 motion vectors are per frame: divided by the number of frames since the
     * picture decoded earlier. */
    weft_status_code (*frame)(void *user, const weft_video_frame *frame,
                              const weft_video_frame *large);
    /* True if the frames between `before` and `after` may be interpolated. Depends only on its
     * arguments; called on any thread. */
    bool (*alike)(const void *settings, const weft_video_frame *before,
                  const weft_video_frame *after);
    const void *settings;
} weft_scan_visitor;

typedef struct weft_scan_result {
    int64_t frames;
    int64_t decoded;      /* frames decoded; the rest are mixed */
    int64_t most_waiting; /* peak bytes of waiting frames, at most WEFT_SCAN_WAITING */
    int64_t errors;       /* as weft_video_reader_errors */
    bool truncated;       /* as weft_video_reader_truncated */
} weft_scan_result;

/* Scans a file. Stops with the status of a callback that fails. Errors as in weft_video_reader_open
 * and _next. */
weft_status weft_video_scan(const char *path, const weft_scan_options *options,
                            const weft_scan_visitor *visitor, weft_scan_result *out);

#endif
