#include "estimate/training/layout_search.h"

#include "base/log.h"
#include "kernel/host.h"
#include "kernel/registry/backend.h"
#include "plan/ops/rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- search ---------------------------------------------------------------------------------- */

static int64_t common_batch(const weft_run *run)
{
    const weft_train_stage *train_stage = run->train_stages.item;
    int64_t common = 0;
    for (int64_t i = 0; i < run->train_stages.count; i++)
        for (int k = 0; k < weft_train_stage_bucket_count(&train_stage[i]); k++) {
            int64_t a = weft_train_stage_bucket(&train_stage[i], k)->batch, b = common;
            while (b) {
                const int64_t rest = a % b;
                a = b;
                b = rest;
            }
            common = a;
        }
    return common;
}

weft_status weft_layouts_visit(const weft_run *run, const weft_run_models *models, int ranks,
                               weft_layout_visit visit, void *self)
{
    weft_layout_space space = {
        .ranks = ranks,
        .base = weft_parallel_default,
        .branches = 1,
        .train = true,
        .batch = common_batch(run),
        .experts = weft_recipe_list_find(models->recipe, models->recipes, "ep"),
        .heads = weft_recipe_list_find(models->recipe, models->recipes, "heads")};
    space.base.order = run->parallel.order;
    return weft_layout_variants(&space, visit, self);
}

typedef struct search {
    const weft_layout_estimator *p;
    weft_layout_list *out;
} search;

/* Adds a layout to the list. */
static weft_status add(weft_layout_list *list, const weft_layout_estimate *e)
{
    const double cause[WEFT_LAYOUT_CAUSES] = {e->time.compute, e->time.comm, e->time.optimizer,
                                              e->time.bubble};
    weft_buf name = {0};
    weft_parallel_name(&e->parallel, &name);
    const weft_layout_candidate candidate = {
        .score = {e->legal, e->fits, e->time.total,
                  e->legal ? (double)weft_run_bytes_sum(e->peak) : 0},
        .why = e->why,
        .cause = e->fits ? cause : NULL,
        .estimate = e};
    return weft_layout_list_add_estimate(list, candidate, &name);
}

static weft_status_code estimate_one(void *self, const weft_parallel *parallel)
{
    search *s = self;
    weft_layout_estimate *estimate;
    WEFT_TRY(WEFT_ARENA_NEW(s->p->arena, estimate, 1, "a layout"));
    WEFT_TRY(weft_layout_estimate_make(s->p, parallel, estimate));
    return add(s->out, estimate);
}

weft_status weft_layouts_search(const weft_layout_estimator *estimator, weft_layout_list *layouts)
{
    static const char *const causes[WEFT_LAYOUT_CAUSES] = {"compute", "exposed communication",
                                                           "optimizer", "pipeline bubbles"};
    const double begun = weft_now();
    search s = {.p = estimator, .out = layouts};
    *layouts = (weft_layout_list){
        .arena = estimator->arena, .cause = causes, .causes = WEFT_LAYOUT_CAUSES};
    WEFT_TRY(
        weft_layouts_visit(estimator->run, estimator->models, estimator->ranks, estimate_one, &s));
    weft_layout_list_sort(layouts);
    layouts->seconds = weft_now() - begun;
    return WEFT_OK;
}

