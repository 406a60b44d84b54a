/* Combines the gradients of an objective and of an adversarial term at the generated value. Each
 * gradient is computed once, and only the generator's parameters receive it. */
#ifndef WEFT_TRAIN_GRAPH_ADVERSARIAL_TERM_H
#define WEFT_TRAIN_GRAPH_ADVERSARIAL_TERM_H

#include "graph/graph.h"

typedef struct weft_adversarial_term {
    /* value 0; its gradient at `made` is the gradient of objective + weight x against */
    weft_value pull;
    weft_value weight;
    /* Gradient norms of `objective` and `against` at the last layer. WEFT_NONE: no last layer. */
    weft_value norm[2];
} weft_adversarial_term;

/* Adds a term whose gradient combines two scalars, `objective` and `against`. Both are computed
 * from `seen`, which is weft_stop of `made`:
 *
 *   parameters ── last ──> made ··stop··> seen ──> objective ─┐ d / d seen
 *                           ^                └──> against ────┤
 *                           └──── pull: sum of made x stop(d objective + weight d against)
 *
 * weight = factor x |d objective / d last| / (|d against / d last| + 1e-4). The ratio is at most
 * 1e4 (Esser et al., CVPR'21). The weight is constant for gradients. `last` WEFT_NONE: the weight
 * is `factor`. */
void weft_adversarial_term_build(weft_graph *g, weft_value made, weft_value seen,
                                 weft_value objective, weft_value against, weft_value last,
                                 weft_value factor, weft_adversarial_term *out);

#endif
