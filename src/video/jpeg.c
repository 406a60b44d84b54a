#include "video/jpeg.h"

#include <libavcodec/avcodec.h>
#include <libswscale/swscale.h>

enum { QUALITY = 3 }; /* quantizer: 2 (best) to 31 */

static weft_status fail(const char *doing)
{
    return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_NOWHERE, "the JPEG encoder of FFmpeg cannot %s",
                      doing);
}

static weft_status open_encoder(int width, int height, AVCodecContext **out)
{
    const AVCodec *codec = avcodec_find_encoder(AV_CODEC_ID_MJPEG);
    AVCodecContext *c = codec ? avcodec_alloc_context3(codec) : NULL;
    if (!c)
        return fail("be used; this FFmpeg has none");
    c->width = width;
    c->height = height;
    c->pix_fmt = AV_PIX_FMT_YUVJ420P;
    c->color_range = AVCOL_RANGE_JPEG;
    c->time_base = (AVRational){1, 25};
    c->flags |= AV_CODEC_FLAG_QSCALE | AV_CODEC_FLAG_BITEXACT;
    c->global_quality = FF_QP2LAMBDA * QUALITY;
    c->thread_count = 1;
    c->strict_std_compliance = FF_COMPLIANCE_UNOFFICIAL;
    if (avcodec_open2(c, codec, NULL) < 0) {
        avcodec_free_context(&c);
        return fail("be opened for this size");
    }
    *out = c;
    return WEFT_OK;
}

static weft_status convert(const uint8_t *rgb, int64_t stride, AVFrame *frame)
{
    struct SwsContext *sws =
        sws_getContext(frame->width, frame->height, AV_PIX_FMT_RGB24, frame->width, frame->height,
                       AV_PIX_FMT_YUVJ420P, SWS_BILINEAR | SWS_ACCURATE_RND, NULL, NULL, NULL);
    const uint8_t *const planes[4] = {rgb};
    const int strides[4] = {(int)stride};
    if (!sws)
        return fail("convert colours");
    sws_scale(sws, planes, strides, 0, frame->height, frame->data, frame->linesize);
    sws_freeContext(sws);
    return WEFT_OK;
}

weft_status weft_jpeg_encode(const uint8_t *rgb, int64_t width, int64_t height, weft_buf *jpeg)
{
    AVCodecContext *c = NULL;
    AVFrame *frame = av_frame_alloc();
    AVPacket *packet = av_packet_alloc();
    weft_status_code status = WEFT_ALLOCATED(frame && packet, "a JPEG");
    WEFT_GO(status);
    WEFT_GO(open_encoder((int)(width / 2 * 2), (int)(height / 2 * 2), &c));
    frame->width = c->width;
    frame->height = c->height;
    frame->format = c->pix_fmt;
    frame->color_range = AVCOL_RANGE_JPEG;
    frame->quality = c->global_quality;
    WEFT_GO(WEFT_ALLOCATED(av_frame_get_buffer(frame, 0) >= 0, "a JPEG"));
    WEFT_GO(convert(rgb, width * 3, frame));
    if (avcodec_send_frame(c, frame) < 0 || avcodec_receive_packet(c, packet) < 0)
        WEFT_GO(fail("encode this image"));
    weft_buf_append(jpeg, packet->data, packet->size);
    status = weft_buf_check(jpeg);
out:
    av_packet_free(&packet);
    av_frame_free(&frame);
    avcodec_free_context(&c);
    return status;
}
