/* weft profile: this machine's operators, measured; cost models fitted to them. */
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/verb.h"
#include "plan/cluster/cluster.h"
#include "plan/cost/fit.h"

#include <cblas.h>
#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_option options[] = {
    {"--seconds", "S", "15", "about how long to measure"},
    {"--hidden", "H", "256", "width of the measured transformer block (heads of 64)"},
    {"--out", "FILE.json", NULL, "write the measurements and fits"},
    {"--yaml", "FILE.yaml", NULL, "write a cluster file of this machine with the measured rates"},
};

enum { SHAPES = 64 };

typedef struct profile {
    double budget;                /* seconds per measurement */
    double gemm, attention, conv; /* best FLOP/s */
    double memory;                /* bytes/s */
    weft_dit_sample block[SHAPES];
    int64_t blocks;
    weft_dit_fit dit;
    weft_tile_sample tile[SHAPES];
    int64_t tiles;
    double line_error, tile_error;
    json_t *rows; /* [{"op", "shape", "seconds", "rate"}] */
} profile;

typedef struct measured {
    void (*work)(void *what);
    void *what;
} measured;

/* The least of several runs: what the machine can do when nobody disturbs it. */
static double least_seconds(const measured *m, double budget)
{
    m->work(m->what); /* warm */
    double least = INFINITY, spent = 0;
    for (int i = 0; i < 3 || (spent < budget && i < 50); i++) {
        const double begun = weft_now();
        m->work(m->what);
        const double took = weft_now() - begun;
        least = fmin(least, took);
        spent += took;
        if (spent > 4 * budget)
            break;
    }
    return fmax(least, 1e-9);
}

static void note(profile *p, const char *op, const char *shape, double seconds, double rate,
                 const char *unit)
{
    printf("  %-12s %-26s %10.4f ms  %9.2f %s\n", op, shape, 1e3 * seconds, rate / 1e9, unit);
    json_array_append_new(p->rows, json_pack("{s:s,s:s,s:f,s:f}", "op", op, "shape", shape,
                                             "seconds", seconds, "rate", rate));
}

typedef struct gemm {
    int m, n, k;
    float *a, *b, *c;
} gemm;

static void run_gemm(void *what)
{
    const gemm *g = what;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, g->m, g->n, g->k, 1, g->a, g->k, g->b,
                g->k, 0, g->c, g->n);
}

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 97) * 0.01f - 0.4f;
}

static weft_status measure_gemm(profile *p, weft_arena *arena)
{
    static const int shapes[][3] = {
        {256, 256, 256}, {512, 768, 256}, {1024, 1024, 256}, {1024, 1024, 1024}, {2048, 512, 512}};
    const int64_t room = 2048 * 1024;
    gemm g = {.a = weft_arena_alloc(arena, room * 4),
              .b = weft_arena_alloc(arena, room * 4),
              .c = weft_arena_alloc(arena, room * 4)};
    if (!g.a || !g.b || !g.c)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the matrices");
    fill(g.a, room);
    fill(g.b, room);
    for (int i = 0; i < WEFT_COUNT(shapes); i++) {
        g.m = shapes[i][0];
        g.n = shapes[i][1];
        g.k = shapes[i][2];
        const double seconds = least_seconds(&(measured){run_gemm, &g}, p->budget);
        const double rate = 2.0 * g.m * g.n * g.k / seconds;
        char shape[64];
        snprintf(shape, sizeof shape, "%d x %d x %d", g.m, g.n, g.k);
        note(p, "product", shape, seconds, rate, "GFLOP/s");
        p->gemm = fmax(p->gemm, rate);
    }
    return WEFT_OK;
}

typedef struct copy {
    char *from, *to;
    int64_t bytes;
} copy;

static void run_copy(void *what)
{
    const copy *c = what;
    memcpy(c->to, c->from, (size_t)c->bytes);
}

static weft_status measure_memory(profile *p, weft_arena *arena)
{
    copy c = {.bytes = 64 << 20};
    c.from = weft_arena_alloc(arena, c.bytes);
    c.to = weft_arena_alloc(arena, c.bytes);
    if (!c.from || !c.to)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the copy");
    memset(c.from, 1, (size_t)c.bytes);
    const double seconds = least_seconds(&(measured){run_copy, &c}, p->budget);
    p->memory = 2.0 * (double)c.bytes / seconds; /* read and written */
    note(p, "copy", "64 MiB", seconds, p->memory, "GB/s");
    return WEFT_OK;
}

/* Products and attention of one transformer block, forward: qkv, scores, values, projection, MLP.
 */
