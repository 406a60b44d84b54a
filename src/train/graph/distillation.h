/* Losses of step distillation. x(s) = (1 - s) data + s noise is the path of flow matching. For a
 * network's velocity v, its clean sample is x - s v.
 *
 * Consistency (LCM; Luo et al. 2023), with s > r neighbouring levels of the teacher's solver:
 *
 *     x(s) ── student ──> x(s) - s v                                  ──┐ distance
 *       └─── teacher, one Euler step ──> x(r) ── target ──> x(r) - r v ─┘ without gradient
 *
 * Distribution matching (DMD2; Yin et al. 2024), with x(s) at a level of the student's sampler:
 *
 *     x(s) ── student ──> y ──┬── with new noise ──> real score (teacher): clean sample a
 *                             │                 └──> fake score: clean sample b
 *                             ├── its gradient is (b - a) / mean |y - a| of the sample
 *                             └── stop, with other noise ──> fake score: loss of flow matching
 *
 * All networks have the control of the sample (condition: control), also without the caption.
 * A model of video and sound has both at one level, as in generation, and the loss of each stream
 * as in its training (train/graph/sound_stream.h).
 * An expert of a range of levels (timestep_min, timestep_max) learns from levels of its range: the
 * path of consistency ends at timestep_min (Wang et al., Phased Consistency Models, 2024), and both
 * scores have noise of the range.
 *
 * Self-forcing (Huang et al. 2025): the same, with y a video that the student generates from noise
 * (train/graph/rollout.h), and both scores see all of its frames. */
#ifndef WEFT_TRAIN_GRAPH_DISTILLATION_H
#define WEFT_TRAIN_GRAPH_DISTILLATION_H

#include "train/graph/objective.h"
#include "train/graph/sound_stream.h"

/* The inputs of a distillation loss. */
typedef struct weft_distillation {
    const weft_run *run;
    const weft_run_models *models;
    const weft_flow_config *flow; /* with the shift of the batch's size */
    int64_t tokens;               /* of a video */
    weft_value data;              /* (B,T,Y,X,Z) */
    weft_value given;             /* of weft_denoiser_call */
    weft_value noise;             /* (B,T,Y,X,Z) */
    weft_value key;               /* i64 (B): key of the levels */
    weft_ports text, empty;       /* inputs with the captions, and with the empty caption; both have
                                   * the control, which all networks read */
    weft_sound_stream sound;      /* inputs and noise of the sound */
} weft_distillation;

/* Adds the loss of run->distill and returns it. *called receives the other outputs of the trained
 * model's call. */
weft_value weft_distillation_loss(weft_graph *g, const weft_distillation *d, weft_ports *called);

/* Whether the teacher also reads the empty caption. */
bool weft_distillation_guides(const weft_run *run);
/* Rejects models that cannot be distilled, after the models are read. */
weft_status weft_distillation_check(const weft_run *run, const weft_run_models *models,
                                    const char *path);

#endif
