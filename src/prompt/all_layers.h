/* All hidden states of a text encoder as one embedding per token. */
#ifndef WEFT_PROMPT_ALL_LAYERS_H
#define WEFT_PROMPT_ALL_LAYERS_H

#include "graph/graph.h"

/* Returns layers (B,N,L,D) as (B,L,N D), each with a mean of 0 and a deviation of 1 over D. The
 * deviation is that of a sample, with D - 1 in the denominator. */
weft_value weft_all_layers_join(weft_graph *g, weft_value layers_bnld);

#endif
