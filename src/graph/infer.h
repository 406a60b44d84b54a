#ifndef WEFT_GRAPH_INFER_H
#define WEFT_GRAPH_INFER_H

#include "graph/op.h"

weft_shape weft_shape_of(int rank, const int64_t *dims);
int64_t weft_shape_count(const weft_shape *shape); /* elements */
bool weft_shape_equal(const weft_shape *a, const weft_shape *b);

/* Write text such as "f32[2,3]" into text[96] and return it. */
const char *weft_format_value(const weft_graph *g, weft_value v, char text[96]);
const char *weft_format_shape(const weft_shape *shape, char text[96]);

#endif
