#ifndef WEFT_TRANSFORM_NUMERIC_CFG_BRANCHES_H
#define WEFT_TRANSFORM_NUMERIC_CFG_BRANCHES_H

#include "graph/op.h"

/* Names of inputs whose rows are equal in both CFG branches: latents, timestep. Borrowed. */
typedef struct weft_cfg_inputs {
    const char *const *equal;
    int equal_count;
} weft_cfg_inputs;

/* Splits the products of a denoising batch into the two CFG branches: the first half of the rows
 * has text, the second half repeats it without text. Results are bitwise those of two ranks with
 * one branch each. For forward graphs in which no axis splits the batch.
 *
 * `inputs`: rows that depend on equal inputs only are computed for one branch, and used for both.
 * The caller must give equal rows. NULL: no inputs are equal. */
weft_status weft_pass_cfg_branches(const weft_graph *g, const weft_cfg_inputs *inputs,
                                   weft_graph **out);

#endif
