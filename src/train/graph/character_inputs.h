/* Inputs of a model that moves a character by poses and a face (Wan Animate), with condition:
 * control. The first latent frame is the image of the character, and the clip follows it:
 *
 *     data       image, clip; both are denoised
 *     channels   marks and given latents: 1 and the image; then, of the clip, how much
 *                of the background is kept and the background, or 0 and grey frames
 *     ports      latents of the poses, pixels of the face, tokens of the image
 *
 *   batch.image, batch.latents   f32 (B,1,Y',X',Z), (B,T',Y',X',Z), normalised
 *   batch.control                the same, of poses; batch.background or batch.grey likewise
 *   batch.overlap                the same, of given first frames, then the background or grey
 *   batch.marks                  f32 (B,T',Y',X',frames of a latent frame), with a background
 *   batch.face                   f32 (B,T,side,side,3) in [-1,1]
 *   batch.image_tokens           f32 (B,tokens,width), if the model takes them
 *
 * With control.window_overlap a share of the samples has batch.overlap as given latents, and marks
 * of 1 for their first frames. With control.face_dropout a share has faces of -1, which guidance
 * uses. */
#ifndef WEFT_TRAIN_GRAPH_CHARACTER_INPUTS_H
#define WEFT_TRAIN_GRAPH_CHARACTER_INPUTS_H

#include "train/graph/objective.h"

/* Whether the trained denoiser moves a character. */
bool weft_run_moves_character(const weft_run_models *models);
/* The image and the clip. `latents`: shape of both together. */
weft_value weft_character_inputs_data(weft_graph *g, const weft_run_models *models,
                                      weft_shape latents);
typedef struct weft_character_batch {
    weft_shape latents; /* of the image and the clip together */
    weft_value data;    /* weft_character_inputs_data */
    weft_value key;     /* (B): of the draws */
} weft_character_batch;
/* Sets the ports, and returns the channels after the noisy latents. `size`: of the denoiser. */
weft_value weft_character_inputs_given(weft_graph *g, const weft_run *run,
                                       const weft_run_models *models, const weft_model_size *size,
                                       const weft_character_batch *batch, weft_ports *ports);
/* Reads the image encoder, and checks the models and the keys of the config. */
weft_status weft_character_inputs_read(const weft_run *run, weft_run_models *models,
                                       const char *path);

#endif
