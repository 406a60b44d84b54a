#include "video/lossy_image.h"

#include <libavcodec/avcodec.h>
#include <libswscale/swscale.h>

typedef struct format {
    const char *name, *encoder; /* encoder: of FFmpeg */
    enum AVPixelFormat pixels;
    enum AVColorRange range;
    int quality; /* JPEG: quantizer, 2 (best) to 31; WebP: 0 to 100 (best) */
} format;

/* "libwebp_anim", the default encoder of WebP, writes an image with the header of an animation. */
static const format jpeg_format = {"JPEG", "mjpeg", AV_PIX_FMT_YUVJ420P, AVCOL_RANGE_JPEG, 3},
                    webp_format = {"WebP", "libwebp", AV_PIX_FMT_YUV420P, AVCOL_RANGE_MPEG, 80};

static weft_status fail(const format *f, const char *doing)
{
    return weft_error(WEFT_MSG_VIDEO_ENCODER, WEFT_NOWHERE, "the %s encoder of FFmpeg cannot %s",
                      f->name, doing);
}

static weft_status open_encoder(const format *f, int width, int height, AVCodecContext **out)
{
    const AVCodec *codec = avcodec_find_encoder_by_name(f->encoder);
    AVCodecContext *c = codec ? avcodec_alloc_context3(codec) : NULL;
    if (!c)
        return fail(f, "be used; this FFmpeg has none");
    c->width = width;
    c->height = height;
    c->pix_fmt = f->pixels;
    c->color_range = f->range;
    c->time_base = (AVRational){1, 25};
    c->flags |= AV_CODEC_FLAG_QSCALE | AV_CODEC_FLAG_BITEXACT;
    c->global_quality = FF_QP2LAMBDA * f->quality;
    c->thread_count = 1;
    c->strict_std_compliance = FF_COMPLIANCE_UNOFFICIAL;
    if (avcodec_open2(c, codec, NULL) < 0) {
        avcodec_free_context(&c);
        return fail(f, "be opened for this size");
    }
    *out = c;
    return WEFT_OK;
}

static weft_status convert(const format *f, const uint8_t *rgb, int64_t stride, AVFrame *frame)
{
    struct SwsContext *sws =
        sws_getContext(frame->width, frame->height, AV_PIX_FMT_RGB24, frame->width, frame->height,
                       f->pixels, SWS_BILINEAR | SWS_ACCURATE_RND, NULL, NULL, NULL);
    const uint8_t *const planes[4] = {rgb};
    const int strides[4] = {(int)stride};
    if (!sws)
        return fail(f, "convert colours");
    sws_scale(sws, planes, strides, 0, frame->height, frame->data, frame->linesize);
    sws_freeContext(sws);
    return WEFT_OK;
}

static weft_status encode(const format *f, const uint8_t *rgb, int64_t width, int64_t height,
                          weft_buf *image)
{
    AVCodecContext *c = NULL;
    AVFrame *frame = av_frame_alloc();
    AVPacket *packet = av_packet_alloc();
    weft_status_code status = WEFT_ALLOCATED(frame && packet, "an image");
    WEFT_GO(status);
    WEFT_GO(open_encoder(f, (int)(width / 2 * 2), (int)(height / 2 * 2), &c));
    frame->width = c->width;
    frame->height = c->height;
    frame->format = c->pix_fmt;
    frame->color_range = f->range;
    frame->quality = c->global_quality;
    WEFT_GO(WEFT_ALLOCATED(av_frame_get_buffer(frame, 0) >= 0, "an image"));
    WEFT_GO(convert(f, rgb, width * 3, frame));
    if (avcodec_send_frame(c, frame) < 0 || avcodec_receive_packet(c, packet) < 0)
        WEFT_GO(fail(f, "encode this image"));
    weft_buf_append(image, packet->data, packet->size);
    status = weft_buf_check(image);
out:
    av_packet_free(&packet);
    av_frame_free(&frame);
    avcodec_free_context(&c);
    return status;
}

weft_status weft_jpeg_encode(const uint8_t *rgb, int64_t width, int64_t height, weft_buf *jpeg)
{
    return encode(&jpeg_format, rgb, width, height, jpeg);
}

weft_status weft_webp_encode(const uint8_t *rgb, int64_t width, int64_t height, weft_buf *webp)
{
    return encode(&webp_format, rgb, width, height, webp);
}

bool weft_webp_is_available(void)
{
    return avcodec_find_encoder_by_name(webp_format.encoder) != NULL;
}
