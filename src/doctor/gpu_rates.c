#include "doctor/gpu_rates.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_peer.h"
#include "kernel/cuda/cuda_verdict.h"
#include "kernel/device.h"
#include "kernel/device_rates.h"
#include "plan/cluster/gpu_peaks.h"
#include "transform/numeric/tf32.h"

#include <math.h>
#include <stdio.h>

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A graph whose work grows with `size`, and the ops that are measured. */
enum { SIZES = 5 };
typedef struct rate_case {
    const char *name; /* class of ops in the report */
    bool is_bytes;    /* the rate is of bytes, not of FLOPs */
    weft_op op[3];
    int ops;
    void (*build)(weft_graph *g, weft_dtype dtype, int64_t size);
    int64_t size[SIZES]; /* tried in order; 0: none */
} rate_case;

static void build_product(weft_graph *g, weft_dtype dtype, int64_t n)
{
    const weft_value a = weft_input(g, "a", dtype, WEFT_SHAPE(n, n)),
                     b = weft_input(g, "b", dtype, WEFT_SHAPE(n, n));
    weft_output(g, "c", weft_matmul(g, a, b, false, true));
}

/* Heads of 128 columns; a size is a number of tokens. */
static void build_attention(weft_graph *g, weft_dtype dtype, int64_t tokens)
{
    const weft_attr_attention attr = {.scale = 0.088};
    const weft_shape shape = WEFT_SHAPE(1, tokens, tokens < 1024 ? 1 : 8, 128);
    weft_value out[WEFT_MAX_OUTPUTS], gradient[WEFT_MAX_OUTPUTS];
    const weft_value a = weft_input(g, "a", dtype, shape), b = weft_input(g, "b", dtype, shape);
    weft_emit_all(g, WEFT_OP_ATTENTION, (weft_value[]){a, b, b}, 3, &attr, out);
    weft_emit_all(g, WEFT_OP_ATTENTION_GRAD, (weft_value[]){a, b, b, out[0], out[1], b}, 6, &attr,
                  gradient);
    for (int i = 0; i < 3; i++)
        weft_output(g, (const char *[]){"dq", "dk", "dv"}[i], gradient[i]);
}

/* 3x3x3 taps; a size is the number of rows and columns. */
static void build_conv(weft_graph *g, weft_dtype dtype, int64_t side)
{
    const int64_t channels = side < 16 ? 8 : 128;
    weft_attr_conv attr = {
        .stride = {1, 1, 1}, .before = {1, 1, 1}, .after = {1, 1, 1}, .kernel = {3, 3, 3}};
    const weft_shape shape = WEFT_SHAPE(1, 4, side, side, channels);
    const weft_value a = weft_input(g, "a", dtype, shape),
                     b = weft_input(g, "b", dtype, WEFT_SHAPE(channels, channels, 3, 3, 3)),
                     y = weft_emit(g, WEFT_OP_CONV3D, (weft_value[]){a, b}, 2, &attr);
    attr.x_shape = shape;
    weft_output(g, "dx", weft_emit(g, WEFT_OP_CONV3D_DX, (weft_value[]){y, b}, 2, &attr));
    weft_output(g, "dw", weft_emit(g, WEFT_OP_CONV3D_DW, (weft_value[]){a, y}, 2, &attr));
}

/* A size is a number of rows of 1,024 columns. */
static void build_moves(weft_graph *g, weft_dtype dtype, int64_t rows)
{
    const weft_shape shape = WEFT_SHAPE(rows, 1024);
    const weft_value a = weft_input(g, "a", dtype, shape), b = weft_input(g, "b", dtype, shape);
    weft_output(g, "sum", weft_add(g, a, b));
    weft_output(g, "norm",
                weft_emit(g, WEFT_OP_RMS_NORM, (weft_value[]){a, WEFT_NONE}, 2,
                          &(weft_attr_norm){.eps = 1e-6}));
    weft_output(g, "turned", weft_permute(g, b, (const int[]){1, 0}));
}

static const rate_case cases[] = {
    {"product", false, {WEFT_OP_MATMUL}, 1, build_product, {64, 256, 1024, 4096, 8192}},
    {"attention",
     false,
     {WEFT_OP_ATTENTION, WEFT_OP_ATTENTION_GRAD},
     2,
     build_attention,
     {64, 1024, 4096, 16384, 32768}},
    {"convolution",
     false,
     {WEFT_OP_CONV3D, WEFT_OP_CONV3D_DX, WEFT_OP_CONV3D_DW},
     3,
     build_conv,
     {4, 8, 64, 128, 256}},
    {"memory",
     true,
     {WEFT_OP_ADD, WEFT_OP_RMS_NORM, WEFT_OP_PERMUTE},
     3,
     build_moves,
     {64, 4096, 65536, 262144}},
};

