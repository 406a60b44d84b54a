#include "estimate/training/resolve_layout.h"

#include "comm/comm_world.h"
#include "estimate/training/layout_file.h"
#include "train/estimate/process_memory.h"
#include "transform/sharding/slices_search.h"

#include <stdio.h>
#include <string.h>

/* State of rank 0's estimates, before it chooses for all ranks. */
typedef struct chooser {
    weft_run *run;
    weft_comm *comm; /* NULL: one rank chooses alone */
    weft_buf *out;
    weft_cluster cluster;
    char name[512];
    weft_layout_estimator estimator;
} chooser;

static bool chooses(const chooser *c)
{
    return !c->comm || weft_comm_rank(c->comm) == 0;
}

static weft_status begin(chooser *c)
{
    weft_layout_estimator *p = &c->estimator;
    weft_process_memory process;
    WEFT_TRY(weft_run_cluster(p->arena, c->run, "local", &c->cluster, c->name));
    p->run = c->run;
    p->cluster = &c->cluster;
    WEFT_TRY(weft_process_memory_measure(c->run, NULL, p->ranks, &process));
    p->process_bytes = weft_process_memory_sum(process);
    return WEFT_OK;
}

/* Runs `choose` on the estimator. Marks the communicator busy, so that other ranks wait past their
 * deadline. */
static weft_status choose_by_estimate(chooser *c, weft_status (*choose)(chooser *c, void *choice),
                                      void *choice)
{
    weft_comm_set_busy(c->comm, "estimating layouts");
    weft_status_code status = WEFT_OK;
    WEFT_GO(begin(c));
    WEFT_GO(choose(c, choice));
out:
    weft_comm_set_busy(c->comm, NULL);
    return status;
}

static weft_status share(const chooser *c, void *choice, int64_t bytes)
{
    if (chooses(c)) {
        weft_buf_printf(c->out, " (%s)", c->name);
        WEFT_TRY(weft_buf_check(c->out));
    }
    return c->comm ? weft_comm_broadcast(c->comm, choice, bytes, 0) : WEFT_OK;
}

static weft_status search_contexts(chooser *c, void *context)
{
    return weft_layouts_context(&c->estimator, context, c->out);
}

static weft_status choose_context(chooser *c)
{
    weft_cp_config context = {0};
    if (chooses(c))
        WEFT_TRY(choose_by_estimate(c, search_contexts, &context));
    WEFT_TRY(share(c, &context, sizeof context));
    c->run->parallel.context = context;
    return WEFT_OK;
}

typedef struct overlap_estimation {
    const weft_layout_estimator *estimator;
    const weft_parallel *parallel;
} overlap_estimation;

static weft_status estimate_one(void *user, const weft_comm_overlap *overlap,
                                weft_comm_overlap_estimate *out)
{
    const overlap_estimation *w = user;
    weft_parallel p = *w->parallel;
    weft_layout_estimate estimate;
    p.overlap = *overlap;
    WEFT_TRY(weft_layout_estimate_make(w->estimator, &p, &estimate));
    *out = (weft_comm_overlap_estimate){.fits = estimate.fits,
                                        .why = estimate.why,
                                        .seconds = estimate.time.total,
                                        .kernels = estimate.time.compute + estimate.time.optimizer,
                                        .waits = estimate.time.comm,
                                        .hidden = estimate.time.hidden};
    return WEFT_OK;
}

static weft_status search_overlap(chooser *c, void *best)
{
    overlap_estimation w = {.estimator = &c->estimator, .parallel = &c->run->parallel};
    if (c->out->len)
        weft_buf_printf(c->out, "\n");
    return weft_comm_overlap_search(estimate_one, &w, best, c->out);
}

/* Chooses the communication overlap for the current degrees. */
static weft_status choose_overlap(chooser *c)
{
    weft_comm_overlap best = c->run->parallel.overlap;
    if (c->estimator.ranks < 2) { /* nothing is exchanged */
        c->run->parallel.overlap = weft_comm_overlap_default;
        return WEFT_OK;
    }
    if (chooses(c))
        WEFT_TRY(choose_by_estimate(c, search_overlap, &best));
    WEFT_TRY(share(c, &best, sizeof best));
    c->run->parallel.overlap = best;
    return WEFT_OK;
}

