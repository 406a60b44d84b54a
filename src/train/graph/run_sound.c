#include "train/graph/run_sound.h"

#include "model/key_mapping.h"

/* Rejects clips whose sound is shorter than a window of the spectrogram. */
static weft_status check_clips(const weft_run *run, const char *path, const weft_run_sound *s)
{
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_train_stage *stage = (const weft_train_stage *)run->train_stages.item + i;
        for (int b = 0; b < weft_train_stage_bucket_count(stage); b++) {
            const int64_t frames = weft_train_stage_bucket(stage, b)->frames,
                          samples = weft_sound_samples(&s->format, frames, s->fps);
            char key[64];
            if (frames > 1 && samples <= s->format.mel.window / 2)
                return weft_error(
                    WEFT_MSG_CONFIG_VALUE,
                    WEFT_AT(.file = path, .key = weft_train_stage_bucket_key(stage, i, b, key),
                            WEFT_NUMBER(frames)),
                    "the sound of %" PRId64 " frames has %" PRId64 " samples, and a spectrogram "
                    "needs more than %" PRId64 "; use longer clips",
                    frames, samples, s->format.mel.window / 2);
        }
    }
    return WEFT_OK;
}

static weft_status check_denoiser(const char *path, const weft_model *denoiser,
                                  const weft_run_sound *s)
{
    const weft_model_size one = {1, 1, 1, 1, 1};
    const int64_t takes = weft_model_shape(denoiser, &one, WEFT_PORT_AUDIO).dim[2];
    return takes == s->format.features
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_CONFLICT,
                            WEFT_AT(.file = path, .key = "sound.autoencoder",
                                    WEFT_NUMBER(s->format.features)),
                            "an audio latent of the autoencoder has %" PRId64
                            " elements, and the transformer takes %" PRId64,
                            s->format.features, takes);
}

weft_status weft_run_sound_read(const weft_run *run, const char *path, const weft_model *denoiser,
                                weft_run_sound *sound)
{
    const bool given = weft_sound_given(&run->sound),
               takes = weft_model_takes(denoiser, WEFT_PORT_AUDIO);
    weft_run_sound s = {.fps = run->data.fps};
    if (given && !takes)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "sound"),
                          "%s generates no sound; remove sound, or use LTX2VideoTransformer3DModel",
                          weft_model_class(denoiser));
    if (takes && !given)
        return weft_error(WEFT_MSG_CONFIG_MISSING_KEY,
                          WEFT_AT(.file = path, .key = "sound.autoencoder"),
                          "%s trains with the sound of clips; give its autoencoder, as in sound: "
                          "{autoencoder: FOLDER/audio_vae}",
                          weft_model_class(denoiser));
    if (!given)
        return WEFT_OK;
    WEFT_TRY(weft_error_at(
        weft_model_open_as(run->sound.autoencoder, WEFT_ROLE_AUDIO_AUTOENCODER, &s.autoencoder),
        WEFT_AT(.file = path, .key = "sound.autoencoder")));
    WEFT_TRY(weft_key_mapping_statistics(run->sound.autoencoder, &s.autoencoder));
    WEFT_TRY(weft_error_at(weft_sound_format_of(&s.autoencoder, &s.format),
                           WEFT_AT(.file = path, .key = "sound.autoencoder")));
    s.grid = weft_model_grid(&s.autoencoder);
    WEFT_TRY(check_denoiser(path, denoiser, &s));
    WEFT_TRY(check_clips(run, path, &s));
    *sound = s;
    return WEFT_OK;
}

int64_t weft_run_sound_latents(const weft_run_sound *s, int64_t frames)
{
    return weft_run_has_sound(s)
               ? weft_sound_latent_count(&s->format, weft_sound_samples(&s->format, frames, s->fps))
               : 0;
}

int64_t weft_run_sound_floats(const weft_run_sound *s, const weft_train_stage *train_stage)
{
    int64_t most = 0;
    if (!weft_run_has_sound(s))
        return 0;
    for (int b = 0; b < weft_train_stage_bucket_count(train_stage); b++) {
        const int64_t latents =
            weft_run_sound_latents(s, weft_train_stage_bucket(train_stage, b)->frames);
        most = latents > most ? latents : most;
    }
    return 1 + most * s->format.features;
}
