/* The VAE as a stream: encoding and decoding of any length in memory that does not grow with it,
 * where the model can be cut into pieces; else of the whole video at once. */
#ifndef WEFT_GENERATE_VAE_STREAM_H
#define WEFT_GENERATE_VAE_STREAM_H

#include "model/model.h"
#include "runtime/runtime.h"

typedef enum weft_vae_half { WEFT_VAE_ENCODER = 1, WEFT_VAE_DECODER = 2 } weft_vae_half;

typedef struct weft_vae weft_vae;

/* Builds and plans the programs of the wanted halves (bits of weft_vae_half) for videos of `frames`
 * in one frame size in pixels, as its grid takes them; no memory of any size is reserved before
 * weft_vae_bind. `folder` holds config.json and weights. */
weft_status weft_vae_open(const char *folder, int halves, int64_t frames, int64_t height,
                          int64_t width, weft_vae **vae);
void weft_vae_free(weft_vae *vae); /* accepts NULL */
const weft_grid *weft_vae_grid(const weft_vae *vae);
/* Bytes that binding reserves: programs, weights and caches. */
int64_t weft_vae_bytes(const weft_vae *vae);
/* Reserves memory and loads the weights. */
weft_status weft_vae_bind(weft_vae *vae);

/* video (frames, height, width, 3) in [-1,1], frames as the grid takes them. latents: frames, rows,
 * columns and channels that the grid makes of it: the posterior's means, not normalised. */
weft_status weft_vae_encode(weft_vae *vae, const float *video, int64_t frames, float *latents);

/* Frames as they come, clamped to [-1,1]: (count, height, width, 3), valid during the call. */
typedef weft_status_code weft_frames_fn(void *user, int64_t first_frame, int64_t count,
                                        const float *frames);
/* latents: (latent_frames, height/8, width/8, z), not normalised. A piece at a time where the
 * model can be cut into pieces (weft_grid.piece). */
weft_status weft_vae_decode(weft_vae *vae, const float *latents, int64_t latent_frames,
                            weft_frames_fn *sink, void *user);

#endif
