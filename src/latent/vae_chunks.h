/* The VAE as a stream and in tiles: encoding and decoding of any length in memory that does not
 * grow with it, where the model can be cut into pieces; of any size in memory of a tile and the
 * picture; else of the whole video at once. */
#ifndef WEFT_LATENT_VAE_STREAM_H
#define WEFT_LATENT_VAE_STREAM_H

#include "model/tiling.h"
#include "runtime/runtime.h"

typedef enum weft_vae_half { WEFT_VAE_ENCODER = 1, WEFT_VAE_DECODER = 2 } weft_vae_half;

typedef struct weft_vae_options {
    int halves;                    /* bits of weft_vae_half */
    int64_t frames, height, width; /* of the videos, in pixels, as its grid takes them */
    const weft_tile *tile;         /* read while it is opened; NULL: pictures are taken whole */
    /* As the model makes it: decoded frames are not clamped, and an encoder gives means and
     * logarithms of variances, 2 channels for each (where it has them) */
    bool raw;
    bool profile; /* programs time every node */
} weft_vae_options;

typedef struct weft_vae weft_vae;

/* Builds and plans the programs of the wanted halves for videos in one frame size; no memory of any
 * size is reserved before weft_vae_bind. `folder` holds config.json and weights. */
weft_status weft_vae_open(const char *folder, const weft_vae_options *options, weft_vae **vae);
/* Of a model without a folder, for weft_vae_bind_to. */
weft_status weft_vae_open_model(const weft_model *model, const weft_vae_options *options,
                                weft_vae **vae);
/* The same in at most `limit` bytes: with options->tile NULL pictures are taken whole where that
 * fits, else in tiles of the family's size, else in smaller ones; `chosen` says which (on: false:
 * whole). WEFT_E_MEMORY names the least that would do. */
weft_status weft_vae_open_within(const char *folder, const weft_vae_options *options, int64_t limit,
                                 weft_vae **vae, weft_tile *chosen);
void weft_vae_free(weft_vae *vae); /* accepts NULL */
const weft_grid *weft_vae_grid(const weft_vae *vae);
/* Tiles of a picture, "12 tiles of 256x256"; "" where it is whole. */
const char *weft_vae_tiles(const weft_vae *vae, char text[64]);
/* Bytes that binding reserves: programs, weights, caches, and what tiles are laid on. */
int64_t weft_vae_bytes(const weft_vae *vae);
/* Calls `with` for every program of one video, tile by tile in the order in which ranks take them,
 * and how often it runs. */
typedef weft_status_code weft_vae_work_fn(void *user, int64_t tile, const weft_program *program,
                                          int64_t times);
weft_status weft_vae_works(const weft_vae *vae, weft_vae_half half, weft_vae_work_fn *with,
                           void *user);
/* Calls `with` for every different program of a half; in one that is bound each is bound while it
 * is given. `program` is NULL where this rank never runs it: another one that shares does. */
typedef weft_status_code weft_vae_program_fn(void *user, const char *name, const weft_graph *graph,
                                             weft_program *program);
weft_status weft_vae_programs(weft_vae *vae, weft_vae_half half, weft_vae_program_fn *with,
                              void *user);
/* The weights of its halves into `store`, from a folder of the model. */
weft_status weft_vae_load(const weft_vae *vae, const char *folder, weft_store *store);
/* Reserves memory and loads the weights. */
weft_status weft_vae_bind(weft_vae *vae);
/* The same with the weights that `store` has; borrowed. */
weft_status weft_vae_bind_to(weft_vae *vae, weft_store *store);
/* Gives back what binding reserved, but not weights: before others of the same store are bound. */
void weft_vae_unbind(weft_vae *vae);
/* From here on the tiles of a video are decoded by all members of the group in turn (each with a
 * vae of its own), and laid and given out by the first: all of them call weft_vae_decode with the
 * same latents. Without tiles the first does all. The bits are those of one rank. */
void weft_vae_share(weft_vae *vae, weft_group *group);

/* video (frames, height, width, 3) in [-1,1], frames as the grid takes them. latents: frames, rows,
 * columns and channels that the grid makes of it: the posterior's means, not normalised. */
weft_status weft_vae_encode(weft_vae *vae, const float *video, int64_t frames, float *latents);
/* The same of a video that is not in memory: `box` gives the box of `size` frames, rows and columns
 * from `first` on, as (size, 3). Frames are asked for in order, again from the first for each tile
 * of the picture. */
typedef weft_status_code weft_box_fn(void *user, const int64_t first[3], const int64_t size[3],
                                     float *to);
weft_status weft_vae_encode_boxes(weft_vae *vae, weft_box_fn *box, void *user, int64_t frames,
                                  float *latents);

/* Frames as they come, clamped to [-1,1]: (count, height, width, 3), valid during the call. */
typedef weft_status_code weft_frames_fn(void *user, int64_t first_frame, int64_t count,
                                        const float *frames);
/* One that puts them one behind the other: `user` is a weft_frames_to, with floats of a frame. */
typedef struct weft_frames_to {
    float *to;
    int64_t frame;
} weft_frames_to;
weft_frames_fn weft_frames_collect;
/* latents: (latent_frames, height/8, width/8, z), not normalised. A piece at a time where the
 * model can be cut into pieces (weft_grid.piece) and the picture is not tiled. */
weft_status weft_vae_decode(weft_vae *vae, const float *latents, int64_t latent_frames,
                            weft_frames_fn *sink, void *user);

#endif