typedef struct block {
    int tokens, hidden, heads, batch;
    float *x, *qkv, *scores, *y, *mlp, *w;
    bool attention_only;
} block;

static void run_attention(const block *b)
{
    const int s = b->tokens, h = b->hidden, d = h / b->heads, wide = 3 * h;
    for (int head = 0; head < b->heads; head++) {
        const float *q = b->qkv + head * d, *k = q + h, *v = k + h;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s, s, d, 0.125f, q, wide, k, wide, 0,
                    b->scores, s);
#pragma omp parallel for
        for (int i = 0; i < s; i++) {
            float *row = b->scores + (int64_t)i * s, high = row[0], sum = 0;
            for (int j = 1; j < s; j++)
                high = row[j] > high ? row[j] : high;
            for (int j = 0; j < s; j++)
                sum += row[j] = expf(row[j] - high);
            for (int j = 0; j < s; j++)
                row[j] /= sum;
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, s, d, s, 1, b->scores, s, v, wide, 0,
                    b->y + head * d, h);
    }
}

static void run_block(void *what)
{
    const block *b = what;
    const int s = b->tokens, h = b->hidden;
    for (int i = 0; i < b->batch; i++) {
        if (!b->attention_only)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s, 3 * h, h, 1, b->x, h, b->w, h,
                        0, b->qkv, 3 * h);
        run_attention(b);
        if (b->attention_only)
            continue;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s, h, h, 1, b->y, h, b->w, h, 0, b->x,
                    h);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s, 4 * h, h, 1, b->x, h, b->w, h, 0,
                    b->mlp, 4 * h);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s, h, 4 * h, 1, b->mlp, 4 * h, b->w,
                    4 * h, 0, b->y, h);
        for (int64_t k = 0; k < (int64_t)s * h; k++) /* keep the numbers in range */
            b->x[k] = b->x[k] * 0.001f + 0.1f;
    }
}

static weft_status measure_blocks(profile *p, int64_t hidden, weft_arena *arena)
{
    static const int lengths[] = {128, 256, 384, 512, 768, 1024, 1280};
    const int64_t most = 1280;
    block b = {.hidden = (int)hidden, .heads = (int)(hidden / 64)};
    b.x = weft_arena_alloc(arena, most * hidden * 4);
    b.y = weft_arena_alloc(arena, most * hidden * 4);
    b.qkv = weft_arena_alloc(arena, most * 3 * hidden * 4);
    b.mlp = weft_arena_alloc(arena, most * 4 * hidden * 4);
    b.w = weft_arena_alloc(arena, 4 * hidden * hidden * 4);
    b.scores = weft_arena_alloc(arena, most * most * 4);
    if (!b.x || !b.y || !b.qkv || !b.mlp || !b.w || !b.scores)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a block of %lld", (long long)hidden);
    fill(b.x, most * hidden);
    fill(b.w, 4 * hidden * hidden);
    fill(b.qkv, most * 3 * hidden);
    /* in three rounds over all shapes: what disturbs one of them for a while does not bend the fit
     */
    double least[WEFT_COUNT(lengths)][3];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < WEFT_COUNT(lengths); i++)
            for (int batch = 0; batch <= 2; batch++) { /* 0: the attention alone */
                b.tokens = lengths[i];
                b.batch = batch ? batch : 1;
                b.attention_only = batch == 0;
                const double seconds = least_seconds(&(measured){run_block, &b}, p->budget / 3);
                least[i][batch] = round ? fmin(least[i][batch], seconds) : seconds;
            }
    for (int i = 0; i < WEFT_COUNT(lengths); i++)
        for (int batch = 0; batch <= 2; batch++) {
            const double n = lengths[i], attention = 4 * n * n * (double)hidden,
                         seconds = least[i][batch];
            char shape[64];
            if (batch == 0) {
                snprintf(shape, sizeof shape, "%d tokens, %d heads", lengths[i], b.heads);
                note(p, "attention", shape, seconds, attention / seconds, "GFLOP/s");
                p->attention = fmax(p->attention, attention / seconds);
                continue;
            }
            snprintf(shape, sizeof shape, "%d x %d tokens", batch, lengths[i]);
            note(p, "block", shape, seconds,
                 batch * (24 * n * (double)hidden * (double)hidden + attention) / seconds,
                 "GFLOP/s");
            p->block[p->blocks++] = (weft_dit_sample){batch, lengths[i], 1, 0, seconds};
        }
    return weft_fit_dit(p->block, p->blocks, &p->dit);
}

typedef struct conv {
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[4];
    dnnl_stream_t stream;
} conv;

