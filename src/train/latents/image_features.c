#include "train/latents/image_features.h"

#include "base/fs.h"
#include "exec/execute.h"
#include "generate/conditioning/clip_preprocess.h"

bool weft_image_features_unrounded(const weft_run *run, const weft_run_models *models)
{
    return run->data.image_features == WEFT_FEATURES_OF_FRAME &&
           weft_model_takes_port(&models->denoiser).unrounded;
}

weft_status weft_image_features_plan(const weft_run *run, const weft_run_models *models,
                                     const weft_backend *backend, weft_image_features *f)
{
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    weft_image_encoder *e = &f->encoder;
    if (!run->data.image_encoder)
        return WEFT_OK;
    f->whole = run->data.image_features != WEFT_FEATURES_OF_FRAME;
    e->embeds = run->data.image_features == WEFT_FEATURES_EMBEDDING;
    e->images = 1;
    WEFT_TRY(weft_model_open_as(run->data.image_encoder, WEFT_ROLE_IMAGE_ENCODER, &e->model));
    e->folder = weft_strdup(run->data.image_encoder);
    WEFT_TRY(WEFT_ALLOCATED(e->folder, "a path"));
    const weft_shape pixels = weft_model_shape(&e->model, &one, WEFT_PORT_VIDEO);
    e->side = pixels.dim[2];
    WEFT_TRY(weft_clip_encoder_processor(e->folder, e->side, &e->processor));
    e->processor.unrounded = weft_image_features_unrounded(run, models);
    return weft_image_encoder_compile(backend, pixels, e, &f->made);
}

int64_t weft_image_features_bytes(const weft_image_features *f)
{
    return f->made.rank ? weft_image_encoder_bytes(&f->encoder) : 0;
}

/* Reads the sample's first frame in its own size, and preprocesses it. */
static weft_status preprocess_whole(weft_image_features *f, const weft_dataset *dataset,
                                    const weft_sample *s, float *to)
{
    weft_storage_video video;
    double start;
    uint8_t *rgb = NULL;
    int64_t width, height;
    if (weft_dataset_video(dataset, s, &video, &start)) {
        WEFT_TRY(weft_storage_video_end(
            &video, weft_picture_load_source(&video.source, s->key, start, &rgb, &width, &height)));
    } else {
        WEFT_TRY(weft_dataset_read(dataset, s, weft_sample_video(s), false, &f->bytes));
        WEFT_TRY(
            weft_picture_load_memory(f->bytes.data, f->bytes.bytes, s->key, &rgb, &width, &height));
    }
    const weft_status_code status =
        weft_clip_picture_pixels(&f->encoder.processor, s->key, rgb, width, height, to);
    weft_free(rgb);
    return status;
}

weft_status weft_image_features_encode(weft_image_features *f, const weft_dataset *dataset,
                                       const weft_sample *sample, const float *frame,
                                       int64_t height, int64_t width)
{
    const weft_canvas canvas = {.frames = 1, .height = height, .width = width};
    if (!f->made.rank)
        return WEFT_OK;
    WEFT_TRY(weft_image_encoder_bind(&f->encoder));
    float *in = weft_program_input(f->encoder.program, "in")->data;
    WEFT_TRY(f->whole ? preprocess_whole(f, dataset, sample, in)
                      : weft_clip_picture_frame(&f->encoder.processor, &canvas, frame, in));
    WEFT_TRY(weft_program_run(f->encoder.program));
    f->tokens = weft_program_output(f->encoder.program, "out")->data;
    return WEFT_OK;
}

void weft_image_features_free(weft_image_features *f)
{
    weft_image_encoder_free(&f->encoder);
    weft_free(f->bytes.data);
    *f = (weft_image_features){0};
}
