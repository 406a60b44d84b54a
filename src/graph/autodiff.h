#ifndef WEFT_GRAPH_AUTODIFF_H
#define WEFT_GRAPH_AUTODIFF_H

#include "graph/op.h"

/* Gradients of the scalar `loss` with respect to `wrt[count]` (WEFT_NONE if `loss` does not depend
 * on it). Emits no nodes for frozen parameters. */
void weft_autodiff(weft_graph *g, weft_value loss, const weft_value *wrt, int count,
                   weft_value *grad);
/* Gradients from several values, given the gradient `seed` of each, with the value's shape and type
 * and the dual of its layout. A value may occur twice in `from`: its seeds are added. */
void weft_autodiff_from(weft_graph *g, const weft_value *from, const weft_value *seed, int seeds,
                        const weft_value *wrt, int count, weft_value *grad);

/* Sets the layout of a gradient that has no operands to that of gradients of `of`. */
void weft_grad_set_layout(weft_graph *g, weft_value grad, weft_value of);

#endif
