/* Decodes audio latents to a waveform: the autoencoder of audio and the vocoder of a model folder,
 * in one program. */
#ifndef WEFT_GENERATE_GENERATOR_SOUND_DECODER_H
#define WEFT_GENERATE_GENERATOR_SOUND_DECODER_H

#include "exec/program.h"
#include "model/model.h"
#include "video/sound.h"

/* Models of the sound of a folder, without weights. Zero-initialise; close with
 * weft_sound_models_close. */
typedef struct weft_sound_models {
    weft_model vae, vocoder; /* no family: the model has no sound */
    char *vae_folder, *vocoder_folder;
    weft_grid grid;   /* of the autoencoder */
    int64_t features; /* of an audio latent: mel bins x channels, channels slowest */
    int64_t rate;     /* samples per second of the waveform */
} weft_sound_models;

/* Opens the models if `denoiser` has audio latents. */
weft_status weft_sound_models_open(const char *folder, const weft_model *denoiser,
                                   weft_sound_models *models);
void weft_sound_models_close(weft_sound_models *models);
/* Audio latents of a video of `frames` at `fps`, at least 1. */
int64_t weft_sound_models_steps(const weft_sound_models *models, int64_t frames, double fps);

typedef struct weft_sound_decoder weft_sound_decoder;
/* Compiles the program for `steps` audio latents. Reserves no memory. `models` is borrowed.
 * `backend` NULL: cpu. */
weft_status weft_sound_decoder_open(const weft_sound_models *models, const weft_backend *backend,
                                    int64_t steps, weft_sound_decoder **decoder);
void weft_sound_decoder_free(weft_sound_decoder *decoder); /* accepts NULL */
/* Bytes that binding reserves: weights, program and the mel bins of the latents. NULL: 0. */
int64_t weft_sound_decoder_bytes(const weft_sound_decoder *decoder);
const weft_graph *weft_sound_decoder_graph(const weft_sound_decoder *decoder);
weft_program *weft_sound_decoder_program(weft_sound_decoder *decoder);
/* Reserves memory and loads the weights. */
weft_status weft_sound_decoder_bind(weft_sound_decoder *decoder);
/* Releases what binding reserved, with the weights. The decoder can be bound again. */
void weft_sound_decoder_unbind(weft_sound_decoder *decoder);
/* Decodes normalised latents (steps, features). `sound` is valid until the next call. */
weft_status weft_sound_decoder_run(weft_sound_decoder *decoder, const float *latents,
                                   weft_sound *sound);

#endif
