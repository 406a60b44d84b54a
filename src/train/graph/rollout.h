/* Videos that a causal student generates in a training step (Self Forcing, Huang et al. 2025),
 * block by block as in `weft generate` with the sampler `consistency`:
 *
 *     noise ──> student at level 1 ──> clean ── with new noise ──> student at level 2 ──> ...
 *                                                                     the drawn level ──> block
 *     block ── stop ──> student at the context's level ── stop ──> keys and values of later blocks
 *
 * A sample draws the last level of all of its blocks. The call at this level alone has a gradient.
 * Calls at later levels are computed, too, and their results do not count. The authors draw one
 * level for a whole batch. */
#ifndef WEFT_TRAIN_GRAPH_ROLLOUT_H
#define WEFT_TRAIN_GRAPH_ROLLOUT_H

#include "train/graph/distillation.h"

/* Returns the student's videos (B,T,Y,X,Z). *called receives the other outputs of the first call
 * with a gradient. */
weft_value weft_rollout_build(weft_graph *g, const weft_distillation *d, weft_ports *called);
/* Whether u (B), uniform in [0, 1), is at least k / steps: 1 or 0. */
weft_value weft_rollout_passed(weft_graph *g, weft_value u, int64_t k, int64_t steps);
/* Rejects models that cannot be trained like this. */
weft_status weft_rollout_check(const weft_run *run, const weft_run_models *models,
                               const char *path);

#endif
