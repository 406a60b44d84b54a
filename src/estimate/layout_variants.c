#include "estimate/layout_variants.h"

#include "plan/layout/degree_space.h"

typedef struct variants {
    const weft_layout_space *space;
    weft_layout_visit visit;
    void *self;
} variants;

static weft_status try_pp_schedules(variants *v, weft_parallel *p)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "wave", "zero-bubble"};
    if (!v->space->train || p->pp == 1)
        return v->visit(v->self, p);
    for (int k = 0; k < WEFT_COUNT(schedules); k++) {
        int tried = 0;
        p->schedule = schedules[k];
        for (int64_t m = p->pp; m <= 4 * p->pp; m++) {
            if (v->space->batch % m)
                continue;
            p->microbatches = m;
            tried++;
            WEFT_TRY(v->visit(v->self, p));
        }
        p->microbatches = 0; /* 0: the maximum number */
        if (!tried)
            WEFT_TRY(v->visit(v->self, p));
    }
    p->schedule = weft_parallel_default.schedule;
    return WEFT_OK;
}

static weft_status try_contexts(variants *v, weft_parallel *p)
{
    for (int64_t i = 0; weft_parallel_context(p->cp, v->space->heads, i, &p->context); i++)
        WEFT_TRY(try_pp_schedules(v, p));
    return WEFT_OK;
}

/* Tries the variants of the degrees; dp includes cfg. */
static weft_status_code try_degrees(void *user, const weft_degrees *d)
{
    variants *v = user;
    const weft_layout_space *s = v->space;
    weft_parallel p = s->base;
    p.cfg = s->branches > 1 && d->dp % s->branches == 0 ? s->branches : 1;
    p.dp = d->dp / p.cfg;
    p.fsdp = d->fsdp;
    p.ep = d->ep;
    p.tp = d->tp;
    p.cp = d->cp;
    p.pp = d->pp;
    p.zero = s->train ? d->zero : s->base.zero;
    for (int sequence = 0; sequence <= (p.tp > 1); sequence++) {
        p.sequence = sequence;
        WEFT_TRY(try_contexts(v, &p));
    }
    return WEFT_OK;
}

weft_status weft_layout_variants(const weft_layout_space *space, weft_layout_visit visit,
                                 void *self)
{
    variants v = {.space = space, .visit = visit, .self = self};
    const weft_degree_space degrees = {.ranks = space->ranks,
                                       .axis = {WEFT_DEGREE_DP, WEFT_DEGREE_FSDP, WEFT_DEGREE_EP,
                                                WEFT_DEGREE_TP, WEFT_DEGREE_CP, WEFT_DEGREE_PP},
                                       .axes = 6,
                                       .most = {[WEFT_DEGREE_DP] = space->rows,
                                                [WEFT_DEGREE_EP] = space->experts ? 0 : 1,
                                                [WEFT_DEGREE_PP] = space->train ? 0 : 1},
                                       .most_zero = space->train ? 2 : 0,
                                       .zero_needs_dp = true};
    return weft_degree_space_visit(&degrees, try_degrees, &v);
}
