/* Llama as an encoder, for models that replace some of its token embeddings. */
#ifndef WEFT_MODEL_ENCODERS_LLAMA_ENCODER_H
#define WEFT_MODEL_ENCODERS_LLAMA_ENCODER_H

#include "model/model.h"

typedef struct weft_llama {
    int64_t vocabulary, width, inner, layers, heads, key_heads, head_dim;
    double theta, eps;
    int64_t rope; /* index of rope_type; `default` and `mrope` are the same for text */
    /* rope_type llama3: low frequencies are divided by `stretch` */
    double stretch, low, high;
    int64_t trained; /* positions before the stretch */
    int64_t pad;     /* token whose embedding is not trained; -1: none */
    int64_t skipped, max_length;
    int64_t section[3]; /* rotary frequencies for frame, row and column of images */
} weft_llama;
_Static_assert(sizeof(weft_llama) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit a weft_model");

/* What differs between the classes: Qwen2.5 has biases of q, k and v, Qwen3 norms of q's and k's
 * heads. Mistral's padding may be before the text. */
typedef enum weft_llama_kind { WEFT_LLAMA, WEFT_QWEN2, WEFT_QWEN3, WEFT_MISTRAL } weft_llama_kind;

/* Token embeddings of tokens (B,S): (B,S,width). */
weft_value weft_llama_words(weft_graph *g, const weft_llama *c, weft_value tokens_bs);
/* (S,S) for `length` tokens: 1 where the first index is at most the second. A product with it sums
 * over all tokens up to each. */
weft_value weft_llama_up_to(weft_graph *g, int64_t length);
/* Runs the layers on x (B,S,width) with the mask WEFT_PORT_TEXT_MASK. Writes WEFT_PORT_TEXT,
 * WEFT_PORT_TEXT_LAYERS and WEFT_PORT_LAST_HIDDEN. */
void weft_llama_encode(weft_graph *g, const weft_llama *c, weft_llama_kind kind, weft_value x,
                       weft_ports *p);

#endif
