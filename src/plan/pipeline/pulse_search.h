/* (P, G, b) of PULSE §VI, exactly Eq. 14-17, for models whose skips are collocated. plan/layout
 * enumerates the degrees (P is pp, G is dp), has their rules and orders the layouts. */
#ifndef WEFT_PLAN_PIPELINE_PULSE_SEARCH_H
#define WEFT_PLAN_PIPELINE_PULSE_SEARCH_H

#include "plan/cluster/fabric.h"
#include "plan/layout/layout_list.h"
#include "plan/pipeline/partition.h"

typedef struct weft_pulse_choice {
    int64_t p, g, b;                  /* pipeline devices, replicas, microbatch */
    double seconds_per_sample;        /* Eq. 17 */
    double compute, send, all_reduce; /* the terms of Eq. 15 */
    double memory;                    /* Eq. 14 */
    double bottleneck;                /* T_f: forward seconds of the slowest stage */
    bool fits;
} weft_pulse_choice;

typedef struct weft_pulse_space {
    int64_t devices;
    int64_t most_b;  /* largest microbatch */
    double overhead; /* share of an operator's seconds that does not grow with b, 0..1 */
} weft_pulse_space;

/* Estimates all layouts with P G = devices and b = 1, 2, 4, ... up to `most_b`. `costs` are for one
 * sample. A microbatch of b samples takes b (1 - overhead) + overhead times the seconds of one
 * sample. `list` receives the layouts, best first; `estimate` of each is its weft_pulse_choice. */
weft_status weft_pulse_search(weft_arena *arena, const weft_pp_costs *costs,
                              const weft_fabric *fabric, const weft_pulse_space *space,
                              weft_layout_list *list);

#endif
