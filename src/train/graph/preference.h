/* The loss of preference tuning (Diffusion-DPO; Wallace et al. 2024). Both clips of a pair have the
 * same noise and level. e is the mean squared error of a clip's video, plus sound.loss_weight times
 * the one of its sound:
 *
 *     z    = -beta / 2 ((e - e of the reference)(preferred) - (e - e of the reference)(rejected))
 *     loss = -log sigmoid(z), mean over the pairs
 *
 * The reference is the model before the training, without gradient. Output "accuracy": the share of
 * pairs with z > 0. With sound also "with_sound": the share of pairs with sound. A pair without
 * sound has the error of its video alone. */
#ifndef WEFT_TRAIN_GRAPH_PREFERENCE_H
#define WEFT_TRAIN_GRAPH_PREFERENCE_H

#include "train/graph/sound_stream.h"

/* A clip of every pair. */
typedef struct weft_preference_clip {
    weft_value video; /* (B,T,Y,X,Z) */
    weft_value given; /* channels of a control or a first frame (denoiser_call.h), or WEFT_NONE */
    weft_value sound; /* (B,S,C); not read without sound */
} weft_preference_clip;

/* The inputs of the loss. */
typedef struct weft_preference {
    const weft_run *run;
    const weft_run_models *models;
    const weft_noise_process_config *noised; /* resolved for the size of the batch */
    const weft_noised *level;
    weft_preference_clip preferred, rejected;
    weft_value noise;
    const weft_sound_stream *sound; /* noise and level of the sound; its data WEFT_NONE: no sound */
    weft_ports conditioning;        /* text, and a control with its own port */
} weft_preference;

/* Adds the loss and returns it. *called receives the other outputs of the call with the preferred
 * clips. */
weft_value weft_preference_loss(weft_graph *g, const weft_preference *p, weft_ports *called);

#endif
