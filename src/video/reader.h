/* Video reader: probe and frame-exact decoding with bounded memory (libavformat, libavcodec).
 *
 *   weft_video_reader *reader;
 *   WEFT_TRY(weft_video_reader_open(path, &(weft_video_options){.format = WEFT_VIDEO_RGB24},
 *                                   &reader));
 *   weft_video_frame frame;
 *   bool got;
 *   while ((status = weft_video_reader_next(reader, &frame, &got)) == WEFT_OK && got) ...
 *   weft_video_reader_close(reader);
 *
 * Frames are upright: the rotation of the container or photograph is applied. Pixels are square if
 * the reader chooses the size. Frames have 8 bits and BT.709 colours. HDR (PQ, HLG) is tone mapped,
 * wide gamut (BT.2020, P3) is converted (video/tone.h). Interlaced frames are deinterlaced, one
 * output frame for each. Frame numbers count decoded frames in presentation order from 0; no frame
 * is dropped or repeated. The reader selects the stream that ffmpeg selects: the largest one that
 * is not an attached picture. */
#ifndef WEFT_VIDEO_READER_H
#define WEFT_VIDEO_READER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct AVStream AVStream;

typedef struct AVPacket AVPacket;

typedef struct AVFrame AVFrame;

typedef enum weft_video_format {
    WEFT_VIDEO_RGB24,   /* plane 0: packed u8 [height, width, 3] */
    WEFT_VIDEO_YUV420P, /* 3 planes, BT.709 limited range, chroma ceil(size/2) */
    /* 3 planes Y, Cb, Cr of equal size [height, width], full range. Box-averaged and without a
     * matrix, so cheap; for analysis. Requires width and height. */
    WEFT_VIDEO_SMALL,
} weft_video_format;

typedef struct weft_video_info {
    int64_t width, height;             /* display pixels: rotated, square */
    int64_t coded_width, coded_height; /* as stored */
    double fps;                        /* average; 0: unknown */
    double seconds;                    /* container's duration; 0: unknown */
    int64_t frames;                    /* container's count, may be wrong; 0: unknown */
    int64_t bit_rate;                  /* bits/s; 0: unknown */
    int rotation;                      /* clockwise degrees applied: 0, 90, 180 or 270 */
    double pixel_aspect;               /* of the stored pixels */
    int bit_depth;
    bool hdr, interlaced, has_audio;
    int other_streams; /* unread video streams: other views, other sizes */
    char codec[32], pixel_format[32], container[64], transfer[32];
} weft_video_info;

typedef struct weft_video_options {
    weft_video_format format;
    int64_t width, height; /* of the frames; 0: info's width and height */
    /* Source rectangle in display pixels, scaled to width x height. crop_w 0: the full frame. */
    int64_t crop_x, crop_y, crop_w, crop_h;
    /* Replaces the rectangle by the largest one with the aspect of width x height. cover_x and
     * cover_y are its position, from 0 (left, top) to 1 (right, bottom); 0.5: centred. */
    bool cover;
    double cover_x, cover_y;
    int threads;          /* decoder threads; 0: 1 */
    bool motion_vectors;  /* ask for codec motion vectors (not all codecs have them) */
    bool fast;            /* for analysis: skip the loop filter; frames are slightly blocky */
    double stall_seconds; /* longest time of one read; 0: 30 */
} weft_video_options;

/* A codec motion vector, in display pixels: the block w x h centred at (x, y) came from (x - dx, y
 * - dy) of the previous reference picture. */
typedef struct weft_motion {
    float x, y, w, h, dx, dy;
} weft_motion;

typedef struct weft_video_frame {
    int64_t index;  /* from 0, counts all frames */
    double seconds; /* presentation time; the first frame need not be at 0 */
    int64_t width, height;
    const uint8_t *plane[3]; /* borrowed: valid until the next call on the reader */
    int64_t stride[3];       /* bytes between rows */
    bool key;                /* intra coded random access point */
    /* The decoder concealed errors, or an earlier picture since the last key picture is damaged or
     * missing. */
    bool damaged;
    /* The container's time decreases at this frame (joined streams), or preceding frames are
     * missing. `seconds` continues to increase. */
    bool jump;
    bool lost;                 /* preceding frames are missing */
    bool mixed;                /* interpolated between neighbours, not decoded (video/scan.h) */
    const weft_motion *motion; /* borrowed; motion_count 0: none (intra frame, or unavailable) */
    int64_t motion_count;
} weft_video_frame;

