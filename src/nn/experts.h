/* Mixtures of experts: feed-forwards of which each token uses a few. */
#ifndef WEFT_NN_EXPERTS_H
#define WEFT_NN_EXPERTS_H

#include "graph/graph.h"

typedef struct weft_nn_experts {
    int64_t experts, active; /* number of experts, and experts per token */
    int64_t inner;           /* hidden width of an expert */
    int64_t shared;          /* width of the shared expert that every token uses; 0: none */
    bool sigmoid;            /* scores: sigmoid; false: softmax over the experts */
    bool corrected;          /* adds a bias per expert to the scores, for the choice only */
    int64_t groups,
        top_groups;  /* groups of adjacent experts, of which a token may choose; 0: none */
    bool normalised; /* the weights of a token add up to one */
    double scale;    /* factor of the weights */
    /* Slots of an expert for the tokens of one sample, as a multiple of the even share. A choice
     * beyond the slots is dropped. 0 (default): no limit. */
    double capacity;
} weft_nn_experts;

/* Load balance of the experts: scalars, means over samples. */
typedef struct weft_nn_load {
    weft_value balance; /* sum over experts of share x mean score x experts: 1 is even */
    weft_value fullest; /* the load of the fullest expert over the even one */
    weft_value dropped; /* share of choices dropped over capacity */
} weft_nn_load;

/* w2 (silu(w1 x) * w3 x) without biases, for x (..., C) and hidden width `inner`. */
weft_value weft_nn_swiglu(weft_graph *g, weft_value x, int64_t inner);

/* x (B,S,C) -> (B,S,C): weighted sum of the chosen experts' outputs, plus the shared expert.
 *
 *   x --gate--> scores (B,S,E) --top k--> ids (B,S,k), weights (B,S,k)
 *   rows of x by ids --experts.*.w1, w3, w2--> (B,S,k,C) --by weights--> (B,S,C) + shared_experts
 *
 * Parameters: "gate.weight" ("gate.e_score_correction_bias"), stacks "experts.*.w1.weight"
 * (E,inner,C), "w3" and "w2" (E,C,inner), and "shared_experts.w1.weight" ... `load` NULL: the load
 * is not computed. */
weft_value weft_nn_experts_of(weft_graph *g, const weft_nn_experts *c, weft_value x_bsc,
                              weft_nn_load *load);

#endif
