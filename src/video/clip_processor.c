#include "video/clip_processor.h"

#include "base/fs.h"
#include "base/json_foreign.h"
#include "base/message.h"
#include "video/resample.h"

static weft_status read_three(const json_t *json, const char *key, const char *where, double at[3])
{
    const json_t *list = json_object_get(json, key);
    for (size_t i = 0; list && !json_is_null(list) && i < 3; i++) {
        if (json_array_size(list) != 3 || !json_is_number(json_array_get(list, i)))
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = where, .key = key),
                              "a list of three numbers is expected");
        at[i] = json_number_value(json_array_get(list, i));
    }
    return WEFT_OK;
}

weft_status weft_clip_processor_colours(const json_t *json, const char *path, double mean[3],
                                        double deviation[3])
{
    WEFT_TRY(read_three(json, "image_mean", path, mean));
    WEFT_TRY(read_three(json, "image_std", path, deviation));
    for (int i = 0; i < 3; i++)
        if (!(deviation[i] > 0))
            return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = path, .key = "image_std"),
                              "colours are divided by %g; three numbers above 0 are expected",
                              deviation[i]);
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

/* Height and width without a crop: the processor of SigLIP, which keeps no aspect ratio. */
static bool is_stretched(const json_t *json)
{
    const json_t *size = json_object_get(json, "size");
    return json_object_get(size, "height") && json_object_get(size, "width") &&
           !json_is_object(json_object_get(json, "crop_size"));
}

/* Rejects what the steps of weft_clip_processor_run would not do. */
static weft_status check_steps(const json_t *json, const char *path, bool stretched)
{
    const weft_json_field known[] = {{"size", NULL},
                                     {"crop_size", NULL},
                                     {"image_mean", NULL},
                                     {"image_std", NULL},
                                     {"do_resize", "[true]"},
                                     {"do_center_crop", stretched ? "[false]" : "[true]"},
                                     {"do_rescale", "[true]"},
                                     {"do_normalize", "[true]"},
                                     {"do_convert_rgb", NULL},
                                     {"resample", "[2, 3]"},
                                     {"rescale_factor", "[0.00392156862745098]"},
                                     {"default_to_square", NULL},
                                     {"data_format", NULL},
                                     {"image_processor_type", NULL},
                                     {"feature_extractor_type", NULL},
                                     {"processor_class", NULL},
                                     {NULL, NULL}};
    return weft_json_check_foreign(json, path, "", known, WEFT_MSG_MODEL_CONFIG_UNSUPPORTED);
}

weft_status weft_clip_processor_read(const char *path, int64_t side, weft_clip_processor *p)
{
    *p = (weft_clip_processor){.side = side,
                               .crop = side,
                               .mean = {0.48145466, 0.4578275, 0.40821073},
                               .deviation = {0.26862954, 0.26130258, 0.27577711}};
    json_t *json = NULL;
    weft_status_code status = WEFT_OK;
    if (weft_path_exists(path))
        WEFT_GO(weft_json_load(path, &json));
    if (json) {
        p->side = side_of(json_object_get(json, "size"), side);
        p->crop = side_of(json_object_get(json, "crop_size"), side);
        p->stretched = is_stretched(json);
        p->bilinear = json_integer_value(json_object_get(json, "resample")) == 2;
        WEFT_GO(check_steps(json, path, p->stretched));
        WEFT_GO(weft_clip_processor_colours(json, path, p->mean, p->deviation));
        if (p->crop != side || p->side < side || p->side > 1 << 14 ||
            (p->stretched && p->side > side))
            WEFT_GO(weft_error(WEFT_MSG_MODEL_CONFIG,
                               WEFT_AT(.file = path, .key = "crop_size", WEFT_NUMBER(p->crop)),
                               "images are resized to %" PRId64 " pixels and cropped to %" PRId64
                               "; the image "
                               "encoder takes %" PRId64,
                               p->side, p->crop, side));
    }
out:
    json_decref(json);
    return status;
}

static weft_resample filter_of(const weft_clip_processor *p)
{
    return p->bilinear ? WEFT_RESAMPLE_BILINEAR : WEFT_RESAMPLE_BICUBIC;
}

/* Width and height of an image before the crop. */
static void sized_of(const weft_clip_processor *p, int64_t w, int64_t h, int64_t sized[2])
{
    sized[0] = w < h || p->stretched ? p->side : p->side * w / h;
    sized[1] = w < h && !p->stretched ? p->side * h / w : p->side;
}

/* Index of channel i of the cropped image in the image of `sized`. */
static int64_t cropped(const weft_clip_processor *p, const int64_t sized[2], int64_t i)
{
    const int64_t left = (sized[0] - p->crop) / 2, top = (sized[1] - p->crop) / 2;
    const int64_t c = i % 3, x = i / 3 % p->crop, y = i / 3 / p->crop;
    return ((top + y) * sized[0] + left + x) * 3 + c;
}

weft_status weft_clip_processor_run(const weft_clip_processor *p, const uint8_t *rgb, int64_t w,
                                    int64_t h, float *to)
{
    int64_t size[2];
    uint8_t *sized;
    sized_of(p, w, h, size);
    WEFT_TRY(WEFT_NEW(sized, size[0] * size[1] * 3, "an image"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_image_resample(filter_of(p), rgb, w, h, 3, sized, size[0], size[1]));
    for (int64_t i = 0; i < p->crop * p->crop * 3; i++)
        to[i] =
            (float)((sized[cropped(p, size, i)] / 255.0 - p->mean[i % 3]) / p->deviation[i % 3]);
out:
    weft_free(sized);
    return status;
}

weft_status weft_clip_processor_run_f32(const weft_clip_processor *p, const float *rgb, int64_t w,
                                        int64_t h, float *to)
{
    int64_t size[2];
    float *sized;
    sized_of(p, w, h, size);
    WEFT_TRY(WEFT_NEW(sized, size[0] * size[1] * 3, "an image"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_image_resample_f32(filter_of(p), rgb, w, h, 3, sized, size[0], size[1]));
    for (int64_t i = 0; i < p->crop * p->crop * 3; i++)
        to[i] =
            (float)(((double)sized[cropped(p, size, i)] - p->mean[i % 3]) / p->deviation[i % 3]);
out:
    weft_free(sized);
    return status;
}
