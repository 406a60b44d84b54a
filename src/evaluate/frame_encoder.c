#include "evaluate/frame_encoder.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/message.h"
#include "evaluate/video_metrics.h"
#include "prompt/pooled_encoder.h"
#include "video/resample.h"

struct weft_frame_encoder {
    weft_pooled_encoder *encoder;
    double mean[3], deviation[3]; /* of colours in [0, 1] */
    uint8_t *sized;               /* owned, and the next two */
    float *input, *unit;
    int64_t side;
};

/* Reads three numbers, if the config has them. */
static weft_status read_colours(const json_t *json, const char *key, const char *file, double to[3])
{
    const json_t *list = json_object_get(json, key);
    if (!list)
        return WEFT_OK;
    if (json_array_size(list) != 3)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = file, .key = key),
                          "three numbers are needed, for red, green and blue");
    for (size_t i = 0; i < 3; i++)
        to[i] = json_number_value(json_array_get(list, i));
    return WEFT_OK;
}

static weft_status read_preprocessing(weft_frame_encoder *e, const char *folder)
{
    char *file = weft_path_join(folder, "preprocessor_config.json");
    json_t *json = NULL;
    WEFT_TRY(WEFT_ALLOCATED(file, "a path"));
    weft_status_code status = WEFT_OK;
    if (!weft_path_exists(file))
        goto out;
    WEFT_GO(weft_json_load(file, &json));
    WEFT_GO(read_colours(json, "image_mean", file, e->mean));
    WEFT_GO(read_colours(json, "image_std", file, e->deviation));
out:
    json_decref(json);
    weft_free(file);
    return status;
}

weft_status weft_frame_encoder_open(const char *folder, weft_frame_encoder **encoder)
{
    weft_frame_encoder *e;
    WEFT_TRY(WEFT_NEW(e, 1, "the image encoder"));
    *e = (weft_frame_encoder){.mean = {0.48145466, 0.4578275, 0.40821073},
                              .deviation = {0.26862954, 0.26130258, 0.27577711}};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pooled_encoder_open(folder, WEFT_ROLE_IMAGE_ENCODER, &e->encoder));
    WEFT_GO(read_preprocessing(e, folder));
    e->side = weft_pooled_encoder_side(e->encoder);
    WEFT_GO(WEFT_NEW(e->sized, e->side * e->side * 3, "a frame"));
    WEFT_GO(WEFT_NEW(e->input, e->side * e->side * 3, "a frame"));
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
    weft_free(e->sized);
    weft_free(e->input);
    weft_free(e->unit);
    weft_free(e);
}

weft_status weft_frame_encoder_run(weft_frame_encoder *e, const uint8_t *rgb, int64_t width,
                                   int64_t height, const float **unit, int64_t *features)
{
    const float *vector;
    WEFT_TRY(
        weft_image_cover(WEFT_RESAMPLE_BICUBIC, rgb, width, height, e->sized, e->side, e->side));
    for (int64_t i = 0; i < e->side * e->side * 3; i++)
        e->input[i] = (float)((e->sized[i] / 255.0 - e->mean[i % 3]) / e->deviation[i % 3]);
    WEFT_TRY(weft_pooled_encoder_image(e->encoder, e->input, &vector, features));
    if (!e->unit)
        WEFT_TRY(WEFT_NEW(e->unit, *features, "the features of a frame"));
    WEFT_TRY(weft_unit_vector(vector, *features, e->unit));
    *unit = e->unit;
    return WEFT_OK;
}
