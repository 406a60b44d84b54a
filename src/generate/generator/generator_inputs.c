#include "generate/generator/generator_inputs.h"

#include "generate/conditioning/clip_preprocess.h"
#include "generate/generator/generator_parts.h"
#include "prompt/text_images.h"

/* The model and size that the inputs are for. */
static weft_visual_condition_setup setup_of(const weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    return (weft_visual_condition_setup){
        .trained = p->model.first_frame || p->model.expands_timesteps || p->model.edit,
        .edit = p->model.edit,
        .zeros = p->model.first_frame && !p->model.grey_rest,
        .controlled = p->model.control,
        .folder = p->model.folder,
        .silent = p->comm && weft_comm_rank(p->comm) != 0,
        .vae_folder = p->model.vae_folder,
        .published = p->model.published,
        .vision_side = weft_text_conditioning_image_side(&p->model.text),
        .denoiser = p->model.denoiser,
        .grid = &p->model.grid,
        .frames = o->reasoning_frames
                      ? o->reasoning_frames
                      : o->frames + (p->shape.before + p->shape.lead) * p->model.grid.factor[0],
        .refinement = p->shape.refinement,
        .height = o->height,
        .width = o->width,
        .backend = o->backend,
        .tile = o->tile,
        .vae_products = o->vae_products,
        .memory = o->memory,
        .offload_dir = weft_generator_offload_dir(p)};
}

/* Determines the first step to run on a given video. */
static weft_status apply_strength(weft_generator *p)
{
    weft_generator_options *o = &p->options;
    const bool changed = o->visual.video && p->inputs.visual.form != WEFT_FRAME_CONDITION_CHARACTER;
    if (o->strength > 0 && !changed)
        return weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--strength", WEFT_NUMBER(o->strength)),
            "%g has no effect without a source. Give a video with --video FILE to a model that "
            "changes it.",
            o->strength);
    if (!changed)
        return WEFT_OK;
    if (p->shape.before + p->shape.lead)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--frames", WEFT_NUMBER(o->frames)),
                          "with --video this model needs whole tokens of %" PRId64
                          " latent frames, and "
                          "%" PRId64 " frames are not; use %" PRId64,
                          p->model.patch.factor[0], o->frames,
                          weft_grid_frames(&p->model.grid, p->shape.latent[0]));
    const int64_t *around = o->visual.outpaint;
    const bool painted = o->visual.mask || around[0] || around[1] || around[2] || around[3];
    if (!(o->strength > 0))
        o->strength = painted ? 1 : 0.8;
    const int64_t taken = (int64_t)((double)o->steps * o->strength + 1e-9);
    if (taken < 1)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--strength", WEFT_NUMBER(o->strength)),
                          "%g of %" PRId64 " steps is less than one step; use at least %g",
                          o->strength, o->steps, 1 / (double)o->steps);
    p->trajectory.skipped = o->steps - taken;
    return WEFT_OK;
}

/* The processor of an image encoder must exist if model_index.json names it: other models have
 * other colours and sizes. */
static weft_status check_processor(const weft_generator *p)
{
    const weft_generator_model *m = &p->model;
    const bool seen = weft_model_takes(m->denoiser, WEFT_PORT_IMAGE) || p->inputs.setup.vision_side;
    for (int i = 0; p->options.visual.image && seen && i < WEFT_CLIP_PROCESSOR_FOLDERS; i++)
        WEFT_TRY(weft_generator_model_check_folder(m, weft_clip_processor_folders[i]));
    return WEFT_OK;
}

weft_status weft_generator_inputs_open(weft_generator *p)
{
    const weft_generator_options *o = &p->options;
    weft_generator_inputs *in = &p->inputs;
    weft_visual_inputs files = o->visual;
    in->setup = setup_of(p);
    WEFT_TRY(check_processor(p));
    if (weft_model_takes_port(p->model.denoiser).precedes && !p->model.in_sections &&
        (files.image || files.before))
        return weft_error(
            WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
            WEFT_AT(.file = p->model.folder, .key = files.image ? "--image" : "--given-frames"),
            "weft trained this %s without a history, so no frames precede its "
            "videos. Omit the option, or train it with condition: history.",
            weft_model_class(p->model.denoiser));
    if (p->shape.sections.precedes) {
        WEFT_TRY(weft_preceding_frames_open(&files, &in->setup, &in->preceding));
        p->shape.sections.image = in->preceding.given > 0;
        p->shape.sections.given = in->preceding.given;
        files.image = files.before = NULL;
    }
    WEFT_TRY(weft_visual_condition_open(&files, &in->setup, &in->visual));
    if (in->visual.edit.count)
        WEFT_TRY(weft_text_images_set(&p->model.text, &p->model.tokenizers, p->model.denoiser,
                                      p->model.edit, &in->visual.edit.seen_tokens,
                                      p->model.folder));
    WEFT_TRY(weft_identity_condition_open(&o->identity, &in->setup, o->visual.fit, &in->identity));
    return apply_strength(p);
}

weft_status weft_generator_inputs_read(weft_generator_inputs *in)
{
    WEFT_TRY(weft_visual_condition_read(&in->visual));
    WEFT_TRY(weft_preceding_frames_read(&in->preceding));
    return weft_identity_condition_read(&in->identity);
}

void weft_generator_inputs_close(weft_generator_inputs *in)
{
    weft_visual_condition_free(&in->visual);
    weft_preceding_frames_free(&in->preceding);
    weft_identity_condition_free(&in->identity);
}
