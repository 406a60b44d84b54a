/* weft profile: seconds of weft's own kernels, at the shapes of a run or of a few small models.
 *
 * Whole programs run as a training run runs them, each node timed where it stands: with the caches
 * as its neighbours leave them. Several rounds over all programs; a node's time is the mean of the
 * quickest quarter of its rounds, so that what disturbs the machine a while does not bend it. */
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/verb.h"
#include "model/model.h"
#include "plan/cluster/profile_file.h"
#include "plan/cost/fit.h"
#include "plan/cost/graph_list.h"
#include "runtime/measure.h"
#include "train/step.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const weft_option options[] = {
    {"--seconds", "S", "20", "about how long to measure"},
    {"--hidden", "H", "256",
     "width of the transformer block that Eq. 9 is fitted to (heads of 64)"},
    {"--out", "FILE.json", NULL,
     "write the profile: a cluster for plan, simulate, topology and inspect"},
    {"--against", "FILE.json", NULL,
     "an earlier profile: print what it predicts beside what the programs took"},
    {"--yaml", "FILE.yaml", NULL, "write a cluster file of this machine with the overall rates"},
};

enum { PROGRAMS = 96, ROUNDS = 64 };

/* ---- programs ------------------------------------------------------------------------------- */

typedef struct timed {
    weft_step step;
    weft_store *store;
    double *node; /* [nodes][ROUNDS] seconds */
    double *before;
    double run[ROUNDS]; /* seconds of a whole run */
    int rounds;
    double tokens, batch;         /* a block: for Eq. 9 */
    double frames, height, width; /* a tile */
    char name[64];
} timed;

