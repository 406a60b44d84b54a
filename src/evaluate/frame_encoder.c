#include "evaluate/frame_encoder.h"

#include "base/fs.h"
#include "base/memory.h"
#include "evaluate/video_metrics.h"
#include "prompt/pooled_encoder.h"
#include "video/clip_processor.h"
#include "video/resample.h"

#include <math.h>

struct weft_frame_encoder {
    weft_pooled_encoder *encoder;
    weft_clip_processor processor; /* of whole frames: colours only */
    float *input, *unit;           /* owned */
    int64_t values;                /* of `input` */
};

/* Colours of ImageNet, if the file has none. */
static weft_status read_colours(weft_frame_encoder *e, const char *file)
{
    static const weft_clip_processor imagenet = {.mean = {0.485, 0.456, 0.406},
                                                 .deviation = {0.229, 0.224, 0.225}};
    json_t *json = NULL;
    e->processor = imagenet;
    if (weft_path_exists(file))
        WEFT_TRY(weft_json_load(file, &json));
    const weft_status_code status =
        weft_clip_processor_colours(json, file, e->processor.mean, e->processor.deviation);
    json_decref(json);
    return status;
}

static weft_status read_processor(weft_frame_encoder *e, const char *folder, bool whole)
{
    char *file = weft_path_join(folder, "preprocessor_config.json");
    WEFT_TRY(WEFT_ALLOCATED(file, "a path"));
    const weft_status_code status =
        whole ? read_colours(e, file)
              : weft_clip_processor_read(file, weft_pooled_encoder_side(e->encoder), &e->processor);
    weft_free(file);
    return status;
}

weft_status weft_frame_encoder_open(const char *folder, bool whole, weft_frame_encoder **encoder)
{
    weft_frame_encoder *e;
    WEFT_TRY(WEFT_NEW(e, 1, "the image encoder"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pooled_encoder_open(folder, WEFT_ROLE_IMAGE_ENCODER, &e->encoder));
    WEFT_GO(read_processor(e, folder, whole));
    *encoder = e;
out:
    if (status != WEFT_OK)
        weft_frame_encoder_close(e);
    return status;
}

void weft_frame_encoder_close(weft_frame_encoder *e)
{
    if (!e)
        return;
    weft_pooled_encoder_close(e->encoder);
    weft_free(e->input);
    weft_free(e->unit);
    weft_free(e);
}

/* Provides an input of height x width pixels. */
static weft_status size_input(weft_frame_encoder *e, int64_t height, int64_t width)
{
    const int64_t values = height * width * 3;
    if (values != e->values) {
        weft_free(e->input);
        e->values = 0;
        WEFT_TRY(WEFT_NEW(e->input, values, "a frame"));
        e->values = values;
    }
    return weft_pooled_encoder_resize(e->encoder, height, width);
}

/* Pixels before a crop of `length` to `crop`: half of the rest, rounded half to even. */
static int64_t crop_start(int64_t length, int64_t crop)
{
    return (int64_t)nearbyint((double)(length - crop) / 2);
}

/* Fills the input with a frame that was resized without a filter. */
static weft_status fill_unfiltered(weft_frame_encoder *e, weft_frame_form form, const uint8_t *rgb,
                                   int64_t w, int64_t h)
{
    const weft_clip_processor *p = &e->processor;
    const bool centre = form == WEFT_FRAME_CENTRE;
    const int64_t side = weft_pooled_encoder_side(e->encoder),
                  sized_w = w < h ? side : side * w / h, sized_h = w < h ? side * h / w : side,
                  to_w = centre ? side : sized_w, to_h = centre ? side : sized_h,
                  left = crop_start(sized_w, to_w), top = crop_start(sized_h, to_h);
    float *sized;
    WEFT_TRY(WEFT_NEW(sized, sized_h * sized_w * 3, "a frame"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(size_input(e, to_h, to_w));
    WEFT_GO(weft_image_interpolate(centre, rgb, w, h, 3, sized, sized_w, sized_h));
    for (int64_t i = 0; i < to_h * to_w * 3; i++) {
        const int64_t y = top + i / 3 / to_w, x = left + i / 3 % to_w;
        e->input[i] =
            (float)(((double)sized[(y * sized_w + x) * 3 + i % 3] / 255 - p->mean[i % 3]) /
                    p->deviation[i % 3]);
    }
out:
    weft_free(sized);
    return status;
}

static weft_status fill_input(weft_frame_encoder *e, weft_frame_form form, const uint8_t *rgb,
                              int64_t w, int64_t h)
{
    if (form != WEFT_FRAME_PROCESSED)
        return fill_unfiltered(e, form, rgb, w, h);
    WEFT_TRY(size_input(e, e->processor.crop, e->processor.crop));
    return weft_clip_processor_run(&e->processor, rgb, w, h, e->input);
}

weft_status weft_frame_encoder_run(weft_frame_encoder *e, weft_frame_form form, const uint8_t *rgb,
                                   int64_t width, int64_t height, const float **unit,
                                   int64_t *features)
{
    const float *vector;
    WEFT_TRY(fill_input(e, form, rgb, width, height));
    WEFT_TRY(weft_pooled_encoder_image(e->encoder, e->input, &vector, features));
    if (!e->unit)
        WEFT_TRY(WEFT_NEW(e->unit, *features, "the features of a frame"));
    WEFT_TRY(weft_unit_vector(vector, *features, e->unit));
    *unit = e->unit;
    return WEFT_OK;
}
