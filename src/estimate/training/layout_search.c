#include "train/layouts.h"

#include "base/log.h"
#include "plan/cost/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- candidates ------------------------------------------------------------------------------ */

typedef struct search {
    weft_layout_visit visit;
    void *self;
    int64_t batch;       /* greatest common divisor of all batches */
    bool experts, heads; /* the model has recipes for ep, for context: heads */
} search;

static weft_status try_stages(search *s, weft_parallel *p)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "wave", "zero-bubble"};
    if (p->pp == 1)
        return s->visit(s->self, p);
    for (int k = 0; k < WEFT_COUNT(schedules); k++) {
        int tried = 0;
        p->schedule = schedules[k];
        for (int64_t m = p->pp; m <= 4 * p->pp; m++) {
            if (s->batch % m)
                continue;
            p->microbatches = m;
            tried++;
            WEFT_TRY(s->visit(s->self, p));
        }
        p->microbatches = 0; /* as many as there can be */
        if (!tried)
            WEFT_TRY(s->visit(s->self, p));
    }
    p->schedule = weft_parallel_default.schedule;
    return WEFT_OK;
}

static weft_status try_contexts(search *s, weft_parallel *p)
{
    for (int64_t way = 0; weft_parallel_context(p->cp, s->heads, way, &p->context); way++)
        WEFT_TRY(try_stages(s, p));
    return WEFT_OK;
}

static weft_status try_variants(search *s, weft_parallel *p)
{
    for (int zero = 0; zero <= (p->dp > 1 ? 2 : 0); zero++)
        for (int sequence = 0; sequence <= (p->tp > 1); sequence++) {
            p->zero = zero;
            p->sequence = sequence;
            WEFT_TRY(try_contexts(s, p));
        }
    return WEFT_OK;
}

/* Tries every divisor of `left` as degree `place` of dp, fsdp, ep, tp, cp, pp. */
static weft_status try_degrees(search *s, weft_parallel *p, int place, int64_t left)
{
    int64_t *const degree[] = {&p->dp, &p->fsdp, &p->ep, &p->tp, &p->cp, &p->pp};
    if (place + 1 == WEFT_COUNT(degree)) {
        *degree[place] = left;
        return try_variants(s, p);
    }
    for (int64_t d = left; d >= 1; d--) {
        if (left % d || (degree[place] == &p->ep && d > 1 && !s->experts))
            continue;
        *degree[place] = d;
        WEFT_TRY(try_degrees(s, p, place + 1, left / d));
    }
    return WEFT_OK;
}

