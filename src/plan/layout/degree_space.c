#include "plan/layout/degree_space.h"

#include "base/memory.h"
#include "plan/layout/layout_products.h"

enum { MIRRORED = 2, MOST_INTERLEAVE = 8 };

static const char *const names[WEFT_DEGREE_AXES] = {"tp", "cp", "ep", "pp", "dp", "fsdp"};

static int64_t *degree_of(weft_degrees *d, weft_degree_axis axis)
{
    int64_t *const all[WEFT_DEGREE_AXES] = {&d->tp, &d->cp, &d->ep, &d->pp, &d->dp, &d->fsdp};
    return all[axis];
}

static bool has_axis(const weft_degree_space *s, weft_degree_axis axis)
{
    for (int i = 0; i < s->axes; i++)
        if (s->axis[i] == axis)
            return true;
    return false;
}

/* Whether ep splits the ranks of dp and cp, and is not a factor of the ranks. */
static bool ep_splits(const weft_degree_space *s)
{
    return !has_axis(s, WEFT_DEGREE_EP);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* "tp 2 x cp 1 do not make 8 devices" */
static weft_status check_product(const weft_degree_space *s, weft_degrees d)
{
    weft_buf text = {0};
    int64_t product = 1;
    for (int i = 0; i < s->axes; i++)
        product *= *degree_of(&d, s->axis[i]);
    if (product == s->ranks)
        return WEFT_OK;
    for (int i = 0; i < s->axes; i++)
        weft_buf_printf(&text, "%s%s %" PRId64, i ? " x " : "", names[s->axis[i]],
                        *degree_of(&d, s->axis[i]));
    const weft_status_code status =
        weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "devices", WEFT_NUMBER(s->ranks)),
                   "%s do not make %" PRId64 " devices", text.data ? text.data : "", s->ranks);
    weft_buf_free(&text);
    return status;
}

static weft_status check_range(const weft_degree_space *s, weft_degrees d)
{
    bool below = d.ep < 1 || d.microbatch < 1 || d.accumulation < 1 || d.interleave < 1;
    for (int i = 0; i < s->axes; i++)
        below = below || *degree_of(&d, s->axis[i]) < 1;
    if (below || d.zero < 0 || d.zero > 3)
        return weft_error(WEFT_MSG_MESH_INVALID, WEFT_NOWHERE,
                          "a degree is below 1, or the ZeRO stage %" PRId64 " is not from 0 to 3",
                          d.zero);
    return WEFT_OK;
}

static weft_status check_stages(const weft_degree_space *s, const weft_degrees *d)
{
    if (s->layers && d->pp * d->interleave > s->layers)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "pp", WEFT_NUMBER(d->pp)),
                          "%" PRId64 " stages x interleave %" PRId64 " are more than the %" PRId64
                          " layers",
                          d->pp, d->interleave, s->layers);
    if (s->layers && !s->mirrored && d->interleave > 1 && s->layers % (d->pp * d->interleave) != 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "pp", WEFT_NUMBER(d->pp)),
                          "%" PRId64 " stages x interleave %" PRId64 " do not divide the %" PRId64
                          " layers",
                          d->pp, d->interleave, s->layers);
    return WEFT_OK;
}

static weft_status check_experts(const weft_degree_space *s, const weft_degrees *d)
{
    if (s->experts && s->experts % d->ep != 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "ep", WEFT_NUMBER(d->ep)),
                          "%" PRId64 " does not divide the %" PRId64 " experts", d->ep, s->experts);
    if (ep_splits(s) && (d->dp * d->cp) % d->ep != 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "ep", WEFT_NUMBER(d->ep)),
                          "%" PRId64 " does not divide dp x cp, %" PRId64, d->ep, d->dp * d->cp);
    return WEFT_OK;
}

/* Rules of the degrees and the ZeRO stage. */
static weft_status check_degrees(const weft_degree_space *s, const weft_degrees *d)
{
    WEFT_TRY(check_range(s, *d));
    WEFT_TRY(check_product(s, *d));
    if (s->heads && s->heads % d->tp != 0)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "tp", WEFT_NUMBER(d->tp)),
                          "%" PRId64 " does not divide the %" PRId64 " heads", d->tp, s->heads);
    WEFT_TRY(check_stages(s, d));
    if (s->zero_needs_dp && d->zero > 0 && d->dp == 1)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "zero", WEFT_NUMBER(d->zero)),
                          "ZeRO stage %" PRId64 " needs dp above 1", d->zero);
    return check_experts(s, d);
}

