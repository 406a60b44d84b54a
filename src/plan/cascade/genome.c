#include "plan/cascade/genome.h"

#include <math.h>
#include <string.h>

weft_status weft_genome_create(weft_arena *arena, int64_t count, weft_genome *out)
{
    weft_genome g = {.value = INFINITY};
    g.option = weft_arena_calloc(arena, count, sizeof *g.option);
    g.bias = weft_arena_calloc(arena, count, sizeof *g.bias);
    *out = g;
    return WEFT_ALLOCATED(g.option && g.bias, "the cascade search");
}

void weft_genome_copy(int64_t count, const weft_genome *from, weft_genome *to)
{
    memcpy(to->option, from->option, (size_t)count * sizeof *to->option);
    memcpy(to->bias, from->bias, (size_t)count * sizeof *to->bias);
    to->value = from->value;
}

int32_t weft_genome_cheapest(const weft_cascade_problem *p, int32_t c, double seconds)
{
    int32_t pick = p->first_option[c + 1] - 1;
    double least = INFINITY;
    for (int32_t o = p->first_option[c]; o < p->first_option[c + 1]; o++)
        if (p->seconds[o] <= seconds && p->seconds[o] * p->degree[o] < least) {
            least = p->seconds[o] * p->degree[o];
            pick = o;
        }
    return pick;
}

void weft_genome_by_threshold(const weft_cascade_problem *p, double tau, weft_genome *g)
{
    for (int32_t c = 0; c < p->count; c++) {
        g->option[c] = weft_genome_cheapest(p, c, tau);
        g->bias[c] = 1;
    }
}