static int64_t common_batch(const weft_run *run)
{
    const weft_stage *stage = run->stages.item;
    int64_t common = 0;
    for (int64_t i = 0; i < run->stages.count; i++)
        for (int k = 0; k < weft_stage_bucket_count(&stage[i]); k++) {
            int64_t a = weft_stage_bucket(&stage[i], k)->batch, b = common;
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
    search s = {.visit = visit,
                .self = self,
                .batch = common_batch(run),
                .experts = weft_recipe_list_find(models->recipe, models->recipes, "ep"),
                .heads = weft_recipe_list_find(models->recipe, models->recipes, "heads")};
    weft_parallel p = weft_parallel_default;
    p.order = run->parallel.order;
    return try_degrees(&s, &p, 0, ranks);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int rank_of(const weft_layout_price *l)
{
    return l->fits ? 0 : l->legal ? 1 : 2;
}

static int by_cost(const void *a, const void *b)
{
    const weft_layout_price *x = a, *y = b;
    if (rank_of(x) != rank_of(y))
        return rank_of(x) - rank_of(y);
    if (x->fits && x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    const int64_t peak[] = {weft_run_bytes_sum(x->peak), weft_run_bytes_sum(y->peak)};
    if (x->legal && peak[0] != peak[1])
        return peak[0] < peak[1] ? -1 : 1;
    /* of what is alike, in the order of trying: that of addresses is not kept by qsort */
    weft_buf name[2] = {{0}, {0}};
    weft_parallel_name(&x->parallel, &name[0]);
    weft_parallel_name(&y->parallel, &name[1]);
    const int order = strcmp(name[0].data ? name[0].data : "", name[1].data ? name[1].data : "");
    weft_buf_free(&name[0]);
    weft_buf_free(&name[1]);
    return order;
}

typedef struct pricing {
    const weft_pricer *p;
    weft_layouts *out;
    int64_t room;
} pricing;

static weft_status price_one(void *self, const weft_parallel *parallel)
{
    pricing *w = self;
    if (w->out->count == w->room) {
        const int64_t room = w->room ? 2 * w->room : 64;
        weft_layout_price *more = weft_arena_alloc(w->p->arena, room * (int64_t)sizeof *more);
        if (!more)
            return weft_fail(WEFT_E_MEMORY, "out of memory for %lld layouts", (long long)room);
        if (w->room)
            memcpy(more, w->out->item, (size_t)w->room * sizeof *more);
        w->out->item = more;
        w->room = room;
    }
    WEFT_TRY(weft_layout_price_of(w->p, parallel, &w->out->item[w->out->count]));
    w->out->count++;
    return WEFT_OK;
}

weft_status weft_layouts_search(const weft_pricer *pricer, weft_layouts *layouts)
{
    const double begun = weft_now();
    *layouts = (weft_layouts){0};
    pricing w = {.p = pricer, .out = layouts};
    WEFT_TRY(weft_layouts_visit(pricer->run, pricer->models, pricer->ranks, price_one, &w));
    qsort(layouts->item, (size_t)layouts->count, sizeof *layouts->item, by_cost);
    for (int64_t i = 0; i < layouts->count; i++) {
        layouts->fitting += layouts->item[i].fits;
        layouts->legal += layouts->item[i].legal;
    }
    layouts->seconds = weft_now() - begun;
    return WEFT_OK;
}

/* ---- in words -------------------------------------------------------------------------------- */

void weft_layouts_why(const weft_layouts *l, int64_t index, weft_buf *out)
{
    static const char *const part[] = {"compute", "waiting for exchanges", "optimizer", "pauses"};
    const weft_layout_price *best = &l->item[0], *x = &l->item[index];
    const double more[] = {x->compute - best->compute, x->exchange - best->exchange,
                           x->optimizer - best->optimizer, x->bubble - best->bubble};
    int most = 0;
    char text[32];
    for (int k = 1; k < WEFT_COUNT(more); k++)
        most = more[k] > more[most] ? k : most;
    if (x->why)
        weft_buf_printf(out, "%s: %s", x->legal ? "does not fit" : "cannot be", x->why);
    else if (index > 0)
        weft_buf_printf(out, "%.1f %% slower: %s more of %s",
                        100 * (x->seconds / best->seconds - 1),
                        weft_format_seconds(more[most], text), part[most]);
}

static void print_line(const weft_layout_price *l, bool elsewhere, weft_buf *out)
{
    char time[5][32], bytes[3][32];
    weft_buf name = {0};
    weft_parallel_name(&l->parallel, &name);
    weft_buf_printf(out, "  %-52s", name.data ? name.data : "?");
    weft_buf_free(&name);
    if (!l->fits) {
        weft_buf_printf(out, " %10s\n", "-");
        return;
    }
    weft_buf_printf(
        out, " %10s %10s %10s %10s %10s %12s %12s", weft_format_seconds(l->seconds, time[0]),
        weft_format_seconds(l->compute, time[1]), weft_format_seconds(l->exchange, time[2]),
        weft_format_seconds(l->optimizer, time[3]), weft_format_seconds(l->bubble, time[4]),
        weft_format_bytes(l->peak.device, bytes[0]), weft_format_bytes(l->peak.host, bytes[1]));
    if (elsewhere)
        weft_buf_printf(out, " %12s", weft_format_bytes(l->peak.elsewhere, bytes[2]));
    weft_buf_printf(out, "%s\n", l->limit ? "  with parts made again" : "");
}

/* What the two memories are. */
static void print_memories(const weft_pricer *pricer, bool elsewhere, weft_buf *out)
{
    const weft_backend *backend = weft_backend_find(pricer->run->backend);
    const bool one = backend && backend->device == &weft_device_host;
    weft_buf_printf(out,
                    "memory of the rank that takes most: device: weights, optimizer, programs and "
                    "records; host: program and libraries, batches, copies for checkpoints%s%s\n",
                    one ? "; backend computes in the host's, so the limit is for both together"
                        : "",
                    !elsewhere ? ""
                    : one      ? "; elsewhere: a file (memory.offload, memory.states)"
                               : "; elsewhere: the host's, too (memory.offload, memory.states)");
}

void weft_layouts_print(const weft_pricer *pricer, const weft_layouts *l, bool explain,
                        weft_buf *out)
{
    enum { SHOWN = 10 };
    const weft_rates *rates = pricer->cluster->device.rates;
    weft_buf_printf(out,
                    "%lld layouts of %d ranks priced in %.1f s: %lld fit, %lld do not, %lld cannot "
                    "be",
                    (long long)l->count, pricer->ranks, l->seconds, (long long)l->fitting,
                    (long long)(l->legal - l->fitting), (long long)(l->count - l->legal));
    weft_rates_tell_basis(rates, l->fitting > 0 ? l->item[0].exact : 1, "weft profile CONFIG", out);
    weft_buf_printf(out, "\n");
    if (rates && (rates->ranks > 1 ? rates->ranks : 1) != pricer->ranks)
        weft_buf_printf(out,
                        "the profile was measured with %lld processes at a time, and %d will run: "
                        "mpirun -n %d weft profile %s --out FILE.json is nearer\n",
                        (long long)(rates->ranks > 1 ? rates->ranks : 1), pricer->ranks,
                        pricer->ranks, pricer->path);
    bool elsewhere = false;
    for (int64_t i = 0; i < l->count; i++)
        elsewhere = elsewhere || l->item[i].peak.elsewhere;
    weft_buf_printf(out, "  %-52s %10s %10s %10s %10s %10s %12s %12s%s\n", "layout", "step",
                    "compute", "exchange", "optimizer", "pauses", "device", "host",
                    elsewhere ? "    elsewhere" : "");
    for (int64_t i = 0; i < l->count && (explain || (i < SHOWN && l->item[i].fits)); i++) {
        print_line(&l->item[i], elsewhere, out);
        if (!explain)
            continue;
        weft_buf why = {0};
        weft_layouts_why(l, i, &why);
        if (why.len)
            weft_buf_printf(out, "      %s\n", why.data);
        if (l->item[i].fits)
            weft_buf_printf(out,
                            "      %.0f %% of its kernels' time measured at these shapes; %s\n",
                            100 * l->item[i].exact, l->item[i].memory);
        weft_buf_free(&why);
    }
    print_memories(pricer, elsewhere, out);
}

/* ---- context: auto --------------------------------------------------------------------------- */

weft_status weft_layouts_context(const weft_pricer *pricer, weft_context *context, weft_buf *told)
{
    weft_parallel p = pricer->run->parallel;
    double best = INFINITY;
    weft_buf why = {0};
    weft_buf_printf(told, "context: auto:");
    const char *between = " ";
    for (int64_t ring = 1; ring <= p.cp; ring++) {
        char text[32];
        weft_layout_price price;
        if (p.cp % ring)
            continue;
        p.context =
            (weft_context){.kind = WEFT_CONTEXT_ULYSSES, .ulysses = p.cp / ring, .ring = ring};
        WEFT_TRY(weft_layout_price_of(pricer, &p, &price));
        if (!price.fits) {
            weft_buf_printf(&why, "; %s", price.why);
            continue;
        }
        weft_buf_printf(told, "%sulysses %lld x ring %lld %s", between, (long long)(p.cp / ring),
                        (long long)ring, weft_format_seconds(price.seconds, text));
        between = ", ";
        if (price.seconds < best) {
            best = price.seconds;
            *context = p.context;
        }
    }
    weft_status_code status = weft_buf_check(told);
    if (status == WEFT_OK && isinf(best))
        status = weft_fail(WEFT_E_CONFIG, "%s: parallel.context: auto finds none that can be%s",
                           pricer->path, why.data ? why.data : "");
    if (status == WEFT_OK)
        weft_buf_printf(told, " a step: ulysses %lld x ring %lld", (long long)context->ulysses,
                        (long long)context->ring);
    weft_buf_free(&why);
    return status;
}
