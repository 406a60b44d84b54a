/* Layers of a model in int8 (--weights int8): layers that keep the type of their files, and the
 * smoothing of others. `weft eval int8` measures and stores the choice in the model's folder:
 *
 *     int8.json   {"format": "weft.int8/1", ...,
 *                  "smoothed": {"transformer.blocks.0.attn1.to_out.0.weight": "??C?@...", ...},
 *                  "f32":  {"kept": ["transformer.proj_out.weight", ...], ...},
 *                  "bf16": {"kept": [...], ...}}
 *
 * A layer is the name of a matrix, or the scope of an attention whose scores may be int8. Of a
 * smoothed layer, weights are multiplied by a factor per input channel, and inputs divided.
 * Character c of its string is the factor 2^((c - '?') / 3) of a channel, '#' to '['.
 *
 * In memory, a choice is an object: layer -> true if the layer is kept, or its string. */
#ifndef WEFT_GENERATE_GENERATOR_INT8_LAYERS_H
#define WEFT_GENERATE_GENERATOR_INT8_LAYERS_H

#include "base/json.h"
#include "generate/generator/generator.h"

#define WEFT_INT8_FORMAT "weft.int8/1"

/* A layer in int8 of a generator; name: borrowed from the generator. */
typedef struct weft_int8_layer {
    const char *name;
    double flops; /* that are int8, of an evaluation */
    bool scores;  /* the scores of an attention */
} weft_int8_layer;

/* Sets *choice to the choice of the model where all else computes in bf16 or f32: a new reference.
 * NULL: the folder has no choice. */
weft_status weft_int8_choice_load(const char *folder, bool bf16, json_t **choice);
/* Adds the format to `file`, which has "smoothed", "f32" and "bf16", and writes it to the model's
 * folder. */
weft_status weft_int8_choice_save(const char *folder, json_t *file);
/* The choice of a generator; NULL: none. */
const json_t *weft_generator_int8_choice(const weft_generator *p);

/* Elements of a block of int8 in rows of `columns` elements; 0: such rows cannot be int8. */
int64_t weft_int8_block(int64_t columns);

/* Steps of a smoothing, within -WEFT_INT8_STEPS to WEFT_INT8_STEPS: the factor is 2^(step / 3). */
enum { WEFT_INT8_STEPS = 28 };
/* Writes the string of `columns` steps to text[columns + 1]. */
void weft_int8_write_steps(const int *step, int64_t columns, char *text);
/* Sets factor[columns] to the factors of steps; `inverse`: to one over the factors. */
void weft_int8_factors(const int *step, int64_t columns, bool inverse, float *factor);
/* Sets factor[columns] to the factors of a layer in `choice`; `inverse`: to one over the factors.
 * Returns false if the layer is not smoothed, or has another number of columns. */
bool weft_int8_read_factors(const json_t *choice, const char *layer, int64_t columns, bool inverse,
                            float *factor);

/* Lists the layers in int8 of the denoisers, in order. Returns the number; `layer` may be NULL. */
int64_t weft_generator_int8_layers(const weft_generator *p, weft_int8_layer *layer);

#endif
