/* One call of the run's denoiser on noisy latents, in the way of its family: first frames, channels
 * of images, the embedded guidance scale. */
#ifndef WEFT_TRAIN_GRAPH_DENOISER_CALL_H
#define WEFT_TRAIN_GRAPH_DENOISER_CALL_H

#include "train/graph/objective.h"

typedef struct weft_denoiser_call {
    const weft_run *run;
    const weft_run_models *models;
    const weft_model *model; /* NULL: the run's denoiser */
    const char *scope;       /* of the parameters; NULL: the family's */
    weft_value data;         /* latents (B,T,Y,X,Z) without noise, for the first frame */
    weft_value input;        /* noisy latents (B,T,Y,X,Z) */
    weft_value time;         /* (B) */
    weft_value given;        /* a control on channels, or a first frame followed by grey ones */
} weft_denoiser_call;

/* Calls the denoiser. Returns its prediction (B,T,Y,X,Z) with the sign of the noise processes.
 * `ports` has the text conditioning, and receives the other outputs. */
weft_value weft_denoiser_call_build(weft_graph *g, const weft_denoiser_call *call,
                                    weft_ports *ports);
/* Whether a prediction's first latent frame is given, so it has no loss. */
bool weft_denoiser_call_gives_frame(const weft_run *run, const weft_run_models *models);
/* x without its first frame. */
weft_value weft_denoiser_call_rest(weft_graph *g, weft_value x);

#endif
