/* Noise levels at which the sampler of a distilled model calls it, and of which training draws one.
 * They are computed as in `weft generate` with the scheduler of the finished model: even levels for
 * some families, and a shift that depends on the size of the video. */
#ifndef WEFT_TRAIN_GRAPH_STUDENT_LEVELS_H
#define WEFT_TRAIN_GRAPH_STUDENT_LEVELS_H

#include "train/graph/objective.h"

/* The noise process with which a finished model is written. A distilled model denoises and adds new
 * noise in each step, unless the run names a sampler. It adds none if the path of consistency ends
 * above 0. */
weft_noise_process_config weft_student_process(const weft_run *run);
/* Steps with which the finished model generates: of its training, or 4. */
int64_t weft_student_steps(const weft_run *run);
/* The levels of timestep_min and timestep_max before the shift of `flow`. */
double weft_student_lowest(const weft_run *run, const weft_flow_config *flow);
double weft_student_highest(const weft_run *run, const weft_flow_config *flow);
/* Writes the levels of distill.student_steps steps for videos of `tokens` tokens, from the highest,
 * into sigma[WEFT_DISTILL_MOST_STEPS]. An expert has *count levels, of its range, of the steps of
 * all experts. */
weft_status weft_student_levels(const weft_run *run, const weft_run_models *models, int64_t tokens,
                                double *sigma, int64_t *count);
/* Whether versions without the key distill.fake_weights trained at other levels for a video of this
 * size. They knew neither the levels of a family's pipeline nor a shift by resolution. */
weft_status weft_student_levels_changed(const weft_run *run, const weft_run_models *models,
                                        const weft_bucket *size, bool *changed);
/* Calls it while a graph is built. Without levels, the graph has failed and the result is false. */
bool weft_student_levels_build(weft_graph *g, const weft_run *run, const weft_run_models *models,
                               int64_t tokens, double *sigma, int64_t *count);

#endif
