#include "train/graph/step_inputs.h"
#include "train/graph/identity_inputs.h"

#include "base/rng.h"
#include "prompt/no_text.h"
#include "train/graph/distillation.h"
#include "train/graph/history_inputs.h"
#include "train/graph/sound_stream.h"

#include <string.h>

static void fill_latents(const weft_inputs *in, weft_tensor *to, const float *from)
{
    const weft_grid *grid = &in->models->grid;
    const double scale = weft_noise_process_scale(weft_run_process(in->run), &in->run->noise);
    const int64_t count = weft_shape_count(&to->shape), z = grid->channels;
    const int64_t frames = to->shape.dim[1], all = to->shape.dim[0] * frames,
                  frame = all ? count / all : 0; /* 0: this rank has no sample */
    float *x = to->data;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = weft_grid_statistics_at(grid, i / frame % frames) + i % z;
        x[i] = (float)(scale * (from[i] - grid->mean[at]) / grid->deviation[at]);
    }
}

weft_status weft_inputs_set_caption(const weft_inputs *in, weft_input_lookup *find, void *user,
                                    int64_t row, const char *caption, const float *embedding)
{
    const weft_text_conditioning *c = &in->models->text;
    if (in->no_text) {
        if (caption[0])
            weft_text_conditioning_set(c, find, user, row, embedding);
        else
            weft_no_text_set_dropped(c, find, user, row, in->no_text, embedding);
        return WEFT_OK;
    }
    for (int r = 0; r < c->encoders; r++)
        WEFT_TRY(weft_text_conditioning_tokenize(c, in->tokenizers, r, find, user, row, caption));
    return WEFT_OK;
}

static weft_status fill_text(const weft_inputs *in, const weft_batch *batch,
                             weft_input_lookup *find, void *user)
{
    const int64_t stride = in->models->text.floats + in->sound_floats;
    for (int64_t i = 0; i < batch->count; i++)
        WEFT_TRY(weft_inputs_set_caption(in, find, user, i, batch->caption[i],
                                         in->no_text ? batch->extra + i * stride : NULL));
    for (int64_t i = 0; i < batch->count && weft_distillation_guides(in->run); i++)
        weft_no_text_set_empty(&in->models->text, find, user, i, in->no_text,
                               batch->extra + i * stride);
    return WEFT_OK;
}

/* Copies the sound of the samples, normalised, and normalises the one of rejected clips, which have
 * sound if their preferred ones have. Clips without sound have zeros. */
static void fill_sound(const weft_inputs *in, int64_t step, const weft_batch *batch,
                       weft_input_lookup *find, void *user)
{
    const weft_run_sound *sound = &in->models->sound;
    weft_tensor *to = find(user, "batch.sound"), *with = find(user, "batch.with_sound"),
                *key = find(user, "batch.sound_key"),
                *rejected = find(user, "batch.rejected_sound");
    const int64_t features = sound->format.features, text = in->models->text.floats,
                  floats = to ? to->shape.dim[1] * features : 0,
                  others = rejected ? rejected->shape.dim[1] * features : 0;
    for (int64_t i = 0; i < batch->count; i++) {
        const float *from = batch->extra + i * (text + in->sound_floats) + text;
        float *one = to ? (float *)to->data + i * floats : NULL;
        if (key)
            ((int64_t *)key->data)[i] = weft_sound_stream_key(weft_inputs_key(in, step, batch, i));
        if (with)
            ((float *)with->data)[i] = from[0];
        if (rejected && from[0] > 0)
            weft_sound_normalise(&sound->grid, features, rejected->shape.dim[1],
                                 (float *)rejected->data + i * others);
        if (!one)
            continue;
        memcpy(one, from + 1, (size_t)floats * sizeof *one);
        if (from[0] > 0)
            weft_sound_normalise(&sound->grid, features, to->shape.dim[1], one);
    }
}

/* A key depends on (seed, step, sample) and on the epoch, because a batch that spans two epochs
 * may contain a sample twice. A replacement of a sample that failed to decode may also occur twice
 * in an epoch. Its key depends on its position in the batch. */
int64_t weft_inputs_key(const weft_inputs *in, int64_t step, const weft_batch *batch, int64_t i)
{
    const uint64_t step_seed = weft_seed_mix((uint64_t)in->run->seed, (uint64_t)step);
    uint64_t mixed = weft_seed_mix(step_seed, batch->id[i]);
    if (batch->epoch[i] > 0)
        mixed = weft_seed_mix(mixed, (uint64_t)batch->epoch[i]);
    if (batch->replaced[i])
        mixed = weft_seed_mix(mixed, ~(uint64_t)(batch->first + i));
    return (int64_t)mixed;
}

/* Sets a section of each clip and its history. */
static void fill_sections(const weft_inputs *in, int64_t step, const weft_batch *batch,
                          weft_input_lookup *find, void *user)
{
    const weft_model_size *size = &in->clip;
    const weft_video_sections s = weft_history_inputs_sections(in->models, size->frames);
    weft_history_clip clip = {
        .grid = &in->models->grid,
        .frame = size->height * size->width * in->models->grid.channels,
        .scale = weft_noise_process_scale(weft_run_process(in->run), &in->run->noise)};
    for (int64_t i = 0; i < batch->count; i++) {
        const int64_t at = weft_history_inputs_draw(&s, weft_inputs_key(in, step, batch, i));
        clip.latents = batch->part + i * size->frames * clip.frame;
        weft_history_inputs_fill(&s, at, &clip, i, find, user);
    }
}

weft_status weft_inputs_fill(const weft_inputs *in, int64_t step, const weft_batch *batch,
                             weft_input_lookup *find, void *user)
{
    const bool denoises = weft_run_trains_denoiser(in->models);
    weft_tensor *key = find(user, "batch.key"),
                *to = find(user, denoises ? "batch.latents" : "batch.video");
    for (int64_t i = 0; key && i < batch->count; i++)
        ((int64_t *)key->data)[i] = weft_inputs_key(in, step, batch, i);
    if (denoises && in->models->sections.frames)
        fill_sections(in, step, batch, find, user);
    else if (to && denoises)
        fill_latents(in, to, batch->part);
    static const char *const others[] = {
        "batch.rejected", "batch.control",    "batch.grey",        "batch.image",
        "batch.overlap",  "batch.background", "batch.first_frame", "batch.rejected_first_frame"};
    for (int i = 0; denoises && i < WEFT_COUNT(others); i++) {
        weft_tensor *latents = find(user, others[i]);
        if (latents)
            fill_latents(in, latents, latents->data);
    }
    weft_tensor *images = denoises ? find(user, WEFT_IDENTITY_INPUT) : NULL;
    if (images && !in->models->identity_image_encoder.family)
        fill_latents(in, images, images->data);
    if (to && !denoises)
        memcpy(to->data, batch->video, (size_t)(weft_shape_count(&to->shape) * 4));
    if (in->sound_floats)
        fill_sound(in, step, batch, find, user);
    return denoises ? fill_text(in, batch, find, user) : WEFT_OK;
}
