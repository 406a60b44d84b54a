#include "evaluate/frame_encoder.h"

#include "base/fs.h"
#include "base/memory.h"
#include "evaluate/video_metrics.h"
#include "prompt/pooled_encoder.h"
#include "video/clip_processor.h"

struct weft_frame_encoder {
    weft_pooled_encoder *encoder;
    weft_clip_processor processor;
    float *input, *unit; /* owned */
};

static weft_status read_processor(weft_frame_encoder *e, const char *folder)
{
    char *file = weft_path_join(folder, "preprocessor_config.json");
    WEFT_TRY(WEFT_ALLOCATED(file, "a path"));
    const weft_status_code status =
        weft_clip_processor_read(file, weft_pooled_encoder_side(e->encoder), &e->processor);
    weft_free(file);
    return status;
}

weft_status weft_frame_encoder_open(const char *folder, weft_frame_encoder **encoder)
{
    weft_frame_encoder *e;
    WEFT_TRY(WEFT_NEW(e, 1, "the image encoder"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pooled_encoder_open(folder, WEFT_ROLE_IMAGE_ENCODER, &e->encoder));
    WEFT_GO(read_processor(e, folder));
    WEFT_GO(WEFT_NEW(e->input, e->processor.crop * e->processor.crop * 3, "a frame"));
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

weft_status weft_frame_encoder_run(weft_frame_encoder *e, const uint8_t *rgb, int64_t width,
                                   int64_t height, const float **unit, int64_t *features)
{
    const float *vector;
    WEFT_TRY(weft_clip_processor_run(&e->processor, rgb, width, height, e->input));
    WEFT_TRY(weft_pooled_encoder_image(e->encoder, e->input, &vector, features));
    if (!e->unit)
        WEFT_TRY(WEFT_NEW(e->unit, *features, "the features of a frame"));
    WEFT_TRY(weft_unit_vector(vector, *features, e->unit));
    *unit = e->unit;
    return WEFT_OK;
}
