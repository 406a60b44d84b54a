/* Latents on disk: a walk between two of its steps, or what was denoised and is not decoded yet.
 *
 *     steps  #1 #2 #3 ... #n ──> decoding ──> video
 *              │  │  │     │
 *              └──┴──┴─────┴──> one safetensors file, replaced after each step
 *
 *     x        (videos, frames, rows, columns, channels)   as the sampler has it
 *     history  (arrays, videos, frames, ...)               what its next step reads beside x
 *     metadata "weft.kept": JSON: settings that numbers depend on, prompts, seeds, the place
 *
 * Checked against the checksum in it when it is read. */
#ifndef WEFT_GENERATE_WALK_FILE_H
#define WEFT_GENERATE_WALK_FILE_H

#include "base/json.h"
#include "diffusion/sampler.h"
#include "format/safetensors.h"

typedef struct weft_walk_file {
    json_t *settings; /* "model", "vae" (weft_folder_identity), sizes, sampler, ...: an object */
    json_t *prompts;  /* [videos] of {"prompt", "negative", "seed"} */
    weft_sampler_place place;
    int64_t steps;             /* of the walk; place.step == steps: it has ended */
    int64_t videos, latent[4]; /* frames, rows, columns, channels of each */
    int64_t histories;         /* arrays of the sampler's history */
    const float *x, *history;  /* of a kept one that was read: into the map below */
    double scale;              /* x = scale x normalised latents */
    double fps;                /* of the file that is made of it */
    int64_t tried;             /* bytes of a decoder that did not come to its end; 0 */
    struct weft_tensors *file; /* of one that was read */
} weft_walk_file;

/* For a file of that name, .safetensors. */
weft_status weft_walk_file_writer(const char *path, weft_tensors_writer **writer);
/* Atomic. `kept->file` is not looked at. */
weft_status weft_walk_file_write(const char *path, const weft_walk_file *kept);
/* False: it was cut off, or its bytes are not those of its checksums (the message is the error's).
 * A file of another kind or version is whole. */
weft_status weft_walk_file_whole(const char *path, bool *whole);
/* WEFT_E_FORMAT: no such file, or damaged. To be closed. */
weft_status weft_walk_file_open(const char *path, weft_walk_file *kept);
/* What opening gave; a damaged file's error says how to go on without it. */
weft_status weft_walk_file_damaged(weft_status_code opened);
void weft_walk_file_close(weft_walk_file *kept); /* accepts one of zeros */

/* WEFT_E_ARG names the first of the settings in which the two differ, but for those in `except`
 * (NULL-terminated; may be NULL); a key that only one has differs. `path`: the file of `kept`. */
weft_status weft_walk_file_compare(const char *path, const json_t *kept, const json_t *now,
                                   const char *const *except);

/* 16 hex digits of what lies in a folder: configs and small files whole; of large ones the size,
 * the beginning and samples of the rest, so that tens of GiB take no time. */
weft_status weft_folder_identity(const char *folder, char hex[17]);
/* Those of a model's vae/, and of its other folders together. */
weft_status weft_model_identity(const char *folder, char model[17], char vae[17]);
/* The same of one file, whole. */
weft_status weft_file_identity(const char *path, char hex[17]);

#endif
