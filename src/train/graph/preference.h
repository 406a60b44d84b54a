/* The loss of preference tuning (Diffusion-DPO; Wallace et al. 2024). With the same noise and level
 * for both clips of a pair, and e the mean squared error of a clip:
 *
 *     z    = -beta / 2 ((e - e of the reference)(preferred) - (e - e of the reference)(rejected))
 *     loss = -log sigmoid(z), mean over the pairs
 *
 * The reference is the model before the training, without gradient. Output "accuracy": the share of
 * pairs with z > 0. */
#ifndef WEFT_TRAIN_GRAPH_PREFERENCE_H
#define WEFT_TRAIN_GRAPH_PREFERENCE_H

#include "train/graph/objective.h"

/* The inputs of the loss, for pairs of (B,T,Y,X,Z). */
typedef struct weft_preference {
    const weft_run *run;
    const weft_run_models *models;
    const weft_noise_process_config *noised; /* resolved for the size of the batch */
    const weft_noised *level;
    weft_value preferred, rejected, noise;
    weft_ports text;
} weft_preference;

/* Adds the loss and returns it. *called receives the other outputs of the call with the preferred
 * clips. */
weft_value weft_preference_loss(weft_graph *g, const weft_preference *p, weft_ports *called);

#endif
