/* Schedule synthesis (PULSE §V-A, Eq. 6-13) by an exact search of our own.
 *
 * The unknowns are the device of each stage and the step of each (stage, microbatch), forward and
 * backward, one step each. Because every stage takes the microbatches in order (Eq. 11), the state
 * of the whole pipeline is how far each microbatch has come: at most C(M + 2S, M) states, of which
 * a breadth-first search by steps finds the shortest way. A state that is further on in every
 * microbatch is never worse, so devices need not idle while the length is searched.
 *
 * Among the shortest schedules: smallest peak of held activations, then smallest sum of held
 * activations over all steps (that is what tells 1F1B from GPipe, which are equally long), then
 * Eq. 13. Above a state limit the pattern is extended by the list scheduler (schedule.h). */
#ifndef WEFT_PLAN_SYNTHESISE_H
#define WEFT_PLAN_SYNTHESISE_H

#include "plan/pipeline/schedule.h"

typedef struct weft_stage_pair {
    int32_t a, b; /* stages that must share a device (Eq. 9) */
} weft_stage_pair;

typedef struct weft_synthesis {
    weft_schedule schedule;
    int64_t lower_bound; /* steps; of the chosen devices when the pattern was extended */
    bool proved;    /* no schedule takes fewer steps than the lower bound, and this one takes it */
    int64_t states; /* visited; 0: the pattern was extended without a search */
} weft_synthesis;

/* state_limit 0: the default (1,000,000). The search also gives up after twelve times as many ways
 * from state to state (two seconds), and the pattern is extended. */
weft_status weft_synthesise(int64_t stages, int64_t devices, int64_t microbatches,
                            const weft_stage_pair *pair, int64_t pair_count, int64_t state_limit,
                            weft_synthesis *out);

#endif
