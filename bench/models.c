/* bench/models [dit|dit_bf16|vae|vae_bf16]: whole steps of real models, with the share of the
 * machine's SGEMM peak, which is measured between their runs. In bf16, nodes of bf16 count at the
 * peak of bf16. PyTorch with diffusers' modules runs the same if WEFT_PEER_PYTHON names a Python
 * that has both.
 *   dit  training step (forward, backward, clipping, AdamW) in f32: dim 384, 12 heads of 32,
 *        12 layers, 1,536 video tokens, 64 text tokens, batch 2
 *   vae  encode and decode 17x128x128 at base width 32, streaming and at once
 *   dit_bf16, vae_bf16: the same in bf16, with parameters and sums in f32. PyTorch runs the step
 *        with autocast, and a VAE with weights in bf16. */
#include "../tests/model_of.h"
#include "base/log.h"
#include "exec/execute.h"
#include "exec/measure_products.h"
#include "graph/builder_helpers.h"
#include "kernel/cpu/table.h"
#include "train/graph/optimizer.h"
#include "transform/numeric/mixed_precision.h"

#include <cblas.h>
#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { RUNS = 5 };

/* FLOP/s of the fastest product by type. bf16: 0 if no model computes in bf16. */
typedef struct peaks {
    double f32, bf16;
} peaks;

static void die(weft_status_code status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "bench/models: %s\n", weft_error_message());
        exit(1);
    }
}

static void raise_bf16_peak(double *peak)
{
    double rate;
    die(weft_measure_gemm(&weft_backend_cpu, WEFT_BF16, 0.1, &rate));
    *peak = fmax(*peak, 1e9 * rate);
}

/* Raises *peak to the rate of a product of the faster library: OpenBLAS does not know every
 * processor. */
static void raise_f32_peak(double *peak)
{
    enum { N = 2048 };
    float *a = weft_alloc_aligned(3LL * N * N * 4), *b = a + N * N, *c = b + N * N;
    for (int i = 0; i < 2 * N * N; i++)
        a[i] = (float)(i % 7);
    for (int i = 0; i < 2; i++) { /* the first product also touches the pages of c */
        double start = weft_now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
        *peak = fmax(*peak, 2.0 * N * N * N / (weft_now() - start));
        start = weft_now();
        if (dnnl_sgemm('N', 'N', N, N, N, 1, a, N, b, N, 0, c, N) == dnnl_success)
            *peak = fmax(*peak, 2.0 * N * N * N / (weft_now() - start));
    }
    weft_free(a);
}

static void print_peaks(const peaks *p)
{
    printf("SGEMM peak %.1f GFLOP/s (2048^3, the better of OpenBLAS and oneDNN, between the runs; "
           "OMP_NUM_THREADS %s)\n",
           p->f32 / 1e9, getenv("OMP_NUM_THREADS") ? getenv("OMP_NUM_THREADS") : "unset");
    if (p->bf16 > 0)
        printf("bf16 peak %.1f GFLOP/s (1024^3)\n", p->bf16 / 1e9);
}

/* Returns the least seconds of a node by its FLOPs, at the peak of its type. */
static double least_seconds(const weft_graph *g, int32_t n, const peaks *p)
{
    const bool bf16 = weft_node_dtype(g, weft_graph_node(g, n)) == WEFT_BF16;
    return (double)weft_node_cost(g, n).flops / (bf16 && p->bf16 > 0 ? p->bf16 : p->f32);
}

/* Returns the share of the peaks that a run of the graph reaches. */
static double share_of(const weft_graph *g, double seconds, const peaks *p)
{
    double least = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        least += least_seconds(g, n, p);
    return least / seconds;
}

/* Replaces the graph by one whose models compute in bf16. */
static weft_graph *in_bf16(weft_graph *g)
{
    weft_graph *narrow;
    die(weft_graph_check(g));
    die(weft_pass_mixed_precision(g, false, &narrow));
    weft_graph_free(g);
    return narrow;
}

static weft_program *make_program(weft_graph *g, weft_store *store)
{
    weft_program *program;
    die(weft_graph_check(g));
    die(weft_store_init(store, g, 1));
    die(weft_program_compile(g, &(weft_program_options){.profile = true}, &program));
    die(weft_program_bind(program, store, NULL));
    return program;
}

/* Seconds of the fastest run. The peaks are measured before each run, so all see the same
 * machine. */
static double best_run(weft_program *program, bool bf16, peaks *p)
{
    double best = 1e9;
    for (int r = 0; r < RUNS; r++) {
        raise_f32_peak(&p->f32);
        if (bf16)
            raise_bf16_peak(&p->bf16);
        const double start = weft_now();
        die(weft_program_run(program));
        best = fmin(best, weft_now() - start);
    }
    return best;
}

static void fill(weft_program *program, const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *t = weft_program_input(program, weft_value_get(g, node->out[0])->name);
        float *x = t->data;
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            x[i] =
                t->shape.rank == 0 ? INFINITY : weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i);
    }
}

