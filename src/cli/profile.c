/* weft profile: seconds of weft's own kernels, at the shapes of a run or of a few small models.
 *
 * Whole programs run as a training run runs them, each node timed where it stands: with the caches
 * as its neighbours leave them. Several rounds over all programs; what counts is the mean over the
 * quickest quarter of them, so that what disturbs the machine a while does not bend it. */
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/profile_work.h"
#include "cli/tile_option.h"
#include "cli/weights_option.h"
#include "model/model.h"
#include "plan/cluster/profile_file.h"
#include "runtime/measure.h"
#include "train/layouts.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft_option options[] = {
    {"--seconds", "S", "20", "about how long to measure"},
    {"--hidden", "H", "256",
     "width of the transformer block that is timed over several lengths (heads of 64)"},
    {"--out", "FILE.json", NULL,
     "write the profile: a cluster for plan, simulate, topology and inspect"},
    {"--against", "FILE.json", NULL,
     "an earlier profile: print what it predicts beside what the programs took"},
    {"--yaml", "FILE.yaml", NULL, "write a cluster file of this machine with the overall rates"},
    {"--model", "DIR", NULL, "a model folder: time the programs that make its videos"},
    {"--frames", "N", "0", "of these videos; 0: as trained"},
    {"--height", "N", "0", "pixels; 0: as trained"},
    {"--width", "N", "0", "pixels; 0: as trained"},
    {"--batch", "N", "1", "prompts denoised together"},
    {"--guidance", "G", "4", "scale; 1: one half of the batch and no other"},
    {"--window", "N", "0", "frames that are denoised together; 0: all"},
    {.name = "--parallel",
     .value_name = "KEY=VALUE",
     .help = "of --model: the one layout that is timed, as weft generate takes it; left out: every "
             "layout of so many ranks",
     .repeated = true},
    WEFT_WEIGHTS_OPTION,
    WEFT_TILE_OPTIONS,
};

enum { PROGRAMS = 96 };

/* ---- programs ------------------------------------------------------------------------------- */

/* A stage of a run in one layout: its programs are bound together, as in training. */
typedef struct laid_out {
    weft_step_cache *cache;
    weft_store *store;
} laid_out;

typedef struct profile {
    weft_profiling all;
    weft_timed *program;
    int programs;
    laid_out *layout;
    int layouts;
    weft_place_of_run place; /* of a rank for itself */
    int64_t room;
    weft_device_type device;
} profile;

static weft_status no_room(void)
{
    return weft_fail(WEFT_E_UNSUPPORTED, "more than %d programs to time", PROGRAMS);
}

/* Takes `graph`, whose output "objective" is trained, or that only computes (`optimizer` NULL). */
static weft_status add_program(profile *p, weft_graph *graph, const char *name,
                               const weft_optimizer_config *optimizer, weft_timed **out)
{
    if (p->programs == PROGRAMS) {
        weft_graph_free(graph);
        return no_room();
    }
    weft_timed *t = &p->program[p->programs];
    *t = (weft_timed){.store = weft_store_create()};
    if (!t->store) {
        weft_graph_free(graph);
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    }
    const weft_status_code status =
        weft_step_make(graph, optimizer, &p->place, t->store, 1, &t->own);
    if (status != WEFT_OK) {
        weft_store_free(t->store);
        return status;
    }
    p->programs++;
    *out = t;
    return weft_timed_begin(t, t->own.graph, t->own.program, true, name);
}

/* ---- what is timed -------------------------------------------------------------------------- */

/* Small denoisers that training on such a machine uses, two layers of each. */
static const struct {
    const char *config;
    int64_t batch, frames, rows, text;
} table[] = {
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 4, "
     "\"attention_head_dim\": 24, \"ffn_dim\": 384, \"text_dim\": 128}",
     8, 4, 16, 40},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 6, "
     "\"attention_head_dim\": 32, \"ffn_dim\": 768, \"text_dim\": 128}",
     16, 4, 8, 40},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 4, "
     "\"attention_head_dim\": 64, \"ffn_dim\": 1024, \"text_dim\": 128}",
     2, 4, 16, 40},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 6, "
     "\"attention_head_dim\": 64, \"ffn_dim\": 1536, \"text_dim\": 256}",
     2, 5, 16, 64},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 8, "
     "\"attention_head_dim\": 64, \"ffn_dim\": 2048, \"text_dim\": 256}",
     1, 4, 24, 64},
};

