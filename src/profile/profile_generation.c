/* weft profile --model: times the generator's own programs, bound with the model's weights, in one
 * layout at a time, so that peak memory is that of one layout.
 *
 * Every program is timed as a whole, with communication overlap as in a real run: on cores that do
 * both, kernels and collectives slow each other. Programs with new shapes also run node by node,
 * with a wait for each collective; these times predict other sizes. A program that runs on rank 0
 * alone in a generation (an image decoded untiled) also runs alone here. */
#include "profile/profile_generation.h"

#include "cli/options/args.h"
#include "cli/options/backend_option.h"
#include "cli/options/parallel_option.h"
#include "cli/options/tile_option.h"
#include "cli/options/videos_option.h"
#include "comm/comm_world.h"
#include "estimate/generation/generation_layouts.h"
#include "generate/generator/generator_graphs.h"
#include "generate/generator/own_settings.h"
#include "profile/profile_work.h"

#include <stdio.h>
#include <string.h>

typedef struct generation {
    weft_profiling *p;
    const char *folder;
    weft_generator_options options;
    double seconds; /* time budget per program */
    /* Decoder tiles of images. whole: NULL (untiled if that fits), or explicitly untiled; tiles:
     * the tiles in which all ranks may decode. */
    const weft_tile *whole, *tiles;
    int64_t layouts, programs; /* programs: new ones in a layout */
    weft_parallel last;        /* last feasible layout */
    bool by_nodes;
    char layout[64];
    char why[512]; /* error of the last infeasible layout */
} generation;

static weft_status read_options(const weft_args *args, weft_tile *tile, generation *w)
{
    weft_generator_options *o = &w->options;
    *o = (weft_generator_options){.steps = 1, .negative = ""};
    WEFT_TRY(weft_args_backend(args, &o->backend));
    WEFT_TRY(weft_args_videos(args, o));
    WEFT_TRY(weft_own_settings_take(w->folder, false, WEFT_USUAL_STEPS, o));
    *tile = (weft_tile){.on = true};
    WEFT_TRY(weft_args_tile(args, tile, &o->tile, &o->memory, &o->vae_products));
    w->tiles = tile;
    w->whole = tile->on ? NULL : tile;
    return WEFT_OK;
}

/* Whether a program must be timed: as a whole, if no equal program was timed; by nodes, if some
 * rank spends time in nodes without a measurement. The answer is the same on all ranks. */
static weft_status is_new(const generation *w, const weft_graph *graph, bool *is)
{
    const weft_profiling *p = w->p;
    weft_new_share share = {0};
    double asked;
    if (w->by_nodes) {
        weft_profiling_share(p, graph, &share);
        asked = share.fresh > 0.01 * share.all;
    } else {
        asked = !weft_rates_program(&p->rates, graph);
    }
    WEFT_TRY(weft_comm_sum(p->comm, &asked, 1));
    *is = asked > 0;
    return WEFT_OK;
}

static weft_status_code count_new(void *user, const char *name, const weft_graph *graph,
                                  weft_program *program)
{
    generation *w = user;
    bool is;
    (void)name;
    (void)program;
    WEFT_TRY(is_new(w, graph, &is));
    w->programs += is;
    return WEFT_OK;
}

static weft_status time_one(generation *w, weft_timed *t, double ranks)
{
    WEFT_TRY(ranks == weft_comm_ranks(w->p->comm) ? weft_profiling_run(w->p, t, 1, w->seconds)
                                                  : weft_profiling_run_alone(w->p, t, w->seconds));
    return weft_profiling_take(w->p, t);
}

static weft_status_code time_program(void *user, const char *name, const weft_graph *graph,
                                     weft_program *program)
{
    generation *w = user;
    weft_timed t = {0};
    char text[96];
    bool is;
    WEFT_TRY(is_new(w, graph, &is));
    if (!is)
        return WEFT_OK;
    if (w->by_nodes)
        WEFT_TRY(weft_profiling_record(w->p, graph));
    double here[2] = {program != NULL, program && weft_comm_rank(w->p->comm) == 0};
    WEFT_TRY(weft_comm_sum(w->p->comm, here, 2));
    if (here[1] == 0)
        return WEFT_OK; /* runs on another rank only; rank 0's measurements are used */
    snprintf(text, sizeof text, "%.40s%s%.40s%s", w->layout, w->layout[0] ? ", " : "", name,
             w->by_nodes ? ", by nodes" : "");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_timed_begin(&t, graph, program, w->by_nodes, &w->p->prompts, text));
    WEFT_GO(time_one(w, &t, here[0]));
