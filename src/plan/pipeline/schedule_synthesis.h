/* Schedule synthesis (PULSE §V-A, Eq. 6-13) by weft's own exact search.
 *
 * The unknowns are the device of each stage and the step of each (stage, microbatch), forward and
 * backward, one step each. Every stage takes the microbatches in order (Eq. 11). The state of the
 * pipeline is therefore the progress of each microbatch: at most C(M + 2S, M) states. A
 * breadth-first search by steps finds the shortest path. A state that is ahead in every microbatch
 * is never worse, so devices need not idle while the length is searched.
 *
 * Among the shortest schedules, the search takes the smallest peak of held activations, then the
 * smallest sum of held activations over all steps, then Eq. 13. The sum distinguishes 1F1B from
 * GPipe, which are equally long. Above a state limit the list scheduler extends the pattern
 * (schedule.h). */
#ifndef WEFT_PLAN_PIPELINE_SCHEDULE_SYNTHESIS_H
#define WEFT_PLAN_PIPELINE_SCHEDULE_SYNTHESIS_H

#include "plan/pipeline/schedule.h"

typedef struct weft_pp_stage_pair {
    int32_t a, b; /* stages that must share a device (Eq. 9) */
} weft_pp_stage_pair;

typedef struct weft_synthesis {
    weft_pp_schedule schedule;
    int64_t lower_bound; /* steps; for the chosen devices if the pattern was extended */
    bool proved;         /* the number of steps equals the lower bound of all schedules */
    int64_t states;      /* visited; 0: the pattern was extended without a search */
} weft_synthesis;

/* state_limit 0: 1,000,000. The search also stops after twelve times this number of transitions
 * (two seconds), and the pattern is extended. */
weft_status weft_synthesise(int64_t pp_stages, int64_t devices, int64_t microbatches,
                            const weft_pp_stage_pair *pair, int64_t pair_count, int64_t state_limit,
                            weft_synthesis *out);

#endif