static const weft_optimizer_config optimizer = {.beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .weight_decay = 0.01,
                                                .clip_norm = 1,
                                                .ema_decay = 0.999};

static weft_status build_model(const char *config, const weft_model_size *size, bool training,
                               weft_graph **out)
{
    weft_model model;
    json_error_t error;
    json_t *json = json_loads(config, 0, &error);
    if (!json)
        return weft_fail(WEFT_E_INTERNAL, "the table of profiled models: %s", error.text);
    const weft_status_code status = weft_model_read(json, "profile", &model);
    json_decref(json);
    WEFT_TRY(status);
    weft_graph *g = weft_graph_create();
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    weft_model_build(g, &model, size, false);
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    if (training && weft_graph_check(g) == WEFT_OK && count) {
        const weft_value y = output[count - 1].value;
        const weft_value target = weft_input(g, "target", WEFT_F32, weft_value_get(g, y)->shape);
        weft_output(g, "objective",
                    weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, target))));
    }
    *out = g;
    return WEFT_OK;
}

static weft_status add_table(profile *p)
{
    for (int i = 0; i < WEFT_COUNT(table); i++) {
        weft_graph *g;
        weft_timed *t;
        char name[64];
        const weft_model_size size = {table[i].batch, table[i].frames, table[i].rows, table[i].rows,
                                      table[i].text};
        snprintf(name, sizeof name, "small model %d, batch %lld", i + 1, (long long)size.batch);
        WEFT_TRY(build_model(table[i].config, &size, true, &g));
        WEFT_TRY(add_program(p, g, name, &optimizer, &t));
    }
    return WEFT_OK;
}

/* ---- of a run ---------------------------------------------------------------------------------
 * */

typedef struct run_to_time {
    profile *p;
    const char *path;
    weft_run run;
    weft_run_models models;
} run_to_time;

/* More of a stage's seconds than can be told from others' lies in nodes that nothing has timed. */
static bool has_new(const run_to_time *r, const weft_stage_steps *s)
{
    weft_new_share share = {0};
    for (int i = 0; i < s->count; i++)
        weft_profiling_share(&r->p->all, s->bucket[i]->graph, &share);
    return share.fresh > 0.01 * share.all;
}

/* Binds a stage's programs and times each from now on. */
static weft_status take_stage(run_to_time *r, const weft_stage_steps *s, laid_out *own,
                              const weft_stage *stage, const weft_parallel *parallel)
{
    profile *p = r->p;
    weft_buf name = {0};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_step_cache_bind(own->cache, s->bucket, s->count, own->store, 1));
    for (int i = 0; i < s->count && status == WEFT_OK; i++) {
        const weft_bucket *b = i < s->buckets ? weft_stage_bucket(stage, i) : NULL;
        if (p->programs == PROGRAMS)
            return no_room();
        weft_timed *t = &p->program[p->programs++];
        *t = (weft_timed){0};
        WEFT_TRY(weft_profiling_note(&p->all, s->bucket[i]->graph));
        weft_parallel_name(parallel, &name);
        if (b)
            weft_buf_printf(&name, ", %lld x %lldx%lldx%lld", (long long)(b->batch / s->parts),
                            (long long)b->frames, (long long)b->height, (long long)b->width);
        else
            weft_buf_printf(&name, ", update");
        status = weft_buf_check(&name);
        if (status == WEFT_OK)
            status =
                weft_timed_begin(t, s->bucket[i]->graph, s->bucket[i]->program, true, name.data);
        weft_buf_free(&name);
        name = (weft_buf){0};
    }
    return status;
}

/* What a stage has in this layout, if that is new: on all ranks, where one of them asks for it. A
 * layout that cannot be is passed over. */
