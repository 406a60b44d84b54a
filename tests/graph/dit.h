/* A small Wan DiT with its training objective, as the trainer builds it. */
#ifndef TESTS_GRAPH_DIT_H
#define TESTS_GRAPH_DIT_H

#include "graph/graph.h"
#include "transform/sharding/recipes.h"

typedef struct dit_setup {
    int64_t batch, heads, frames, height, width;
    const char *loss; /* output name, NULL: "loss" */
} dit_setup;

/* Inputs batch.latents, batch.text, batch.key; outputs prediction and the loss. `user` is a
 * dit_setup. */
weft_graph *dit_build(void *user);
/* The recipe of the family, combined for the mesh; freed by weft_recipe_free. */
weft_recipe dit_recipe(const weft_mesh *mesh);
/* Values of sources by name and index in the complete tensor. */
double dit_fill(void *user, const char *name, weft_dtype dtype, int64_t index);

#endif
