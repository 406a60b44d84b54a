#include "train/settle.h"

#include "pass/slices_search.h"
#include "train/layout_file.h"

#include <stdio.h>
#include <string.h>

/* By rank 0 for all. */
static weft_status choose_context(weft_run *run, const weft_run_models *models, const char *path,
                                  weft_comm *comm, int ranks, weft_arena *arena, weft_buf *told)
{
    weft_cluster cluster;
    char name[512];
    weft_context context = {0};
    if (!comm || weft_comm_rank(comm) == 0) {
        WEFT_TRY(weft_run_cluster(arena, run, "local", &cluster, name));
        const weft_pricer pricer = {.run = run,
                                    .path = path,
                                    .models = models,
                                    .cluster = &cluster,
                                    .ranks = ranks,
                                    .process = weft_memory_resident(),
                                    .arena = arena};
        WEFT_TRY(weft_layouts_context(&pricer, &context, told));
        weft_buf_printf(told, " (%s)", name);
        WEFT_TRY(weft_buf_check(told));
    }
    if (comm)
        WEFT_TRY(weft_comm_broadcast(comm, &context, sizeof context, 0));
    run->parallel.context = context;
    return WEFT_OK;
}

typedef struct slices_pricing {
    const weft_pricer *pricer;
    const weft_parallel *parallel;
} slices_pricing;

static weft_status price_slices(void *user, const weft_slices *slices, weft_slices_price *out)
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

/* By rank 0 for all, for the degrees that there are. */
static weft_status choose_slices(weft_run *run, const weft_run_models *models, const char *path,
                                 weft_comm *comm, int ranks, weft_arena *arena, weft_buf *told)
{
    weft_cluster cluster;
    char name[512];
    weft_slices best = run->parallel.slices;
    if (ranks < 2) { /* nothing is exchanged */
        run->parallel.slices = weft_slices_default;
        return WEFT_OK;
    }
    if (!comm || weft_comm_rank(comm) == 0) {
        WEFT_TRY(weft_run_cluster(arena, run, "local", &cluster, name));
        const weft_pricer pricer = {.run = run,
                                    .path = path,
                                    .models = models,
                                    .cluster = &cluster,
                                    .ranks = ranks,
                                    .process = weft_memory_resident(),
                                    .arena = arena};
        slices_pricing w = {.pricer = &pricer, .parallel = &run->parallel};
        if (told->len)
            weft_buf_printf(told, "\n");
        WEFT_TRY(weft_slices_search(price_slices, &w, &best, told));
        weft_buf_printf(told, " (%s)", name);
        WEFT_TRY(weft_buf_check(told));
    }
    if (comm)
        WEFT_TRY(weft_comm_broadcast(comm, &best, sizeof best, 0));
    run->parallel.slices = best;
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
        WEFT_TRY(weft_layout_load(arena, file, path, ranks, models, run));
        weft_buf_printf(told, "layout by %s: ", file);
        weft_parallel_name(p, told);
        return weft_buf_check(told);
    }
    if (p->context.kind == WEFT_CONTEXT_AUTO) {
        const weft_slices slices = p->slices;
        if (weft_slices_open(&slices))
            p->slices = weft_slices_default;
        if (p->context.ulysses || p->context.ring || p->cp < 2)
            p->context.kind = WEFT_CONTEXT_ULYSSES; /* nothing is left to choose */
        else
            WEFT_TRY(choose_context(run, models, path, comm, ranks, arena, told));
        p->slices = slices;
    }
    return weft_slices_open(&p->slices) ? choose_slices(run, models, path, comm, ranks, arena, told)
                                        : WEFT_OK;
}
