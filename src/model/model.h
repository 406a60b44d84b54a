/* A model: a family and its config. */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "base/config.h"
#include "model/family.h"

enum { WEFT_MODEL_CONFIG_BYTES = 8192 };

typedef struct weft_model {
    const weft_family *family; /* NULL: no model */
    union {
        max_align_t align;
        unsigned char config[WEFT_MODEL_CONFIG_BYTES];
    };
} weft_model;

/* Reads a model by "_class_name". If the field is absent, fields that only one family has identify
 * the family. */
weft_status weft_model_read(const json_t *json, const char *where, weft_model *model);
/* Like weft_model_read, for a config with source locations per field. `class_name` NULL: the class
 * is found as in weft_model_read. */
weft_status weft_model_read_as(const char *class_name, const json_t *json,
                               const weft_config_locations *locations, weft_model *model);
/* Sets *model to a model of the class with every field at its default, or to a published size. */
weft_status weft_model_default(const char *name, weft_model *model);
/* Sets *autoencoder to the one that the denoiser's family was published with. */
weft_status weft_model_default_autoencoder(const weft_model *denoiser, weft_model *autoencoder);
/* Opens a model. `path` is a config.json, its folder, or the name of a published size. */
weft_status weft_model_open(const char *path, weft_model *model);
/* Like weft_model_open. Returns an error that names the model's role if the role is not `role`. Of
 * several models in one folder (weft_joint_model) it opens the model of this role. */
weft_status weft_model_open_as(const char *path, weft_role role, weft_model *model);
/* Whether the config.json of a folder is of several models (weft_joint_model), one of this role. */
bool weft_model_has_part(const char *folder, weft_role role);
/* Returns the companion of the model, whose config its own config has; NULL: none. */
const weft_companion *weft_model_companion(const weft_model *model);
/* Returns the folder of the companion (weft_companion) of the model in `folder` (heap). NULL: none,
 * or out of memory. */
char *weft_model_companion_folder(const weft_family *family, const char *folder);
/* Whether the folder has the folders of several models, the form of published pipelines and of weft
 * train's output: it has a model_index.json, or the folder of a denoiser, and no config.json. */
bool weft_model_is_pipeline(const char *folder);
/* Opens the model of this role in the folder of a pipeline. The model's folder has the name of its
 * family's scope. On success *path is that folder (heap, owned by the caller). */
weft_status weft_model_open_in(const char *pipeline, weft_role role, char **path,
                               weft_model *model);
json_t *weft_model_write(const weft_model *model);           /* new reference */
const char *weft_model_class(const weft_model *model);       /* "WanTransformer3DModel", ... */
const weft_family *weft_family_find(const char *class_name); /* NULL: none */
/* Appends the classes of a role: "AutoencoderKLWan, ...". */
void weft_family_list(weft_role role, weft_buf *out);
/* Whether the weft.json of a model's folder (NULL: none) is of an earlier version, whose models of
 * the family predict the opposite (weft_family.was_positive). Files that weft did not write have no
 * "text_lengths". */
bool weft_family_was_positive(const weft_family *family, const json_t *settings);
/* Layers that an adapter of the family's models changes by default; borrowed. `family` NULL: of
 * most families. */
weft_string_list weft_family_lora_targets(const weft_family *family);

weft_grid weft_model_grid(const weft_model *model);
weft_tile_rule weft_model_tile_rule(const weft_model *model); /* autoencoders */
/* autoencoders; borrowed from the config */
weft_statistics *weft_model_statistics(weft_model *model);
/* Autoencoders: timestep of decoding, borrowed from the config. NULL: the decoder takes none. */
double *weft_model_decode_timestep(weft_model *model);
/* Returns how the model takes given frames. */
weft_frame_condition weft_model_takes_port(const weft_model *model);
/* Returns the channels of the denoised latents alone, without images and control videos. */
int64_t weft_model_denoised(const weft_model *model);
/* Sets mean and deviation in an autoencoder's config to the values of the grid. */
void weft_model_set_statistics(weft_model *model, const weft_grid *grid);
weft_text_shape weft_model_text(const weft_model *model);
bool weft_model_has(const weft_model *model, weft_port port);
/* Returns true if the model has the port and this config uses the port. */
bool weft_model_takes(const weft_model *model, weft_port port);
/* Returns WEFT_E_UNSUPPORTED if the model needs an input that is not in `provided`. `who` is weft's
 * verb for the error message. */
weft_status weft_model_accepts(const weft_model *model, const weft_port *provided, int count,
                               const char *who);
