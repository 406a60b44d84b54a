/* Inputs that a share of the samples does not get. */
#ifndef WEFT_TRAIN_GRAPH_SAMPLE_DROPOUT_H
#define WEFT_TRAIN_GRAPH_SAMPLE_DROPOUT_H

#include "base/rng.h"
#include "graph/graph.h"

/* f32 (B,1,..,1) of `rank` dimensions: 0 for a share `dropout` of the samples, otherwise 1. The
 * draw of a sample depends on its key (B) and on the purpose only, so it is the same in all
 * layouts. */
weft_value weft_sample_kept(weft_graph *g, weft_value key, weft_rng_purpose purpose, double dropout,
                            int rank);
/* `x` in samples with kept = 1, `other` in samples with kept = 0. Both are finite. The result
 * is bitwise one of the two. */
weft_value weft_sample_choose(weft_graph *g, weft_value kept, weft_value x, weft_value other);

#endif
