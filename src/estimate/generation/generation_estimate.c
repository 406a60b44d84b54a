#include "generate/layouts_priced.h"

#include "base/log.h"
#include "generate/generator_parts.h"
#include "pass/slices_search.h"
#include "plan/cost/rates.h"
#include "runtime/program_price.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one layout ------------------------------------------------------------------------------ */

typedef struct pricing {
    const weft_generation_pricer *p;
    weft_generator *g;
    weft_priced_links links;
    weft_generation_price *out;
    double touch; /* seconds of a byte that is used for the first time */
    double kernels, exact;
    /* of the decoder: seconds of each rank in this round of tiles; the program that was looked at
     * last, and the bytes of the largest */
    double *decoding;
    int64_t round, largest;
    const weft_program *last;
    weft_program_cost cost;
} pricing;

static weft_status no_memory(void)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for the price of a layout");
}

static weft_status spend(pricing *w, const weft_program *program, double times,
                         weft_program_cost *cost)
{
    WEFT_TRY(weft_program_cost_of(&w->links, program, false, cost));
    w->kernels += times * cost->forward;
    w->exact += times * cost->exact;
    return WEFT_OK;
}

static int64_t wire_bytes(const weft_graph *g)
{
    int64_t bytes = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (weft_op_is_collective(weft_graph_node(g, n)->op))
            bytes += weft_node_cost(g, n).wire_bytes;
    return bytes;
}

/* Every program as often as the walk asks for its answer: a step may ask twice (heun), guide or
 * not, or be another expert's. What is told of a step is the mean over them. Caches leave out what
 * nobody knows before. */
static weft_status price_steps(pricing *w)
{
    weft_generator *g = w->g;
    weft_generation_price *out = w->out;
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(g, part);
    const double windows = (double)g->windows.count, steps = (double)weft_generator_steps(g);
    int64_t answers[WEFT_GENERATOR_DENOISERS];
    weft_program_cost cost;
    double wire = 0;
    WEFT_TRY(weft_generator_answers(g, answers));
    for (int i = 0; i < parts; i++) {
        const double runs = windows * (double)answers[i], each = runs / steps;
        if (!answers[i])
            continue;
        WEFT_TRY(spend(w, part[i]->program, runs, &cost));
        out->runs += (int64_t)runs;
        out->step += each * cost.seconds;
        out->compute += each * (cost.forward + cost.update);
        out->exchange += each * cost.exposed;
        out->hidden += each * cost.hidden;
        wire += each * (double)wire_bytes(part[i]->own);
    }
    out->wire = (int64_t)wire;
    for (int i = 0; i < g->captions.readers; i++) {
        WEFT_TRY(spend(w, g->encoder[i].program, 1, &cost));
        out->text += cost.seconds;
    }
    return WEFT_OK;
}

/* The round of tiles that is over: the first rank takes every tile before its next one begins. */
static void end_round(pricing *w)
{
    double longest = 0;
    for (int i = 0; i < w->p->ranks; i++) {
        longest = fmax(longest, w->decoding[i]);
        w->decoding[i] = 0;
    }
    w->out->decode += longest;
}

/* Tiles go to the ranks in turn; a picture that is whole is the first one's. */
static weft_status_code price_tile(void *user, int64_t tile, const weft_program *program,
                                   int64_t times)
{
    pricing *w = user;
    const int64_t bytes = weft_program_bytes(program);
    if (program != w->last)
        WEFT_TRY(weft_program_cost_of(&w->links, program, false, &w->cost));
    if (tile / w->p->ranks != w->round)
        end_round(w);
    w->last = program;
    w->round = tile / w->p->ranks;
    w->largest = bytes > w->largest ? bytes : w->largest;
    w->decoding[tile % w->p->ranks] += (double)times * w->cost.seconds;
    return WEFT_OK;
}

static weft_status price_decoding(pricing *w)
{
    w->decoding = weft_alloc(w->p->ranks * (int64_t)sizeof *w->decoding);
    const weft_status_code status =
        w->decoding ? weft_vae_works(w->g->vae, WEFT_VAE_DECODER, price_tile, w) : no_memory();
    if (status == WEFT_OK)
        end_round(w);
    w->out->decode += w->touch * (double)w->largest;
    weft_free(w->decoding);
    return status;
}