static weft_status add_stage(run_to_time *r, const weft_stage *stage, const weft_parallel *parallel,
                             const weft_place_of_run *place)
{
    profile *p = r->p;
    weft_stage_steps s = {0};
    if (p->layouts == PROGRAMS)
        return no_room();
    laid_out *own = &p->layout[p->layouts];
    *own = (laid_out){weft_step_cache_create(), weft_store_create()};
    p->layouts++;
    if (!own->cache || !own->store)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    const weft_status_code planned =
        weft_stage_steps_plan(own->cache, &r->run, &r->models, stage, place, &s);
    double asked[2] = {planned != WEFT_OK, planned == WEFT_OK && has_new(r, &s)};
    weft_status_code status = weft_comm_sum(p->all.comm, asked, 2);
    if (status == WEFT_OK && asked[0] == 0 && asked[1] > 0)
        status = take_stage(r, &s, own, stage, parallel);
    else
        p->layouts--;
    if (status != WEFT_OK || asked[0] > 0 || asked[1] == 0) {
        weft_step_cache_free(own->cache);
        weft_store_free(own->store);
        *own = (laid_out){0};
    }
    weft_stage_steps_free(&s);
    return status;
}

/* Stages of a pipeline run the kernels of a microbatch on one rank: those are timed there. Beside
 * other axes their shapes are left to the nearest ones. */
static weft_status add_layout(void *self, const weft_parallel *parallel)
{
    run_to_time *r = self;
    const bool alone = parallel->pp > 1 || weft_comm_ranks(r->p->all.comm) == 1;
    const weft_stage *stage = r->run.stages.item;
    if (parallel->pp > 1 &&
        (parallel->pp != weft_comm_ranks(r->p->all.comm) || !parallel->microbatches))
        return WEFT_OK;
    r->run.parallel = *parallel;
    weft_place_of_run place = weft_place_by(&r->run, &r->models);
    place.backend = r->p->place.backend;
    place.profile = r->p->place.profile;
    if (!alone) {
        place.comm = r->p->all.comm;
        WEFT_TRY(weft_parallel_mesh(parallel, weft_comm_ranks(place.comm), r->path, &place.mesh));
    }
    for (int64_t i = 0; i < r->run.stages.count; i++)
        WEFT_TRY(add_stage(r, &stage[i], parallel, &place));
    return WEFT_OK;
}

/* The programs of as few layouts of the run as have the nodes of all, as weft train would run
 * them. */
