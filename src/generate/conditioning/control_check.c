#include "generate/conditioning/control_check.h"

#include "generate/conditioning/control_video.h"

bool weft_control_has_mask(const weft_model *denoiser, const weft_grid *grid)
{
    const weft_model_size two = {1, 2, 1, 1, 1};
    return weft_model_takes(denoiser, WEFT_PORT_CONTROL) &&
           weft_model_shape(denoiser, &two, WEFT_PORT_CONTROL).dim[4] ==
               weft_control_channels(grid);
}

/* Checks a control whose latents are channels after the noisy ones. */
static weft_status check_control_channels(const weft_visual_inputs *f,
                                          const weft_visual_condition_setup *setup,
                                          weft_visual_condition *g)
{
    const int64_t takes = weft_model_grid(setup->denoiser).channels;
    g->extra_channel_count = g->channels;
    if (takes != 2 * g->channels)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = setup->folder),
                          "the transformer takes %" PRId64
                          " channels. Noisy latents and the latents of a control have %" PRId64 ".",
                          takes, 2 * g->channels);
    if (!f->control)
        return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = setup->folder, .key = "--control"),
                          "this model was trained with control videos. Give --control FILE.");
    return f->mask
               ? weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--mask", .value = f->mask),
                            "this model has no channels for a mask, and WanVACETransformer3DModel "
                            "does. Omit --mask.")
               : WEFT_OK;
}

/* Checks a model whose input is the latents of a control video without a mask. */
static weft_status check_plain_control(const weft_visual_inputs *f,
                                       const weft_visual_condition_setup *setup)
{
    if (!f->control)
        return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = setup->folder, .key = "--control"),
                          "the model has a control branch. Give its video with --control FILE.");
    return f->mask
               ? weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--mask", .value = f->mask),
                            "the control branch of %s takes no mask. Only "
                            "WanVACETransformer3DModel takes one. Omit --mask.",
                            weft_model_class(setup->denoiser))
               : WEFT_OK;
}

weft_status weft_visual_check_control(const weft_visual_inputs *f, const weft_grid *grid,
                                      bool channels, const weft_visual_condition_setup *setup,
                                      weft_visual_condition *g)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    const char *class_name = weft_model_class(setup->denoiser), *control = f->control;
    const int64_t made = weft_control_channels(grid);
    if (control && f->video)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--control", .value = control),
                          "--mask would belong to two videos. Omit --video or --control.");
    if (channels)
        return check_control_channels(f, setup, g);
    if (control && !weft_model_takes(setup->denoiser, WEFT_PORT_CONTROL))
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED,
                          WEFT_AT(.key = "--control", .value = control),
                          "%s takes no control video. WanVACETransformer3DModel, Cosmos Transfer "
                          "2.5 and models that were trained with condition: control do. Use "
                          "--video FILE to start from a video with any model.",
                          class_name);
    if (!weft_model_takes(setup->denoiser, WEFT_PORT_CONTROL))
        return WEFT_OK;
    g->control_channels = weft_model_shape(setup->denoiser, &one, WEFT_PORT_CONTROL).dim[4];
    if (g->control_channels == grid->channels)
        return check_plain_control(f, setup);
    if (g->control_channels != made)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT(.file = setup->folder),
                          "the control of the transformer has %" PRId64
                          " channels. Two latents of the VAE and the pixels of a mask are %" PRId64,
                          g->control_channels, made);
    return WEFT_OK;
}
