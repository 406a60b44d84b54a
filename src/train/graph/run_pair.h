/* A second data set with a clip for each clip of data.path, whose latents are also an input. */
#ifndef WEFT_TRAIN_GRAPH_RUN_PAIR_H
#define WEFT_TRAIN_GRAPH_RUN_PAIR_H

#include "train/graph/objective.h"

typedef struct weft_run_pair {
    const char *path;  /* NULL: none */
    const char *key;   /* of the config */
    const char *input; /* of the training programs */
    bool first_only;   /* the clips of data.path, with grey frames after the first one */
} weft_run_pair;

weft_run_pair weft_run_pair_of(const weft_run *run, const weft_run_models *models);
/* Returns the run with the second data set as its data, and its models without encoded captions,
 * which the first data set has. */
weft_run weft_run_pair_run(const weft_run *run, const weft_run_pair *pair);
weft_run_models weft_run_pair_models(const weft_run_models *models);

#endif
