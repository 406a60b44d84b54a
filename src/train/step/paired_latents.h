/* Latents of a second data set: its clip with the key of a clip of the first one. */
#ifndef WEFT_TRAIN_STEP_PAIRED_LATENTS_H
#define WEFT_TRAIN_STEP_PAIRED_LATENTS_H

#include "train/graph/run_pair.h"

/* f32 (T',Y',X',Z): the posterior's mean, not normalised. */
#define WEFT_LATENT_PART "latent.npy"
/* f32 (tokens,width) of the image encoder, in a cache of first frames that has one */
#define WEFT_IMAGE_PART "image.npy"
/* f32 (S,C) of the sound, not normalised, in a cache without captions */
#define WEFT_SOUND_PART "sound.npy"
/* empty, of a sample without sound; its part of the sound has zeros */
#define WEFT_NO_SOUND_PART "no-sound"

typedef struct weft_paired_latents weft_paired_latents;

/* Opens the latent cache of `pair` (borrowed strings). Every sample of the cache `first` must be in
 * it in the same size, of images in one frame; otherwise the error names the first one that is
 * not. Of WEFT_PAIR_IDENTITY samples may be absent, and features have no size. With pair->sound
 * both clips of a pair have sound, or neither. */
weft_status weft_paired_latents_open(const char *folder, const weft_run_pair *pair,
                                     const weft_dataset *first, weft_paired_latents **latents);
void weft_paired_latents_close(weft_paired_latents *latents); /* accepts NULL */
bool weft_paired_latents_has(const weft_paired_latents *latents, uint64_t id);
/* Reads the f32 part `part` of sample `id`, which must have `floats` elements, into `to`. */
weft_status weft_paired_latents_read(weft_paired_latents *latents, const char *part, uint64_t id,
                                     int64_t floats, float *to);

#endif
