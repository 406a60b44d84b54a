/* Search representation of a plan: an option and a priority bias per cascade. A list scheduler
 * converts a genome to a schedule. */
#ifndef WEFT_PLAN_GENOME_H
#define WEFT_PLAN_GENOME_H

#include "plan/cascade/cascade.h"

typedef struct weft_genome {
    int32_t *option; /* option of the problem */
    double *bias;
    double value; /* objective to minimise; INFINITY: not computed */
} weft_genome;
weft_status weft_genome_create(weft_arena *arena, int64_t count, weft_genome *out);
void weft_genome_copy(int64_t count, const weft_genome *from, weft_genome *to);
/* Returns the option of a cascade with the least area (seconds times devices) among options of at
 * most `seconds`; the fastest option if none is that fast. */
int32_t weft_genome_cheapest(const weft_cascade_problem *problem, int32_t cascade, double seconds);
/* Sets the cheapest option of at most `tau` seconds for every cascade, or the fastest. */
void weft_genome_by_threshold(const weft_cascade_problem *problem, double tau, weft_genome *genome);

#endif
