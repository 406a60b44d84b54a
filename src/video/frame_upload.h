/* Frames of encoders that read NV12 (a plane of luma, a plane of pairs of chroma), in memory or in
 * a GPU. The API is FFmpeg's: libavutil/hwcontext.h. */
#ifndef WEFT_VIDEO_FRAME_UPLOAD_H
#define WEFT_VIDEO_FRAME_UPLOAD_H

#include <stdbool.h>

typedef struct AVCodecContext AVCodecContext;
typedef struct AVFrame AVFrame;

/* Frames that are reused; zeros at first. The caller calls weft_frame_upload_free. */
typedef struct weft_frame_upload {
    AVFrame *nv12;
} weft_frame_upload;

/* Gives the encoder the first device of FFmpeg's type `device` ("vaapi", "qsv"). The encoder is not
 * open, and has an even width and height. VAAPI encoders read frames of a pool in the device; QSV
 * encoders read NV12 in memory, and upload it themselves. Returns FFmpeg's error, or 0. */
int weft_frame_upload_open(AVCodecContext *encoder, const char *device);
/* Whether the encoder reads NV12, so that weft_frame_upload_send sends its frames. */
bool weft_frame_upload_needed(const AVCodecContext *encoder);
/* Sends a frame of YUV 4:2:0 planes with even sizes as NV12, with the same samples and time.
 * Returns FFmpeg's error, or 0. */
int weft_frame_upload_send(weft_frame_upload *upload, AVCodecContext *encoder,
                           const AVFrame *planes);
void weft_frame_upload_free(weft_frame_upload *upload);

#endif