typedef struct weft_video_reader weft_video_reader;

/* Bytes of a video that is neither a file of this machine nor in memory. */
typedef struct weft_video_source {
    void *self; /* borrowed until close */
    int64_t bytes;
    /* Reads all `bytes` from the offset `at`, or fails. FFmpeg does not report the error of a read:
     * `self` keeps it for its owner. */
    weft_status (*read)(void *self, int64_t at, int64_t bytes, void *to);
} weft_video_source;

/* Opens a video. `options` NULL: RGB24 at display size. WEFT_E_FORMAT: not a video, no video
 * stream, or unusable damage; WEFT_E_UNSUPPORTED: no decoder; WEFT_E_TOO_LARGE: FFmpeg cannot
 * allocate the memory that the file requests. WEFT_E_MEMORY: an allocation of weft failed. */
weft_status weft_video_reader_open(const char *path, const weft_video_options *options,
                                   weft_video_reader **out);
/* Opens a video in memory. `bytes` is borrowed until close; messages name the video `name`. */
weft_status weft_video_reader_open_memory(const void *bytes, int64_t size, const char *name,
                                          const weft_video_options *options,
                                          weft_video_reader **out);
/* Opens a video of a source; messages name the video `name`. */
weft_status weft_video_reader_open_source(const weft_video_source *source, const char *name,
                                          const weft_video_options *options,
                                          weft_video_reader **out);
const weft_video_info *weft_video_reader_info(const weft_video_reader *reader);
/* Value of the container's tag `key` (e.g. "title"); NULL: none. */
const char *weft_video_reader_tag(const weft_video_reader *reader, const char *key);
/* Decodes the next frame; *got is false at the end. Damaged packets are skipped and counted. Fails
 * only if the rest of the file cannot be read. */
weft_status weft_video_reader_next(weft_video_reader *reader, weft_video_frame *frame, bool *got);
/* Makes `index` the next frame. Exact: uses the presentation times of all packets, or decodes from
 * the start if times are missing. Past the end, the next call reports the end. */
weft_status weft_video_reader_seek(weft_video_reader *reader, int64_t index);
/* Makes the last frame that begins at or before `seconds` (as in weft_video_frame) the next frame.
 * If presentation times are missing, the next frame is the first one. */
weft_status weft_video_reader_seek_time(weft_video_reader *reader, double seconds);
/* Makes a frame shortly before `seconds` the next frame. The times of all packets are not needed,
 * so only a part of a long video is read. Frame numbers then count from the first decoded frame. */
weft_status weft_video_reader_seek_near(weft_video_reader *reader, double seconds);
/* Packets so far that the decoder rejected or the container marks as damaged. */
int64_t weft_video_reader_errors(const weft_video_reader *reader);
/* True if the file ended before the container's duration, or inside a packet. */
bool weft_video_reader_truncated(const weft_video_reader *reader);
void weft_video_reader_close(weft_video_reader *reader); /* accepts NULL */

/* Reads the header of a video file. */
weft_status weft_video_probe(const char *path, weft_video_info *info);

const AVStream *weft_video_reader_stream(const weft_video_reader *reader);
/* Reads the next packet of the stream, undecoded; *got is false at the end. Read failures are
 * counted in weft_video_reader_errors. Cannot be mixed with weft_video_reader_next. */
weft_status weft_video_reader_packet(weft_video_reader *reader, AVPacket *packet, bool *got);
/* True if the container's duration exceeds the last frame's time by more than the error of an
 * inaccurate header. With `cut_off` (the file ends inside an element), any excess counts. */
bool weft_video_ended_early(const weft_video_info *info, double last_seconds, bool cut_off);
/* Decoded frame of the last weft_video_reader_next, before conversion. */
const AVFrame *weft_video_reader_picture(const weft_video_reader *reader);

#endif
