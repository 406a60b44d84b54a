/* Further data sets with a clip for each clip of data.path, which are also inputs. */
#ifndef WEFT_TRAIN_GRAPH_RUN_PAIR_H
#define WEFT_TRAIN_GRAPH_RUN_PAIR_H

#include "model/encoders/identity_encoder.h"
#include "train/graph/objective.h"

enum { WEFT_RUN_PAIRS = 6 + WEFT_IDENTITY_MOST_IMAGES };

typedef enum weft_pair_kind {
    WEFT_PAIR_LATENTS, /* latents of the clips */
    WEFT_PAIR_STILLS,  /* latents of the first frames, and tokens of an image encoder */
    WEFT_PAIR_FRAMES,  /* the frames, decoded in every step */
    WEFT_PAIR_MARKS,   /* the frames of masks, decoded in every step: how much is kept */
    /* latents or features of reference images, of which samples may lack some
     * (train/graph/identity_inputs.h) */
    WEFT_PAIR_IDENTITY,
} weft_pair_kind;

typedef struct weft_run_pair {
    const char *path;
    const char *key;   /* of the config */
    const char *input; /* of the training programs */
    weft_pair_kind kind;
    weft_image_features_kind features; /* of WEFT_PAIR_IDENTITY with an image encoder */
    int64_t given_frames; /* only these first frames count; 0: all. Grey frames follow, */
    const char *rest;     /* or the frames of the clips of this data set; NULL: none */
    const char *sound;    /* input of the clips' sound; NULL: it is not read */
} weft_run_pair;

/* Whether the latents of a pair are in a cache. */
static inline bool weft_run_pair_cached(const weft_run_pair *pair)
{
    return pair->kind == WEFT_PAIR_LATENTS || pair->kind == WEFT_PAIR_STILLS ||
           pair->kind == WEFT_PAIR_IDENTITY;
}
/* Fills `pair` and returns the number of sets. */
int weft_run_pairs_of(const weft_run *run, const weft_run_models *models,
                      weft_run_pair pair[WEFT_RUN_PAIRS]);
/* Returns the run with a further data set as its data. */
weft_run weft_run_pair_run(const weft_run *run, const weft_run_pair *pair);
/* Returns the models of a further data set: without encoded captions, which the first data set has,
 * and without sound unless it is read. */
weft_run_models weft_run_pair_models(const weft_run_models *models, const weft_run_pair *pair);
/* Sets the training stage with the sizes of a pair: for images one frame in each size, and for
 * features of reference images, which do not depend on it, one frame of the smallest size. Free
 * with weft_run_pair_stage_free. */
weft_status weft_run_pair_stage(const weft_run *run, const weft_run_pair *pair,
                                const weft_train_stage *stage, weft_train_stage *own);
void weft_run_pair_stage_free(const weft_run_pair *pair, weft_train_stage *own);

#endif
