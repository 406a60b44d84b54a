/* Latents that were kept to a video, by their VAE alone: no transformer is read. */
#ifndef WEFT_GENERATE_DECODE_H
#define WEFT_GENERATE_DECODE_H

#include "generate/walk_file.h"
#include "latent/vae_stream.h"

/* x (frames, cells, channels), `scale` times normalised -> as the VAE has them. */
void weft_latents_unnormalise(const weft_grid *grid, double scale, const float *x, int64_t frames,
                              int64_t floats, float *to);

/* Hands frames on but for the first `lead` of a video, of `frame` floats each. */
typedef struct weft_frames_behind {
    weft_frames_fn *sink;
    void *user;
    int64_t lead, frame;
} weft_frames_behind;
weft_status_code weft_frames_hand_on(void *behind, int64_t first, int64_t count,
                                     const float *frames);

typedef struct weft_decode_options {
    const char *model;     /* folder with vae/ */
    const weft_tile *tile; /* NULL: whole where that fits */
    int64_t memory;        /* bytes that may be taken; 0: what the machine has free */
    weft_comm *comm;       /* NULL: one rank; all of them decode the same files in the same order */
} weft_decode_options;

/* What a video of it is. Frames as weft_vae_decode gives them, on rank 0. */
typedef struct weft_decoded_size {
    int64_t frames, height, width;
} weft_decoded_size;
/* Opens latents of a walk that has ended, and says their video's size. WEFT_E_ARG: of another VAE
 * than the model's, or of a walk between two steps. */
weft_status weft_decode_open(const char *path, const char *model, weft_walk_file *kept,
                             weft_decoded_size *size);
/* Decodes video `index` of them. In less memory than one that did not come to its end has taken
 * (kept->tried), and where memory runs out again in less than that, frame 0 coming anew, as long as
 * there are smaller tiles. `path` is told what is tried, so that a decode that is killed is not
 * tried again in the same way. */
weft_status weft_decode_run(const weft_decode_options *options, const char *path,
                            weft_walk_file *kept, int64_t index, weft_frames_fn *sink, void *user);

#endif
