#include "video/video_stills.h"

#include "base/fs.h"
#include "video/lossy_image.h"
#include "video/reader.h"

#include <string.h>

/* Size of a frame whose longest side is at most `side` pixels; even numbers. */
static void fit(const weft_video_info *info, int64_t side, weft_video_options *o)
{
    const int64_t longest = info->width > info->height ? info->width : info->height,
                  limit = longest < side ? longest : side;
    const int64_t width = info->width * limit / longest / 2 * 2,
                  height = info->height * limit / longest / 2 * 2;
    o->format = WEFT_VIDEO_RGB24;
    o->width = width > 2 ? width : 2;
    o->height = height > 2 ? height : 2;
}

static weft_status open_reduced(const char *path, int64_t side, weft_video_info *info,
                                weft_video_options *o, weft_video_reader **reader)
{
    WEFT_TRY(weft_video_probe(path, info));
    if (info->frames < 1)
        return weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = path),
                          "the number of frames is missing");
    fit(info, side, o);
    return weft_video_reader_open(path, o, reader);
}

/* Reads up to frame `index`. */
static weft_status read_frame(weft_video_reader *reader, const char *path, int64_t index,
                              weft_video_frame *frame)
{
    bool got = true;
    do
        WEFT_TRY(weft_video_reader_next(reader, frame, &got));
    while (got && frame->index < index);
    return got ? WEFT_OK
               : weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = path, WEFT_NUMBER(index)),
                            "frame %" PRId64 " is missing", index);
}

/* Copies a frame to column x and row y of `rgb`, whose rows have `stride` bytes. */
static void copy(const weft_video_frame *frame, int64_t x, int64_t y, int64_t stride, uint8_t *rgb)
{
    for (int64_t row = 0; row < frame->height; row++)
        memcpy(rgb + (y + row) * stride + x * 3, frame->plane[0] + row * frame->stride[0],
               (size_t)frame->width * 3);
}

weft_status weft_video_thumbnail(const char *path, weft_buf *image)
{
    weft_video_info info;
    weft_video_options o = {0};
    weft_video_reader *reader = NULL;
    weft_video_frame frame;
    uint8_t *rgb = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_reduced(path, WEFT_THUMBNAIL_SIDE, &info, &o, &reader));
    WEFT_GO(read_frame(reader, path, info.frames / 2, &frame));
    WEFT_GO(WEFT_NEW(rgb, o.width * o.height * 3, "an image"));
    copy(&frame, 0, 0, o.width * 3, rgb);
    WEFT_GO((weft_webp_is_available() ? weft_webp_encode : weft_jpeg_encode)(rgb, o.width, o.height,
                                                                             image));
out:
    weft_free(rgb);
    weft_video_reader_close(reader);
    return status;
}

weft_status weft_video_sprite_sheet(const char *path, weft_buf *image)
{
    weft_video_info info;
    weft_video_options o = {0};
    weft_video_reader *reader = NULL;
    weft_video_frame frame = {.index = -1};
    uint8_t *rgb = NULL;
    int64_t columns = 1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_reduced(path, WEFT_SPRITE_SIDE, &info, &o, &reader));
    const int64_t cells = info.frames < WEFT_SPRITES ? info.frames : WEFT_SPRITES;
    while (columns * columns < cells)
        columns++;
    const int64_t rows = (cells + columns - 1) / columns, stride = columns * o.width * 3;
    WEFT_GO(WEFT_NEW(rgb, rows * o.height * stride, "an image"));
    for (int64_t i = 0; i < cells; i++) {
        WEFT_GO(
            read_frame(reader, path, cells > 1 ? i * (info.frames - 1) / (cells - 1) : 0, &frame));
        copy(&frame, i % columns * o.width, i / columns * o.height, stride, rgb);
    }
    WEFT_GO(weft_jpeg_encode(rgb, columns * o.width, rows * o.height, image));
out:
    weft_free(rgb);
    weft_video_reader_close(reader);
    return status;
}

/* Writes an image next to the video: "video" and `end`. */
static weft_status write_image(const char *video,
                               weft_status_code (*make)(const char *path, weft_buf *image),
                               const char *end)
{
    const char *dot = strrchr(video, '.');
    weft_buf image = {0}, path = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&path, "%.*s%s", dot ? (int)(dot - video) : (int)strlen(video), video, end);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(make(video, &image));
    WEFT_GO(weft_file_write_atomic(path.data, image.data, image.len));
out:
    weft_buf_free(&image);
    weft_buf_free(&path);
    return status;
}

weft_status weft_video_stills_write(const char *video)
{
    WEFT_TRY(write_image(video, weft_video_thumbnail,
                         weft_webp_is_available() ? ".thumbnail.webp" : ".thumbnail.jpg"));
    return write_image(video, weft_video_sprite_sheet, ".spritesheet.jpg");
}
