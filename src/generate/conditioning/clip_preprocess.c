#include "generate/conditioning/clip_preprocess.h"

#include "base/fs.h"
#include "base/json.h"
#include "video/image.h"
#include "video/resample.h"

#include <string.h>

/* Maximum ratio of an image's sides. */
enum { MOST_ASPECT = 32 };

static weft_status read_three(const json_t *json, const char *key, const char *where, double at[3])
{
    const json_t *list = json_object_get(json, key);
    for (size_t i = 0; list && i < 3; i++) {
        if (!json_is_number(json_array_get(list, i)))
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = where, .key = key),
                              "a list of three numbers is expected");
        at[i] = json_number_value(json_array_get(list, i));
    }
    return WEFT_OK;
}

/* Reads "size": 224, or {"shortest_edge": 224}, or {"height": ...}. */
static int64_t side_of(const json_t *size, int64_t otherwise)
{
    if (json_is_integer(size))
        return json_integer_value(size);
    const json_t *side = json_object_get(size, "shortest_edge");
    side = side ? side : json_object_get(size, "height");
    return json_is_integer(side) ? json_integer_value(side) : otherwise;
}

weft_status weft_clip_processor_read(const char *folder, int64_t side, weft_clip_processor *p)
{
    *p = (weft_clip_processor){.side = side,
                               .crop = side,
                               .mean = {0.48145466, 0.4578275, 0.40821073},
                               .deviation = {0.26862954, 0.26130258, 0.27577711}};
    char *path = weft_path_join(folder, "image_processor/preprocessor_config.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "a path"));
    json_t *json = NULL;
    weft_status_code status = WEFT_OK;
    if (weft_path_exists(path))
        WEFT_GO(weft_json_load(path, &json));
    if (json) {
        p->side = side_of(json_object_get(json, "size"), side);
        p->crop = side_of(json_object_get(json, "crop_size"), side);
        WEFT_GO(read_three(json, "image_mean", path, p->mean));
        WEFT_GO(read_three(json, "image_std", path, p->deviation));
        if (p->crop != side || p->side < side || p->side > 1 << 14)
            WEFT_GO(weft_error(WEFT_MSG_MODEL_CONFIG,
                               WEFT_AT(.file = path, .key = "crop_size", WEFT_NUMBER(p->crop)),
                               "images are resized to %" PRId64 " pixels and cropped to %" PRId64
                               "; the image "
                               "encoder takes %" PRId64,
                               p->side, p->crop, side));
    }
out:
    json_decref(json);
    weft_free(path);
    return status;
}

/* Preprocesses an image to (crop, crop, 3). The resized image keeps its aspect ratio. */
static weft_status preprocess(const weft_clip_processor *p, const char *path, const uint8_t *rgb,
                              int64_t w, int64_t h, float *to)
{
    if (w > MOST_ASPECT * h || h > MOST_ASPECT * w)
        return weft_error(
            WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = path),
            "%" PRId64 "x%" PRId64
            " pixels are too narrow for the image encoder, which reads the square in the "
            "middle. One side may be up to %d times the other; crop the image.",
            w, h, MOST_ASPECT);
    const int64_t sized_w = w < h ? p->side : p->side * w / h,
                  sized_h = w < h ? p->side * h / w : p->side;
    uint8_t *sized = weft_alloc(sized_w * sized_h * 3);
    weft_status_code status = WEFT_OK;
    WEFT_GO(sized
                ? weft_image_resample(WEFT_RESAMPLE_BICUBIC, rgb, w, h, 3, sized, sized_w, sized_h)
                : weft_no_memory("%s: an image", path));
    const int64_t left = (sized_w - p->crop) / 2, top = (sized_h - p->crop) / 2;
    for (int64_t i = 0; i < p->crop * p->crop * 3; i++) {
        const int64_t c = i % 3, x = i / 3 % p->crop, y = i / 3 / p->crop;
        const double v = sized[((top + y) * sized_w + left + x) * 3 + c] / 255.0;
        to[i] = (float)((v - p->mean[c]) / p->deviation[c]);
    }
out:
    weft_free(sized);
    return status;
}

weft_status weft_clip_picture_file(const weft_clip_processor *p, const char *path, float *to)
{
    uint8_t *rgb;
    int64_t w, h;
    WEFT_TRY(weft_picture_load(path, &rgb, &w, &h));
    const weft_status_code status = preprocess(p, path, rgb, w, h, to);
    weft_free(rgb);
    return status;
}

/* Rounds a float frame to 8 bits, as if read from an image file. */
weft_status weft_clip_picture_frame(const weft_clip_processor *p, const weft_canvas *size,
                                    const float *frame, float *to)
{
    uint8_t *rgb;
    WEFT_TRY(WEFT_NEW(rgb, size->height * size->width * 3, "a frame"));
    weft_clip_to_u8(frame, 1, size->height, size->width, false, rgb);
    const weft_status_code status =
        preprocess(p, "the frame before", rgb, size->width, size->height, to);
    weft_free(rgb);
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
