/* Reading footage: probe and frame-exact decoding with bounded memory (libavformat, libavcodec).
 *
 *   weft_video_reader *reader;
 *   WEFT_TRY(weft_video_reader_open(path, &(weft_video_options){.format = WEFT_VIDEO_RGB24},
 * &reader)); weft_video_frame frame; bool got; while ((status = weft_video_reader_next(reader,
 * &frame, &got)) == WEFT_OK && got) ... weft_video_reader_close(reader);
 *
 * Frames come upright (the rotation of the container or the photograph is applied), with square
 * pixels when the size is left to the reader, as 8 bits of BT.709; HDR (PQ, HLG) is tone mapped,
 * wide gamut (BT.2020, P3) converted (video/tone.h); interlaced ones are deinterlaced, one for
 * each. Frame numbers count every decoded frame in presentation order from 0; nothing is dropped
 * or repeated. The stream is the one that ffmpeg would take: the largest, not an attached
 * picture. */
#ifndef WEFT_VIDEO_READER_H
#define WEFT_VIDEO_READER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_video_format {
    WEFT_VIDEO_RGB24,   /* plane 0: packed u8 [height, width, 3] */
    WEFT_VIDEO_YUV420P, /* 3 planes, BT.709 limited range, chroma ceil(size/2) */
    /* 3 planes Y, Cb, Cr of equal size [height, width], full range; box-averaged: cheap, for
     * analysis: no matrix is applied; needs width and height. */
    WEFT_VIDEO_SMALL,
} weft_video_format;

typedef struct weft_video_info {
    int64_t width, height;             /* display pixels: rotated, square */
    int64_t coded_width, coded_height; /* as stored */
    double fps;                        /* average; 0: unknown */
    double seconds;                    /* duration by the container; 0: unknown */
    int64_t frames;                    /* by the container; 0: unknown; may be wrong */
    int64_t bit_rate;                  /* bits/s; 0: unknown */
    int rotation;                      /* 0, 90, 180, 270: clockwise turns that were applied */
    double pixel_aspect;               /* of the stored pixels */
    int bit_depth;
    bool hdr, interlaced, has_audio;
    int other_streams; /* video that was not taken: other views, other sizes */
    char codec[32], pixel_format[32], container[64], transfer[32];
} weft_video_info;

typedef struct weft_video_options {
    weft_video_format format;
    int64_t width, height; /* of the frames; 0: info's width and height */
    /* Source rectangle in display pixels that is scaled to width x height; w 0: all of it. */
    int64_t crop_x, crop_y, crop_w, crop_h;
    /* Instead of a rectangle: the largest of width x height's aspect, cover_x and cover_y in 0 .. 1
     * of the way from the left and top edge to the right and bottom one (0.5: in the middle). */
    bool cover;
    double cover_x, cover_y;
    int threads;          /* decoder threads; 0: 1 */
    bool motion_vectors;  /* ask the decoder for its motion vectors (not every codec has them) */
    bool fast;            /* for analysis: skip the loop filter; pictures are slightly blocky */
    double stall_seconds; /* fail when one read blocks longer; 0: 30 */
} weft_video_options;

/* A codec motion vector, in display pixels: the block w x h centred at (x, y) came from
 * (x - dx, y - dy) of the previous reference picture. */
typedef struct weft_motion {
    float x, y, w, h, dx, dy;
} weft_motion;

typedef struct weft_video_frame {
    int64_t index;  /* from 0, all frames counted */
    double seconds; /* presentation time; the first frame need not be at 0 */
    int64_t width, height;
    const uint8_t *plane[3]; /* borrowed: valid until the next call on the reader */
    int64_t stride[3];       /* bytes between rows */
    bool key;                /* intra coded random access point */
    /* The decoder concealed errors, or a picture before it since the last key picture is damaged or
     * missing. */
    bool damaged;
    /* The container's time went back here (joined streams; `seconds` goes on as if it had not), or
     * pictures before this one are missing. */
    bool jump;
    bool lost;                 /* pictures before this one are missing */
    bool mixed;                /* not decoded, but mixed of its neighbours (video/scan.h) */
    const weft_motion *motion; /* borrowed; motion_count 0: none (intra frame, or not known) */
    int64_t motion_count;
} weft_video_frame;

typedef struct weft_video_reader weft_video_reader;

/* WEFT_E_FORMAT: not a video, no video stream, damaged beyond use; WEFT_E_UNSUPPORTED: no decoder;
 * WEFT_E_TOO_LARGE: FFmpeg cannot allocate what the file asks for (WEFT_E_MEMORY is weft's own
 * failed allocation). `options` may be NULL: RGB24 at display size. */
weft_status weft_video_reader_open(const char *path, const weft_video_options *options,
                                   weft_video_reader **out);
/* The same from a file in memory: `bytes` is borrowed until close; `name` stands in messages. */
weft_status weft_video_reader_open_memory(const void *bytes, int64_t size, const char *name,
                                          const weft_video_options *options,
                                          weft_video_reader **out);
const weft_video_info *weft_video_reader_info(const weft_video_reader *reader);
/* What the container says under `key` ("title"); NULL: nothing. */
const char *weft_video_reader_tag(const weft_video_reader *reader, const char *key);
/* *got is false at the end. Damaged packets are skipped and counted; it is an error only when the
 * file cannot be read further. */
weft_status weft_video_reader_next(weft_video_reader *reader, weft_video_frame *frame, bool *got);
/* The next frame will be number `index` (exact: by the presentation times of all packets, or by
 * decoding from the start where they are missing). Past the end: next says the end. */
weft_status weft_video_reader_seek(weft_video_reader *reader, int64_t index);
/* The next frame will be the last one that begins at `seconds` or before: times as in
 * weft_video_frame. Where presentation times are missing, reading begins at the start. */
weft_status weft_video_reader_seek_time(weft_video_reader *reader, double seconds);
/* Packets that the decoder refused or that the container marks as damaged, so far. */
int64_t weft_video_reader_errors(const weft_video_reader *reader);
/* True when the file ended before the duration that the container promises (or mid-packet). */
bool weft_video_reader_truncated(const weft_video_reader *reader);
void weft_video_reader_close(weft_video_reader *reader); /* accepts NULL */

/* Opens, reads the header, closes. */
weft_status weft_video_probe(const char *path, weft_video_info *info);

#endif
