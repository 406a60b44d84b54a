/* Sections and their histories in training, with condition: history. Each sample trains one section
 * of its clip, drawn from the sample's key. The history is the one that generation gives this
 * section in a video of the clip's length (model/video_sections.h):
 *
 *   batch.latents                 f32 (B,S,Y',X',Z)  the section, normalised
 *   batch.history, _2x, _4x       f32 (B,N,Y',X',Z)  frames of the clip, or zeros
 *   batch.index, history_index, _2x_index, _4x_index    f32 (B,S) and (B,N) time positions */
#ifndef WEFT_TRAIN_GRAPH_HISTORY_INPUTS_H
#define WEFT_TRAIN_GRAPH_HISTORY_INPUTS_H

#include "train/graph/objective.h"

/* Sets models->sections, and the section of models->grid if sections are videos of their own for
 * the autoencoder. Checks the model and the clips of all buckets. Does nothing without condition:
 * history. `path` names the config in messages. */
weft_status weft_history_inputs_read(const weft_run *run, weft_run_models *models,
                                     const char *path);
/* Frames of a section, as history.window has them. */
int64_t weft_history_inputs_window(const weft_run_models *models);
/* The sections of a clip of `frames` latent frames; count 0: no condition: history. */
weft_video_sections weft_history_inputs_sections(const weft_run_models *models, int64_t frames);
/* Adds the inputs of the history to `ports`. `size`: of the section. */
void weft_history_inputs_build(weft_graph *g, const weft_run_models *models,
                               const weft_model_size *size, weft_ports *ports);
/* The section of the sample with this key, in the order of denoising. */
int64_t weft_history_inputs_draw(const weft_video_sections *sections, int64_t key);

/* A clip: latents of its frames as stored, and the scale of the noise process for its section. */
typedef struct weft_history_clip {
    const weft_grid *grid;
    const float *latents;
    int64_t frame; /* floats of a latent frame */
    double scale;
} weft_history_clip;
/* Fills row `row` of the inputs from section `at` of a clip. `find` returns the input of a name, or
 * NULL if this rank does not need the input. */
void weft_history_inputs_fill(const weft_video_sections *sections, int64_t at,
                              const weft_history_clip *clip, int64_t row, weft_input_lookup *find,
                              void *user);

#endif
