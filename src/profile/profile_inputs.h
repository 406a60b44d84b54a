/* Values of the inputs of profiled programs. Kernels compute equal rows once, so that the times of
 * a program depend on which rows of its inputs are equal. */
#ifndef WEFT_PROFILE_PROFILE_INPUTS_H
#define WEFT_PROFILE_PROFILE_INPUTS_H

#include "exec/program.h"

/* Equal rows of a run. */
typedef struct weft_profile_prompts {
    /* tokens of each prompt; the rows of a text after them are padding. 0: none is */
    int64_t tokens;
    /* prompts of a generation: row r of a batch has the latents of prompt r modulo their number,
     * because guidance repeats them. 0: the rows of a training batch, which all differ */
    int64_t prompts;
} weft_profile_prompts;

/* Fills the inputs with values like those of a run, and not with zeros: a step that the optimizer
 * skips would be faster. Other texts than prompts have no padding. */
void weft_profile_fill(const weft_graph *graph, weft_program *program,
                       const weft_profile_prompts *prompts);

#endif
