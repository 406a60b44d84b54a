/* The finished model: <out>/model in the public diffusers layout. */
#ifndef WEFT_TRAIN_CHECKPOINT_MODEL_EXPORT_H
#define WEFT_TRAIN_CHECKPOINT_MODEL_EXPORT_H

#include "train/checkpoint/checkpoint.h"
#include "train/graph/objective.h"

typedef struct weft_export {
    const weft_run *run;
    const weft_run_models *models;
    weft_comm *comm;
    weft_store *store;
    weft_graph *graph;
    const weft_checkpoint_part *part;
    int parts;
    const weft_bucket *size; /* clip size that the model is trained for */
    double fps;              /* frame rate of the clips; 0: unknown */
} weft_export;

/* Writes the finished model. Collective; rank 0 writes.
 * An autoencoder: <out>/model/vae/{config.json, diffusion_pytorch_model.safetensors}.
 * A denoiser: <out>/model, a pipeline folder in the diffusers layout:
 *   transformer/, text_encoder/, vae/   trained models, and copies of the other models
 *   scheduler/                          noise process
 *   identity/                           identity encoder, if it was trained, and its image encoder
 *                                       in identity/image_encoder
 *   weft.json                           clip size and text lengths of the training, for
 *                                       `weft generate`
 *   model_index.json                    written last
 * A LoRA adapter (trainable.h): <out>/adapter, and <out>/identity if an identity encoder was
 * trained. */
weft_status weft_export_write(const weft_export *e);
/* Prints the folder of the finished model and the command that uses it. */
void weft_export_print(const weft_export *e);

#endif
