/* A small Wan DiT with its training objective, as the trainer builds it. */
#ifndef TESTS_GRAPH_DIT_H
#define TESTS_GRAPH_DIT_H

#include "graph/graph.h"

typedef struct dit_setup {
    int64_t batch, heads, frames, height, width;
    const char *loss; /* output name, NULL: "loss" */
} dit_setup;

/* Inputs batch.latents, batch.text, batch.key; outputs prediction and the loss. `user` is a
 * dit_setup. */
weft_graph *dit_build(void *user);
/* Values of sources by name and index in the whole tensor. */
double dit_fill(void *user, const char *name, weft_dtype dtype, int64_t index);

#endif