/* What the programs before the decoder use for the first time in the first step. */
static double price_memory(const pricing *w)
{
    weft_program *list[WEFT_MAX_READERS + WEFT_GENERATOR_DENOISERS];
    const weft_generator_part *part[WEFT_GENERATOR_DENOISERS];
    const int parts = weft_generator_denoisers(w->g, part);
    int count = 0;
    for (int i = 0; i < w->g->captions.readers; i++)
        list[count++] = w->g->encoder[i].program;
    for (int i = 0; i < parts; i++)
        list[count++] = part[i]->program;
    return w->touch * (double)weft_programs_bytes(list, count);
}

static weft_status price(pricing *w)
{
    weft_generation_price *out = w->out;
    const double steps = (double)weft_generator_steps(w->g), batch = (double)w->g->options.batch;
    w->links = (weft_priced_links){w->p->cluster, &w->g->mesh};
    w->touch = w->p->cluster->device.rates ? w->p->cluster->device.rates->touch : 0;
    out->peak = weft_generator_bytes_of(w->g, true);
    out->first = price_memory(w);
    weft_generator_tiles(w->g, out->tiles);
    WEFT_TRY(price_steps(w));
    WEFT_TRY(price_decoding(w));
    out->video = (out->text + out->first + steps * out->step) / batch + out->decode;
    out->exact = w->kernels > 0 ? fmin(1, w->exact / w->kernels) : 0;
    return WEFT_OK;
}

weft_status weft_generation_price_open(const weft_generation_pricer *pricer,
                                       weft_generator *generator, weft_generation_price *out)
{
    pricing w = {.p = pricer, .g = generator, .out = out};
    *out = (weft_generation_price){.legal = true, .fits = true};
    return price(&w);
}