static weft_status build(const rate_case *of, weft_products products, int64_t size,
                         weft_graph **out)
{
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "the measurement"));
    of->build(g, products == WEFT_PRODUCTS_BF16 ? WEFT_BF16 : WEFT_F32, size);
    weft_status_code status = weft_graph_check(g);
    if (status == WEFT_OK && products == WEFT_PRODUCTS_TF32)
        status = weft_pass_tf32(g, out);
    else if (status == WEFT_OK)
        *out = g;
    if (status != WEFT_OK || *out != g)
        weft_graph_free(g);
    return status;
}

/* ---- one graph ------------------------------------------------------------------------------- */

static void fill(weft_program *program, const char *name)
{
    weft_tensor *x = weft_program_input(program, name);
    const int64_t count = weft_shape_count(&x->shape);
    for (int64_t i = 0; i < count; i++) {
        const float value = ((float)(i % 13) - 6) / 8;
        if (x->dtype == WEFT_BF16)
            ((uint16_t *)x->data)[i] = weft_f32_to_bf16(value);
        else
            ((float *)x->data)[i] = value;
    }
}

/* Sets seconds[i] to the least time of op i in three runs after the first one. */
static weft_status run(const rate_case *of, const weft_graph *g, weft_program *program,
                       double seconds[3])
{
    enum { RUNS = 4 };
    int64_t runs;
    double before[3] = {0};
    for (int r = 0; r < RUNS; r++) {
        WEFT_TRY(weft_program_run(program));
        const double *spent = weft_program_seconds(program, &runs);
        for (int i = 0; i < of->ops; i++) {
            double sum = 0;
            for (int32_t n = 0; n < weft_graph_node_count(g); n++)
                sum += weft_graph_node(g, n)->op == of->op[i] ? spent[n] : 0;
            if (r > 0)
                seconds[i] = fmin(seconds[i], sum - before[i]);
            before[i] = sum;
        }
    }
    return WEFT_OK;
}

static weft_status time_graph(const rate_case *of, const weft_graph *g, double seconds[3])
{
    weft_program *program = NULL;
    weft_store *store = weft_store_create_for(&weft_backend_cuda);
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < 3; i++)
        seconds[i] = INFINITY;
    WEFT_GO(WEFT_ALLOCATED(store, "the measurement"));
    WEFT_GO(weft_program_compile(
        g, &(weft_program_options){.backend = &weft_backend_cuda, .profile = true}, &program));
    WEFT_GO(weft_program_bind(program, store, NULL));
    fill(program, "a");
    fill(program, "b");
    WEFT_GO(run(of, g, program, seconds));
out:
    weft_program_free(program);
    weft_store_free(store);
    return status;
}

/* FLOPs or bytes of the nodes of an op. */
static double work_of(const rate_case *of, const weft_graph *g, weft_op op)
{
    double work = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (weft_graph_node(g, n)->op == op) {
            const weft_cost cost = weft_node_cost(g, n);
            work += of->is_bytes ? (double)cost.bytes : (double)cost.flops;
        }
    return work;
}

/* Whether a quarter of the free memory has room for all values of the graph. */
static bool fits(const weft_graph *g)
{
    int64_t bytes = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        bytes += weft_node_cost(g, n).bytes;
    return bytes < weft_device_available(&weft_device_cuda, 1) / 4;
}

/* Sets rate[i] of each op at the first size whose ops all take at least a millisecond, or at the
 * largest one that fits. */
