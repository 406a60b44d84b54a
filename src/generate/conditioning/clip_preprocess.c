#include "generate/conditioning/clip_preprocess.h"

#include "base/fs.h"
#include "video/image.h"

#include <stdio.h>

/* Maximum ratio of an image's sides. */
enum { MOST_ASPECT = 32 };

const char *const weft_clip_processor_folders[] = {"image_processor", "feature_extractor"};

/* Path of the first preprocessor_config.json in a pipeline's folder, or of the last candidate. */
static weft_status find_in_pipeline(const char *folder, char **path)
{
    char name[64];
    *path = NULL;
    for (int i = 0; i < WEFT_CLIP_PROCESSOR_FOLDERS; i++) {
        weft_free(*path);
        snprintf(name, sizeof name, "%s/preprocessor_config.json", weft_clip_processor_folders[i]);
        *path = weft_path_join(folder, name);
        WEFT_TRY(WEFT_ALLOCATED(*path, "a path"));
        if (weft_path_exists(*path))
            break;
    }
    return WEFT_OK;
}

static weft_status read_and_free(char *path, int64_t side, weft_clip_processor *p)
{
    const weft_status_code status = weft_clip_processor_read(path, side, p);
    weft_free(path);
    return status;
}

weft_status weft_clip_picture_processor(const char *folder, int64_t side, weft_clip_processor *p)
{
    char *path;
    WEFT_TRY(find_in_pipeline(folder, &path));
    return read_and_free(path, side, p);
}

weft_status weft_clip_encoder_processor_path(const char *encoder, char **path)
{
    char *own = weft_path_join(encoder, "preprocessor_config.json");
    WEFT_TRY(WEFT_ALLOCATED(own, "a path"));
    if (weft_path_exists(own)) {
        *path = own;
        return WEFT_OK;
    }
    weft_free(own);
    char *around = weft_path_join(encoder, "..");
    WEFT_TRY(WEFT_ALLOCATED(around, "a path"));
    const weft_status_code status = find_in_pipeline(around, path);
    weft_free(around);
    return status;
}

weft_status weft_clip_encoder_processor(const char *encoder, int64_t side, weft_clip_processor *p)
{
    char *path;
    WEFT_TRY(weft_clip_encoder_processor_path(encoder, &path));
    return read_and_free(path, side, p);
}

static weft_status check_aspect(const char *path, int64_t w, int64_t h)
{
    if (w > MOST_ASPECT * h || h > MOST_ASPECT * w)
        return weft_error(
            WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = path),
            "%" PRId64 "x%" PRId64
            " pixels are too narrow for the image encoder, which reads the square in the "
            "middle. One side may be up to %d times the other; crop the image.",
            w, h, MOST_ASPECT);
    return WEFT_OK;
}

weft_status weft_clip_picture_pixels(const weft_clip_processor *p, const char *path,
                                     const uint8_t *rgb, int64_t w, int64_t h, float *to)
{
    WEFT_TRY(check_aspect(path, w, h));
    return weft_clip_processor_run(p, rgb, w, h, to);
}

weft_status weft_clip_picture_file(const weft_clip_processor *p, const char *path, float *to)
{
    uint8_t *rgb;
    int64_t w, h;
    WEFT_TRY(weft_picture_load(path, &rgb, &w, &h));
    const weft_status_code status = weft_clip_picture_pixels(p, path, rgb, w, h, to);
    weft_free(rgb);
    return status;
}

static weft_status preprocess_f32(const weft_clip_processor *p, const weft_canvas *size,
                                  const float *frame, float *to)
{
    const int64_t count = size->height * size->width * 3;
    float *rgb;
    WEFT_TRY(check_aspect("the image", size->width, size->height));
    WEFT_TRY(WEFT_NEW(rgb, count, "a frame"));
    for (int64_t i = 0; i < count; i++) {
        const float v = (frame[i] + 1) / 2;
        rgb[i] = v < 0 ? 0 : v > 1 ? 1 : v;
    }
    const weft_status_code status =
        weft_clip_processor_run_f32(p, rgb, size->width, size->height, to);
    weft_free(rgb);
    return status;
}

/* Rounds a float frame to 8 bits, as if read from an image file, unless p->unrounded. */
weft_status weft_clip_picture_frame(const weft_clip_processor *p, const weft_canvas *size,
                                    const float *frame, float *to)
{
    uint8_t *rgb;
    if (p->unrounded)
        return preprocess_f32(p, size, frame, to);
    WEFT_TRY(WEFT_NEW(rgb, size->height * size->width * 3, "a frame"));
    weft_clip_to_u8(frame, 1, size->height, size->width, false, rgb);
    const weft_status_code status =
        weft_clip_picture_pixels(p, "the frame before", rgb, size->width, size->height, to);
    weft_free(rgb);
    return status;
}

weft_status weft_clip_picture_resized(const weft_clip_processor *p, const weft_canvas *size,
                                      const char *path, float *to)
{
    weft_canvas one = *size;
    float *frame;
    one.frames = 1;
    one.w = 0;
    WEFT_TRY(WEFT_NEW(frame, one.height * one.width * 3, "a frame"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pictures_read(path, &one, frame));
    WEFT_GO(weft_clip_picture_frame(p, &one, frame, to));
out:
    weft_free(frame);
    return status;
}

int64_t weft_clip_picture_bytes(const weft_clip_processor *p)
{
    return p->side * p->side * MOST_ASPECT * 3;
}

void weft_clip_picture_black(const weft_clip_processor *p, float *to)
{
    for (int64_t i = 0; i < p->crop * p->crop * 3; i++)
        to[i] = (float)((0 - p->mean[i % 3]) / p->deviation[i % 3]);
}
