#include "train/cascade_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[WEFT_CASCADE_MODULES] = {"text", "vae", "dit"};

const char *weft_cascade_module_name(weft_cascade_module module)
{
    return names[module];
}

static bool before(const weft_placed_iteration *p, int32_t a, int32_t b)
{
    const double start_a = p->cascade[a].at.start, start_b = p->cascade[b].at.start;
    return start_a < start_b || (start_a == start_b && a < b);
}

/* Merges the sorted halves of order[count] through `room`. */
static void merge_sort(const weft_placed_iteration *p, int32_t *order, int64_t count, int32_t *room)
{
    if (count < 2)
        return;
    const int64_t half = count / 2;
    merge_sort(p, order, half, room);
    merge_sort(p, order + half, count - half, room);
    for (int64_t i = 0; i < count; i++)
        room[i] = order[i];
    for (int64_t i = 0, a = 0, b = half; i < count; i++)
        order[i] = b == count || (a < half && before(p, room[a], room[b])) ? room[a++] : room[b++];
}

weft_status weft_placed_order(const weft_placed_iteration *p, int32_t *order)
{
    int32_t *room = weft_alloc((p->cascades + 1) * (int64_t)sizeof *room);
    if (!room)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld cascades", (long long)p->cascades);
    for (int32_t i = 0; i < p->cascades; i++)
        order[i] = i;
    merge_sort(p, order, p->cascades, room);
    weft_free(room);
    return WEFT_OK;
}

double weft_placed_sums_beside(const weft_placed_iteration *p)
{
    double from = 0;
    for (int64_t i = 0; i < p->cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        if (c->module == WEFT_CASCADE_DIT)
            from = fmax(from, c->at.start + c->at.seconds / 3);
    }
    return fmax(0, p->makespan - from);
}

double weft_placed_sums_behind(const weft_placed_iteration *p, double seconds, double last)
{
    return fmax(last, seconds - weft_placed_sums_beside(p));
}

static weft_status check_ranks(const weft_placed_cascade *c, int ranks, const char *where)
{
    if (c->at.degree < 1 || c->at.degree > ranks)
        return weft_fail(WEFT_E_ARG, "%s: %s is on %lld ranks of %d", where, c->at.id,
                         (long long)c->at.degree, ranks);
    if (c->module == WEFT_CASCADE_TEXT && c->at.degree > 1)
        return weft_fail(WEFT_E_ARG, "%s: %s is on %lld ranks; captions are encoded on one", where,
                         c->at.id, (long long)c->at.degree);
    for (int64_t i = 0; i < c->at.degree; i++) {
        if (c->at.device[i] < 0 || c->at.device[i] >= ranks)
            return weft_fail(WEFT_E_ARG, "%s: %s is on rank %d; there are %d", where, c->at.id,
                             (int)c->at.device[i], ranks);
        for (int64_t k = 0; k < i; k++)
            if (c->at.device[k] == c->at.device[i])
                return weft_fail(WEFT_E_ARG, "%s: %s is twice on rank %d", where, c->at.id,
                                 (int)c->at.device[i]);
    }
    return WEFT_OK;
}

static weft_status check_cascade(const weft_placed_iteration *p, int32_t index, int ranks,
                                 const char *where)
{
    const weft_placed_cascade *c = &p->cascade[index];
    if (c->sample < 0 || c->sample >= p->samples || (int)c->module < 0 ||
        c->module >= WEFT_CASCADE_MODULES)
        return weft_fail(WEFT_E_ARG, "%s: %s is of no sample and module", where, c->at.id);
    char id[64];
    snprintf(id, sizeof id, "s%d.%s", (int)c->sample, weft_cascade_module_name(c->module));
    if (strcmp(id, c->at.id))
        return weft_fail(WEFT_E_ARG, "%s: %s is %s", where, c->at.id, id);
    WEFT_TRY(check_ranks(c, ranks, where));
    if (!isfinite(c->at.start) || !(c->at.seconds >= 0))
        return weft_fail(WEFT_E_ARG, "%s: %s begins at %g s and takes %g s", where, c->at.id,
                         c->at.start, c->at.seconds);
    for (int32_t i = 0; i < c->at.after_count; i++) {
        const int32_t other = c->at.after[i];
        if (other < 0 || other >= p->cascades || other == index)
            return weft_fail(WEFT_E_ARG, "%s: %s comes after no cascade", where, c->at.id);
        if (!before(p, other, index) || p->cascade[other].sample != c->sample)
            return weft_fail(WEFT_E_ARG, "%s: %s comes after %s, which %s", where, c->at.id,
                             p->cascade[other].at.id,
                             p->cascade[other].sample != c->sample ? "is of another sample"
                                                                   : "starts behind it");
    }
    return WEFT_OK;
}

weft_status weft_placed_check(const weft_placed_iteration *p, int ranks, const char *where)
{
    double sum = 0;
    int8_t *seen = weft_alloc((p->samples + 1) * WEFT_CASCADE_MODULES);
    if (!seen)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld samples", (long long)p->samples);
    weft_status_code status = WEFT_OK;
    for (int32_t i = 0; i < p->cascades; i++) {
        WEFT_GO(check_cascade(p, i, ranks, where));
        const weft_placed_cascade *c = &p->cascade[i];
        if (seen[c->sample * WEFT_CASCADE_MODULES + c->module]++) {
            status = weft_fail(WEFT_E_ARG, "%s: %s is there twice", where, c->at.id);
            goto out;
        }
    }
    for (int64_t s = 0; s < p->samples; s++) {
        if (!seen[s * WEFT_CASCADE_MODULES + WEFT_CASCADE_DIT]) {
            status = weft_fail(WEFT_E_ARG, "%s: sample %lld is trained by no cascade", where,
                               (long long)s);
            goto out;
        }
        sum += p->sample[s].weight;
    }
    if (!(fabs(sum - 1) <= 1e-9))
        status = weft_fail(WEFT_E_ARG, "%s: the weights of %lld samples add up to %.12g, not 1",
                           where, (long long)p->samples, sum);
out:
    weft_free(seen);
    return status;
}
