/* The content of a model folder: configs, text encoders, sizes. No weights. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_MODEL_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_MODEL_H

#include "generate/generator/generator.h"
#include "generate/generator/guider.h"
#include "generate/generator/sound_decoder.h"
#include "model/video_sections.h"
#include "prompt/text_tokens.h"

/* Lives as long as the generator; read once. Zero-initialise; close with
 * weft_generator_model_close, also after an error. */
typedef struct weft_generator_model {
    char *folder;
    int experts;            /* 1: one denoiser; 2: a high-noise and a low-noise expert */
    weft_model denoiser[2]; /* [experts] */
    weft_text_conditioning text;
    weft_tokenizer_set tokenizers;
    weft_sound_models sound;
    char *denoiser_folder[2], *encoder_folder[WEFT_MAX_TEXT_ENCODERS], *vae_folder;
    char *connectors_folder[WEFT_MAX_TEXT_ENCODERS]; /* NULL: none */
    weft_grid patch;                                 /* latents to tokens */
    weft_grid grid;                                  /* pixels to latents */
    double fps;
    weft_guider guider;
    bool published; /* no weft.json: conditioning as in the model's pipeline */
    bool opposite;  /* weft.json: of an earlier version (weft_family.was_positive) */
    /* Embeddings of an empty negative prompt (weft_text_encoder_row.no_text). NULL: of the
     * encoder */
    float *no_text[WEFT_MAX_TEXT_ENCODERS];
    bool first_frame;              /* weft.json: trained with a given first frame */
    bool in_sections;              /* the video is denoised section by section */
    weft_trained_sections trained; /* weft.json */
    bool grey_rest;                /* and grey frames after it */
    double context_noise;          /* causal models: timestep at which a block sees finished ones */
    bool control; /* trained with control videos: weft.json, or the pipeline's class */
    const weft_edit_pipeline *edit; /* of model_index.json; NULL: the model edits no images */
    bool staged;                    /* the pipeline is the family's staged_pipeline */
    bool expands_timesteps;         /* model_index.json: a given first frame has its own timestep */
} weft_generator_model;

/* Scope of expert i in graphs; also the folder name of the second expert. */
extern const char *const weft_generator_scopes[2];
/* Replaces 0 in size (frames, height, width) by the size that the folder's model was trained on.
 * WEFT_E_ARG: the folder does not say the size. WEFT_E_NOT_FOUND: no such folder. */
weft_status weft_generator_size(const char *folder, int64_t size[3]);
/* Guidance scale that the pipeline of a model folder uses by default. */
weft_status weft_generator_own_guidance(const char *folder, double *scale);
/* Reads the models and grids of `folder`. Fills in options->boundary and options->guidance. */
weft_status weft_generator_model_open(const char *folder, weft_generator_options *options,
                                      weft_generator_model *model);
/* Reads the trained size and frame rate. Fills in the size of the options. */
weft_status weft_generator_model_read_settings(weft_generator_model *model,
                                               weft_generator_options *options);
/* A folder that model_index.json names must exist: without it the result would differ. */
weft_status weft_generator_model_check_folder(const weft_generator_model *model, const char *name);
void weft_generator_model_close(weft_generator_model *model);

#endif
