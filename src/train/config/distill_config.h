/* Step distillation: a denoiser of flow matching learns to generate in a few steps. */
#ifndef WEFT_TRAIN_CONFIG_DISTILL_CONFIG_H
#define WEFT_TRAIN_CONFIG_DISTILL_CONFIG_H

#include "base/config.h"

typedef enum weft_distill_method {
    WEFT_DISTILL_NONE,
    WEFT_DISTILL_LCM,  /* consistency (Song et al. 2023; Luo et al., LCM, 2023) */
    WEFT_DISTILL_DMD2, /* distribution matching (Yin et al., DMD2, 2024) */
    /* distribution matching of videos that a causal student generates block by block (Huang et al.,
     * Self Forcing, 2025) */
    WEFT_DISTILL_SELF_FORCING
} weft_distill_method;
enum { WEFT_DISTILL_MOST_STEPS = 64 };
typedef enum weft_distill_loss { WEFT_DISTILL_HUBER, WEFT_DISTILL_L2 } weft_distill_loss;

typedef struct weft_distill_config {
    int method;            /* weft_distill_method */
    double guidance;       /* CFG scale of the teacher; 1: no guidance */
    int64_t solver_steps;  /* Euler steps of the teacher from noise to data */
    int loss;              /* weft_distill_loss */
    double huber_c;        /* width of the quadratic part of HUBER */
    int64_t student_steps; /* DMD2, SELF_FORCING: steps with which the student generates */
    int64_t interval;      /* DMD2, SELF_FORCING: the student is updated in every such step */
    const char *teacher;   /* folder of the teacher; "": transformer.weights. Arena */
    /* DMD2, SELF_FORCING: folder with which the fake score starts; "": the teacher's. Arena */
    const char *fake_weights;
    double context_noise; /* SELF_FORCING: timestep of finished blocks, with noise */
} weft_distill_config;
/* Whether the student matches a distribution, so that there is a fake score. */
static inline bool weft_distill_matches(const weft_distill_config *config)
{
    return config->method == WEFT_DISTILL_DMD2 || config->method == WEFT_DISTILL_SELF_FORCING;
}
/* Keys of weft_run. */
extern const weft_section weft_distill_section;

typedef struct weft_run weft_run;
/* Rejects keys that cannot be combined with distillation, and keys of distill without a method. */
weft_status weft_distill_check(const weft_run *run, const char *path);

#endif
