/* The finished model: <out>/model in the public diffusers layout. */
#ifndef WEFT_TRAIN_EXPORT_H
#define WEFT_TRAIN_EXPORT_H

#include "train/checkpoint.h"
#include "train/objective.h"

typedef struct weft_export {
    const weft_run *run;
    const weft_run_models *models;
    weft_comm *comm;
    weft_store *store;
    weft_graph *graph;
    const weft_checkpoint_part *part;
    int parts;
    const weft_bucket *size; /* that the model is for */
    double fps;              /* of the clips; 0: not known */
} weft_export;

/* An autoencoder: <out>/model/vae/{config.json, diffusion_pytorch_model.safetensors}.
 * A denoiser: <out>/model, a pipeline's folder:
 *   transformer/, text_encoder/, vae/   what was trained, and copies of what was not
 *   scheduler/                          the process
 *   identity/                           where one was trained beside it
 *   weft.json                           the clip size and the lengths of texts that it was trained
 *                                       on, for `weft generate`
 *   model_index.json                    comes last
 * Matrices beside one (pass/tune.h): <out>/adapter, and <out>/identity where one was
 * trained beside them.
 * Collective; rank 0 writes. */
weft_status weft_export_write(const weft_export *e);
/* Prints the folder of the finished model and the command that uses it. */
void weft_export_print(const weft_export *e);

#endif
