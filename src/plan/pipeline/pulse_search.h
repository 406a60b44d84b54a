/* (P, G, b) of PULSE §VI to the letter, Eq. 14-17, for models whose skips are collocated. */
#ifndef WEFT_PLAN_PULSE_H
#define WEFT_PLAN_PULSE_H

#include "plan/cluster/fabric.h"
#include "plan/pipeline/partition.h"

typedef struct weft_pulse_choice {
    int64_t p, g, b;                  /* pipeline devices, replicas, microbatch */
    double seconds_per_sample;        /* Eq. 17 */
    double compute, send, all_reduce; /* the terms of Eq. 15 */
    double memory;                    /* Eq. 14 */
    double bottleneck;                /* T_f: the slowest stage, one forward */
    bool fits;
} weft_pulse_choice;

/* `costs` are for one sample; a microbatch of b takes b times as long plus `overhead` (0..1): the
 * share of an operator's time that does not grow with b. Enumerates P G = devices and b = 1, 2, 4,
 * ... up to `most_b`; choices are sorted, best first, those that do not fit last. `out` has room
 * for `room`; *count is how many there are. */
weft_status weft_tune_pulse(const weft_pipe_costs *costs, const weft_fabric *fabric,
                            int64_t devices, int64_t most_b, double overhead,
                            weft_pulse_choice *out, int64_t room, int64_t *count);

#endif