out:
    weft_timed_end(&t);
    return status;
}

/* Opens the generator on all ranks or on none. Uses weight streaming if the weights do not fit.
 * *generator NULL: the layout is infeasible. */
static weft_status open_on_all(generation *w, const weft_generator_options *options,
                               weft_generator **generator)
{
    weft_generator_options o = *options;
    *generator = NULL;
    for (;;) {
        const weft_status_code opened = weft_generator_open(w->folder, &o, w->p->comm, generator);
        double refused[2] = {opened == WEFT_E_MEMORY, opened != WEFT_OK};
        if (opened != WEFT_OK)
            snprintf(w->why, sizeof w->why, "%s", weft_error_message());
        WEFT_TRY(weft_comm_sum(w->p->comm, refused, 2));
        if (refused[1] == 0)
            return WEFT_OK;
        weft_generator_free(*generator);
        *generator = NULL;
        if (o.stream || refused[0] < refused[1])
            return WEFT_OK;
        o.stream = true;
    }
}

/* Times the programs of one layout; *any: the layout is feasible. */
static weft_status time_programs(generation *w, const weft_generator_options *o, bool by_nodes,
                                 bool *any)
{
    weft_generator_options own = *o;
    weft_generator *g;
    weft_buf name = {0};
    own.profile = w->by_nodes = by_nodes;
    WEFT_TRY(open_on_all(w, &own, &g));
    *any = g != NULL;
    if (!g)
        return WEFT_OK;
    const weft_generation_estimate as = {.parallel = *o->parallel,
                                         .stream = weft_generator_settings(g)->stream};
    weft_generation_layout_name(&as, &name);
    snprintf(w->layout, sizeof w->layout, "%.60s", name.data ? name.data : "");
    weft_buf_free(&name);
    w->programs = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_generator_programs(g, count_new, w));
    if (w->programs)
        WEFT_GO(weft_generator_bind(g));
    if (w->programs)
        WEFT_GO(weft_generator_programs(g, time_program, w));
out:
    weft_generator_free(g);
    return status;
}

static weft_status time_layout(generation *w, const weft_parallel *parallel, const weft_tile *tile)
{
    weft_generator_options o = w->options;
    bool any;
    o.parallel = parallel;
    o.tile = tile;
    WEFT_TRY(time_programs(w, &o, false, &any));
    w->layouts += any;
    if (any)
        w->last = *parallel;
    return any ? time_programs(w, &o, true, &any) : WEFT_OK;
}

static weft_status_code visit_layout(void *user, const weft_parallel *parallel)
{
    generation *w = user;
    return time_layout(w, parallel, w->whole);
}

static weft_status_code count_layout(void *user, const weft_parallel *parallel)
{
    (void)parallel;
    ++*(int64_t *)user;
    return WEFT_OK;
}

static weft_status time_layouts(generation *w, const weft_parallel *parallel, bool chosen,
                                double seconds)
{
    enum { EACH = 3 }; /* programs: a denoiser, two decoder programs */
    const int ranks = weft_comm_ranks(w->p->comm);
    const weft_generation_estimator estimator = {
        .folder = w->folder, .options = &w->options, .ranks = ranks, .arena = w->p->arena};
    int64_t count = 1;
    if (!chosen)
        WEFT_TRY(weft_generation_layouts(&estimator, count_layout, &count));
    w->seconds = seconds / (double)(2 * count + EACH);
    WEFT_TRY(chosen ? visit_layout(w, parallel)
                    : weft_generation_layouts(&estimator, visit_layout, w));
    if (!w->layouts)
        return weft_error(WEFT_MSG_PLAN_INFEASIBLE, WEFT_AT(.file = w->folder),
                          "no layout of %d ranks can be profiled: %s", ranks, w->why);
    return w->whole ? WEFT_OK : time_layout(w, &w->last, w->tiles);
}

weft_status weft_profile_generation(weft_profiling *p, const weft_args *args, double seconds)
{
    generation w = {.p = p, .folder = weft_args_string(args, "--model")};
    weft_parallel parallel = weft_parallel_default;
    weft_tile tile;
    int count;
    (void)weft_args_list(args, "--parallel", &count);
    WEFT_TRY(read_options(args, &tile, &w));
    p->prompts.prompts = w.options.batch;
    WEFT_TRY(weft_args_parallel(args, p->arena, &parallel));
    return time_layouts(&w, &parallel, count > 0, seconds);
}
