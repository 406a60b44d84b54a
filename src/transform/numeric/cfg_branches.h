#ifndef WEFT_TRANSFORM_NUMERIC_CFG_BRANCHES_H
#define WEFT_TRANSFORM_NUMERIC_CFG_BRANCHES_H

#include "graph/op.h"

/* Splits the products of a denoising batch into the two CFG branches: the first half of the rows
 * has text, the second half repeats it without text. Results are bitwise those of two ranks with
 * one branch each. For forward graphs in which no axis splits the batch. */
weft_status weft_pass_cfg_branches(const weft_graph *g, weft_graph **out);

#endif
