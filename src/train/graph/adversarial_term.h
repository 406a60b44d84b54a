/* An objective with a term against what is trained: how the gradients of both come together at what
 * is made, so that neither is computed twice and nothing but what makes it is trained by them. */
#ifndef WEFT_TRAIN_ADVERSARY_H
#define WEFT_TRAIN_ADVERSARY_H

#include "graph/graph.h"

typedef struct weft_pull {
    /* 0. Its gradient at what is made is that of objective + weight x against */
    weft_value pull;
    weft_value weight;
    /* of the gradients of objective and against at the last layer; WEFT_NONE: none was given */
    weft_value norm[2];
} weft_pull;

/* `objective` and `against`, scalars, are computed of `seen`, which is weft_stop of `made`:
 *
 *   parameters ── last ──> made ··stop··> seen ──> objective ─┐ d / d seen
 *                           ^                └──> against ────┤
 *                           └──── pull: sum of made x stop(d objective + weight d against)
 *
 * weight = factor x |d objective / d last| / (|d against / d last| + 1e-4), at most 1e4 times
 * (Esser et al., CVPR'21), a constant to gradients; `last` WEFT_NONE: factor itself. */
void weft_pull_build(weft_graph *g, weft_value made, weft_value seen, weft_value objective,
                     weft_value against, weft_value last, weft_value factor, weft_pull *out);

#endif
