/* What is trained, as a graph over the whole batch: inputs "batch.*", outputs "objective" (the
 * scalar loss) and figures beside it. */
#ifndef WEFT_TRAIN_OBJECTIVE_H
#define WEFT_TRAIN_OBJECTIVE_H

#include "train/losses.h"

enum { WEFT_RUN_RECIPES = 16 };

typedef struct weft_run_models {
    weft_model autoencoder; /* trained, or the one that makes the denoiser's latents */
    weft_model denoiser;    /* family NULL: the autoencoder is trained */
    weft_captions captions; /* beside a denoiser: its text encoders */
    weft_model identity;    /* trained beside the denoiser; family NULL: none is */
    uint32_t text_stays;    /* bit r: encoder r is not trained */
    bool tuned;             /* what is trained is so in parts, or matrices beside it are */
    bool text_given;        /* none is trained, and embeddings of captions are given */
    weft_loss_nets losses;  /* where an autoencoder is trained */
    /* of these, by weft_run_models_connect: */
    weft_grid grid;                                   /* the autoencoder's: pixels to latents */
    weft_grid patch;                                  /* the denoiser's: latents to tokens */
    const weft_recipe_list *recipe[WEFT_RUN_RECIPES]; /* of the models that are trained */
    int recipes;
} weft_run_models;

/* The models of a run, which decide what its stages leave open: sizes of batches by their tokens
 * are filled in. `path` names the config in messages. */
weft_status weft_run_models_read(const weft_run *run, const char *path, weft_run_models *models);
/* Fills in what follows from the models. */
void weft_run_models_connect(weft_run_models *models);
static inline bool weft_run_denoises(const weft_run_models *models)
{
    return models->denoiser.family != NULL;
}
/* What a denoiser is told of pictures is trained beside it. */
static inline bool weft_run_identifies(const weft_run_models *models)
{
    return models->identity.family != NULL;
}
/* Of one sample of a bucket, in latents; and how many tokens of it the denoiser sees. */
weft_model_size weft_run_latent_size(const weft_run_models *models, const weft_bucket *bucket);
int64_t weft_run_tokens(const weft_run_models *models, const weft_bucket *bucket);

/* An autoencoder:
 *   batch.video f32 (B,T,Y,X,3) in [-1,1]
 *   batch.key   i64 (B): of the posterior's sample
 *   -> loss = l1 |x-y| + l2 (x-y)^2 + kl KL, "mse", "kl", and what train/losses.h adds
 * A denoiser:
 *   batch.latents f32 (B,T',Y',X',Z), normalised; with condition: first_frame its first frame is
 *                 given without noise, and no loss is of it where it stands among the others
 *   captions: inputs of their encoders, or what those said of them (prompt/captions.h)
 *   batch.key     i64 (B): of noise and time
 *   -> the process' loss; of a mixture of experts with what evens their load, "balance", "fullest",
 *      "dropped" (model/family.h)
 * Parameters are under the scopes of their families. */
weft_value weft_objective_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size);

/* The same in a graph of its own, tuned as the run says (pass/tune.h). */
weft_status weft_objective_make(const weft_run *run, const weft_run_models *models,
                                const weft_bucket *size, weft_graph **graph);
/* The model that is trained, and its config in the run. */
const weft_model *weft_run_trained(const weft_run_models *models);
static inline const weft_run_model *weft_run_trained_from(const weft_run *run,
                                                          const weft_run_models *models)
{
    return weft_run_denoises(models) ? &run->transformer : &run->autoencoder;
}
/* The trained model's parameters by themselves, as its files have them: whole, untuned, under its
 * scope. */
weft_status weft_run_base(const weft_run_models *models, weft_graph **graph);

/* Video (B,T,Y,X,3) "batch.video" -> "latents" (B,T',Y',X',Z): the posterior's mean, not
 * normalised. In the graph of one of several ranks: of its frames, behind those of the rank before
 * (model/stream_before.h). */
void weft_encoder_build(weft_graph *g, const weft_model *autoencoder, const weft_bucket *size);

#endif
