/* Token refiner of HunyuanVideo's transformers (scope "context_embedder"): blocks over the text
 * tokens before the joint blocks, modulated by the timestep and the mean of the text. */
#ifndef WEFT_MODEL_DENOISERS_TOKEN_REFINER_H
#define WEFT_MODEL_DENOISERS_TOKEN_REFINER_H

#include "nn/nn.h"

typedef struct weft_token_refiner {
    int64_t heads, head_dim, layers;
    /* Every token attends to the first token, even if the mask hides it, and padding attends to the
     * first token only. Otherwise every token attends to the tokens of the mask. */
    bool first_visible;
} weft_token_refiner;

/* Mask (B,L) f32 of 0 and 1 of the tokens x (B,L,D). Without a mask input every token is real. */
weft_value weft_token_mask(weft_graph *g, weft_value mask, weft_value x);
/* text (B,L,D), mask (B,L) f32 of 0 and 1, timestep (B) -> (B,L,C). Rows of padding have no
 * meaning; later attention hides them. */
weft_value weft_token_refine(weft_graph *g, const weft_token_refiner *c, weft_value text,
                             weft_value mask_bl, weft_value timestep_b);

#endif
