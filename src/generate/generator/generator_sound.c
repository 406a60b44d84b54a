#include "generate/generator/generator_sound.h"

#include <string.h>

void weft_generator_take_both(const weft_generator *p, weft_program *program, int branch, float *to)
{
    const int64_t video = p->shape.latent_floats, sound = p->shape.sound_floats,
                  first = branch * p->options.batch;
    const float *of_video = weft_program_output(program, "prediction")->data,
                *of_sound = weft_program_output(program, "audio_prediction")->data;
    for (int64_t i = 0; i < p->options.batch; i++, to += video + sound) {
        memcpy(to, of_video + (first + i) * video, (size_t)video * sizeof *to);
        memcpy(to + video, of_sound + (first + i) * sound, (size_t)sound * sizeof *to);
    }
}

/* Turns predictions of flow matching into predictions of the data, or back. */
static void turn(const float *x, double sigma, bool back, int64_t count, float *p)
{
    for (int64_t i = 0; i < count; i++)
        p[i] = back ? (x[i] - p[i]) / (float)sigma : x[i] - (float)sigma * p[i];
}

static float *weakened_at(const weft_generator *p, int64_t branch)
{
    return p->memory.weakened +
           (branch - p->trajectory.guidance->rows) * p->options.batch * p->shape.item_floats;
}

void weft_generator_take_weakened(weft_generator *p, weft_program *program)
{
    for (int64_t b = p->trajectory.guidance->rows; b < p->shape.branches; b++)
        weft_generator_take_both(p, program, (int)b, weakened_at(p, b));
}

/* Sets the scales of the sound. The default of each scale is the scale of the video. */
static void take_sound_scales(const weft_generator_options *o, weft_guidance_params *sound)
{
    sound->size[0] = 0; /* no frames of tokens */
    sound->scale = weft_given_or(o->audio_guidance, sound->scale);
    sound->low_scale = weft_given_or(o->audio_guidance, sound->low_scale);
    sound->rescale = weft_given_or(o->audio_guidance_rescale, sound->rescale);
    sound->pass[0].weight = weft_given_or(o->audio_stg_scale, sound->pass[0].weight);
    if (o->audio_modality_scale.given)
        sound->pass[1].weight = o->audio_modality_scale.value - 1;
}

/* Sets the weakened predictions of a stream from the float `at` on. */
static void take_passes(const weft_generator *p, int64_t at, weft_guidance_params *to)
{
    const int64_t branch[WEFT_GUIDANCE_PASSES] = {p->shape.perturbed_branch,
                                                  p->shape.isolated_branch};
    for (int k = 0; k < WEFT_GUIDANCE_PASSES; k++)
        to->pass[k].prediction = branch[k] ? weakened_at(p, branch[k]) + at : NULL;
}

/* Combines one stream of a video. */
static void combine_stream(const weft_generator *p, weft_guidance_params *params, int64_t at,
                           float *prediction, const float *other)
{
    const weft_guidance *guidance = p->trajectory.guidance,
                        *by = guidance->combine ? guidance : weft_guidance_find("cfg");
    take_passes(p, at, params);
    by->combine(params, prediction + at, other ? other + at : NULL, params->each);
}

void weft_generator_combine_both(const weft_generator *p, const weft_guidance_params *params,
                                 const float *x, double sigma, float *prediction, float *other)
{
    /* the deviations of the data, as in the pipeline; cfg alone is linear */
    const bool data = p->trajectory.guidance == weft_guidance_find("rescale") &&
                      p->trajectory.scheduler.path == WEFT_PATH_FLOW;
    const int64_t all = p->options.batch * p->shape.item_floats,
                  rows = p->trajectory.guidance->rows;
    const weft_generator_options *o = &p->options;
    weft_guidance_params video = *params, sound;
    video.pass[0].weight = o->stg_scale;
    video.pass[1].weight = weft_given_or(o->modality_scale, 1) - 1;
    sound = video;
    video.each = p->shape.latent_floats;
    sound.each = p->shape.sound_floats;
    take_sound_scales(o, &sound);
    if (data) {
        turn(x, sigma, false, all, prediction);
        if (other)
            turn(x, sigma, false, all, other);
        for (int64_t b = rows; b < p->shape.branches; b++)
            turn(x, sigma, false, all, weakened_at(p, b));
    }
    for (int64_t i = 0; i < p->options.batch; i++) {
        combine_stream(p, &video, i * p->shape.item_floats, prediction, other);
        combine_stream(p, &sound, i * p->shape.item_floats + video.each, prediction, other);
    }
    if (data)
        turn(x, sigma, true, all, prediction);
}

weft_status weft_generator_decode_sound(weft_generator *p, int64_t prompt, const float *x,
                                        const weft_generator_sink *sink)
{
    weft_sound sound;
    if (!p->shape.sound_steps || !sink->sound)
        return WEFT_OK;
    WEFT_TRY(weft_sound_decoder_run(p->decoder.sound, x + p->shape.latent_floats, &sound));
    return sink->sound(sink->user, prompt, &sound);
}
