/* The section `data` of a run's config: shards or a list of sources, decoding, latent cache. */
#ifndef WEFT_TRAIN_CONFIG_DATA_CONFIG_H
#define WEFT_TRAIN_CONFIG_DATA_CONFIG_H

#include "data/loader.h"

/* When frozen text encoders encode captions: once, or in every step. */
typedef enum weft_run_embeddings {
    WEFT_EMBEDDINGS_CACHED,
    WEFT_EMBEDDINGS_STEP
} weft_run_embeddings;
/* Features of the first frames of a data set by an image encoder. */
typedef enum weft_image_features_kind {
    WEFT_FEATURES_OF_FRAME,  /* second-to-last hidden states of the frame as cropped for the clip */
    WEFT_FEATURES_PATCHES,   /* second-to-last hidden states of the image in its own size */
    WEFT_FEATURES_EMBEDDING, /* vector of the image in its own size */
} weft_image_features_kind;
/* Form of a transformer's training samples. */
typedef enum weft_run_samples { WEFT_FROM_LATENTS, WEFT_FROM_PIXELS } weft_run_samples;
typedef struct weft_run_data {
    const char *path, *split;  /* data set, see weft_dataset_open; path is "" with sources */
    weft_section_list sources; /* weft_data_source; empty: a single path */
    int blend;                 /* weft_blend of the sources */
    double clip_seconds;       /* of videos without shards; 0: a video is one sample */
    double fps;                /* frames per second; 0: every frame */
    int64_t threads;           /* decoding threads per rank */
    int64_t prefetch;          /* batches decoded in advance */
    int64_t shuffle;           /* samples of the shuffle buffer (weft_loader_config) */
    bool random_start, random_crop;
    bool verify;         /* verify data against the shards' checksums */
    const char *latents; /* folder of the latent cache; "": <out>/latents */
    int embeddings;      /* weft_run_embeddings */
    int samples_from;    /* weft_run_samples */
    weft_row_packing packing;
    /* Only the first frames of a clip count; 0: all. Others are grey, or frames of the clip with
     * this key in the data set `rest`; NULL: none (train/graph/run_pair.h). Not keys */
    int64_t given_frames;
    const char *rest;
    /* Folder of an image encoder of the first frames (train/graph/run_pair.h), and its features;
     * NULL: none. Not keys */
    const char *image_encoder;
    weft_image_features_kind image_features;
    bool group_reads; /* ranks with the same samples read each sample once and exchange them */
} weft_run_data;

extern const weft_section weft_run_data_section;

/* Checks the sources. */
weft_status weft_run_data_check(const weft_run_data *data, const char *path);
/* Opens the data set of a run: its path, or all sources. */
weft_status weft_run_data_open(const weft_run_data *data, weft_dataset **dataset);
/* Path and split of the data set, or of its first source, for commands that the user may type. */
const char *weft_run_data_first(const weft_run_data *data, const char **split);

#endif
