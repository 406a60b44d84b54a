/* One pass over footage for analysis: every frame in order, at small sizes, on several threads, and
 * of H.264 without decoding what its neighbours tell.
 *
 *   presentation   P0  b1  B2  b3  P4        decoding order   P0 P4 B2 b1 b3
 *                   \_____alike?___/
 *
 * A picture that lies between two that were decoded before it (a B picture) is left out when the
 * caller says that these two are alike; the frame is then a mixture of the two by its time, and
 * marked so. Otherwise it is decoded, and the question is asked again for the shorter ways on both
 * sides of it. A later P picture that refers to a picture that was left out sees the one decoded
 * before it instead, which is alike.
 *
 * The stream is cut at its IDR pictures, where decoding begins afresh; each part is decoded by one
 * thread. So the frames are a function of the file, whatever the number of threads. Streams of
 * other codecs and H.264 in which something is unusual (damage, missing times, interlaced pictures)
 * are decoded whole by the reader, damaged H.264 on one thread. */
#ifndef WEFT_VIDEO_SCAN_H
#define WEFT_VIDEO_SCAN_H

#include "video/reader.h"

/* Bytes of decoded pictures that wait for the visitor, at most, whatever the number of threads and
 * the length of the video (but one picture, if that is larger). */
enum { WEFT_SCAN_WAITING = 8 << 20 };

typedef struct weft_scan_options {
    int64_t width, height;             /* of the frames, WEFT_VIDEO_SMALL */
    int64_t large_width, large_height; /* of a second form of each frame; 0: none */
    int threads;                       /* 0: 1 */
    /* frames in a row that may be left out, at most; 0: every frame is decoded */
    int64_t leave_out;
    bool motion_vectors;
    double stall_seconds; /* 0: 30 */
} weft_scan_options;

typedef struct weft_scan_visitor {
    void *user;
    /* The pass begins. It may begin again, when something unusual is met: what was told before is
     * void. */
    weft_status_code (*begin)(void *user, const weft_video_info *info);
    /* The next frame; `large` is NULL unless asked for. Borrowed until the return. Motion vectors
     * of H.264 are per frame: divided by the number of frames to the picture before that was
     * decoded earlier. */
    weft_status_code (*frame)(void *user, const weft_video_frame *frame,
                              const weft_video_frame *large);
    /* Whether what lies between the two may be mixed of them: a function of its arguments alone,
     * called on any thread. */
    bool (*alike)(const void *settings, const weft_video_frame *before,
                  const weft_video_frame *after);
    const void *settings;
} weft_scan_visitor;

typedef struct weft_scan_result {
    int64_t frames;
    int64_t decoded;      /* of them; the rest was mixed */
    int64_t most_waiting; /* bytes of pictures that waited at once; at most WEFT_SCAN_WAITING */
    int64_t errors;       /* as weft_video_reader_errors */
    bool truncated;       /* as weft_video_reader_truncated */
} weft_scan_result;

/* Ends early with the status of a callback that fails. Errors as in weft_video_reader_open and
 * _next. */
weft_status weft_video_scan(const char *path, const weft_scan_options *options,
                            const weft_scan_visitor *visitor, weft_scan_result *out);

#endif