static void run_conv(void *what)
{
    const conv *c = what;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, c->memory[0]},
                                    {DNNL_ARG_WEIGHTS, c->memory[1]},
                                    {DNNL_ARG_BIAS, c->memory[2]},
                                    {DNNL_ARG_DST, c->memory[3]}};
    if (dnnl_primitive_execute(c->primitive, c->stream, 4, args) == dnnl_success)
        dnnl_stream_wait(c->stream);
}

/* A 3x3x3 convolution of 32 channels, in oneDNN's own layouts. */
static weft_status measure_conv(profile *p, dnnl_engine_t engine, dnnl_stream_t stream,
                                int64_t frames, int64_t height, int64_t width)
{
    enum { CHANNELS = 32 };
    const dnnl_dims_t data = {1, CHANNELS, frames, height, width},
                      weights = {CHANNELS, CHANNELS, 3, 3, 3}, bias = {CHANNELS};
    const dnnl_dims_t one = {1, 1, 1};
    dnnl_memory_desc_t d, w, b;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    conv c = {.stream = stream};
    bool ok =
        !dnnl_memory_desc_init_by_tag(&d, 5, data, dnnl_f32, dnnl_format_tag_any) &&
        !dnnl_memory_desc_init_by_tag(&w, 5, weights, dnnl_f32, dnnl_format_tag_any) &&
        !dnnl_memory_desc_init_by_tag(&b, 1, bias, dnnl_f32, dnnl_x) &&
        !dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                            &d, &w, &b, &d, one, one, one) &&
        !dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL) &&
        !dnnl_primitive_create(&c.primitive, pd);
    static const dnnl_query_t queries[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                           dnnl_query_weights_md, dnnl_query_dst_md};
    for (int i = 0; ok && i < 4; i++) {
        ok = !dnnl_memory_create(&c.memory[i], dnnl_primitive_desc_query_md(pd, queries[i], i == 2),
                                 engine, DNNL_MEMORY_ALLOCATE);
        void *bytes;
        if (ok && !dnnl_memory_get_data_handle(c.memory[i], &bytes))
            memset(bytes, 0,
                   dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, queries[i], i == 2)));
    }
    if (ok) {
        const double seconds = least_seconds(&(measured){run_conv, &c}, p->budget);
        const double rate =
            2.0 * 27 * CHANNELS * CHANNELS * (double)(frames * height * width) / seconds;
        char shape[64];
        snprintf(shape, sizeof shape, "%lld x %lld x %lld, %d ch", (long long)frames,
                 (long long)height, (long long)width, CHANNELS);
        note(p, "convolution", shape, seconds, rate, "GFLOP/s");
        p->conv = fmax(p->conv, rate);
        p->tile[p->tiles++] =
            (weft_tile_sample){(double)frames, (double)height, (double)width, seconds};
    }
    for (int i = 0; i < 4; i++)
        if (c.memory[i])
            dnnl_memory_destroy(c.memory[i]);
    if (c.primitive)
        dnnl_primitive_destroy(c.primitive);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return ok ? WEFT_OK
              : weft_fail(WEFT_E_INTERNAL,
                          "oneDNN refuses a 3x3x3 convolution of %lld x %lld x %lld",
                          (long long)frames, (long long)height, (long long)width);
}

static weft_status measure_tiles(profile *p)
{
    static const int sides[][2] = {{16, 16}, {24, 24}, {32, 32}, {32, 48}, {48, 48}, {40, 24}};
    static const int lengths[] = {4, 8, 12, 16};
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0))
        return weft_fail(WEFT_E_INTERNAL, "oneDNN has no engine for this processor");
    weft_status_code status = WEFT_OK;
    if (dnnl_stream_create(&stream, engine, dnnl_stream_default_flags)) {
        dnnl_engine_destroy(engine);
        return weft_fail(WEFT_E_INTERNAL, "oneDNN cannot make a stream");
    }
    for (int s = 0; s < WEFT_COUNT(sides) && status == WEFT_OK; s++)
        for (int l = 0; l < WEFT_COUNT(lengths) && status == WEFT_OK; l++)
            status = measure_conv(p, engine, stream, lengths[l], sides[s][0], sides[s][1]);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    WEFT_TRY(status);
    weft_tile_fit *fit;
    WEFT_TRY(weft_fit_tiles(p->tile, p->tiles, 5, &fit));
    weft_tile_fit_errors(fit, &p->line_error, &p->tile_error);
    weft_tile_fit_free(fit);
    return WEFT_OK;
}