static weft_status measure_case(const rate_case *of, weft_products products, double rate[3])
{
    for (int k = 0; k < SIZES && of->size[k]; k++) {
        weft_graph *g;
        double seconds[3], least = INFINITY;
        WEFT_TRY(build(of, products, of->size[k], &g));
        const bool has_room = k == 0 || fits(g);
        const weft_status_code status = has_room ? time_graph(of, g, seconds) : WEFT_OK;
        for (int i = 0; has_room && status == WEFT_OK && i < of->ops; i++) {
            rate[i] = work_of(of, g, of->op[i]) / fmax(seconds[i], 1e-9);
            least = fmin(least, seconds[i]);
        }
        weft_graph_free(g);
        WEFT_TRY(status);
        if (!has_room || least >= 1e-3)
            break;
    }
    return WEFT_OK;
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Peak of the GPU for a case; 0: unknown. */
static double peak_of(const weft_gpu_peaks *peaks, const rate_case *of, weft_products products)
{
    if (!peaks)
        return 0;
    if (of->is_bytes)
        return peaks->bandwidth;
    return products == WEFT_PRODUCTS_BF16   ? peaks->bf16_flops
           : products == WEFT_PRODUCTS_TF32 ? peaks->bf16_flops / 2
                                            : peaks->f32_flops;
}

static weft_status add_rate(const rate_case *of, weft_products products, weft_op op, double rate,
                            double peak, json_t *list)
{
    const char *precision = weft_cuda_precision_name(products), *name = weft_op_get(op)->name;
    char share[32] = "";
    if (peak > 0)
        snprintf(share, sizeof share, "  %5.1f %% of the peak", 100 * rate / peak);
    printf("%-5s %-22s %10.4g %s%s\n", precision, name, rate * (of->is_bytes ? 1e-9 : 1e-12),
           of->is_bytes ? "GB/s" : "TFLOP/s", share);
    json_t *one = json_pack("{s:s, s:s, s:s, s:f, s:o*}", "class", of->name, "op", name,
                            "precision", precision, of->is_bytes ? "bytes_per_second" : "flops",
                            rate, "of_peak", peak > 0 ? json_real(rate / peak) : NULL);
    return json_array_append_new(list, one) == 0 ? WEFT_OK : weft_no_memory("the report");
}

static weft_status measure_all(const weft_gpu_peaks *peaks, json_t *list)
{
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        for (int c = 0; c < WEFT_COUNT(cases); c++) {
            const rate_case *of = &cases[c];
            double rate[3] = {0};
            if (of->is_bytes && p == WEFT_PRODUCTS_TF32)
                continue; /* the same kernels as in f32 */
            WEFT_TRY(measure_case(of, (weft_products)p, rate));
            for (int i = 0; i < of->ops; i++)
                WEFT_TRY(add_rate(of, (weft_products)p, of->op[i], rate[i],
                                  peak_of(peaks, of, (weft_products)p), list));
        }
    return WEFT_OK;
}

weft_status weft_gpu_rates_measure(json_t **rates)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    json_t *list = json_array();
    WEFT_TRY(WEFT_ALLOCATED(list, "the report"));
    const weft_status_code status = measure_all(weft_gpu_peaks_of_name(gpu->name), list);
    if (status != WEFT_OK)
        json_decref(list);
    else
        *rates = list;
    return status;
}

static weft_status measure_peers(int64_t bytes, json_t *list)
{
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    for (int i = 0; i < gpu->count; i++) {
        weft_cuda_peer peer;
        if (i == gpu->ordinal)
            continue;
        WEFT_TRY(weft_cuda_peer_measure(i, bytes, &peer));
        printf("copies to GPU %d: %.4g GB/s%s\n", i, 1e-9 * peer.rate,
               peer.is_direct ? "" : ", through memory of the host");
        json_t *one = json_pack("{s:i, s:b, s:f}", "gpu", i, "direct", peer.is_direct,
                                "bytes_per_second", peer.rate);
        WEFT_TRY(json_array_append_new(list, one) == 0 ? WEFT_OK : weft_no_memory("the report"));
    }
    return WEFT_OK;
}

weft_status weft_gpu_copies_measure(json_t **copies)
{
    enum { BYTES = 256 << 20 };
    weft_device_rates r;
    WEFT_TRY(weft_device_rates_measure(&weft_device_cuda, BYTES, &r));
    printf("copies: %.4g GB/s inside the GPU, %.4g from pinned memory, %.4g to pinned memory\n",
           1e-9 * r.copy, 1e-9 * r.to_device, 1e-9 * r.to_host);
    json_t *peers = json_array();
    WEFT_TRY(WEFT_ALLOCATED(peers, "the report"));
    const weft_status_code status = measure_peers(
        weft_device_available(&weft_device_cuda, 1) / 8 < BYTES ? 16 << 20 : BYTES, peers);
    if (status != WEFT_OK) {
        json_decref(peers);
        return status;
    }
    *copies = json_pack("{s:f, s:f, s:f, s:o}", "inside", r.copy, "from_pinned", r.to_device,
                        "to_pinned", r.to_host, "peers", peers);
    return WEFT_ALLOCATED(*copies, "the report");
}

/* Whether the GPU failed, so that nothing later can be trusted. Other errors, such as a lack of
 * memory, are of one measurement. */
static bool gpu_failed(void)
{
    const weft_message_class of = weft_error_class();
    return of == WEFT_MSG_GPU_LOST || of == WEFT_MSG_GPU_ECC || of == WEFT_MSG_GPU_HANG ||
           of == WEFT_MSG_GPU_FAILED;
}

/* Puts an error in the place of figures that could not be measured. Returns the error of a GPU that
 * failed. */
static weft_status note_error(const char *what, weft_status_code status, json_t **figures)
{
    if (status == WEFT_OK)
        return WEFT_OK;
    *figures = json_pack("{s:s}", "error", weft_error_message());
    if (gpu_failed())
        return status;
    weft_warning(weft_error_class(), weft_error_fields(), "%s were not measured: %s", what,
                 weft_error_text());
    weft_error_clear();
    return WEFT_OK;
}

weft_status weft_gpu_figures_measure(bool has_rates, json_t **copies, json_t **rates)
{
    WEFT_TRY(note_error("copies", weft_gpu_copies_measure(copies), copies));
    if (!has_rates)
        return WEFT_OK;
    return note_error("rates of operations", weft_gpu_rates_measure(rates), rates);
}
