#include "train/cascade/iteration_layout.h"

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

/* Sorts order[count] by start, with `scratch` of the same size. */
static void merge_sort(const weft_placed_iteration *p, int32_t *order, int64_t count,
                       int32_t *scratch)
{
    if (count < 2)
        return;
    const int64_t half = count / 2;
    merge_sort(p, order, half, scratch);
    merge_sort(p, order + half, count - half, scratch);
    for (int64_t i = 0; i < count; i++)
        scratch[i] = order[i];
    for (int64_t i = 0, a = 0, b = half; i < count; i++)
        order[i] = b == count || (a < half && before(p, scratch[a], scratch[b])) ? scratch[a++]
                                                                                 : scratch[b++];
}

weft_status weft_placed_order(const weft_placed_iteration *p, int32_t *order)
{
    int32_t *scratch;
    WEFT_TRY(WEFT_NEW(scratch, p->cascades + 1, "%" PRId64 " cascades", p->cascades));
    for (int32_t i = 0; i < p->cascades; i++)
        order[i] = i;
    merge_sort(p, order, p->cascades, scratch);
    weft_free(scratch);
    return WEFT_OK;
}

int64_t weft_placed_scheduled(const weft_placed_iteration *p)
{
    int64_t n = p->cascades;
    while (n > 0 && p->cascade[n - 1].kept)
        n--;
    return n;
}

int64_t weft_placed_trained(const weft_placed_iteration *p)
{
    int64_t n = p->samples;
    while (n > 0 && p->sample[n - 1].ahead)
        n--;
    return n;
}

const weft_placed_cascade *weft_placed_ahead(const weft_placed_iteration *p, int64_t batch,
                                             weft_cascade_module module)
{
    for (int64_t i = 0; i < p->cascades; i++) {
        const weft_placed_sample *s = &p->sample[p->cascade[i].sample];
        if (s->ahead && s->batch == batch && p->cascade[i].module == module)
            return &p->cascade[i];
    }
    return NULL;
}

double weft_placed_reductions_during(const weft_placed_iteration *p)
{
    double from = 0;
    for (int64_t i = 0; i < p->cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        if (c->module == WEFT_CASCADE_DIT)
            from = fmax(from, c->at.start + c->at.seconds / 3);
    }
    return fmax(0, p->makespan - from);
}

double weft_placed_reductions_after(const weft_placed_iteration *p, double seconds, double last)
{
    return fmax(last, seconds - weft_placed_reductions_during(p));
}

static weft_status check_ranks(const weft_placed_cascade *c, int ranks, const char *where)
{
    if (c->at.degree < 1 || c->at.degree > ranks)
        return weft_error(WEFT_MSG_CASCADE_INVALID,
                          WEFT_AT(.file = where, .key = c->at.id, WEFT_NUMBER(c->at.degree)),
                          "the cascade is on %" PRId64 " ranks of %d", c->at.degree, ranks);
    if (c->module == WEFT_CASCADE_TEXT && c->at.degree > 1)
        return weft_error(WEFT_MSG_CASCADE_INVALID,
                          WEFT_AT(.file = where, .key = c->at.id, WEFT_NUMBER(c->at.degree)),
                          "the cascade is on %" PRId64 " ranks; captions are encoded on one",
                          c->at.degree);
    for (int64_t i = 0; i < c->at.degree; i++) {
        if (c->at.device[i] < 0 || c->at.device[i] >= ranks)
            return weft_error(WEFT_MSG_CASCADE_INVALID,
                              WEFT_AT(.file = where, .key = c->at.id, WEFT_NUMBER(c->at.device[i])),
                              "the cascade is on rank %d, and there are %d ranks",
                              (int)c->at.device[i], ranks);
        for (int64_t k = 0; k < i; k++)
            if (c->at.device[k] == c->at.device[i])
                return weft_error(
                    WEFT_MSG_CASCADE_INVALID,
                    WEFT_AT(.file = where, .key = c->at.id, WEFT_NUMBER(c->at.device[i])),
                    "the cascade is twice on rank %d", (int)c->at.device[i]);
    }
    return WEFT_OK;
}

