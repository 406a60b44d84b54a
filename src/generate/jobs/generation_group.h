/* Batches that use one generator: contiguous batches of jobs with the same size, steps and
 * guidance. */
#ifndef WEFT_GENERATE_JOBS_GENERATION_GROUP_H
#define WEFT_GENERATE_JOBS_GENERATION_GROUP_H

#include "generate/jobs/generation_context.h"
#include "generate/jobs/video_continuation.h"

/* Lives for the batches of one generator. */
typedef struct weft_generation_group {
    weft_generation_context *context; /* borrowed */
    weft_generator *generator;
    weft_continuation continuation; /* windows of a continued video */
    int64_t tokens;                 /* tokens of a video or a window */
    double predicted;               /* seconds of texts and steps; 0: unknown */
} weft_generation_group;

/* Whether the videos of the group are continued videos of several windows. */
bool weft_generation_group_in_windows(const weft_generation_group *group);
/* Generates the missing videos of the batches from `first` on that can use one generator. *end is
 * set to the first other batch. */
weft_status weft_generation_group_run(weft_generation_context *context, int64_t first,
                                      int64_t *end);

#endif
