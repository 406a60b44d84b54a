#ifndef WEFT_TRANSFORM_MEMORY_RECOMPUTE_H
#define WEFT_TRANSFORM_MEMORY_RECOMPUTE_H

#include "graph/op.h"
#include "transform/memory/saved_activations.h"

/* Recomputes forward values in the backward instead of saving them. Applies to forward nodes whose
 * scope or op name matches one of `patterns`, or whose policy in `activations` is recompute. Each
 * is emitted again just before its first backward consumer. In blocks, nodes between them and saved
 * activations are recomputed, too. Nodes with the policy offload are marked for the pass offload.
 * Results are bitwise identical. `activations` may be NULL. Returns WEFT_E_ARG if a pattern matches
 * nothing. Graphs without a backward stay unchanged. */
weft_status weft_pass_recompute(const weft_graph *g, const char *const *patterns, int count,
                                const weft_activation_plan *activations, weft_graph **out);
/* Returns true if the pattern matches a forward node. */
bool weft_recompute_chooses(const weft_graph *g, const char *pattern);

#endif
