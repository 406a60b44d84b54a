/* Encodes sound to audio latents: a mel spectrogram, and the encoder of the autoencoder of audio.
 * Source: AudioProcessor and encode_audio of Lightricks' LTX-2 (ltx_core/model/audio_vae). */
#ifndef WEFT_LATENT_SOUND_ENCODER_H
#define WEFT_LATENT_SOUND_ENCODER_H

#include "exec/program.h"
#include "model/model.h"
#include "video/mel.h"

/* The sound that an autoencoder of audio takes, and its latents. */
typedef struct weft_sound_format {
    weft_mel mel;
    int64_t channels; /* of the sound; a single channel of a video is copied to all */
    int64_t factor;   /* steps of the spectrogram per latent */
    int64_t features; /* of a latent: channels x mel bins, channels slowest */
} weft_sound_format;

/* The format of an autoencoder of audio. */
weft_status weft_sound_format_of(const weft_model *vae, weft_sound_format *format);
/* Samples of the sound of `frames` at `fps`, rounded down, and the latents of `samples`. */
int64_t weft_sound_samples(const weft_sound_format *format, int64_t frames, double fps);
int64_t weft_sound_latent_count(const weft_sound_format *format, int64_t samples);

typedef struct weft_sound_encoder weft_sound_encoder;
/* Compiles the program for `samples`. Reserves no memory. `vae` is borrowed. `backend` NULL:
 * cpu. */
weft_status weft_sound_encoder_open(const weft_model *vae, const weft_backend *backend,
                                    int64_t samples, weft_sound_encoder **encoder);
void weft_sound_encoder_free(weft_sound_encoder *encoder); /* accepts NULL */
/* Bytes of the values that binding reserves, and of the parameters in the store. NULL: 0. */
int64_t weft_sound_encoder_bytes(const weft_sound_encoder *encoder);
int64_t weft_sound_encoder_weight_bytes(const weft_sound_encoder *encoder);
/* Creates the parameters in `store`, which encoders of other lengths share, and loads them from
 * `folder`. */
weft_status weft_sound_encoder_load(const weft_sound_encoder *encoder, const char *folder,
                                    weft_store *store);
/* Reserves memory for values. `store` is borrowed and has the parameters. */
weft_status weft_sound_encoder_bind(weft_sound_encoder *encoder, weft_store *store);
/* Encodes `sound` [channels][samples] into `latents` [weft_sound_latent_count][features], owned by
 * the caller: the posterior's mean, not normalised. */
weft_status weft_sound_encoder_run(weft_sound_encoder *encoder, const float *sound, float *latents);

/* Normalises `count` latents of `features` each in place by the statistics of the autoencoder. */
void weft_sound_normalise(const weft_grid *grid, int64_t features, int64_t count, float *latents);

#endif
