#include "estimate/generation/generation_layouts.h"

#include "base/log.h"
#include "comm/comm_world.h"
#include "generate/generator/generator_parts.h"
#include "generate/generator/generator_read.h"
#include "plan/ops/rates.h"
#include "transform/sharding/slices_search.h"

#include <stdio.h>
#include <string.h>

/* ---- search ---------------------------------------------------------------------------------- */

static bool splits(const weft_generator *g, const char *axis)
{
    const weft_family *family = g->model.denoiser[0].family;
    return weft_recipe_list_find(family->recipe, family->recipes, axis);
}

/* Reads the CFG branches from a generator of one rank, which need not fit. */
static weft_status read_space(const weft_generation_estimator *p, weft_layout_space *s)
{
    weft_generator_options options = *p->options;
    weft_generator *g;
    WEFT_TRY(WEFT_NEW(g, 1, "the estimate of a layout"));
    options.parallel = NULL;
    g->options = options;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_generator_read(g, p->folder));
    s->branches = (int)g->shape.branches;
    s->rows = g->shape.rows;
    s->experts = splits(g, "ep");
    s->heads = splits(g, "heads");
out:
    weft_generator_free(g);
    return status;
}

weft_status weft_generation_layouts(const weft_generation_estimator *estimator,
                                    weft_layout_visit visit, void *user)
{
    const weft_parallel *base = estimator->options->parallel;
    weft_layout_space space = {.ranks = estimator->ranks,
                               .base = base ? *base : weft_parallel_default};
    WEFT_TRY(read_space(estimator, &space));
    return weft_layout_variants(&space, visit, user);
}

typedef struct search {
    const weft_generation_estimator *p;
    weft_layout_list *out;
} search;

/* Parts of the seconds of a video. */
enum { CAUSES = 4 };
static const char *const causes[CAUSES] = {"compute", "exposed communication", "decoding",
                                           "the text encoders"};

static weft_status add_candidate(weft_layout_list *list, const weft_generation_estimator *p,
                                 const weft_generation_estimate *e)
{
    const double batch = (double)p->options->batch, steps = (double)e->steps / batch;
    const double cause[CAUSES] = {steps * e->compute, steps * e->exposed, e->decode,
                                  (e->text + e->first) / batch};
    weft_buf name = {0};
    weft_generation_layout_name(e, &name);
    const weft_layout_candidate candidate = {
        .score = {e->legal, e->fits, e->video, (double)e->peak},
        .why = e->why,
        .cause = e->fits ? cause : NULL,
        .estimate = e};
    return weft_layout_list_add_estimate(list, candidate, &name);
}

static weft_status add(search *s, const weft_parallel *parallel, bool stream,
                       weft_generation_estimate **out)
{
    WEFT_TRY(WEFT_ARENA_NEW(s->p->arena, *out, 1, "a layout"));
    WEFT_TRY(weft_generation_estimate_make(s->p, parallel, stream, *out));
    return add_candidate(s->out, s->p, *out);
}

static weft_status_code try_one(void *self, const weft_parallel *parallel)
{
    search *s = self;
    weft_generation_estimate *last;
    WEFT_TRY(add(s, parallel, s->p->options->stream, &last));
    return last->legal && !last->fits && !last->stream ? add(s, parallel, true, &last) : WEFT_OK;
}