static void report_memory(const weft_program *program, const weft_store *store)
{
    struct rusage usage;
    char a[32], b[32], c[32];
    getrusage(RUSAGE_SELF, &usage);
    const int64_t rss = (int64_t)usage.ru_maxrss * 1024,
                  planned = weft_program_bytes(program) + weft_store_bytes(store);
    printf("memory     program %s + weights and states %s; process peak %s over them\n",
           weft_format_bytes(weft_program_bytes(program), a),
           weft_format_bytes(weft_store_bytes(store), b), weft_format_bytes(rss - planned, c));
}

/* Prints the time of each op in all runs but the first, in descending order. `warm_up`: seconds of
 * the first run, by node. */
static void report_ops(const weft_program *program, const weft_graph *g, const double *warm_up,
                       const peaks *p)
{
    double seconds[WEFT_OP_COUNT] = {0}, least[WEFT_OP_COUNT] = {0}, all = 0;
    int64_t runs;
    const double *of = weft_program_seconds(program, &runs);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        const double each = (of[n] - warm_up[n]) / (double)(runs - 1);
        seconds[node->op] += each;
        least[node->op] += least_seconds(g, n, p);
        all += each;
    }
    for (int shown = 0; shown < 14; shown++) {
        int most = 0;
        for (int op = 1; op < WEFT_OP_COUNT; op++)
            most = seconds[op] > seconds[most] ? op : most;
        if (seconds[most] < 0.002 * all)
            break;
        printf("  %-16s %7.1f ms  %4.1f %%  %5.1f %% of peak\n", weft_op_get((weft_op)most)->name,
               seconds[most] * 1e3, 100 * seconds[most] / all, 100 * least[most] / seconds[most]);
        seconds[most] = 0;
    }
}

/* Returns the seconds of all runs by node; the caller frees them. */
static double *node_seconds(const weft_program *program, const weft_graph *g)
{
    const int64_t bytes = weft_graph_node_count(g) * (int64_t)sizeof(double);
    int64_t runs;
    double *seconds = weft_alloc(bytes);
    memcpy(seconds, weft_program_seconds(program, &runs), (size_t)bytes);
    return seconds;
}

/* Returns the seconds of a training step. Sets *share to its part of the peaks. */
static double run_dit(bool bf16, peaks *p, double *share)
{
    const weft_model model =
        model_of("{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":12,"
                 "\"attention_head_dim\":32,\"text_dim\":512,\"ffn_dim\":1536,\"num_layers\":12}");
    const weft_model_size size = {2, 6, 32, 32, 64}; /* 6 x 16 x 16 = 1,536 tokens */
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01, .clip_norm = 1};
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_model_build(g, &model, &size, false);
    const weft_value prediction = weft_graph_find(g, "prediction");
    const weft_value target =
        weft_input(g, "target", WEFT_F32, weft_value_get(g, prediction)->shape);
    weft_output(g, "bench.loss",
                weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, prediction, target))));
    g = bf16 ? in_bf16(g) : g;
    weft_optimizer_build(g, weft_graph_find(g, "bench.loss"), &optimizer);
    weft_program *program = make_program(g, store);
    fill(program, g);
    *(float *)weft_program_input(program, "optimizer.lr")->data = 1e-4f;
    *(float *)weft_program_input(program, "optimizer.step")->data = 1;
    die(weft_program_run(program)); /* pages touched for the first time */
    double *warm_up = node_seconds(program, g);
    const double seconds = best_run(program, bf16, p), flops = (double)weft_graph_cost(g).flops;
    print_peaks(p);
    *share = share_of(g, seconds, p);
    printf("dit step%s  %.3f s  %.1f GFLOP counted  %.1f GFLOP/s  %.0f %% of the peaks  %.0f "
           "tokens/s\n",
           bf16 ? " bf16" : "", seconds, flops / 1e9, flops / seconds / 1e9, 100 * *share,
           2 * 1536 / seconds);
    report_ops(program, g, warm_up, p);
    weft_free(warm_up);
    report_memory(program, store);
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    return seconds;
}

/* One half at base width 32. */
static weft_value call_vae(weft_graph *g, bool decoder, weft_stream stream, weft_shape shape)
{
    const weft_model model = model_of("{\"_class_name\":\"AutoencoderKLWan\",\"base_dim\":32}");
    weft_ports p = weft_ports_none();
    p.at[decoder ? WEFT_PORT_LATENTS : WEFT_PORT_VIDEO] = weft_input(g, "in", WEFT_F32, shape);
    weft_model_call(g, &model, (weft_call){decoder ? WEFT_CALL_DECODE : WEFT_CALL_ENCODE, stream},
                    false, &p);
    return p.at[decoder ? WEFT_PORT_RECONSTRUCTION : WEFT_PORT_MEAN];
}

