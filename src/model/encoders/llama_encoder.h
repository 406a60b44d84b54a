/* Llama as an encoder, for models that put something in the places of some of its words. */
#ifndef WEFT_MODEL_LLAMA_ENCODER_H
#define WEFT_MODEL_LLAMA_ENCODER_H

#include "model/model.h"

typedef struct weft_llama {
    int64_t vocabulary, width, inner, layers, heads, key_heads, head_dim;
    double theta, eps;
    int64_t rope; /* a word; all of them are one for text */
    int64_t pad;  /* token whose embedding is not trained; -1: none */
    int64_t skipped, max_length;
} weft_llama;
_Static_assert(sizeof(weft_llama) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit a weft_model");

/* Its words for tokens (B,S): (B,S,width). */
weft_value weft_llama_words(weft_graph *g, const weft_llama *c, weft_value tokens_bs);
/* What its layers make of x (B,S,width), where WEFT_PORT_TEXT_MASK says what is seen: into
 * WEFT_PORT_TEXT, WEFT_PORT_TEXT_LAYERS and WEFT_PORT_LAST_HIDDEN. `bias`: its projections have
 * some (Qwen). */
void weft_llama_encode(weft_graph *g, const weft_llama *c, bool bias, weft_value x, weft_ports *p);

#endif
