/* Control videos as inputs of the denoiser (condition: control). A model with WEFT_PORT_CONTROL
 * gets them in the form of VACE, in which all pixels are to be generated:
 *
 *     latents of grey frames   the given pixels: none
 *     latents of the control   the pixels that are to be generated follow it
 *     ones                     the mask, one channel for each pixel of a latent
 *
 * The port of Cosmos Transfer 2.5 takes the latents of the control only. Models without the port
 * get them as more channels, after the noisy latents. */
#ifndef WEFT_TRAIN_GRAPH_CONTROL_H
#define WEFT_TRAIN_GRAPH_CONTROL_H

#include "train/graph/objective.h"

/* Whether the run needs the latents of grey frames. */
bool weft_control_needs_grey(const weft_run *run, const weft_run_models *models);
/* Adds the inputs. Sets WEFT_PORT_CONTROL of `ports`, or returns the additional channels.
 * `latents`: shape of the data. `key` (B): of the draws. Samples that control.dropout chooses have
 * zeros for the control, or grey frames in the form of VACE. */
weft_value weft_control_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                              weft_shape latents, weft_value key, weft_ports *ports);
/* Gives the call with the empty caption its inputs that are not text, as generation does: the
 * control and the image of `with`, and a black face. */
void weft_control_give_unguided(weft_graph *g, const weft_ports *with, weft_ports *empty);
/* Latents of the batch without the scale of the noise process. */
weft_value weft_control_latents(weft_graph *g, const weft_run *run, const char *name,
                                weft_shape shape);
/* Rejects a denoiser without an input for controls of this autoencoder. */
weft_status weft_control_check_models(const weft_run_models *models, const char *path);

#endif