static weft_status write_results(const weft_args *args, const profile *p, const weft_cluster *local)
{
    const char *out = weft_args_string(args, "--out"), *yaml = weft_args_string(args, "--yaml");
    if (out) {
        json_t *json =
            json_pack("{s:f,s:f,s:f,s:f,s:{s:f,s:f,s:f,s:f},s:{s:f,s:f},s:O}", "gemm_flops",
                      p->gemm, "attention_flops", p->attention, "conv_flops", p->conv,
                      "memory_bandwidth", p->memory, "dit", "linear", p->dit.linear, "quadratic",
                      p->dit.quadratic, "error", p->dit.error, "worst", p->dit.worst, "vae",
                      "line_error", p->line_error, "error", p->tile_error, "measurements", p->rows);
        const weft_status_code status =
            json ? weft_json_save(out, json) : weft_fail(WEFT_E_MEMORY, "out of memory");
        json_decref(json);
        WEFT_TRY(status);
    }
    if (!yaml)
        return WEFT_OK;
    weft_cluster c = *local;
    c.device.flops = fmax(p->gemm, fmax(p->attention, p->conv)); /* the fractions are of the best */
    c.device.memory_bandwidth = p->memory;
    c.device.memory_fraction = 1;
    c.device.gemm = p->gemm / c.device.flops;
    c.device.attention = p->attention / c.device.flops;
    c.device.conv = p->conv / c.device.flops;
    weft_buf text = {0};
    weft_config_dump(&weft_cluster_section, &c, &text);
    weft_status_code status = weft_buf_check(&text);
    weft_file_writer writer;
    if (status == WEFT_OK)
        status = weft_file_begin(&writer, yaml);
    if (status == WEFT_OK) {
        status = weft_file_write(&writer, text.data, text.len);
        if (status == WEFT_OK)
            status = weft_file_commit(&writer);
        weft_file_abort(&writer);
    }
    weft_buf_free(&text);
    return status;
}

static weft_status run_profile(const weft_args *args)
{
    double seconds;
    int64_t hidden;
    WEFT_TRY(weft_args_f64(args, "--seconds", 0.1, 3600, &seconds));
    WEFT_TRY(weft_args_i64(args, "--hidden", 64, 4096, &hidden));
    if (hidden % 64)
        return weft_fail(WEFT_E_ARG, "--hidden %lld is not a multiple of 64, the size of a head",
                         (long long)hidden);
    weft_arena *arena = weft_arena_create();
    weft_cluster local;
    profile p = {.budget = seconds / 60, .rows = json_array()};
    weft_status_code status = arena && p.rows ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status != WEFT_OK)
        goto out;
    WEFT_GO(weft_cluster_load(arena, "local", &local));
    WEFT_GO(measure_gemm(&p, arena));
    WEFT_GO(measure_memory(&p, arena));
    WEFT_GO(measure_blocks(&p, hidden, arena));
    WEFT_GO(measure_tiles(&p));
    printf("\nproducts %.1f, attention %.1f, convolutions %.1f GFLOP/s; memory %.1f GB/s\n",
           p.gemm / 1e9, p.attention / 1e9, p.conv / 1e9, p.memory / 1e9);
    printf("transformer block (Eq. 9): %.4g s per token + %.4g s per token squared; fit off by "
           "%.1f %% (rms), %.1f %% at most, "
           "over %lld shapes\n",
           p.dit.linear, p.dit.quadratic, 100 * p.dit.error, 100 * p.dit.worst,
           (long long)p.blocks);
    printf("tiles: a line over the volume is off by %.1f %%, with the boosted correction by %.1f "
           "%% (rms over the fifth of %lld "
           "shapes that it was not fitted to)\n",
           100 * p.line_error, 100 * p.tile_error, (long long)p.tiles);
    status = write_results(args, &p, &local);
out:
    json_decref(p.rows);
    weft_arena_free(arena);
    return status;
}

const weft_verb weft_verb_profile = {
    .name = "profile",
    .summary = "measure this machine's operators and fit the planner's cost models to them",
    .usage = "[options]",
    .details = "Measures dense products, attention, a whole transformer block, 3x3x3 convolutions "
               "and memory copies, in f32, over "
               "several shapes. Fits seconds of a block by its tokens (Arachne Eq. 9) with least "
               "squares, and seconds of a VAE tile "
               "by a line over the volume with a gradient-boosted correction per shape, and prints "
               "how far the fits are off.\n\n"
               "--yaml writes a cluster file with the measured rates for `weft plan` and `weft "
               "topology`. OMP_NUM_THREADS sets "
               "how many cores are measured.",
    .examples = "weft profile --seconds 5 --out profile.json --yaml here.yaml\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .run = run_profile,
};