/* Tokens of all images. */
int64_t weft_image_tokens_count(const weft_image_tokens *images);
/* Class of the model's pipeline in model_index.json. `image`: trained with a given first frame. */
const char *weft_model_pipeline(const weft_model *model, bool image);
weft_shape weft_model_shape(const weft_model *model, const weft_model_size *size, weft_port port);

/* Adds an input for `port` to the graph, named <prefix><port's name>. */
weft_value weft_model_input(weft_graph *g, const weft_model *model, const weft_model_size *size,
                            weft_port port, const char *prefix);
/* Adds one call of the model to the graph. `scoped`: in the family's scope, for graphs with several
 * models. */
void weft_model_call(weft_graph *g, const weft_model *model, weft_call call, bool scoped,
                     weft_ports *ports);
/* Returns the prediction of a called denoiser with the sign that noise processes and samplers
 * expect. If the prediction has twice the channels, the second half is a variance and is
 * dropped. */
weft_value weft_model_answer(weft_graph *g, const weft_model *model, const weft_ports *called);

/* Builds the complete forward graph for one size, with inputs and outputs named after their ports.
 * `scoped`: as in weft_model_call. An autoencoder encodes, samples (mean + exp(logvar / 2) noise)
 * and decodes. Its "reconstruction" is clamped if the family's `clamps` is set. */
void weft_model_build(weft_graph *g, const weft_model *model, const weft_model_size *size,
                      bool scoped);
/* Returns the smallest size that the model accepts, for graphs that only list the parameters. */
weft_model_size weft_model_smallest(const weft_model *model);

/* Whether the timesteps of flow matching are from 0 to 1 for this denoiser, not to 1000. */
bool weft_model_has_unit_times(const weft_model *model);
const char *weft_role_name(weft_role role);                 /* "denoiser", ... */
bool weft_family_is_autoencoder(const weft_family *family); /* of video or audio */
/* clang-format on */
const char *weft_port_name(weft_port port); /* "latents", ... */
bool weft_port_is_video(weft_port port);    /* (B,T,Y,X,C) here, (B,C,T,Y,X) in references */
weft_dtype weft_port_dtype(weft_port port);
weft_ports weft_ports_none(void);
extern const weft_port_row weft_autoencoder_ports[WEFT_AUTOENCODER_PORTS];
/* Sets mean and log variance of the posterior from the encoder output `moments` (B,T,Y,X,2C). The
 * log variance is clamped to [-30, 20]. */
void weft_ports_set_posterior(weft_graph *g, weft_value moments, weft_ports *p);
/* Shapes of common inputs. Autoencoder: from the channels of its video and its latents. Denoiser
 * (latents, timestep, text and text mask): from the latent channels and the text width. */
weft_shape weft_autoencoder_shape(const weft_model_size *s, weft_port port, int64_t channels,
                                  int64_t latents);
weft_shape weft_denoiser_shape(const weft_model_size *s, weft_port port, int64_t latents,
                               int64_t text);
/* Rejects a control (B,T,H,W,C) with other frames, rows or columns than the latents. */
void weft_denoiser_check_control(weft_graph *g, const weft_ports *in);
/* Returns the index of a latent frame's first value in the grid's mean and deviation. */
int64_t weft_grid_statistics_at(const weft_grid *grid, int64_t latent_frame);
/* Returns an error at `at` if the grid lacks statistics for `latent_frames` frames. */
weft_status weft_grid_check_statistics(const weft_grid *grid, int64_t latent_frames,
                                       const weft_message_fields *at);
/* Conversions between frames and latent frames, rounded to the nearest supported number, at least
 * 1. */
int64_t weft_grid_frames(const weft_grid *grid, int64_t latent_frames);
int64_t weft_grid_latent_frames(const weft_grid *grid, int64_t frames);
bool weft_grid_takes_frames(const weft_grid *grid, int64_t frames);
/* Returns the step in pixels of the supported heights (side 1) or widths (side 2), for the grids of
 * an autoencoder and a denoiser. */
int64_t weft_grid_pixel_step(const weft_grid *pixels, const weft_grid *patch, int side);
/* Returns the supported number of frames nearest to `frames`. */
int64_t weft_grid_nearest_frames(const weft_grid *grid, int64_t frames);
/* Formats the supported numbers of frames: "1 + 4 n", "4 n", "n" or "17 n, or 1 + 4 n below 17". */
const char *weft_grid_rule(const weft_grid *grid, char text[32]);

#endif
