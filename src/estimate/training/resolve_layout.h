/* Resolves `plan: FILE` and the `auto` values of the section `parallel`. */
#ifndef WEFT_ESTIMATE_TRAINING_RESOLVE_LAYOUT_H
#define WEFT_ESTIMATE_TRAINING_RESOLVE_LAYOUT_H

#include "comm/comm.h"
#include "estimate/training/layout_choice.h"

/* Replaces `plan: FILE` by the degrees of the file, and `context: auto` and `slices: auto` by the
 * fastest choice. Times come from the profile <out>/profile.json, or from this machine's figures
 * without a profile. Collective if `comm` is set. Otherwise resolves for `ranks` ranks; 0: the
 * product of the degrees.
 *
 * `stored` (NULL: none) is the choice in the run folder, read by rank 0. A stored choice for the
 * same config, sizes, model and ranks is used; any other is replaced by the new choice. On rank 0,
 * `out` gets a line about the decision. WEFT_E_CONFIG: degrees are set in addition to a plan, or
 * the plan is for another run. */
weft_status weft_run_resolve_layout(weft_run *run, const weft_run_models *models, const char *path,
                                    weft_comm *comm, int ranks, weft_settled *stored,
                                    weft_arena *arena, weft_buf *out);

#endif
