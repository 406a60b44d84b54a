/* Mixtures of experts: feed-forwards of which each token takes a few. */
#ifndef WEFT_NN_EXPERTS_H
#define WEFT_NN_EXPERTS_H

#include "graph/graph.h"

typedef struct weft_nn_experts {
    int64_t experts, active; /* how many there are, and how many of them a token takes */
    int64_t inner;           /* width inside of one */
    int64_t shared;          /* width of the one that every token takes beside; 0: none */
    bool sigmoid;            /* scores are sigmoids; else a softmax over the experts */
    bool corrected;          /* a bias of each expert is added to its score for the choice alone */
    int64_t groups,
        kept;        /* of neighbours, of which a token may choose from the best; 0: no groups */
    bool normalised; /* a token's weights add up to one */
    double scale;    /* of the weights */
    /* Places of an expert for the tokens of one sample: so many times its even share; a token that
     * finds none goes without it. 0: all have one */
    double capacity;
} weft_nn_experts;

/* How even the load is, each a scalar and a mean over samples. */
typedef struct weft_nn_load {
    weft_value balance; /* sum over experts of share x mean score x experts: 1 is even */
    weft_value fullest; /* the load of the fullest expert over the even one */
    weft_value dropped; /* share of the choices that found no place */
} weft_nn_load;

/* w2 (silu(w1 x) * w3 x), without biases: x (..., C), `inner` wide. */
weft_value weft_nn_swiglu(weft_graph *g, weft_value x, int64_t inner);

/* x (B,S,C) -> (B,S,C): the sum of the chosen experts' outputs by weight, and of the shared one.
 *
 *   x --gate--> scores (B,S,E) --top k--> ids (B,S,k), weights (B,S,k)
 *   rows of x by ids --experts.*.w1, w3, w2--> (B,S,k,C) --by weights--> (B,S,C) + shared_experts
 *
 * Owns "gate.weight" ("gate.e_score_correction_bias"), stacks "experts.*.w1.weight" (E,inner,C),
 * "w3" and "w2" (E,C,inner), and "shared_experts.w1.weight" ...; `load` NULL: nobody asks. */
weft_value weft_nn_experts_of(weft_graph *g, const weft_nn_experts *c, weft_value x_bsc,
                              weft_nn_load *load);

#endif