const weft_layout_estimate *weft_layouts_at(const weft_layout_list *layouts, int64_t index)
{
    return layouts->item[index].estimate;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_columns(const weft_layout_candidate *c, bool offloads, weft_buf *out)
{
    const weft_layout_estimate *l = c->estimate;
    char time[5][32], bytes[3][32];
    if (!l->fits) {
        weft_buf_printf(out, "%10s", "-");
        return;
    }
    weft_buf_printf(
        out, "%10s %10s %10s %10s %10s %12s %12s", weft_format_seconds(l->time.total, time[0]),
        weft_format_seconds(l->time.compute, time[1]), weft_format_seconds(l->time.comm, time[2]),
        weft_format_seconds(l->time.optimizer, time[3]),
        weft_format_seconds(l->time.bubble, time[4]), weft_format_bytes(l->peak.device, bytes[0]),
        weft_format_bytes(l->peak.host, bytes[1]));
    if (offloads)
        weft_buf_printf(out, " %12s", weft_format_bytes(l->peak.offloaded, bytes[2]));
    if (l->limit)
        weft_buf_printf(out, "  with recompute");
}

static void print_row(const weft_layout_candidate *c, weft_buf *out)
{
    print_columns(c, false, out);
}

static void print_offload_row(const weft_layout_candidate *c, weft_buf *out)
{
    print_columns(c, true, out);
}

static void print_detail(const weft_layout_candidate *c, weft_buf *out)
{
    const weft_layout_estimate *l = c->estimate;
    if (l->fits)
        weft_buf_printf(out, "      %.0f %% of its kernels' time measured at these shapes; %s\n",
                        100 * l->time.exact, l->memory);
}

/* Describes the two kinds of memory. */
static void print_memories(const weft_layout_estimator *estimator, bool offloads, weft_buf *out)
{
    const weft_backend *backend = weft_backend_find(estimator->run->backend);
    const bool one = backend && backend->device == &weft_device_host;
    weft_buf_printf(
        out,
        "memory of the rank with the highest peak: device: weights, optimizer and programs; host: "
        "program and libraries, batches, copies for checkpoints%s%s\n",
        one ? "; the backend computes in host memory, so the limit is for both together" : "",
        !offloads ? ""
        : one     ? "; offloaded: to a file (memory.offload, memory.optimizer_states)"
                  : "; offloaded: to host memory (memory.offload, memory.optimizer_states)");
}

void weft_layouts_print(const weft_layout_estimator *estimator, const weft_layout_list *l,
                        bool explain, weft_buf *out)
{
    const weft_rates *rates = estimator->cluster->device.rates;
    char head[160];
    bool offloads = false;
    for (int64_t i = 0; i < l->count; i++)
        offloads = offloads || weft_layouts_at(l, i)->peak.offloaded;
    weft_layout_list_summary(l, estimator->ranks, out);
    weft_rates_format_basis(rates, l->fitting > 0 ? weft_layouts_at(l, 0)->time.exact : 1,
                            "weft profile CONFIG", out);
    weft_buf_printf(out, "\n");
    if (rates && (rates->ranks > 1 ? rates->ranks : 1) != estimator->ranks)
        weft_buf_printf(out,
                        "the profile was measured with %" PRId64
                        " processes at a time, and %d will run: "
                        "mpirun -n %d weft profile %s --out FILE.json is nearer\n",
                        rates->ranks > 1 ? rates->ranks : 1, estimator->ranks, estimator->ranks,
                        estimator->path);
    snprintf(head, sizeof head, "%-52s %10s %10s %10s %10s %10s %12s %12s%s", "layout", "step",
             "compute", "comm", "optimizer", "bubbles", "device", "host",
             offloads ? "    offloaded" : "");
    const weft_layout_table table = {.head = head,
                                     .width = 52,
                                     .row = offloads ? print_offload_row : print_row,
                                     .detail = print_detail};
    weft_layout_list_print(l, &table, 0, weft_layout_list_shown(l, explain), explain, out);
    print_memories(estimator, offloads, out);
}

/* ---- context: auto --------------------------------------------------------------------------- */

weft_status weft_layouts_context(const weft_layout_estimator *estimator, weft_cp_config *context,
                                 weft_buf *out)
{
    weft_parallel p = estimator->run->parallel;
    double best = INFINITY;
    weft_buf why = {0};
    weft_buf_printf(out, "context: auto:");
    const char *between = " ";
    for (int64_t ring = 1; ring <= p.cp; ring++) {
        char text[32];
        weft_layout_estimate estimate;
        if (p.cp % ring)
            continue;
        p.context = (weft_cp_config){.kind = WEFT_CP_ULYSSES, .ulysses = p.cp / ring, .ring = ring};
        WEFT_TRY(weft_layout_estimate_make(estimator, &p, &estimate));
        if (!estimate.fits) {
            weft_buf_printf(&why, "; %s", estimate.why);
            continue;
        }
        weft_buf_printf(out, "%sulysses %" PRId64 " x ring %" PRId64 " %s", between, p.cp / ring,
                        ring, weft_format_seconds(estimate.time.total, text));
        between = ", ";
        if (estimate.time.total < best) {
            best = estimate.time.total;
            *context = p.context;
        }
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(out));
    if (isinf(best))
        WEFT_GO(weft_error(WEFT_MSG_LAYOUT_INVALID,
                           WEFT_AT(.file = estimator->path, .key = "parallel.context"),
                           "auto finds no usable setting%s", why.data ? why.data : ""));
    weft_buf_printf(out, " a step: ulysses %" PRId64 " x ring %" PRId64, context->ulysses,
                    context->ring);
out:
    weft_buf_free(&why);
    return status;
}
