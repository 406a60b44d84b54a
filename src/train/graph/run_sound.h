/* The models of a run's sound, and the sizes of its latents. */
#ifndef WEFT_TRAIN_GRAPH_RUN_SOUND_H
#define WEFT_TRAIN_GRAPH_RUN_SOUND_H

#include "latent/sound_encoder.h"
#include "train/config/train_config.h"

typedef struct weft_run_sound {
    weft_model autoencoder; /* of audio; no family: the run has no sound */
    weft_sound_format format;
    weft_grid grid; /* of the autoencoder */
    double fps;     /* of all clips */
} weft_run_sound;

static inline bool weft_run_has_sound(const weft_run_sound *sound)
{
    return sound->autoencoder.family != NULL;
}
/* Reads the autoencoder if the denoiser has audio latents, and checks that it fits the denoiser and
 * the clips. `path` names the config in messages. */
weft_status weft_run_sound_read(const weft_run *run, const char *path, const weft_model *denoiser,
                                weft_run_sound *sound);
/* Audio latents of a clip of `frames`; 0: no sound. */
int64_t weft_run_sound_latents(const weft_run_sound *sound, int64_t frames);
/* Floats of the sound of a sample in the cache of a training stage: 1 if the clip has sound, else
 * 0; its latents, not normalised; zeros up to the length of the longest clip. 0: no sound. */
int64_t weft_run_sound_floats(const weft_run_sound *sound, const weft_train_stage *train_stage);

#endif