/* Rules of the microbatches of a step. */
static weft_status check_rounds(const weft_degree_space *s, const weft_degrees *d)
{
    if (s->batch && d->dp * d->microbatch * d->accumulation != s->batch)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.key = "batch", WEFT_NUMBER(s->batch)),
                          "dp %" PRId64 " x microbatch %" PRId64 " x accumulation %" PRId64
                          " do not make the batch of %" PRId64,
                          d->dp, d->microbatch, d->accumulation, s->batch);
    if (!s->mirrored && d->interleave > 1 && (d->pp == 1 || d->accumulation % d->pp != 0))
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE,
                          WEFT_AT(.key = "interleave", WEFT_NUMBER(d->interleave)),
                          "interleaving needs two or more stages, and microbatches in multiples of "
                          "pp; pp is %" PRId64 ", with %" PRId64 " microbatches",
                          d->pp, d->accumulation);
    return WEFT_OK;
}

weft_status weft_degree_space_check(const weft_degree_space *space, const weft_degrees *degrees)
{
    WEFT_TRY(check_degrees(space, degrees));
    return check_rounds(space, degrees);
}

/* ---- enumeration ----------------------------------------------------------------------------- */

typedef struct visitor {
    const weft_degree_space *space;
    weft_degree_visit *visit;
    void *user;
} visitor;

static weft_status try_zeros(const visitor *v, weft_degrees *d)
{
    for (d->zero = v->space->least_zero; d->zero <= v->space->most_zero; d->zero++)
        if (check_degrees(v->space, d) == WEFT_OK)
            WEFT_TRY(v->visit(v->user, d));
    return WEFT_OK;
}

static weft_status_code try_product(void *user, const int64_t *degree)
{
    const visitor *v = user;
    const weft_degree_space *s = v->space;
    weft_degrees d = {.tp = 1, .cp = 1, .ep = 1, .pp = 1, .dp = 1, .fsdp = 1};
    d.microbatch = d.accumulation = 1;
    d.interleave = s->mirrored ? MIRRORED : 1;
    for (int i = 0; i < s->axes; i++)
        *degree_of(&d, s->axis[i]) = degree[i];
    if (!ep_splits(s))
        return try_zeros(v, &d);
    const int64_t most = s->most[WEFT_DEGREE_EP];
    for (d.ep = 1; d.ep == 1 || (d.ep <= s->experts && (!most || d.ep <= most)); d.ep++)
        WEFT_TRY(try_zeros(v, &d));
    return WEFT_OK;
}

weft_status weft_degree_space_visit(const weft_degree_space *space, weft_degree_visit *visit,
                                    void *user)
{
    visitor v = {.space = space, .visit = visit, .user = user};
    int64_t most[WEFT_DEGREE_AXES];
    for (int i = 0; i < space->axes; i++)
        most[i] = space->most[space->axis[i]];
    return weft_layout_products(space->ranks, most, space->axes, try_product, &v);
}

weft_status weft_degree_space_rounds(const weft_degree_space *space, const weft_degrees *degrees,
                                     weft_degree_visit *visit, void *user)
{
    weft_degrees d = *degrees;
    const int64_t replica = space->batch ? space->batch / d.dp : INT64_MAX;
    const int64_t limit = space->most_microbatch ? space->most_microbatch : INT64_MAX;
    const int64_t least = space->mirrored ? MIRRORED : 1;
    const int64_t most = space->mirrored ? MIRRORED : d.pp > 1 ? MOST_INTERLEAVE : 1;
    for (d.microbatch = 1; d.microbatch <= replica && d.microbatch <= limit; d.microbatch *= 2) {
        if (space->batch && replica % d.microbatch != 0)
            break;
        d.accumulation = space->batch ? replica / d.microbatch : d.pp;
        for (d.interleave = least; d.interleave <= most; d.interleave *= 2)
            if (weft_degree_space_check(space, &d) == WEFT_OK)
                WEFT_TRY(visit(user, &d));
    }
    return WEFT_OK;
}
