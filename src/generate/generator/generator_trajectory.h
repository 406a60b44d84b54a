/* The denoising trajectory of a generator: noise levels, steps and guidance, the same for every
 * batch. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_TRAJECTORY_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_TRAJECTORY_H

#include "generate/generator/generator_model.h"

/* Lives as long as the generator. Zero-initialise; close with weft_generator_trajectory_close. */
typedef struct weft_generator_trajectory {
    weft_scheduler scheduler;      /* the model's, with the options' shift and eta */
    const weft_guidance *guidance; /* guidance method */
    int64_t skipped;               /* first steps of the schedule that are not run (strength) */
    /* [steps]; NULL: not computed yet. Sections in stages (latent_stages.h): the steps of all
     * stages, then the steps of the first section, if they differ. */
    weft_solver_step *solver_step;
    int64_t stage_steps[WEFT_MAX_STAGES];
    int64_t zero_steps; /* first steps whose prediction is 0, by the guidance; 0: none */
    int64_t tail_steps; /* last steps at even levels from 0.5 on; 0: none */
    /* Noise level of the first step of a refinement, which levels of the schedule below it follow.
     * 0: the schedule's first level */
    double first_level;
    int64_t schedule_steps; /* with tail_steps or first_level: steps of the schedule */
} weft_generator_trajectory;

/* Reads the scheduler. Fills in the sampler and the shift of the options. */
weft_status weft_generator_trajectory_open(const weft_generator_model *model,
                                           weft_generator_options *options,
                                           weft_generator_trajectory *trajectory);
/* Chooses the guidance method: of the options, else of the family's pipeline. Checks that the model
 * and the noise levels support the method. */
weft_status weft_generator_trajectory_choose_guidance(const weft_generator_model *model,
                                                      const weft_generator_options *options,
                                                      weft_generator_trajectory *trajectory);
/* 1 if the guider averages the differences of the predictions over the steps, otherwise 0. */
int64_t weft_generator_averages(const weft_generator *p);
/* Sets the steps of a schedule that ends with even levels (options.tail_steps), or begins at the
 * level of a refinement, and their number in options.steps. Follows the shape of the video. */
weft_status weft_generator_trajectory_fit_steps(weft_generator *p);
/* Computes the noise levels of the trajectory, once. */
weft_status weft_generator_trajectory_set_levels(weft_generator *p);
void weft_generator_trajectory_close(weft_generator_trajectory *trajectory);

#endif