weft_status weft_generation_search(const weft_generation_estimator *estimator,
                                   weft_layout_list *layouts)
{
    const double begun = weft_now();
    search s = {.p = estimator, .out = layouts};
    *layouts = (weft_layout_list){.arena = estimator->arena, .cause = causes, .causes = CAUSES};
    WEFT_TRY(weft_generation_layouts(estimator, try_one, &s));
    weft_layout_list_sort(layouts);
    layouts->seconds = weft_now() - begun;
    return WEFT_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_row(const weft_layout_candidate *c, weft_buf *out)
{
    const weft_generation_estimate *l = c->estimate;
    char time[5][32], bytes[2][32];
    if (!l->fits) {
        weft_buf_printf(out, "%10s", "-");
        return;
    }
    weft_buf_printf(
        out, "%10s %10s %10s %10s %10s %12s %12s%s%s", weft_format_seconds(l->video, time[0]),
        weft_format_seconds(l->step, time[1]), weft_format_seconds(l->compute, time[2]),
        weft_format_seconds(l->exposed, time[3]), weft_format_seconds(l->decode, time[4]),
        weft_format_bytes(l->wire, bytes[0]), weft_format_bytes(l->peak, bytes[1]),
        l->tiles[0] ? "  decoded in " : "", l->tiles);
}

static const weft_generation_estimate *best_of(const weft_layout_list *l)
{
    return l->fitting > 0 ? l->item[0].estimate : NULL;
}

static void format_basis(const weft_generation_estimator *p, const weft_layout_list *l,
                         weft_buf *out)
{
    const weft_generation_estimate *best = best_of(l);
    weft_rates_format_basis(p->cluster->device.rates, best ? best->exact : 1,
                            "weft profile --model of these sizes", out);
}

void weft_generation_print(const weft_generation_estimator *estimator, const weft_layout_list *l,
                           bool explain, weft_buf *out)
{
    char head[160];
    snprintf(head, sizeof head, "%-44s %10s %10s %10s %10s %10s %12s %12s", "layout", "video",
             "step", "compute", "waiting", "decoding", "sent a step", "memory");
    const weft_layout_table table = {.head = head, .width = 44, .row = print_row};
    weft_layout_list_summary(l, estimator->ranks, out);
    format_basis(estimator, l, out);
    weft_buf_printf(out, "\n");
    weft_layout_list_print(l, &table, 0, weft_layout_list_shown(l, explain), explain, out);
}

/* ---- for the ranks that run ------------------------------------------------------------------ */

static void format_choice(const weft_generation_estimator *p, const weft_layout_list *l,
                          weft_buf *out)
{
    char text[2][32];
    weft_buf why = {0};
    const weft_generation_estimate *best = best_of(l);
    weft_buf_printf(out, "layout of %d ranks: %s, the best of %" PRId64 ": %s a step, %s a video",
                    p->ranks, l->item[0].name, l->count, weft_format_seconds(best->step, text[0]),
                    weft_format_seconds(best->video, text[1]));
    if (l->count > 1) {
        weft_layout_list_explain(l, 1, &why);
        weft_buf_printf(out, "; next %s: %s", l->item[1].name, why.data ? why.data : "?");
    }
    format_basis(p, l, out);
    weft_buf_free(&why);
}

/* The choice of rank 0, as numbers. */
typedef struct choice {
    int64_t cfg, dp, fsdp, ep, tp, cp;
    weft_cp_config context;
    int32_t sequence, stream;
} choice;

static void print_choice(const weft_generation_estimator *estimator, const weft_layout_list *l,
                         const char *text)
{
    const weft_generation_estimate *best = best_of(l);
    weft_notice(
        WEFT_MSG_LAYOUT_CHOSEN,
        WEFT_AT(WEFT_DETAILS(
            WEFT_WORD("layout", l->item[0].name), WEFT_DETAIL("ranks", estimator->ranks),
            WEFT_DETAIL("layouts", l->count), WEFT_DETAIL("stream", best->stream),
            WEFT_DETAIL("step_seconds", best->step), WEFT_DETAIL("video_seconds", best->video),
            WEFT_WORD("next", l->count > 1 ? l->item[1].name : ""))),
        "%s", text);
}

static weft_status choose(const weft_generation_estimator *estimator, choice *c)
{
    weft_buf out = {0};
    weft_layout_list list;
    WEFT_TRY(weft_generation_search(estimator, &list));
    if (list.fitting == 0)
        return weft_layout_list_infeasible(&list, estimator->ranks,
                                           WEFT_AT(.key = "--parallel", .value = "auto"));
    const weft_generation_estimate *best = best_of(&list);
    const weft_parallel *p = &best->parallel;
    *c = (choice){.cfg = p->cfg,
                  .dp = p->dp,
                  .fsdp = p->fsdp,
                  .ep = p->ep,
                  .tp = p->tp,
                  .cp = p->cp,
                  .context = p->context,
                  .sequence = p->sequence,
                  .stream = best->stream};
    format_choice(estimator, &list, &out);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&out));
    print_choice(estimator, &list, out.data);
out:
    weft_buf_free(&out);
    return status;
}

weft_status weft_generation_choose(const weft_generation_estimator *estimator, weft_comm *comm,
                                   weft_parallel *parallel, bool *stream)
{
    weft_generation_estimator own = *estimator;
    weft_generator_options options = *estimator->options;
    choice c = {0};
    WEFT_TRY(weft_generator_share(comm, &options, &options.memory));
    own.options = &options;
    if (weft_comm_rank(comm) == 0) {
        weft_comm_set_busy(comm, "choosing a layout");
        const weft_status_code status = choose(&own, &c);
        weft_comm_set_busy(comm, NULL);
        WEFT_TRY(status);
    }
    WEFT_TRY(weft_comm_broadcast(comm, &c, sizeof c, 0));
    parallel->cfg = c.cfg;
    parallel->dp = c.dp;
    parallel->fsdp = c.fsdp;
    parallel->ep = c.ep;
    parallel->tp = c.tp;
    parallel->cp = c.cp;
    parallel->context = c.context;
    parallel->sequence = c.sequence;
    *stream = c.stream;
    return WEFT_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

typedef struct overlap_pricing {
    const weft_generation_estimator *estimator;
    const weft_parallel *parallel;
    bool stream;
} overlap_pricing;

static weft_status estimate_overlap(void *user, const weft_comm_overlap *overlap,
                                    weft_comm_overlap_estimate *out)
{
    const overlap_pricing *w = user;
    weft_parallel p = *w->parallel;
    weft_generation_estimate estimate;
    p.overlap = *overlap;
    WEFT_TRY(weft_generation_estimate_make(w->estimator, &p, w->stream, &estimate));
    *out = (weft_comm_overlap_estimate){.fits = estimate.fits,
                                        .why = estimate.why,
                                        .seconds = estimate.step,
                                        .kernels = estimate.compute,
                                        .waits = estimate.exposed,
                                        .hidden = estimate.hidden};
    return WEFT_OK;
}

weft_status weft_generation_choose_comm_overlap(const weft_generation_estimator *estimator,
                                                weft_comm *comm, bool stream,
                                                weft_parallel *parallel, weft_buf *out)
{
    weft_generation_estimator own = *estimator;
    weft_generator_options options = *estimator->options;
    overlap_pricing w = {.estimator = &own, .parallel = parallel, .stream = stream};
    weft_comm_overlap best = parallel->overlap;
    WEFT_TRY(weft_generator_share(comm, &options, &options.memory));
    own.options = &options;
    if (weft_comm_rank(comm) == 0) {
        weft_comm_set_busy(comm, "choosing slices");
        const weft_status_code status = weft_comm_overlap_search(estimate_overlap, &w, &best, out);
        weft_comm_set_busy(comm, NULL);
        WEFT_TRY(status);
    }
    WEFT_TRY(weft_comm_broadcast(comm, &best, sizeof best, 0));
    parallel->overlap = best;
    return WEFT_OK;
}