/* `context: auto` and `slices: auto` by prices. */
static weft_status choose_all(chooser *c)
{
    weft_parallel *p = &c->run->parallel;
    if (p->context.kind == WEFT_CP_AUTO) {
        const weft_comm_overlap overlap = p->overlap;
        if (weft_comm_overlap_has_auto(&overlap))
            p->overlap = weft_comm_overlap_default;
        if (p->context.ulysses || p->context.ring || p->cp < 2)
            p->context.kind = WEFT_CP_ULYSSES; /* nothing is left to choose */
        else
            WEFT_TRY(choose_context(c));
        p->overlap = overlap;
    }
    return weft_comm_overlap_has_auto(&p->overlap) ? choose_overlap(c) : WEFT_OK;
}

/* Number of ranks: given, or the product of the degrees. */
static weft_status find_ranks(const chooser *c, int *ranks)
{
    weft_parallel p = c->run->parallel;
    weft_mesh mesh;
    *ranks = c->estimator.ranks;
    if (*ranks)
        return WEFT_OK;
    p.context.kind = p.context.kind == WEFT_CP_AUTO ? WEFT_CP_ULYSSES : p.context.kind;
    p.overlap = weft_comm_overlap_default;
    WEFT_TRY(weft_parallel_mesh(&p, 0, c->estimator.path, &mesh));
    *ranks = weft_mesh_ranks(&mesh);
    return WEFT_OK;
}

/* Loads the run's stored choice on all ranks. *inputs: hash for the new choice. */
static weft_status find_stored(chooser *c, const weft_settled *stored, uint64_t *inputs,
                               bool *found)
{
    weft_parallel *p = &c->run->parallel;
    weft_settled choice = {0};
    if (chooses(c)) {
        int ranks;
        WEFT_TRY(find_ranks(c, &ranks));
        WEFT_TRY(weft_settled_inputs(c->run, c->estimator.models, ranks, inputs));
        choice = stored->inputs == *inputs ? *stored : choice;
    }
    if (c->comm)
        WEFT_TRY(weft_comm_broadcast(c->comm, &choice, sizeof choice, 0));
    *found = choice.inputs != 0;
    if (!*found)
        return WEFT_OK;
    choice.overlap.explicit_keys = p->overlap.explicit_keys;
    p->context = choice.context;
    p->overlap = choice.overlap;
    weft_buf_printf(c->out, "layout as the run chose it before: ");
    weft_parallel_name(p, c->out);
    return weft_buf_check(c->out);
}

weft_status weft_run_resolve_layout(weft_run *run, const weft_run_models *models, const char *path,
                                    weft_comm *comm, int ranks, weft_settled *stored,
                                    weft_arena *arena, weft_buf *out)
{
    weft_parallel *p = &run->parallel;
    if (p->plan[0]) {
        const char *set_key = weft_parallel_is_set(p), *file = p->plan;
        if (set_key)
            return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                              WEFT_AT(.file = path, .key = "parallel.layout_file", .value = file,
                                      WEFT_DETAILS(WEFT_WORD("other", set_key))),
                              "layout_file replaces all other keys of parallel, and %s is also "
                              "set. Remove one of the two keys.",
                              set_key);
        WEFT_TRY(weft_error_add(
            weft_error_at(weft_layout_load(arena, file, path, ranks, models, run),
                          WEFT_AT(.file = path, .key = "parallel.layout_file")),
            "Write the plan with `weft plan layout --run-config %s --devices %d --out %s`, or "
            "remove the key",
            path, ranks, file));
        weft_buf_printf(out, "layout by %s: ", file);
        weft_parallel_name(p, out);
        return weft_buf_check(out);
    }
    chooser c = {.run = run,
                 .comm = comm,
                 .out = out,
                 .estimator = {.path = path, .models = models, .ranks = ranks, .arena = arena}};
    uint64_t inputs = 0;
    bool found = false;
    if (p->context.kind != WEFT_CP_AUTO && !weft_comm_overlap_has_auto(&p->overlap))
        return WEFT_OK;
    if (stored)
        WEFT_TRY(find_stored(&c, stored, &inputs, &found));
    if (found)
        return WEFT_OK;
    WEFT_TRY(choose_all(&c));
    if (stored)
        *stored = (weft_settled){inputs, p->context, p->overlap, true};
    return WEFT_OK;
}
