#ifndef WEFT_NN_ORTHONORMAL_H
#define WEFT_NN_ORTHONORMAL_H

#include "graph/graph.h"

/* w (M,N), M >= N: the orthonormal factor Q (M,N) of w = Q R, by Householder reflections. Q has the
 * signs of LAPACK's geqrf: R(i,i) has the sign opposite to the element that the reflection moves.
 * The gradient is exact where no such element is 0. Computed in f32 with every precision. */
weft_value weft_nn_orthonormal(weft_graph *g, weft_value w);

#endif