weft_status weft_generation_price_of(const weft_generation_pricer *pricer,
                                     const weft_parallel *parallel, bool stream,
                                     weft_generation_price *out)
{
    weft_generator_options options = *pricer->options;
    weft_generator *generator = NULL;
    weft_comm *comm = NULL;
    *out = (weft_generation_price){.parallel = *parallel, .stream = stream};
    options.parallel = parallel;
    options.stream = stream;
    WEFT_TRY(weft_comm_open_fake_alone(pricer->ranks, 0, &comm));
    weft_status_code status = weft_generator_open(pricer->folder, &options, comm, &generator);
    out->legal = status == WEFT_OK || status == WEFT_E_MEMORY;
    if (status == WEFT_OK) {
        pricing w = {.p = pricer, .g = generator, .out = out};
        status = price(&w);
        out->fits = status == WEFT_OK;
    } else if (status == WEFT_E_MEMORY || status == WEFT_E_CONFIG || status == WEFT_E_ARG ||
               status == WEFT_E_UNSUPPORTED || status == WEFT_E_SHAPE) {
        out->why = weft_arena_strdup(pricer->arena, weft_error_message());
        status = out->why ? WEFT_OK : no_memory();
    }
    weft_generator_free(generator);
    weft_comm_free(comm);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

typedef struct visit {
    const weft_generation_pricer *p;
    weft_generation_layout_fn *with;
    void *user;
    int halves;
    int64_t rows;        /* of a batch */
    bool experts, heads; /* the denoiser has recipes for ep, for context=heads */
} visit;

static bool splits(const weft_generator *g, const char *axis)
{
    const weft_family *family = g->denoiser_model[0].family;
    return weft_recipe_list_find(family->recipe, family->recipes, axis);
}

/* The halves of the guidance: from a generator of one rank, which may not fit. */
static weft_status read_rows(visit *s)
{
    const weft_generation_pricer *p = s->p;
    weft_generator_options options = *p->options;
    weft_generator *g = weft_alloc(sizeof *g);
    if (!g)
        return no_memory();
    options.parallel = NULL;
    g->options = options;
    g->folder = weft_strdup(p->folder);
    weft_status_code status = g->folder ? weft_generator_read(g) : no_memory();
    if (status == WEFT_OK) {
        s->halves = g->guidance->rows;
        s->rows = g->rows;
        s->experts = splits(g, "ep");
        s->heads = splits(g, "heads");
    }
    weft_generator_free(g);
    return status;
}

enum { DEGREES = 5, EXPERTS = 2 };

/* Degrees are dp (with cfg in it), fsdp, ep, tp, cp. */
static weft_status try_variants(visit *s, const int64_t degree[DEGREES])
{
    const weft_parallel *given = s->p->options->parallel;
    weft_parallel p = given ? *given : weft_parallel_default;
    const bool split = s->halves == 2 && degree[0] % 2 == 0;
    p.cfg = split ? 2 : 1;
    p.dp = degree[0] / p.cfg;
    p.fsdp = degree[1];
    p.ep = degree[EXPERTS];
    p.tp = degree[3];
    p.cp = degree[4];
    for (int sequence = 0; sequence <= (p.tp > 1); sequence++) {
        p.sequence = sequence;
        for (int64_t way = 0; weft_parallel_context(p.cp, s->heads, way, &p.context); way++)
            WEFT_TRY(s->with(s->user, &p));
    }
    return WEFT_OK;
}

static weft_status try_degrees(visit *s, int64_t degree[DEGREES], int place, int64_t left)
{
    if (place == DEGREES - 1) {
        degree[place] = left;
        return try_variants(s, degree);
    }
    for (int64_t d = left; d >= 1; d--) {
        if (left % d || (place == 0 && d > s->rows) || (place == EXPERTS && d > 1 && !s->experts))
            continue;
        degree[place] = d;
        WEFT_TRY(try_degrees(s, degree, place + 1, left / d));
    }
    return WEFT_OK;
}

weft_status weft_generation_layouts(const weft_generation_pricer *pricer,
                                    weft_generation_layout_fn *with, void *user)
{
    visit v = {.p = pricer, .with = with, .user = user};
    int64_t degree[DEGREES];
    WEFT_TRY(read_rows(&v));
    return try_degrees(&v, degree, 0, pricer->ranks);
}

typedef struct search {
    const weft_generation_pricer *p;
    weft_generation_prices *out;
    int64_t room;
} search;

static weft_status add(search *s, const weft_parallel *parallel, bool stream)
{
    weft_generation_prices *out = s->out;
    if (out->count == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        weft_generation_price *more =
            weft_arena_alloc(s->p->arena, s->room * (int64_t)sizeof *more);
        if (!more)
            return no_memory();
        if (out->count)
            memcpy(more, out->item, (size_t)out->count * sizeof *more);
        out->item = more;
    }
    return weft_generation_price_of(s->p, parallel, stream, &out->item[out->count++]);
}

static weft_status_code try_one(void *self, const weft_parallel *parallel)
{
    search *s = self;
    WEFT_TRY(add(s, parallel, s->p->options->stream));
    const weft_generation_price *last = &s->out->item[s->out->count - 1];
    return last->legal && !last->fits && !last->stream ? add(s, parallel, true) : WEFT_OK;
}

static int class_of(const weft_generation_price *x)
{
    return x->fits ? 0 : x->legal ? 1 : 2;
}

/* Ties in the order of trying: candidates lie in one array. */
static int by_cost(const void *a, const void *b)
{
    const weft_generation_price *x = a, *y = b;
    if (class_of(x) != class_of(y))
        return class_of(x) - class_of(y);
    if (x->fits && x->video != y->video)
        return x->video < y->video ? -1 : 1;
    if (x->peak != y->peak)
        return x->peak < y->peak ? -1 : 1;
    weft_buf name[2] = {{0}, {0}};
    weft_generation_layout_name(x, &name[0]);
    weft_generation_layout_name(y, &name[1]);
    const int order = strcmp(name[0].data ? name[0].data : "", name[1].data ? name[1].data : "");
    weft_buf_free(&name[0]);
    weft_buf_free(&name[1]);
    return order;
}

weft_status weft_generation_search(const weft_generation_pricer *pricer,
                                   weft_generation_prices *prices)
{
    const double begun = weft_now();
    *prices = (weft_generation_prices){0};
    search s = {.p = pricer, .out = prices};
    WEFT_TRY(weft_generation_layouts(pricer, try_one, &s));
    qsort(prices->item, (size_t)prices->count, sizeof *prices->item, by_cost);
    for (int64_t i = 0; i < prices->count; i++) {
        prices->fitting += prices->item[i].fits;
        prices->legal += prices->item[i].legal;
    }
    prices->seconds = weft_now() - begun;
    return WEFT_OK;
}

/* ---- in words -------------------------------------------------------------------------------- */

void weft_generation_layout_name(const weft_generation_price *price, weft_buf *out)
{
    weft_parallel_name(&price->parallel, out);
    if (price->stream)
        weft_buf_printf(out, ", weights stream");
}

void weft_generation_why(const weft_generation_prices *l, int64_t index, weft_buf *out)
{
    static const char *const part[] = {"compute", "waiting in the steps", "decoding",
                                       "reading the prompts"};
    const weft_generation_price *best = &l->item[0], *x = &l->item[index];
    const double more[] = {x->compute / best->step - best->compute / best->step,
                           (x->exchange - best->exchange) / best->step,
                           (x->decode - best->decode) / best->video,
                           (x->text - best->text) / best->video};
    int most = 0;
    for (int k = 1; k < WEFT_COUNT(more); k++)
        most = more[k] > more[most] ? k : most;
    if (x->why)
        weft_buf_printf(out, "%s: %s", x->legal ? "does not fit" : "cannot be", x->why);
    else if (index > 0)
        weft_buf_printf(out, "%.1f %% slower, by %s", 100 * (x->video / best->video - 1),
                        part[most]);
}

static void print_line(const weft_generation_price *l, weft_buf *out)
{
    char time[5][32], bytes[2][32];
    weft_buf name = {0};
    weft_generation_layout_name(l, &name);
    weft_buf_printf(out, "  %-44s", name.data ? name.data : "?");
    weft_buf_free(&name);
    if (!l->fits) {
        weft_buf_printf(out, " %10s\n", "-");
        return;
    }
    weft_buf_printf(
        out, " %10s %10s %10s %10s %10s %12s %12s%s%s\n", weft_format_seconds(l->video, time[0]),
        weft_format_seconds(l->step, time[1]), weft_format_seconds(l->compute, time[2]),
        weft_format_seconds(l->exchange, time[3]), weft_format_seconds(l->decode, time[4]),
        weft_format_bytes(l->wire, bytes[0]), weft_format_bytes(l->peak, bytes[1]),
        l->tiles[0] ? "  decoded in " : "", l->tiles);
}

static void tell_basis(const weft_generation_pricer *p, const weft_generation_prices *l,
                       weft_buf *out)
{
    weft_rates_tell_basis(p->cluster->device.rates, l->fitting > 0 ? l->item[0].exact : 1,
                          "weft profile --model of these sizes", out);
}

void weft_generation_print(const weft_generation_pricer *pricer, const weft_generation_prices *l,
                           bool explain, weft_buf *out)
{
    enum { SHOWN = 10 };
    weft_buf_printf(out,
                    "%lld layouts of %d ranks priced in %.1f s: %lld fit, %lld do not, %lld cannot "
                    "be",
                    (long long)l->count, pricer->ranks, l->seconds, (long long)l->fitting,
                    (long long)(l->legal - l->fitting), (long long)(l->count - l->legal));
    tell_basis(pricer, l, out);
    weft_buf_printf(out, "\n");
    weft_buf_printf(out, "  %-44s %10s %10s %10s %10s %10s %12s %12s\n", "layout", "video", "step",
                    "compute", "waiting", "decoding", "sent a step", "memory");
    for (int64_t i = 0; i < l->count && (explain || (i < SHOWN && l->item[i].fits)); i++) {
        weft_buf why = {0};
        print_line(&l->item[i], out);
        if (explain)
            weft_generation_why(l, i, &why);
        if (why.len)
            weft_buf_printf(out, "      %s\n", why.data);
        weft_buf_free(&why);
    }
}

/* ---- for the ranks that run ------------------------------------------------------------------ */

static void tell(const weft_generation_pricer *p, const weft_generation_prices *l, weft_buf *told)
{
    char text[2][32];
    weft_buf name = {0}, why = {0};
    const weft_generation_price *best = &l->item[0];
    weft_generation_layout_name(best, &name);
    weft_buf_printf(told, "layout of %d ranks: %s, the best of %lld: %s a step, %s a video",
                    p->ranks, name.data ? name.data : "?", (long long)l->count,
                    weft_format_seconds(best->step, text[0]),
                    weft_format_seconds(best->video, text[1]));
    name.len = 0;
    if (l->count > 1) {
        weft_generation_layout_name(&l->item[1], &name);
        weft_generation_why(l, 1, &why);
        weft_buf_printf(told, "; next %s: %s", name.data ? name.data : "?",
                        why.data ? why.data : "?");
    }
    tell_basis(p, l, told);
    weft_buf_free(&name);
    weft_buf_free(&why);
}

/* What rank 0 has found, as numbers. */
typedef struct choice {
    int64_t cfg, dp, fsdp, tp, cp, ulysses, ring;
    int32_t sequence, stream;
} choice;

static weft_status choose(const weft_generation_pricer *pricer, choice *c, weft_buf *told)
{
    weft_generation_prices prices;
    WEFT_TRY(weft_generation_search(pricer, &prices));
    if (prices.fitting == 0)
        return weft_fail(WEFT_E_INFEASIBLE, "--parallel auto: no layout of %d ranks %s; %s",
                         pricer->ranks, prices.legal ? "fits" : "can be",
                         prices.count && prices.item[0].why ? prices.item[0].why : "?");
    const weft_generation_price *best = &prices.item[0];
    const weft_parallel *p = &best->parallel;
    *c = (choice){.cfg = p->cfg,
                  .dp = p->dp,
                  .fsdp = p->fsdp,
                  .tp = p->tp,
                  .cp = p->cp,
                  .ulysses = p->context.ulysses,
                  .ring = p->context.ring,
                  .sequence = p->sequence,
                  .stream = best->stream};
    tell(pricer, &prices, told);
    return weft_buf_check(told);
}

weft_status weft_generation_choose(const weft_generation_pricer *pricer, weft_comm *comm,
                                   weft_parallel *parallel, bool *stream, weft_buf *told)
{
    weft_generation_pricer own = *pricer;
    weft_generator_options options = *pricer->options;
    choice c = {0};
    WEFT_TRY(weft_generator_share(comm, &options.memory));
    own.options = &options;
    if (weft_comm_rank(comm) == 0) {
        weft_comm_busy(comm, "choosing a layout");
        const weft_status_code status = choose(&own, &c, told);
        weft_comm_busy(comm, NULL);
        WEFT_TRY(status);
    }
    WEFT_TRY(weft_comm_broadcast(comm, &c, sizeof c, 0));
    parallel->cfg = c.cfg;
    parallel->dp = c.dp;
    parallel->fsdp = c.fsdp;
    parallel->tp = c.tp;
    parallel->cp = c.cp;
    parallel->context.ulysses = c.ulysses;
    parallel->context.ring = c.ring;
    parallel->sequence = c.sequence;
    *stream = c.stream;
    return WEFT_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

typedef struct slices_pricing {
    const weft_generation_pricer *pricer;
    const weft_parallel *parallel;
    bool stream;
} slices_pricing;

static weft_status price_slices(void *user, const weft_slices *slices, weft_slices_price *out)
{
    const slices_pricing *w = user;
    weft_parallel p = *w->parallel;
    weft_generation_price price;
    p.slices = *slices;
    WEFT_TRY(weft_generation_price_of(w->pricer, &p, w->stream, &price));
    *out = (weft_slices_price){.fits = price.fits,
                               .why = price.why,
                               .seconds = price.step,
                               .kernels = price.compute,
                               .waits = price.exchange,
                               .hidden = price.hidden};
    return WEFT_OK;
}

weft_status weft_generation_choose_slices(const weft_generation_pricer *pricer, weft_comm *comm,
                                          bool stream, weft_parallel *parallel, weft_buf *told)
{
    weft_generation_pricer own = *pricer;
    weft_generator_options options = *pricer->options;
    slices_pricing w = {.pricer = &own, .parallel = parallel, .stream = stream};
    weft_slices best = parallel->slices;
    WEFT_TRY(weft_generator_share(comm, &options.memory));
    own.options = &options;
    if (weft_comm_rank(comm) == 0) {
        weft_comm_busy(comm, "choosing slices");
        const weft_status_code status = weft_slices_search(price_slices, &w, &best, told);
        weft_comm_busy(comm, NULL);
        WEFT_TRY(status);
    }
    WEFT_TRY(weft_comm_broadcast(comm, &best, sizeof best, 0));
    parallel->slices = best;
    return WEFT_OK;
}
