/* Decodes saved latents to a video with their VAE alone; no transformer is read. */
#ifndef WEFT_GENERATE_GENERATOR_DECODE_H
#define WEFT_GENERATE_GENERATOR_DECODE_H

#include "comm/comm.h"
#include "generate/generator/saved_latents.h"
#include "generate/generator/sound_decoder.h"
#include "latent/vae_chunks.h"
#include "video/sound.h"

/* Undoes the normalisation of the frames from `first` to `end` of x (frames, cells, channels).
 * x is `scale` times normalised latents; `frame`: floats per frame. Others in `to` keep their
 * value. */
void weft_latents_unnormalise(const weft_grid *grid, double scale, const float *x, int64_t first,
                              int64_t end, int64_t frame, float *to);

/* Passes frames to `sink` except the first `lead` of a video; `frame`: floats per frame; `before`:
 * frames of the sections before; `end`: frames of the video, 0: all that follow. */
typedef struct weft_frames_skip {
    weft_frames_fn *sink;
    void *user;
    int64_t lead, frame, before, end;
} weft_frames_skip;
weft_status_code weft_frames_skip_sink(void *user, int64_t first, int64_t count,
                                       const float *frames);

/* The compiled decoder of sound, for the next file of the same model. Zero-initialise; free with
 * weft_kept_sound_free. */
typedef struct weft_kept_sound {
    weft_sound_models models;
    weft_sound_decoder *decoder; /* NULL: none yet */
    int64_t steps;               /* audio latents */
} weft_kept_sound;
void weft_kept_sound_free(weft_kept_sound *kept);

typedef struct weft_decode_options {
    const weft_backend *backend; /* NULL: cpu */
    const char *model;           /* folder with vae/ */
    const weft_tile *tile;       /* NULL: untiled if that fits */
    int64_t memory;              /* memory limit in bytes; 0: the machine's free memory */
    weft_comm *comm; /* NULL: one rank; all ranks decode the same files in the same order */
    weft_products products;
    /* Receives the sound of the video before its frames, on rank 0; valid during the call. NULL
     * (default): no sound is decoded. */
    weft_status_code (*sound)(void *user, const weft_sound *sound);
    weft_kept_sound *kept; /* with `sound`; used by runs of one model and backend */
} weft_decode_options;

/* Size of the decoded video. Frames are delivered on rank 0, as by weft_vae_decode. */
typedef struct weft_decoded_size {
    int64_t frames, height, width;
} weft_decoded_size;
/* Opens finished latents and returns the size of their video. WEFT_E_ARG: the latents are of
 * another VAE, or denoising is not finished. */
weft_status weft_decode_open(const char *path, const char *model, weft_saved_latents *saved,
                             weft_decoded_size *size);
/* Decodes video `index` of the file. Uses less memory than an earlier attempt that did not finish
 * (saved->tried). If memory runs out, retries with smaller tiles and delivers the frames from frame
 * 0 again. Records each attempt's bytes in `path`, so that a killed decode is not repeated in the
 * same way. */
weft_status weft_decode_run(const weft_decode_options *options, const char *path,
                            weft_saved_latents *saved, int64_t index, weft_frames_fn *sink,
                            void *user);

#endif
