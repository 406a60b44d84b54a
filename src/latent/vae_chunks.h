/* Streamed and tiled encoding and decoding with a VAE. If the model supports temporal chunks,
 * memory does not grow with the length. With spatial tiles, memory is one tile plus the blended
 * frames. Otherwise the complete video is processed at once. */
#ifndef WEFT_LATENT_VAE_CHUNKS_H
#define WEFT_LATENT_VAE_CHUNKS_H

#include "comm/group.h"
#include "exec/program.h"
#include "model/tiling.h"

typedef enum weft_vae_half { WEFT_VAE_ENCODER = 1, WEFT_VAE_DECODER = 2 } weft_vae_half;

typedef struct weft_vae_options {
    const weft_backend *backend;   /* NULL: cpu */
    int halves;                    /* bits of weft_vae_half */
    int64_t frames, height, width; /* video size in pixels; frames must fit the grid */
    const weft_tile *tile; /* read during opening only; NULL: the family's (weft_tile_rule) */
    /* Returns the model's output unchanged: decoded frames are not clamped. If the model has a
     * variance, the encoder returns means and log variances, twice the channels. */
    bool raw;
    bool profile; /* programs time every node */
    /* bf16: weights and values are rounded; tf32: products may be (transform/numeric/tf32.h). Sums,
     * input and output are f32. */
    weft_products products;
    /* timestep of decoding, 0 (default) to 1; without effect if the decoder takes none */
    double timestep;
} weft_vae_options;

typedef struct weft_vae weft_vae;

/* Compiles the programs of the requested halves for one frame size. No memory for tensors is
 * reserved before weft_vae_bind. `folder` has config.json and weights. */
weft_status weft_vae_open(const char *folder, const weft_vae_options *options, weft_vae **vae);
/* Like weft_vae_open, for a model without a folder. Bind with weft_vae_bind_to. */
weft_status weft_vae_open_model(const weft_model *model, const weft_vae_options *options,
                                weft_vae **vae);
/* Like weft_vae_open, in at most `limit` bytes. If options->tile is NULL, tries in this order: no
 * tiles, tiles of the family's size, smaller tiles. Families that always tile begin with tiles of
 * their size. `chosen` is the result (on: false: the first choice).
 * WEFT_E_MEMORY reports the minimum. */
weft_status weft_vae_open_within(const char *folder, const weft_vae_options *options, int64_t limit,
                                 weft_vae **vae, weft_tile *chosen);
void weft_vae_free(weft_vae *vae); /* accepts NULL */
const weft_grid *weft_vae_grid(const weft_vae *vae);
/* Formats the tiles of a frame, "12 tiles of 256x256". "": no tiles. */
const char *weft_vae_tiles(const weft_vae *vae, char text[64]);
/* Returns the bytes that binding reserves: programs, weights, caches, and blend buffers. */
int64_t weft_vae_bytes(const weft_vae *vae);
/* Calls `with` for every program of one video and its number of runs, tile by tile in execution
 * order. */
typedef weft_status_code weft_vae_work_fn(void *user, int64_t tile, const weft_program *program,
                                          int64_t times);
weft_status weft_vae_works(const weft_vae *vae, weft_vae_half half, weft_vae_work_fn *with,
                           void *user);
/* Calls `with` for every distinct program of a half. If the VAE is bound, each program is bound
 * during its call. `program` is NULL on ranks of weft_vae_share that never run the program. */
typedef weft_status_code weft_vae_program_fn(void *user, const char *name, const weft_graph *graph,
                                             weft_program *program);
weft_status weft_vae_programs(weft_vae *vae, weft_vae_half half, weft_vae_program_fn *with,
                              void *user);
/* A graph with all parameters of the decoder; NULL: not opened. */
weft_graph *weft_vae_decoder_graph(const weft_vae *vae);
/* Loads the weights of the opened halves from a model folder into `store`. */
weft_status weft_vae_load(const weft_vae *vae, const char *folder, weft_store *store);
/* Reserves memory and loads the weights. */
weft_status weft_vae_bind(weft_vae *vae);
/* Like weft_vae_bind, with the weights in `store` (borrowed). */
weft_status weft_vae_bind_to(weft_vae *vae, weft_store *store);
/* Releases the memory that binding reserved, except weights. Call before other programs of the same
 * store are bound. */
void weft_vae_unbind(weft_vae *vae);
/* Shares the tiles of decoding between the members of the group in turn, each with its own VAE. All
 * members must call weft_vae_decode with the same latents. The first member blends the tiles and
 * calls the sink. Without spatial tiles the first member decodes everything. Results are bitwise
 * identical to those of one rank. */
void weft_vae_share(weft_vae *vae, weft_group *group);

/* Encodes a video (frames, height, width, 3) in [-1,1], with a number of frames that the grid
 * supports. `latents` has the frames, rows, columns and channels of the grid: the posterior means,
 * not normalised. */
weft_status weft_vae_encode(weft_vae *vae, const float *video, int64_t frames, float *latents);
/* Like weft_vae_encode, for a video that is not in memory. `box` reads the box of `size` frames,
 * rows and columns at `first`, as (size, 3). Frames are requested in order, and again from the
 * first frame for each tile of the frame. */
typedef weft_status_code weft_box_fn(void *user, const int64_t first[3], const int64_t size[3],
                                     float *to);
weft_status weft_vae_encode_boxes(weft_vae *vae, weft_box_fn *box, void *user, int64_t frames,
                                  float *latents);

/* Receives decoded frames in order, clamped to [-1,1] unless raw: (count, height, width, 3), valid
 * during the call. */
typedef weft_status_code weft_frames_fn(void *user, int64_t first_frame, int64_t count,
                                        const float *frames);
/* A sink that stores the frames contiguously. `user` is a weft_frames_to; `frame` is the number of
 * floats of a frame. */
typedef struct weft_frames_to {
    float *to;
    int64_t frame;
} weft_frames_to;
weft_frames_fn weft_frames_collect;
/* Decodes latents (latent_frames, rows, columns, channels), not normalised. The sink gets one
 * temporal chunk at a time if the model supports chunks (weft_grid.piece) and frames are not
 * tiled. */
weft_status weft_vae_decode(weft_vae *vae, const float *latents, int64_t latent_frames,
                            weft_frames_fn *sink, void *user);
/* Position in a video that is decoded while its latents are made. Zero-initialise. */
typedef struct weft_vae_place {
    int64_t latents, frames; /* latent frames that are decoded, and their frames */
} weft_vae_place;
/* Whether weft_vae_decode_next reads latents on this rank. */
bool weft_vae_reads(const weft_vae *vae, int64_t latent_frames, int64_t ready);
/* Decodes the next temporal chunks of a video of `latent_frames`, of which the first `ready` exist.
 * `latents` begins with frame 0. With tiles, decodes once all frames exist. No other video may be
 * decoded in between. weft_vae_decode makes the same frames, bitwise. */
weft_status weft_vae_decode_next(weft_vae *vae, const float *latents, int64_t latent_frames,
                                 int64_t ready, weft_vae_place *place, weft_frames_fn *sink,
                                 void *user);

#endif
