#include "estimate/layout_variants.h"

#include "plan/layout/layout_products.h"

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

/* Tries the variants of one product of dp (with cfg), fsdp, ep, tp, cp and pp. */
static weft_status_code try_degrees(void *user, const int64_t *degree)
{
    variants *v = user;
    const weft_layout_space *s = v->space;
    weft_parallel p = s->base;
    p.cfg = s->branches > 1 && degree[0] % s->branches == 0 ? s->branches : 1;
    p.dp = degree[0] / p.cfg;
    p.fsdp = degree[1];
    p.ep = degree[2];
    p.tp = degree[3];
    p.cp = degree[4];
    p.pp = degree[5];
    const int zeros = s->train && p.dp > 1 ? 2 : 0;
    for (int zero = 0; zero <= zeros; zero++)
        for (int sequence = 0; sequence <= (p.tp > 1); sequence++) {
            p.zero = s->train ? zero : s->base.zero;
            p.sequence = sequence;
            WEFT_TRY(try_contexts(v, &p));
        }
    return WEFT_OK;
}

weft_status weft_layout_variants(const weft_layout_space *space, weft_layout_visit visit,
                                 void *self)
{
    variants v = {.space = space, .visit = visit, .self = self};
    const int64_t most[] = {space->rows, 0, space->experts ? 0 : 1, 0, 0, space->train ? 0 : 1};
    return weft_layout_products(space->ranks, most, WEFT_COUNT(most), try_degrees, &v);
}