static weft_status add_run(profile *p, const weft_args *args, const char *path)
{
    run_to_time r = {.p = p, .path = path};
    WEFT_TRY(weft_args_config(args, p->all.arena, path, &r.run));
    WEFT_TRY(weft_run_check(&r.run, path));
    WEFT_TRY(weft_run_models_read(&r.run, path, &r.models));
    WEFT_TRY(weft_layouts_visit(&r.run, &r.models, weft_comm_ranks(p->all.comm), add_layout, &r));
    return p->programs ? WEFT_OK : weft_fail(WEFT_E_CONFIG, "%s: %s", path, weft_error_message());
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* Of every op among every number of ranks that divides all of them. */
static weft_status measure_exchanges(profile *p)
{
    static const int64_t sizes[] = {4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};
    static const weft_comm_op ops[] = {WEFT_COMM_ALL_REDUCE,     WEFT_COMM_ALL_GATHER,
                                       WEFT_COMM_REDUCE_SCATTER, WEFT_COMM_ALL_TO_ALL,
                                       WEFT_COMM_RING_SHIFT,     WEFT_COMM_SEND};
    const int ranks = weft_comm_ranks(p->all.comm);
    const int64_t room = ranks * WEFT_COUNT(ops) * WEFT_COUNT(sizes);
    weft_rates *r = &p->all.rates;
    r->ranks = ranks;
    r->wire = weft_arena_alloc(p->all.arena, room * (int64_t)sizeof *r->wire);
    if (!r->wire)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the rates");
    for (int k = 2; k <= ranks; k++)
        for (int o = 0; o < WEFT_COUNT(ops) && ranks % k == 0; o++)
            for (int i = 0; i < WEFT_COUNT(sizes); i++) {
                const bool pairs = ops[o] == WEFT_COMM_SEND;
                weft_wire_rate *w = &r->wire[r->wires];
                *w = (weft_wire_rate){weft_comm_op_name(ops[o]), k, sizes[i], 0};
                if (pairs && k > 2) { /* as between two, wherever they are */
                    w->seconds = weft_rates_wire_seconds(r, w->op, 2, (double)w->bytes);
                    r->wires += w->seconds > 0;
                    continue;
                }
                WEFT_TRY(weft_comm_measure_exchange(p->all.comm, k, ops[o], sizes[i], &w->seconds));
                r->wires++;
            }
    return ranks > 1 ? weft_comm_measure_drag(p->all.comm, &r->drag) : WEFT_OK;
}

/* As all ranks use it at the same time when they begin. */
static weft_status measure_touch(profile *p)
{
    WEFT_TRY(weft_comm_barrier(p->all.comm));
    return weft_measure_touch(64 << 20, &p->all.rates.touch);
}

/* ---- shapes between which nodes are scaled --------------------------------------------------- */

/* One layer forward over several lengths. */
static weft_status add_blocks(profile *p, int64_t hidden)
{
    static const int rows[] = {12, 16, 24, 32, 40, 48};
    for (int i = 0; i < WEFT_COUNT(rows); i++)
        for (int batch = 1; batch <= 2; batch++) {
            char config[256], name[64];
            weft_graph *g;
            weft_timed *t;
            snprintf(
                config, sizeof config,
                "{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 1, "
                "\"num_attention_heads\": %lld, \"attention_head_dim\": 64, \"ffn_dim\": %lld, "
                "\"text_dim\": 128}",
                (long long)(hidden / 64), (long long)(4 * hidden));
            const weft_model_size size = {batch, 2, rows[i], rows[i], 16};
            snprintf(name, sizeof name, "block, %d x %d tokens", batch, rows[i] * rows[i] / 2);
            WEFT_TRY(build_model(config, &size, false, &g));
            WEFT_TRY(add_program(p, g, name, NULL, &t));
        }
    return WEFT_OK;
}

/* 3x3x3 convolutions of 32 channels, as a VAE's tiles. */
static weft_status add_tiles(profile *p)
{
    static const int sides[][2] = {{16, 16}, {24, 24}, {32, 32}, {32, 48}, {48, 48}, {40, 24}};
    static const int lengths[] = {4, 8, 12, 16};
    enum { CHANNELS = 32 };
    for (int s = 0; s < WEFT_COUNT(sides); s++)
        for (int l = 0; l < WEFT_COUNT(lengths); l++) {
            weft_graph *g = weft_graph_create();
            weft_timed *t;
            char name[64];
            if (!g)
                return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
            const weft_value in[3] = {
                weft_input(g, "x", WEFT_F32,
                           WEFT_SHAPE(1, lengths[l], sides[s][0], sides[s][1], CHANNELS)),
                weft_param(g, "w", WEFT_F32, WEFT_SHAPE(CHANNELS, CHANNELS, 3, 3, 3),
                           (weft_init){WEFT_INIT_NORMAL, 0.1}),
                weft_param(g, "b", WEFT_F32, WEFT_SHAPE(CHANNELS), (weft_init){WEFT_INIT_ZERO, 0})};
            weft_output(g, "y",
                        weft_emit(g, WEFT_OP_CONV3D, in, 3,
                                  &(weft_attr_conv){.stride = {1, 1, 1},
                                                    .before = {1, 1, 1},
                                                    .after = {1, 1, 1},
                                                    .kernel = {3, 3, 3}}));
            snprintf(name, sizeof name, "convolution, %d x %d x %d", lengths[l], sides[s][0],
                     sides[s][1]);
            WEFT_TRY(add_program(p, g, name, NULL, &t));
        }
    return WEFT_OK;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

/* The fastest of each kind over the machine's best product. */
static weft_status figures(profile *p, const weft_cluster *local)
{
    const double *best = p->all.best;
    double gflops, bandwidth;
    WEFT_TRY(weft_measure_gemm(weft_backend_find("cpu"), 0.3, &gflops));
    WEFT_TRY(weft_measure_memory(128 << 20, 0.3, &bandwidth));
    p->device = local->device;
    const double peak =
        fmax(1e9 * gflops,
             fmax(best[WEFT_WORK_GEMM], fmax(best[WEFT_WORK_ATTENTION], best[WEFT_WORK_CONV])));
    p->device.flops = peak;
    p->device.gemm = fmax(best[WEFT_WORK_GEMM], 1e9 * gflops) / peak;
    if (best[WEFT_WORK_ATTENTION] > 0) /* else as of such a machine */
        p->device.attention = best[WEFT_WORK_ATTENTION] / peak;
    if (best[WEFT_WORK_CONV] > 0)
        p->device.conv = best[WEFT_WORK_CONV] / peak;
    p->device.memory_bandwidth = bandwidth;
    p->device.memory_fraction = 1;
    return WEFT_OK;
}

static weft_status write_results(const weft_args *args, const profile *p, const weft_cluster *local)
{
    const char *out = weft_args_string(args, "--out"), *yaml = weft_args_string(args, "--yaml");
    if (out) {
        json_t *json = json_object();
        weft_status_code status = json ? weft_profile_to_json(&p->device, &p->all.rates, json)
                                       : weft_fail(WEFT_E_MEMORY, "out of memory");
        if (status == WEFT_OK)
            status = weft_json_save(out, json);
        json_decref(json);
        WEFT_TRY(status);
    }
    if (!yaml)
        return WEFT_OK;
    weft_cluster c = *local;
    c.device = p->device;
    weft_buf text = {0};
    weft_config_dump(&weft_cluster_section, &c, &text);
    weft_status_code status = weft_buf_check(&text);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(yaml, text.data, text.len);
    weft_buf_free(&text);
    return status;
}

static weft_status tell(const weft_args *args, const profile *p, const weft_cluster *local)
{
    const weft_device_type *d = &p->device;
    const weft_rates *r = &p->all.rates;
    printf("\n%lld kinds of nodes on %lld threads; products %.1f, attention %.1f, convolutions "
           "%.1f GFLOP/s; memory %.1f GB/s\n",
           (long long)r->count, (long long)r->threads, d->gemm * d->flops / 1e9,
           d->attention * d->flops / 1e9, d->conv * d->flops / 1e9, d->memory_bandwidth / 1e9);
    if (r->ranks > 1)
        printf("%lld ranks at a time; %lld exchanges timed; kernels lose %.0f %% of the time of "
               "those beside them\n",
               (long long)r->ranks, (long long)r->wires, 100 * r->drag);
    return write_results(args, p, local);
}

static weft_status measure(profile *p, const weft_args *args, const char *path, int64_t hidden,
                           double seconds)
{
    weft_cluster local;
    const bool of_model = weft_args_flag(args, "--model");
    WEFT_TRY(weft_cluster_load(p->all.arena, "local", &local));
    p->all.local = &local.device;
    WEFT_TRY(measure_touch(p));
    WEFT_TRY(measure_exchanges(p));
    WEFT_TRY(weft_profiling_open(&p->all, weft_args_string(args, "--against")));
    if (path) {
        WEFT_TRY(add_run(p, args, path));
    } else if (of_model) {
        WEFT_TRY(weft_profile_generation(&p->all, args, seconds));
    } else {
        WEFT_TRY(add_table(p));
        WEFT_TRY(add_blocks(p, hidden));
        WEFT_TRY(add_tiles(p));
    }
    WEFT_TRY(weft_profiling_run(&p->all, p->program, p->programs, seconds));
    for (int i = 0; i < p->programs; i++)
        WEFT_TRY(weft_profiling_take(&p->all, &p->program[i]));
    WEFT_TRY(weft_profiling_close(&p->all));
    WEFT_TRY(figures(p, &local));
    return weft_comm_rank(p->all.comm) == 0 ? tell(args, p, &local) : WEFT_OK;
}

static weft_status refuse_idle(const weft_args *args)
{
    static const char *const of_model[] = {"--frames",   "--height", "--width",    "--batch",
                                           "--guidance", "--window", "--parallel", "--weights",
                                           "--tile",     "--memory"};
    for (int i = 0; i < WEFT_COUNT(of_model); i++)
        if (weft_args_flag(args, of_model[i]) && !weft_args_flag(args, "--model"))
            return weft_fail(WEFT_E_ARG,
                             "%s: of the videos of which model? Give it with --model DIR",
                             of_model[i]);
    return WEFT_OK;
}

static weft_status run_profile(const weft_args *args)
{
    double seconds;
    int64_t hidden;
    int count;
    const char *const *words = weft_args_positional(args, &count);
    WEFT_TRY(weft_args_f64(args, "--seconds", 0.1, 3600, &seconds));
    WEFT_TRY(weft_args_i64(args, "--hidden", 64, 4096, &hidden));
    if (hidden % 64)
        return weft_fail(WEFT_E_ARG, "--hidden %lld is not a multiple of 64, the size of a head",
                         (long long)hidden);
    WEFT_TRY(refuse_idle(args));
    if (count && weft_args_flag(args, "--model"))
        return weft_fail(WEFT_E_ARG,
                         "%s and --model: of what it is trained by, or of what it makes? Leave one "
                         "of them out; a profile is of either",
                         words[0]);
    profile p = {.all = {.arena = weft_arena_create(),
                         .known = json_object(),
                         .rates = {.threads = omp_get_max_threads()}},
                 .place = {.backend = weft_backend_find("cpu"),
                           .mesh = {.axis_count = 1, .axis = {{"dp", 1}}},
                           .profile = true,
                           .no_overlap = true}};
    weft_status_code status = WEFT_OK;
    p.program = weft_alloc(PROGRAMS * (int64_t)sizeof *p.program);
    p.layout = weft_alloc(PROGRAMS * (int64_t)sizeof *p.layout);
    if (!p.all.arena || !p.program || !p.layout || !p.all.known)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(weft_comm_open_mpi(&p.all.comm));
    WEFT_GO(measure(&p, args, count ? words[0] : NULL, hidden, seconds));
    WEFT_GO(weft_comm_barrier(p.all.comm)); /* the others stay until rank 0 has written */
out:
    for (int i = 0; i < p.programs; i++)
        weft_timed_end(&p.program[i]);
    for (int i = 0; i < p.layouts; i++) {
        weft_step_cache_free(p.layout[i].cache);
        weft_store_free(p.layout[i].store);
    }
    weft_free(p.program);
    weft_free(p.layout);
    json_decref(p.all.known);
    weft_free(p.all.sample);
    weft_free(p.all.rates.program);
    if (status != WEFT_OK && p.all.comm)
        weft_comm_give_up(p.all.comm);
    weft_comm_free(p.all.comm);
    weft_arena_free(p.all.arena);
    return status;
}

const weft_verb weft_verb_profile = {
    .name = "profile",
    .summary = "time weft's own kernels on this machine, for plan, simulate and inspect",
    .usage = "[CONFIG] [options]",
    .details =
        "Runs training steps of a few small models, a transformer block over several lengths and "
        "3x3x3 convolutions, or of CONFIG (a config of weft train) at its own shapes, and times "
        "every node where it stands. What was timed is stored by op and shapes: a node of the "
        "same shapes then has its measured seconds, others are scaled from the nearest ones.\n\n"
        "With --model it times what makes videos of these sizes: the text encoders, the denoiser "
        "in "
        "every layout of so many ranks (or that of --parallel), the decoder, whole where that fits "
        "and in the tiles of --tile (else the reference's; off: whole alone). Each program runs "
        "whole, as it will, and node by node where it has shapes of its own, with the model's "
        "weights, which are in memory for one layout at a time. By --cluster FILE.json `weft "
        "generate` then tells the seconds before the start, `weft plan generate` and --parallel "
        "auto go by them. They do not depend on the number of steps.\n\n"
        "Under mpirun all ranks measure at the same time, as those of a run share caches and "
        "memory: of CONFIG the programs of as few layouts as have the nodes of all, and between "
        "the ranks every collective over sizes, and what of its time kernels beside it lose.\n\n"
        "--out writes the profile, a cluster of this one machine: `weft plan --set "
        "cluster=FILE.json`, `weft plan layout --for CONFIG --cluster FILE.json`, `weft topology "
        "FILE.json`, `weft inspect graph CONFIG --cluster FILE.json` (seconds of a step). As "
        "profile.json in the folder of a run it is what `--cluster local` and `context: auto` of "
        "that run go by. OMP_NUM_THREADS sets how many cores are measured; measure with as many "
        "threads and ranks as the run has, on a machine that does nothing else.",
    .examples = "weft profile --out here.json\n"
                "weft profile examples/dit.yaml --out here.json\n"
                "mpirun -n 2 weft profile --model runs/dit/model --frames 49 --out two.json\n"
                "mpirun -n 2 weft profile examples/dit.yaml --out runs/dit/profile.json\n",
    .config = &weft_run_section,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .max_positional = 1,
    .run = run_profile,
};
