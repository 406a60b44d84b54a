#include "video/frame_upload.h"

#include <libavcodec/avcodec.h>
#include <libavutil/hwcontext.h>
#include <string.h>

enum { POOL_FRAMES = 32 }; /* more than an encoder keeps for later frames */

/* Gives the encoder a pool of frames in its device. */
static int open_pool(AVCodecContext *e, enum AVPixelFormat format)
{
    AVBufferRef *pool = av_hwframe_ctx_alloc(e->hw_device_ctx);
    if (!pool)
        return AVERROR(ENOMEM);
    AVHWFramesContext *frames = (AVHWFramesContext *)pool->data;
    frames->format = format;
    frames->sw_format = AV_PIX_FMT_NV12;
    frames->width = e->width;
    frames->height = e->height;
    frames->initial_pool_size = POOL_FRAMES;
    const int error = av_hwframe_ctx_init(pool);
    if (error < 0) {
        av_buffer_unref(&pool);
        return error;
    }
    e->hw_frames_ctx = pool; /* freed with the encoder */
    e->pix_fmt = format;
    return 0;
}

int weft_frame_upload_open(AVCodecContext *e, const char *device)
{
    const enum AVHWDeviceType type = av_hwdevice_find_type_by_name(device);
    if (e->width % 2 || e->height % 2)
        return AVERROR(EINVAL);
    if (type == AV_HWDEVICE_TYPE_NONE)
        return AVERROR(ENOSYS);
    const int error = av_hwdevice_ctx_create(&e->hw_device_ctx, type, NULL, NULL, 0);
    if (error < 0)
        return error;
    e->pix_fmt = AV_PIX_FMT_NV12;
    return type == AV_HWDEVICE_TYPE_VAAPI ? open_pool(e, AV_PIX_FMT_VAAPI) : 0;
}

bool weft_frame_upload_needed(const AVCodecContext *e)
{
    return e->pix_fmt == AV_PIX_FMT_NV12 || e->hw_frames_ctx;
}

/* Copies the samples of YUV 4:2:0 planes. */
static void interleave(const AVFrame *planes, AVFrame *nv12)
{
    for (int y = 0; y < planes->height; y++)
        memcpy(nv12->data[0] + y * nv12->linesize[0], planes->data[0] + y * planes->linesize[0],
               (size_t)planes->width);
    for (int y = 0; y < planes->height / 2; y++) {
        const uint8_t *u = planes->data[1] + y * planes->linesize[1],
                      *v = planes->data[2] + y * planes->linesize[2];
        uint8_t *to = nv12->data[1] + y * nv12->linesize[1];
        for (int x = 0; x < planes->width / 2; x++) {
            to[2 * x] = u[x];
            to[2 * x + 1] = v[x];
        }
    }
}

/* Prepares upload->nv12, which the encoder may still read. */
static int need_frame(weft_frame_upload *upload, const AVFrame *planes)
{
    if (upload->nv12)
        return av_frame_make_writable(upload->nv12);
    upload->nv12 = av_frame_alloc();
    if (!upload->nv12)
        return AVERROR(ENOMEM);
    upload->nv12->format = AV_PIX_FMT_NV12;
    upload->nv12->width = planes->width;
    upload->nv12->height = planes->height;
    return av_frame_get_buffer(upload->nv12, 0);
}

/* Copies a frame to a new one of the encoder's pool, and sends it. */
static int send_to_device(AVCodecContext *e, const AVFrame *nv12)
{
    AVFrame *frame = av_frame_alloc();
    if (!frame)
        return AVERROR(ENOMEM);
    int error = av_hwframe_get_buffer(e->hw_frames_ctx, frame, 0);
    if (error >= 0)
        error = av_hwframe_transfer_data(frame, nv12, 0);
    if (error >= 0)
        error = av_frame_copy_props(frame, nv12);
    if (error >= 0)
        error = avcodec_send_frame(e, frame);
    av_frame_free(&frame);
    return error;
}

int weft_frame_upload_send(weft_frame_upload *upload, AVCodecContext *e, const AVFrame *planes)
{
    int error = need_frame(upload, planes);
    if (error < 0)
        return error;
    interleave(planes, upload->nv12);
    error = av_frame_copy_props(upload->nv12, planes);
    if (error < 0)
        return error;
    return e->hw_frames_ctx ? send_to_device(e, upload->nv12) : avcodec_send_frame(e, upload->nv12);
}

void weft_frame_upload_free(weft_frame_upload *upload)
{
    av_frame_free(&upload->nv12);
}
