/* (P, G, b) of PULSE §VI, exactly Eq. 14-17, for models whose skips are collocated. */
#ifndef WEFT_PLAN_PIPELINE_PULSE_SEARCH_H
#define WEFT_PLAN_PIPELINE_PULSE_SEARCH_H

#include "plan/cluster/fabric.h"
#include "plan/pipeline/partition.h"

typedef struct weft_pulse_choice {
    int64_t p, g, b;                  /* pipeline devices, replicas, microbatch */
    double seconds_per_sample;        /* Eq. 17 */
    double compute, send, all_reduce; /* the terms of Eq. 15 */
    double memory;                    /* Eq. 14 */
    double bottleneck;                /* T_f: forward seconds of the slowest stage */
    bool fits;
} weft_pulse_choice;

/* Enumerates P G = devices and b = 1, 2, 4, ... up to `most_b`. `costs` are for one sample. A
 * microbatch of b samples takes b (1 - overhead) + overhead times the seconds of one sample.
 * `overhead` (0..1) is the share of an operator's time that does not grow with b. Choices are
 * sorted, best first; choices that do not fit are last. `out` has space for `capacity` choices;
 * *count is their number. */
weft_status weft_pulse_search(const weft_pp_costs *costs, const weft_fabric *fabric,
                              int64_t devices, int64_t most_b, double overhead,
                              weft_pulse_choice *out, int64_t capacity, int64_t *count);

#endif