static weft_status check_cascade(const weft_placed_iteration *p, int32_t index, int ranks,
                                 const char *where)
{
    const weft_placed_cascade *c = &p->cascade[index];
    if (c->sample < 0 || c->sample >= p->samples || (int)c->module < 0 ||
        c->module >= WEFT_CASCADE_MODULES)
        return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                          "the cascade has no sample or no module");
    char id[64];
    snprintf(id, sizeof id, "s%d.%s", (int)c->sample, weft_cascade_module_name(c->module));
    if (strcmp(id, c->at.id))
        return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                          "by its sample and module, the id must be %s", id);
    WEFT_TRY(check_ranks(c, ranks, where));
    if (!isfinite(c->at.start) || !(c->at.seconds >= 0))
        return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                          "the cascade begins at %g s and takes %g s", c->at.start, c->at.seconds);
    for (int32_t i = 0; i < c->at.after_count; i++) {
        const int32_t other = c->at.after[i];
        if (other < 0 || other >= p->cascades || other == index)
            return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                              "the cascade comes after cascade %d; the plan has cascades 0 to %d",
                              other, (int)p->cascades - 1);
        if (!before(p, other, index) || p->cascade[other].sample != c->sample)
            return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                              "the cascade comes after %s, which %s", p->cascade[other].at.id,
                              p->cascade[other].sample != c->sample ? "is of another sample"
                                                                    : "starts later");
    }
    return WEFT_OK;
}

/* Whether kept cascades, from `scheduled` on, are the last predecessors of a cascade. */
static bool has_kept_last(const weft_placed_cascade *c, int64_t scheduled)
{
    for (int32_t k = 1; k < c->at.after_count; k++)
        if (c->at.after[k - 1] >= scheduled && c->at.after[k] < scheduled)
            return false;
    return true;
}

/* Checks samples of the next step, and kept cascades. */
static weft_status check_ahead(const weft_placed_iteration *p, const char *where)
{
    const int64_t trained = weft_placed_trained(p), scheduled = weft_placed_scheduled(p);
    for (int64_t s = 0; s < p->samples; s++)
        if (p->sample[s].ahead && (s < trained || p->sample[s].weight != 0))
            return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, WEFT_NUMBER(s)),
                              "sample %" PRId64
                              " is of the next step. It must follow the samples of this step and "
                              "have weight 0",
                              s);
    for (int64_t i = 0; i < p->cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        if (!has_kept_last(c, scheduled) ||
            (c->module == WEFT_CASCADE_DIT ? c->kept || c->sample >= trained
                                           : c->kept && (i < scheduled || c->sample >= trained)))
            return weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                              "only encoders can run one iteration ahead, and they must follow the "
                              "other cascades in the next iteration");
    }
    return WEFT_OK;
}

weft_status weft_placed_check(const weft_placed_iteration *p, int ranks, const char *where)
{
    double sum = 0;
    int8_t *seen = weft_alloc((p->samples + 1) * WEFT_CASCADE_MODULES);
    WEFT_TRY(WEFT_ALLOCATED(seen, "%" PRId64 " samples", p->samples));
    weft_status_code status = WEFT_OK;
    for (int32_t i = 0; i < p->cascades; i++)
        WEFT_GO(check_cascade(p, i, ranks, where));
    WEFT_GO(check_ahead(p, where));
    for (int32_t i = 0; i < p->cascades; i++) {
        const weft_placed_cascade *c = &p->cascade[i];
        if (seen[c->sample * WEFT_CASCADE_MODULES + c->module]++)
            WEFT_GO(weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, .key = c->at.id),
                               "the cascade occurs twice"));
    }
    for (int64_t s = 0; s < p->samples; s++) {
        if (!p->sample[s].ahead && !seen[s * WEFT_CASCADE_MODULES + WEFT_CASCADE_DIT])
            WEFT_GO(weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, WEFT_NUMBER(s)),
                               "no cascade trains sample %" PRId64, s));
        sum += p->sample[s].weight;
    }
    if (!(fabs(sum - 1) <= 1e-9))
        status = weft_error(WEFT_MSG_CASCADE_INVALID, WEFT_AT(.file = where, WEFT_NUMBER(sum)),
                            "the sum of the weights of %" PRId64 " samples is %.12g, not 1",
                            p->samples, sum);
out:
    weft_free(seen);
    return status;
}
