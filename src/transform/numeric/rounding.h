#ifndef WEFT_TRANSFORM_NUMERIC_ROUNDING_H
#define WEFT_TRANSFORM_NUMERIC_ROUNDING_H

#include "graph/op.h"

/* Returns WEFT_E_INTERNAL if an output or update of `after` is another expression on rounded values
 * than in `before`. `pass`: name of the pass, for the message. */
weft_status weft_rounding_check(const weft_graph *before, const weft_graph *after,
                                const char *pass);
/* Returns WEFT_E_INTERNAL if a node of the mixed-precision forward `g` reads or returns bf16 where
 * its op's row declares f32. */
weft_status weft_precision_check(const weft_graph *g);

#endif
