#include "ahead_plans.h"

#include <stdio.h>
#include <string.h>

static void name(ahead_plan *to, int64_t c, int32_t sample, weft_cascade_module module)
{
    snprintf(to->id[c], sizeof to->id[c], "s%d.%s", (int)sample, weft_cascade_module_name(module));
}

/* Adds the encoders of the iteration before that transformer `dit` reads. */
static void put_kept(const ahead_chain *chain, weft_placed_cascade *dit,
                     weft_placed_iteration *plan, ahead_plan *to)
{
    for (int m = 0; m < WEFT_CASCADE_DIT; m++) {
        const int64_t k = plan->cascades++, from = dit->sample * WEFT_CASCADE_DIT + m;
        name(to, k, dit->sample, (weft_cascade_module)m);
        to->cascade[k] = (weft_placed_cascade){.at = {.id = to->id[k],
                                                      .device = chain->kept[from].device,
                                                      .degree = chain->kept[from].degree,
                                                      .start = -1},
                                               .sample = dit->sample,
                                               .module = (weft_cascade_module)m,
                                               .kept = true};
        to->after[dit->sample][m] = (int32_t)k;
        dit->at.after = to->after[dit->sample];
        dit->at.after_count = m + 1;
    }
}

void ahead_put(const ahead_chain *chain, const weft_placed_sample *next,
               weft_placed_iteration *plan, ahead_plan *to)
{
    const int64_t samples = plan->samples, n = plan->cascades;
    for (int64_t s = 0; s < 2 * samples; s++) {
        to->sample[s] = s < samples ? plan->sample[s] : next[s - samples];
        to->sample[s].batch = chain->batches + s;
        to->sample[s].ahead = s >= samples;
        to->sample[s].weight = s < samples ? to->sample[s].weight : 0;
    }
    for (int64_t c = 0; c < n; c++) {
        weft_placed_cascade *at = &to->cascade[c];
        *at = plan->cascade[c];
        at->sample += at->module == WEFT_CASCADE_DIT ? 0 : (int32_t)samples;
        at->at.after_count = 0;
        name(to, c, at->sample, at->module);
        at->at.id = to->id[c];
    }
    plan->sample = to->sample;
    plan->samples = 2 * samples;
    plan->cascade = to->cascade;
    for (int64_t c = 0; c < n && chain->batches; c++)
        if (to->cascade[c].module == WEFT_CASCADE_DIT)
            put_kept(chain, &to->cascade[c], plan, to);
}

void ahead_keep(ahead_chain *chain, int64_t samples)
{
    const weft_placed_iteration *p = simulated.executed;
    for (int64_t c = 0; c < p->cascades; c++) {
        const weft_placed_cascade *from = &p->cascade[c];
        if (!p->sample[from->sample].ahead)
            continue;
        const int64_t to = (from->sample - samples) * WEFT_CASCADE_DIT + (int)from->module;
        chain->kept[to].degree = from->at.degree;
        memcpy(chain->kept[to].device, from->at.device,
               (size_t)from->at.degree * sizeof *from->at.device);
    }
    chain->batches += samples;
}
