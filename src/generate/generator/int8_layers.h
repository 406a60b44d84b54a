/* Layers of a model in int8 (--weights int8), and the choice of layers that keep the type of their
 * files. `weft eval int8` measures and stores the choice in the model's folder:
 *
 *     int8.json   {"format": "weft.int8/1", ...,
 *                  "f32":  {"kept": ["transformer.proj_out.weight", ...], ...},
 *                  "bf16": {"kept": [...], ...}}
 *
 * A layer is the name of a matrix, or the scope of an attention whose scores may be int8. */
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

/* Sets *kept to an object whose keys are the kept layers of the model where all else computes in
 * bf16 or f32: a new reference. NULL: the folder has no choice. */
weft_status weft_int8_kept_load(const char *folder, bool bf16, json_t **kept);
/* Adds the format to `choice`, which has "f32" and "bf16", and writes it to the model's folder. */
weft_status weft_int8_kept_save(const char *folder, json_t *choice);

/* Lists the layers in int8 of the denoisers, in order. Returns the number; `layer` may be NULL. */
int64_t weft_generator_int8_layers(const weft_generator *p, weft_int8_layer *layer);

#endif
