/* Latents on disk: the sampler state between two denoising steps, or finished latents not yet
 * decoded.
 *
 *     steps  #1 #2 #3 ... #n ──> decoding ──> video
 *              │  │  │     │
 *              └──┴──┴─────┴──> one safetensors file, replaced after each step
 *
 *     x        (videos, frames, rows, columns, channels)   as the sampler has it; with sound
 *              (videos, floats): the latents of a video, then those of its sound
 *     history  (arrays, videos, frames, ...)               read by its next step with x
 *     metadata "weft.saved_latents": JSON: settings that determine the result, prompts, seeds, the
 *              cursor; "weft.kept" in earlier files
 *
 * The file contains a checksum, which is verified when the file is read. */
#ifndef WEFT_GENERATE_GENERATOR_SAVED_LATENTS_H
#define WEFT_GENERATE_GENERATOR_SAVED_LATENTS_H

#include "base/hex.h"
#include "base/json.h"
#include "diffusion/sampler.h"
#include "format/tensors/safetensors.h"

typedef struct weft_saved_latents {
    json_t *settings; /* "model", "vae" (weft_folder_identity), sizes, sampler, ...: an object */
    json_t *prompts;  /* [videos] of {"prompt", "negative", "seed"} */
    weft_sampler_cursor cursor;
    int64_t steps;             /* steps of the trajectory; cursor.step == steps: finished */
    int64_t videos, latent[4]; /* frames, rows, columns, channels of each video */
    int64_t sound[2];          /* steps and features of its audio latents; steps 0: none */
    int64_t histories;         /* number of arrays of the sampler's history */
    const float *x, *history;  /* after opening: into the map of `file` */
    double scale;              /* x = scale x normalised latents */
    double fps;                /* frame rate of the video file */
    int64_t tried;             /* bytes of a decoder that did not finish; 0: none */
    struct weft_tensors *file; /* the open file; NULL before opening */
} weft_saved_latents;

/* Floats of a video with its sound. */
int64_t weft_saved_latents_floats(const weft_saved_latents *saved);
/* Opens a writer for the file `path`, .safetensors. */
weft_status weft_saved_latents_writer(const char *path, weft_tensors_writer **writer);
/* Writes the file atomically. Ignores `saved->file`. */
weft_status weft_saved_latents_write(const char *path, const weft_saved_latents *saved);
/* Sets *whole to false if the file is truncated or its checksum differs; the error message names
 * the reason. A file of another kind or version counts as whole. */
weft_status weft_saved_latents_verify(const char *path, bool *whole);
/* Opens saved latents; close with weft_saved_latents_close. WEFT_E_FORMAT: not such a file, or
 * damaged. */
weft_status weft_saved_latents_open(const char *path, weft_saved_latents *saved);
/* Returns `opened`, the status of opening. For a damaged file the error message explains how to
 * continue without the file. */
weft_status weft_saved_latents_damaged(weft_status_code opened);
void weft_saved_latents_close(weft_saved_latents *saved); /* accepts a zeroed struct */

/* WEFT_E_ARG names the first setting that differs, except those in `except` (NULL-terminated; may
 * be NULL). A key that only one object has counts as a difference. `path`: the file of `saved`. */
weft_status weft_saved_latents_compare(const char *path, const json_t *saved, const json_t *now,
                                       const char *const *except);

/* 16 hex digits that identify a folder's content. Configs and small files are hashed completely; of
 * large files the size, the beginning and samples of the rest, so that tens of GiB are fast. */
weft_status weft_folder_identity(const char *folder, char hex[WEFT_HEX_BYTES]);
/* Identities of a model's vae/ folder, and of its other folders together. */
weft_status weft_model_identity(const char *folder, char model[WEFT_HEX_BYTES],
                                char vae[WEFT_HEX_BYTES]);
/* Identity of one file, hashed completely. */
weft_status weft_file_identity(const char *path, char hex[WEFT_HEX_BYTES]);

#endif
