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

void weft_generator_combine_both(const weft_generator *p, const weft_guidance_params *params,
                                 const float *x, double sigma, float *prediction, float *other)
{
    const weft_guidance *guidance = p->trajectory.guidance;
    /* the deviations of the data, as in the pipeline; cfg alone is linear */
    const bool data =
        guidance == weft_guidance_find("rescale") && p->trajectory.scheduler.path == WEFT_PATH_FLOW;
    const int64_t all = p->options.batch * p->shape.item_floats;
    weft_guidance_params video = *params, sound = *params;
    video.each = p->shape.latent_floats;
    sound.each = p->shape.sound_floats;
    sound.size[0] = 0; /* no frames of tokens */
    if (p->options.audio_guidance > 0)
        sound.scale = sound.low_scale = p->options.audio_guidance;
    if (data) {
        turn(x, sigma, false, all, prediction);
        turn(x, sigma, false, all, other);
    }
    for (int64_t i = 0; i < p->options.batch; i++) {
        const int64_t at = i * p->shape.item_floats, next = at + video.each;
        guidance->combine(&video, prediction + at, other + at, video.each);
        guidance->combine(&sound, prediction + next, other + next, sound.each);
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
