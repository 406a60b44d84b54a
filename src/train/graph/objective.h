/* The training objective as a graph over the whole batch: inputs "batch.*", output "objective" (the
 * scalar loss), and outputs of further metrics. */
#ifndef WEFT_TRAIN_GRAPH_OBJECTIVE_H
#define WEFT_TRAIN_GRAPH_OBJECTIVE_H

#include "model/video_sections.h"
#include "train/graph/run_sound.h"
#include "train/graph/vae_losses.h"

enum { WEFT_RUN_RECIPES = 16 };

typedef struct weft_run_models {
    weft_model autoencoder;      /* trained; with a denoiser: makes its latents */
    weft_model denoiser;         /* family NULL: the autoencoder is trained */
    weft_text_conditioning text; /* text encoders of the denoiser */
    weft_model identity;         /* trained with the denoiser; family NULL: none */
    /* Frozen encoder of the identity's images, and the shape (1,1,1,rows,width) of its features;
     * family NULL: `identity` reads latents */
    weft_model identity_image_encoder;
    weft_shape identity_features;
    weft_run_sound sound; /* of a denoiser of video and sound */
    uint32_t text_frozen; /* bit r: text encoder r is frozen */
    /* condition: first_frame on channels: the other frames are grey before they are encoded, as in
     * published models; otherwise their latents are zeros */
    bool grey_rest;
    /* condition: history: `frames` and the order; frames 0: none (train/graph/history_inputs.h) */
    weft_video_sections sections;
    weft_trained_sections trained_sections; /* of the transformer's weights */
    weft_model image_encoder;               /* of a character; family NULL: none */
    int64_t image_tokens;                   /* of image_encoder; 0: none */
    weft_model teacher;    /* distill.teacher; family NULL: the denoiser with its first weights */
    weft_model fake;       /* distill.fake_weights; family NULL: as the teacher */
    bool partly_trained;   /* the trained model has frozen parameters or a LoRA */
    bool text_precomputed; /* all text encoders are frozen, and embeddings are inputs */
    weft_loss_nets losses; /* networks of autoencoder training */
    /* Set by weft_run_models_connect: */
    weft_grid grid;  /* autoencoder: pixels to latents */
    weft_grid patch; /* denoiser: latents to tokens */
    int64_t lead;    /* latent frames of the denoiser before the clip: the image of a character */
    const weft_recipe_list *recipe[WEFT_RUN_RECIPES]; /* recipes of the trained models */
    int recipes;
} weft_run_models;

/* Reads the models of a run. Sets the batch sizes that the training stages leave open, from their
 * tokens. `path` names the config in messages. */
weft_status weft_run_models_read(const weft_run *run, const char *path, weft_run_models *models);
/* Sets the fields that follow from the models. */
void weft_run_models_connect(weft_run_models *models);
static inline bool weft_run_trains_denoiser(const weft_run_models *models)
{
    return models->denoiser.family != NULL;
}
/* Whether an identity encoder is trained with the denoiser. */
static inline bool weft_run_uses_identity(const weft_run_models *models)
{
    return models->identity.family != NULL;
}
/* Latent size of a clip of a bucket, without `lead`, and the number of the denoiser's tokens
 * with noise: of the clip, or of a section. */
weft_model_size weft_run_latent_size(const weft_run_models *models, const weft_bucket *bucket);
int64_t weft_run_tokens(const weft_run_models *models, const weft_bucket *bucket);

/* Adds the objective and returns the loss.
 * An autoencoder:
 *   batch.video f32 (B,T,Y,X,3) in [-1,1]
 *   batch.key   i64 (B): key of the posterior's noise
 *   -> loss = l1 |x-y| + l2 (x-y)^2 + kl KL, "mse", "kl", and the terms of train/graph/vae_losses.h
 * A denoiser:
 *   batch.latents f32 (B,T',Y',X',Z), normalised. With condition: first_frame the first latent
 *                 frame has no noise. It has no loss if the model receives it as one of its frames
 *   captions: inputs of the text encoders, or their embeddings (prompt/text_conditioning.h)
 *   batch.key     i64 (B): key of noise and time
 *   batch.rejected, batch.rejected_first_frame, batch.rejected_sound: as without "rejected", of the
 *                 other clips, with preference.rejected
 *   batch.control, batch.grey f32, like batch.latents: control videos, and grey frames
 *                 (train/graph/control.h), with condition: control
 *   batch.image, batch.face, ...: of a model that moves a character
 *                 (train/graph/character_inputs.h)
 *   batch.identity, batch.identity_given: reference images (train/graph/identity_inputs.h)
 *   batch.first_frame f32, like batch.latents: the first frame of each clip, followed by grey
 *                 frames, with grey_rest
 *   batch.index, batch.history, ...: the history of a section, which batch.latents has in place
 *                 of the clip (train/graph/history_inputs.h)
 *   batch.sound, batch.with_sound, batch.sound_key: the sound (train/graph/sound_stream.h)
 *   -> loss of the noise process. A mixture of experts adds its load-balancing loss, and "balance",
 *      "fullest", "dropped" (model/family.h)
 * Parameters are in the scopes of their families. */
weft_value weft_objective_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size);

/* Builds the objective in a new graph, with the run's trainable parameters or LoRA
 * (transform/numeric/trainable.h). */
weft_status weft_objective_make(const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size, weft_graph **graph);
/* The trained model. weft_run_trained_from returns its config. */
const weft_model *weft_run_trained(const weft_run_models *models);
static inline const weft_run_model *weft_run_trained_from(const weft_run *run,
                                                          const weft_run_models *models)
{
    return weft_run_trains_denoiser(models) ? &run->transformer : &run->autoencoder;
}
/* Builds a graph with the trained model's parameters as its files store them: unsharded, without
 * LoRA, in the model's scope. */
weft_status weft_run_base(const weft_run_models *models, weft_graph **graph);

/* Video (B,T,Y,X,3) "batch.video" -> "latents" (B,T',Y',X',Z): the posterior's mean, not
 * normalised. On a mesh of several ranks, each rank's graph encodes its own frames, which follow
 * the previous rank's (model/halo.h). */
void weft_encoder_build(weft_graph *g, const weft_model *autoencoder, const weft_bucket *size);

#endif
