#include "plan/cascade/expect_plan.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Runs search k, and updates the plans. */
static weft_status search(const weft_expect_request *r, int k, weft_arena *arena,
                          weft_expect_plans *to)
{
    weft_expect_setup setup = r->setup;
    weft_placement also[WEFT_EXPECT_ALSO + 2], found;
    const int kinds = 1 + r->move, set = k / kinds % r->sets;
    const bool late = r->move && k % kinds;
    double value;
    int count = r->also_count;
    if (count)
        memcpy(also, r->also, (size_t)count * sizeof *also);
    for (int kind = 0; kind < 2; kind++)
        if (isfinite(to->value[kind]))
            also[count++] = to->plan[kind];
    setup.late = late;
    setup.problem = r->problem[set];
    setup.seed = weft_seed_mix(r->setup.seed, (uint64_t)k);
    WEFT_TRY(weft_expect_search(&setup, r->schedule[set], also, count, arena, &found, &value));
    value *= late ? 1 + WEFT_EXPECT_LATE : 1;
    if (value >= to->value[late])
        return WEFT_OK;
    const bool best = value < to->value[!late];
    to->value[late] = value;
    to->plan[late] = found;
    to->late = best ? late : !late;
    if (best && r->shorter)
        r->shorter(r->user, &found, late);
    return WEFT_OK;
}

weft_status weft_expect_plan(const weft_expect_request *r, weft_arena *arena,
                             weft_expect_plans *out)
{
    *out = (weft_expect_plans){.value = {INFINITY, INFINITY}};
    for (int k = 0; k < WEFT_EXPECT_ROUNDS * (1 + r->move); k++) {
        if (k && r->setup.stop && r->setup.stop(r->setup.user))
            break;
        WEFT_TRY(search(r, k, arena, out));
    }
    return WEFT_OK;
}
