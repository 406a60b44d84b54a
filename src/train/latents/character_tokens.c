#include "train/latents/character_tokens.h"

#include "base/fs.h"
#include "exec/execute.h"
#include "generate/conditioning/clip_preprocess.h"

weft_status weft_character_tokens_plan(const weft_run *run, const weft_run_models *models,
                                       const weft_backend *backend, weft_character_tokens *t)
{
    const weft_model_size one = {.batch = 1, .frames = 1, .height = 1, .width = 1, .image = 1};
    weft_image_encoder *e = &t->encoder;
    if (!run->data.image_encoder)
        return WEFT_OK;
    e->model = models->image_encoder;
    e->images = 1;
    e->folder = weft_strdup(run->data.image_encoder);
    char *published = weft_path_join(run->data.image_encoder, "..");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(e->folder && published, "a path"));
    const weft_shape pixels = weft_model_shape(&e->model, &one, WEFT_PORT_VIDEO);
    e->side = pixels.dim[2];
    WEFT_GO(weft_clip_picture_processor(published, e->side, &e->processor));
    e->processor.unrounded = weft_model_takes_port(&models->denoiser).unrounded;
    WEFT_GO(weft_image_encoder_compile(backend, pixels, e, &t->made));
out:
    weft_free(published);
    return status;
}

int64_t weft_character_tokens_bytes(const weft_character_tokens *t)
{
    return t->made.rank ? weft_program_bytes(t->encoder.program) +
                              weft_program_plan(t->encoder.program)->source_bytes +
                              weft_clip_picture_bytes(&t->encoder.processor)
                        : 0;
}

weft_status weft_character_tokens_encode(weft_character_tokens *t, const float *frame,
                                         int64_t height, int64_t width)
{
    const weft_canvas canvas = {.frames = 1, .height = height, .width = width};
    if (!t->made.rank)
        return WEFT_OK;
    WEFT_TRY(weft_image_encoder_bind(&t->encoder));
    WEFT_TRY(weft_clip_picture_frame(&t->encoder.processor, &canvas, frame,
                                     weft_program_input(t->encoder.program, "in")->data));
    WEFT_TRY(weft_program_run(t->encoder.program));
    t->tokens = weft_program_output(t->encoder.program, "out")->data;
    return WEFT_OK;
}

void weft_character_tokens_free(weft_character_tokens *t)
{
    weft_image_encoder_free(&t->encoder);
}