typedef struct profile {
    timed *program;
    int programs;
    weft_arena *arena;
    weft_rates rates;
    int64_t room;
    weft_device_type device;
    double line_error, tile_error;
    weft_dit_fit dit;
} profile;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What the machine takes when little disturbs it: the mean of the quickest quarter. */
static double quick(const double *value, int count)
{
    double sorted[ROUNDS], sum = 0;
    memcpy(sorted, value, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    const int quarter = (count + 3) / 4;
    for (int i = 0; i < quarter; i++)
        sum += sorted[i];
    return sum / quarter;
}

/* Takes `graph`, whose output "objective" is trained, or that only computes (`optimizer` NULL). */
static weft_status add_program(profile *p, weft_graph *graph, const char *name,
                               const weft_optimizer_config *optimizer,
                               const weft_place_of_run *place, timed **out)
{
    if (p->programs == PROGRAMS) {
        weft_graph_free(graph);
        return weft_fail(WEFT_E_UNSUPPORTED, "more than %d programs to time", PROGRAMS);
    }
    timed *t = &p->program[p->programs];
    *t = (timed){.store = weft_store_create()};
    snprintf(t->name, sizeof t->name, "%s", name);
    if (!t->store) {
        weft_graph_free(graph);
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    }
    const weft_status_code status = weft_step_make(graph, optimizer, place, t->store, 1, &t->step);
    if (status != WEFT_OK) {
        weft_store_free(t->store);
        return status;
    }
    p->programs++;
    const int64_t nodes = weft_graph_node_count(t->step.graph), f64 = (int64_t)sizeof(double);
    t->node = weft_arena_alloc(p->arena, nodes * ROUNDS * f64);
    t->before = weft_arena_alloc(p->arena, nodes * f64);
    if (!t->node || !t->before)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    for (int32_t n = 0; n < nodes; n++) { /* numbers as they are in training, not zeros */
        const weft_node *node = weft_graph_node(t->step.graph, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *x =
            weft_program_input(t->step.program, weft_value_get(t->step.graph, node->out[0])->name);
        for (int64_t i = 0; x && x->dtype == WEFT_F32 && i < weft_shape_count(&x->shape); i++)
            ((float *)x->data)[i] = (float)(i % 97) * 0.01f - 0.4f;
    }
    *out = t;
    return WEFT_OK;
}

static weft_status one_round(timed *t)
{
    int64_t runs;
    const int32_t nodes = weft_graph_node_count(t->step.graph);
    const double *seconds = weft_program_seconds(t->step.program, &runs);
    memcpy(t->before, seconds, (size_t)nodes * sizeof *seconds);
    const double begun = weft_now();
    WEFT_TRY(weft_program_run(t->step.program));
    t->run[t->rounds] = weft_now() - begun;
    for (int32_t n = 0; n < nodes; n++)
        t->node[(int64_t)n * ROUNDS + t->rounds] = seconds[n] - t->before[n];
    t->rounds++;
    return WEFT_OK;
}

static weft_status run_rounds(profile *p, double seconds)
{
    for (int i = 0; i < p->programs; i++) { /* warm: first touches, prepared kernels */
        WEFT_TRY(one_round(&p->program[i]));
        p->program[i].rounds = 0;
    }
    const double begun = weft_now();
    for (int round = 0; round < ROUNDS && (round < 4 || weft_now() - begun < seconds); round++)
        for (int i = 0; i < p->programs; i++)
            WEFT_TRY(one_round(&p->program[i]));
    return WEFT_OK;
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

static weft_status add_table(profile *p, const weft_place_of_run *place)
{
    for (int i = 0; i < WEFT_COUNT(table); i++) {
        weft_graph *g;
        timed *t;
        char name[64];
        const weft_model_size size = {table[i].batch, table[i].frames, table[i].rows, table[i].rows,
                                      table[i].text};
        snprintf(name, sizeof name, "small model %d, batch %lld", i + 1, (long long)size.batch);
        WEFT_TRY(build_model(table[i].config, &size, true, &g));
        WEFT_TRY(add_program(p, g, name, &optimizer, place, &t));
    }
    return WEFT_OK;
}

/* Every bucket of a run's stages, as weft train would run it. */
static weft_status add_run(profile *p, const weft_args *args, const char *path,
                           const weft_place_of_run *place)
{
    weft_run run;
    weft_run_models models;
    WEFT_TRY(weft_args_config(args, p->arena, path, &run));
    WEFT_TRY(weft_run_check(&run, path));
    WEFT_TRY(weft_run_models_read(&run, path, &models));
    const weft_stage *stage = run.stages.item;
    for (int64_t s = 0; s < run.stages.count; s++)
        for (int i = 0; i < weft_stage_bucket_count(&stage[s]); i++) {
            const weft_bucket *b = weft_stage_bucket(&stage[s], i);
            weft_graph *g = weft_graph_create();
            timed *t;
            char name[64];
            if (!g)
                return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
            weft_objective_build(g, &run, &models, b);
            snprintf(name, sizeof name, "%.24s: %lld x %lldx%lldx%lld", stage[s].name,
                     (long long)b->batch, (long long)b->frames, (long long)b->height,
                     (long long)b->width);
            WEFT_TRY(add_program(p, g, name, &run.optimizer, place, &t));
        }
    return WEFT_OK;
}

/* One layer forward over many lengths, for Eq. 9. */
static weft_status add_blocks(profile *p, int64_t hidden, const weft_place_of_run *place)
{
    static const int rows[] = {12, 16, 24, 32, 40, 48};
    for (int i = 0; i < WEFT_COUNT(rows); i++)
        for (int batch = 1; batch <= 2; batch++) {
            char config[256], name[64];
            weft_graph *g;
            timed *t;
            snprintf(
                config, sizeof config,
                "{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 1, "
                "\"num_attention_heads\": %lld, \"attention_head_dim\": 64, \"ffn_dim\": %lld, "
                "\"text_dim\": 128}",
                (long long)(hidden / 64), (long long)(4 * hidden));
            const weft_model_size size = {batch, 2, rows[i], rows[i], 16};
            snprintf(name, sizeof name, "block, %d x %d tokens", batch, rows[i] * rows[i] / 2);
            WEFT_TRY(build_model(config, &size, false, &g));
            WEFT_TRY(add_program(p, g, name, NULL, place, &t));
            t->batch = batch;
            t->tokens = rows[i] * rows[i] / 2.0;
        }
    return WEFT_OK;
}

/* 3x3x3 convolutions of 32 channels, as a VAE's tiles. */
static weft_status add_tiles(profile *p, const weft_place_of_run *place)
{
    static const int sides[][2] = {{16, 16}, {24, 24}, {32, 32}, {32, 48}, {48, 48}, {40, 24}};
    static const int lengths[] = {4, 8, 12, 16};
    enum { CHANNELS = 32 };
    for (int s = 0; s < WEFT_COUNT(sides); s++)
        for (int l = 0; l < WEFT_COUNT(lengths); l++) {
            weft_graph *g = weft_graph_create();
            timed *t;
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
            WEFT_TRY(add_program(p, g, name, NULL, place, &t));
            t->frames = lengths[l];
            t->height = sides[s][0];
            t->width = sides[s][1];
        }
    return WEFT_OK;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

typedef struct sample {
    char key[WEFT_RATE_KEY];
    double flops, bytes, seconds;
} sample;

static int by_key(const void *a, const void *b)
{
    return strcmp(((const sample *)a)->key, ((const sample *)b)->key);
}

/* Every node of every program; equal ones (the layers) together. */
static weft_status gather_rates(profile *p)
{
    int64_t room = 0, count = 0;
    for (int i = 0; i < p->programs; i++)
        room += weft_graph_node_count(p->program[i].step.graph);
    sample *all = weft_arena_alloc(p->arena, room * (int64_t)sizeof *all);
    p->rates.item = weft_arena_alloc(p->arena, room * (int64_t)sizeof *p->rates.item);
    if (!all || !p->rates.item)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the rates");
    for (int i = 0; i < p->programs; i++) {
        const timed *t = &p->program[i];
        for (int32_t n = 0; n < weft_graph_node_count(t->step.graph); n++) {
            const weft_cost cost = weft_node_cost(t->step.graph, n);
            const double seconds = quick(t->node + (int64_t)n * ROUNDS, t->rounds);
            if ((cost.flops == 0 && cost.bytes == 0) || !(seconds > 0))
                continue;
            sample *s = &all[count++];
            weft_rate_key(t->step.graph, n, s->key);
            s->flops = (double)cost.flops;
            s->bytes = (double)cost.bytes;
            s->seconds = seconds;
        }
    }
    qsort(all, (size_t)count, sizeof *all, by_key);
    for (int64_t i = 0, j; i < count; i = j) {
        double sum = 0;
        for (j = i; j < count && !strcmp(all[i].key, all[j].key); j++)
            sum += all[j].seconds;
        p->rates.item[p->rates.count++] =
            (weft_rate){all[i].key, all[i].flops, all[i].bytes, sum / (double)(j - i)};
    }
    return weft_rates_check(&p->rates, "profile");
}

/* The fastest of each kind over the machine's best product. */
static weft_status figures(profile *p, const weft_cluster *local)
{
    double best[WEFT_WORK_COUNT] = {0}, gflops, bandwidth;
    WEFT_TRY(weft_measure_gemm(weft_backend_find("cpu"), 0.3, &gflops));
    WEFT_TRY(weft_measure_memory(128 << 20, 0.3, &bandwidth));
    for (int i = 0; i < p->programs; i++) {
        const timed *t = &p->program[i];
        for (int32_t n = 0; n < weft_graph_node_count(t->step.graph); n++) {
            const weft_work kind = weft_node_work(weft_graph_node(t->step.graph, n));
            const double seconds = quick(t->node + (int64_t)n * ROUNDS, t->rounds);
            if (seconds > 0)
                best[kind] =
                    fmax(best[kind], (double)weft_node_cost(t->step.graph, n).flops / seconds);
        }
    }
    p->device = local->device;
    const double peak =
        fmax(1e9 * gflops,
             fmax(best[WEFT_WORK_GEMM], fmax(best[WEFT_WORK_ATTENTION], best[WEFT_WORK_CONV])));
    p->device.flops = peak;
    p->device.gemm = best[WEFT_WORK_GEMM] / peak;
    p->device.attention = best[WEFT_WORK_ATTENTION] / peak;
    p->device.conv = best[WEFT_WORK_CONV] / peak;
    p->device.memory_bandwidth = bandwidth;
    p->device.memory_fraction = 1;
    return WEFT_OK;
}

static weft_status fit(profile *p)
{
    weft_dit_sample block[PROGRAMS];
    weft_tile_sample tile[PROGRAMS];
    int64_t blocks = 0, tiles = 0;
    for (int i = 0; i < p->programs; i++) {
        const timed *t = &p->program[i];
        const double seconds = quick(t->run, t->rounds);
        if (t->tokens > 0)
            block[blocks++] = (weft_dit_sample){t->batch, t->tokens, 1, 0, seconds};
        if (t->frames > 0)
            tile[tiles++] = (weft_tile_sample){t->frames, t->height, t->width, seconds};
    }
    WEFT_TRY(weft_fit_dit(block, blocks, &p->dit));
    if (p->dit.linear < 0 || p->dit.quadratic < 0)
        weft_warn("Eq. 9 is fitted with a negative slope (%.3g s per token, %.3g s per token "
                  "squared): the machine was busy; measure again, or longer with --seconds",
                  p->dit.linear, p->dit.quadratic);
    weft_tile_fit *boosted;
    WEFT_TRY(weft_fit_tiles(tile, tiles, 5, &boosted));
    weft_tile_fit_errors(boosted, &p->line_error, &p->tile_error);
    weft_tile_fit_free(boosted);
    return WEFT_OK;
}

/* What an earlier profile says of the programs, beside what they took. */
static weft_status print_programs(const profile *p, const char *against)
{
    weft_cluster earlier;
    if (against)
        WEFT_TRY(weft_profile_load(p->arena, against, &earlier));
    printf("%-36s %8s %12s %12s%s\n", "program", "nodes", "took", "by nodes",
           against ? "    predicted" : "");
    for (int i = 0; i < p->programs; i++) {
        const timed *t = &p->program[i];
        double sum = 0;
        const int32_t nodes = weft_graph_node_count(t->step.graph);
        for (int32_t n = 0; n < nodes; n++)
            sum += quick(t->node + (int64_t)n * ROUNDS, t->rounds);
        const double took = quick(t->run, t->rounds);
        printf("%-36s %8d %9.3f ms %9.3f ms", t->name, nodes, 1e3 * took, 1e3 * sum);
        if (against) {
            weft_graph_time said;
            WEFT_TRY(weft_graph_time_of(t->step.graph, &earlier, &said));
            printf(" %9.3f ms %+6.1f %%, %.0f %% of it measured at these shapes",
                   1e3 * said.seconds, 100 * (said.seconds / took - 1), 100 * said.exact);
        }
        printf("\n");
    }
    return WEFT_OK;
}

static weft_status write_results(const weft_args *args, const profile *p, const weft_cluster *local)
{
    const char *out = weft_args_string(args, "--out"), *yaml = weft_args_string(args, "--yaml");
    if (out) {
        json_t *json =
            json_pack("{s:{s:f,s:f,s:f,s:f},s:{s:f,s:f}}", "dit", "linear", p->dit.linear,
                      "quadratic", p->dit.quadratic, "error", p->dit.error, "worst", p->dit.worst,
                      "vae", "line_error", p->line_error, "error", p->tile_error);
        weft_status_code status = json ? weft_profile_to_json(&p->device, &p->rates, json)
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

static weft_status measure(profile *p, const weft_args *args, const char *path, int64_t hidden,
                           double seconds, const weft_place_of_run *place)
{
    weft_cluster local;
    WEFT_TRY(weft_cluster_load(p->arena, "local", &local));
    if (path)
        WEFT_TRY(add_run(p, args, path, place));
    else
        WEFT_TRY(add_table(p, place));
    WEFT_TRY(add_blocks(p, hidden, place));
    WEFT_TRY(add_tiles(p, place));
    WEFT_TRY(run_rounds(p, seconds));
    WEFT_TRY(gather_rates(p));
    WEFT_TRY(figures(p, &local));
    WEFT_TRY(fit(p));
    WEFT_TRY(print_programs(p, weft_args_string(args, "--against")));
    const weft_device_type *d = &p->device;
    printf("\n%lld kinds of nodes on %lld threads; products %.1f, attention %.1f, convolutions "
           "%.1f GFLOP/s; memory %.1f GB/s\n",
           (long long)p->rates.count, (long long)p->rates.threads, d->gemm * d->flops / 1e9,
           d->attention * d->flops / 1e9, d->conv * d->flops / 1e9, d->memory_bandwidth / 1e9);
    printf("transformer block (Eq. 9): %.4g s per token + %.4g s per token squared; fit off by "
           "%.1f %% (rms), %.1f %% at most\n",
           p->dit.linear, p->dit.quadratic, 100 * p->dit.error, 100 * p->dit.worst);
    printf("tiles: a line over the volume is off by %.1f %%, with the boosted correction by %.1f "
           "%% (rms over the fifth of the shapes that it was not fitted to)\n",
           100 * p->line_error, 100 * p->tile_error);
    return write_results(args, p, &local);
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
    profile p = {.arena = weft_arena_create(), .rates = {.threads = omp_get_max_threads()}};
    weft_comm *comm = NULL;
    weft_status_code status = WEFT_OK;
    p.program = weft_alloc(PROGRAMS * (int64_t)sizeof *p.program);
    if (!p.arena || !p.program)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory"));
    WEFT_GO(weft_comm_open_mpi(&comm));
    const weft_place_of_run place = {.comm = comm,
                                     .backend = weft_backend_find("cpu"),
                                     .mesh = {.axis_count = 1, .axis = {{"dp", 1}}},
                                     .profile = true};
    WEFT_GO(measure(&p, args, count ? words[0] : NULL, hidden, seconds, &place));
out:
    for (int i = 0; i < p.programs; i++) {
        weft_step_free(&p.program[i].step);
        weft_store_free(p.program[i].store);
    }
    weft_free(p.program);
    weft_comm_free(comm);
    weft_arena_free(p.arena);
    return status;
}

const weft_verb weft_verb_profile = {
    .name = "profile",
    .summary = "time weft's own kernels on this machine, for plan, simulate and inspect",
    .usage = "[CONFIG] [options]",
    .details =
        "Runs training steps of a few small models, or of CONFIG (a config of weft train) at its "
        "own shapes, a transformer block over several lengths and 3x3x3 convolutions, and times "
        "every node where it stands. What was timed is stored by op and shapes: a node of the "
        "same shapes then has its measured seconds, others are scaled from the nearest ones. Also "
        "fits seconds of a block by its tokens (Arachne Eq. 9) and of a VAE tile by a line over "
        "the volume with a gradient-boosted correction, and says how far the fits are off.\n\n"
        "--out writes the profile, a cluster of this one machine: `weft plan --set "
        "cluster=FILE.json`, `weft topology FILE.json`, `weft inspect graph CONFIG --cluster "
        "FILE.json` (seconds of a step). OMP_NUM_THREADS sets how many cores are measured; "
        "measure with as many as the run has, on a machine that does nothing else.",
    .examples = "weft profile --out here.json\n"
                "weft profile examples/dit.yaml --out here.json\n",
    .config = &weft_run_section,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .max_positional = 1,
    .run = run_profile,
};
