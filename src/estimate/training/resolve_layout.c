#include "train/settle.h"

#include "pass/slices_search.h"
#include "train/layout_file.h"

#include <stdio.h>
#include <string.h>

/* What rank 0 prices with, before it chooses for all. */
typedef struct chooser {
    weft_run *run;
    weft_comm *comm; /* NULL: one rank chooses for itself */
    weft_buf *told;
    weft_cluster cluster;
    char name[512];
    weft_pricer pricer;
} chooser;

static bool chooses(const chooser *c)
{
    return !c->comm || weft_comm_rank(c->comm) == 0;
}

static weft_status begin(chooser *c)
{
    weft_pricer *p = &c->pricer;
    WEFT_TRY(weft_run_cluster(p->arena, c->run, "local", &c->cluster, c->name));
    p->run = c->run;
    p->cluster = &c->cluster;
    p->process = weft_memory_resident();
    return WEFT_OK;
}

/* Others wait so long, whatever their deadline is. */
static weft_status price(chooser *c, weft_status (*choose)(chooser *c, void *choice), void *choice)
{
    weft_comm_busy(c->comm, "pricing layouts");
    weft_status_code status = begin(c);
    if (status == WEFT_OK)
        status = choose(c, choice);
    weft_comm_busy(c->comm, NULL);
    return status;
}

static weft_status share(const chooser *c, void *choice, int64_t bytes)
{
    if (chooses(c)) {
        weft_buf_printf(c->told, " (%s)", c->name);
        WEFT_TRY(weft_buf_check(c->told));
    }
    return c->comm ? weft_comm_broadcast(c->comm, choice, bytes, 0) : WEFT_OK;
}

static weft_status price_contexts(chooser *c, void *context)
{
    return weft_layouts_context(&c->pricer, context, c->told);
}

static weft_status choose_context(chooser *c)
{
    weft_context context = {0};
    if (chooses(c))
        WEFT_TRY(price(c, price_contexts, &context));
    WEFT_TRY(share(c, &context, sizeof context));
    c->run->parallel.context = context;
    return WEFT_OK;
}

typedef struct slices_pricing {
    const weft_pricer *pricer;
    const weft_parallel *parallel;
} slices_pricing;

static weft_status price_one(void *user, const weft_slices *slices, weft_slices_price *out)
{
    const slices_pricing *w = user;
    weft_parallel p = *w->parallel;
    weft_layout_price price;
    p.slices = *slices;
    WEFT_TRY(weft_layout_price_of(w->pricer, &p, &price));
    *out = (weft_slices_price){.fits = price.fits,
                               .why = price.why,
                               .seconds = price.seconds,
                               .kernels = price.compute + price.optimizer,
                               .waits = price.exchange,
                               .hidden = price.hidden};
    return WEFT_OK;
}

static weft_status price_slices(chooser *c, void *best)
{
    slices_pricing w = {.pricer = &c->pricer, .parallel = &c->run->parallel};
    if (c->told->len)
        weft_buf_printf(c->told, "\n");
    return weft_slices_search(price_one, &w, best, c->told);
}

/* For the degrees that there are. */
static weft_status choose_slices(chooser *c)
{
    weft_slices best = c->run->parallel.slices;
    if (c->pricer.ranks < 2) { /* nothing is exchanged */
        c->run->parallel.slices = weft_slices_default;
        return WEFT_OK;
    }
    if (chooses(c))
        WEFT_TRY(price(c, price_slices, &best));
    WEFT_TRY(share(c, &best, sizeof best));
    c->run->parallel.slices = best;
    return WEFT_OK;
}

weft_status weft_run_settle(weft_run *run, const weft_run_models *models, const char *path,
                            weft_comm *comm, int ranks, weft_arena *arena, weft_buf *told)
{
    weft_parallel *p = &run->parallel;
    if (p->plan[0]) {
        const char *given = weft_parallel_given(p), *file = p->plan;
        if (given)
            return weft_fail(WEFT_E_CONFIG,
                             "%s: parallel: plan stands instead of all other keys, and %s is given "
                             "beside it: leave one of them out",
                             path, given);
        const weft_status_code status = weft_layout_load(arena, file, path, ranks, models, run);
        if (status != WEFT_OK)
            return weft_fail_remedy(weft_fail_context(status, "%s: parallel.plan", path),
                                    "Write the plan with `weft plan layout --for %s --devices %d "
                                    "--out %s`, or remove the key",
                                    path, ranks, file);
        weft_buf_printf(told, "layout by %s: ", file);
        weft_parallel_name(p, told);
        return weft_buf_check(told);
    }
    chooser c = {.run = run,
                 .comm = comm,
                 .told = told,
                 .pricer = {.path = path, .models = models, .ranks = ranks, .arena = arena}};
    if (p->context.kind == WEFT_CONTEXT_AUTO) {
        const weft_slices slices = p->slices;
        if (weft_slices_open(&slices))
            p->slices = weft_slices_default;
        if (p->context.ulysses || p->context.ring || p->cp < 2)
            p->context.kind = WEFT_CONTEXT_ULYSSES; /* nothing is left to choose */
        else
            WEFT_TRY(choose_context(&c));
        p->slices = slices;
    }
    return weft_slices_open(&p->slices) ? choose_slices(&c) : WEFT_OK;
}