static double run_half(bool bf16, bool decoder, peaks *p, double *share)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_output(g, "out",
                call_vae(g, decoder, WEFT_STREAM_ALONE,
                         decoder ? WEFT_SHAPE(1, 5, 16, 16, 16) : WEFT_SHAPE(1, 17, 128, 128, 3)));
    g = bf16 ? in_bf16(g) : g;
    weft_program *program = make_program(g, store);
    fill(program, g);
    die(weft_program_run(program)); /* pages touched for the first time */
    double *warm_up = node_seconds(program, g);
    const double seconds = best_run(program, bf16, p), flops = (double)weft_graph_cost(g).flops;
    print_peaks(p);
    *share = share_of(g, seconds, p);
    printf("%s%s %.3f s  %.1f GFLOP counted  %.1f GFLOP/s  %.0f %% of the peaks\n",
           decoder ? "decode" : "encode", bf16 ? " bf16" : "", seconds, flops / 1e9,
           flops / seconds / 1e9, 100 * *share);
    report_ops(program, g, warm_up, p);
    weft_free(warm_up);
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    return seconds;
}

/* Bytes of the streaming decoder's programs: one latent frame at a time, whatever the video's
 * length. */
static void report_stream(void)
{
    int64_t bytes = 0;
    char text[32];
    for (int next = 0; next < 2; next++) {
        weft_graph *g = weft_graph_create();
        weft_program *program;
        weft_output(g, "out",
                    call_vae(g, true, next ? WEFT_STREAM_NEXT : WEFT_STREAM_FIRST,
                             WEFT_SHAPE(1, 1, 16, 16, 16)));
        die(weft_program_compile(g, &(weft_program_options){0}, &program));
        bytes +=
            weft_program_bytes(program) + (next ? weft_program_plan(program)->source_bytes : 0);
        weft_program_free(program);
        weft_graph_free(g);
    }
    printf("streaming decode reserves %s for any number of frames\n",
           weft_format_bytes(bytes, text));
}

/* Seconds by name from lines "peer NAME SECONDS" of the peer, whose other lines are printed. */
typedef struct peer {
    char name[32];
    double seconds;
} peer;

static int run_peer(const char *part, peer *list, int capacity)
{
    const char *python = getenv("WEFT_PEER_PYTHON");
    char command[600], line[256];
    int count = 0;
    if (!python || strlen(python) > 400) {
        printf("peer       none (set WEFT_PEER_PYTHON to a python with torch and diffusers)\n");
        return 0;
    }
    fflush(stdout);
    snprintf(command, sizeof command, "'%s' bench/peer_models.py %s", python, part);
    FILE *pipe = popen(command, "r");
    while (pipe && fgets(line, sizeof line, pipe)) {
        if (count < capacity &&
            sscanf(line, "peer %31s %lf", list[count].name, &list[count].seconds) == 2)
            count++;
        else
            fputs(line, stdout);
    }
    if (!pipe || pclose(pipe) != 0)
        printf("peer       failed: %s\n", command);
    return count;
}

/* A row of the table. `share`: of the peaks, 0: not printed. */
static void print_row(const char *title, const char *name, double seconds, double share,
                      double tokens, const peer *list, int count)
{
    printf("| %s | %.3f |", title, seconds);
    if (share > 0)
        printf(" %.0f |", 100 * share);
    else
        printf(" - |");
    if (tokens > 0)
        printf(" %.0f |", tokens);
    else
        printf(" - |");
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) {
            printf(" %.3f | %.2f |\n", list[i].seconds, list[i].seconds / seconds);
            return;
        }
    printf(" - | - |\n");
}

static const char head[] = "| measurement | weft s | share of peak % | tokens/s | PyTorch s | "
                           "ratio |\n|---|---|---|---|---|---|\n";

static bool is_chosen(const char *only, const char *part)
{
    return !*only || !strcmp(only, part);
}

enum { PEERS = 8 };

static void bench_dit(bool bf16, peaks *p)
{
    peer peers[PEERS];
    double share;
    const double seconds = run_dit(bf16, p, &share);
    const int count = run_peer(bf16 ? "dit_bf16" : "dit", peers, PEERS);
    printf("%s", head);
    print_row(bf16 ? "DiT training step, bf16" : "DiT training step", "dit_step", seconds, share,
              2 * 1536 / seconds, peers, count);
}

static void bench_vae(bool bf16, peaks *p)
{
    peer peers[PEERS];
    double share[2];
    const double encode = run_half(bf16, false, p, &share[0]),
                 decode = run_half(bf16, true, p, &share[1]);
    if (!bf16)
        report_stream();
    const int count = run_peer(bf16 ? "vae_bf16" : "vae", peers, PEERS);
    printf("%s", head);
    print_row(bf16 ? "VAE encode, bf16" : "VAE encode", "encode", encode, share[0], 0, peers,
              count);
    print_row(bf16 ? "VAE decode, bf16" : "VAE decode", "decode", decode, share[1], 0, peers,
              count);
    print_row(bf16 ? "VAE encode and decode, bf16" : "VAE encode and decode", "both",
              encode + decode, 0, 0, peers, count);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    peaks p = {0, 0};
    if (is_chosen(only, "dit"))
        bench_dit(false, &p);
    if (is_chosen(only, "dit_bf16"))
        bench_dit(true, &p);
    if (is_chosen(only, "vae"))
        bench_vae(false, &p);
    if (is_chosen(only, "vae_bf16"))
        bench_vae(true, &p);
    return 0;
}
