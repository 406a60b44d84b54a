#include "train/estimate/process_memory.h"

#include "comm/comm_mpi.h"
#include "data/decoder_memory.h"
#include "exec/execute.h"
#include "exec/measure_products.h"
#include "graph/builder_helpers.h"
#include "kernel/registry/backend.h"
#include "nn/nn.h"
#include "train/step/train_step.h"

#include <omp.h>
#include <string.h>

/* A small training graph with the kinds of kernels of all models: convolution, norms, products,
 * attention. */
static weft_graph *small_graph(void)
{
    enum { WIDTH = 32, HEADS = 2, FRAMES = 3, SIDE = 8 };
    const weft_conv_shape conv = {
        .kernel = {3, 3, 3}, .stride = {1, 1, 1}, .before = {2, 1, 1}, .after = {0, 1, 1}};
    weft_graph *g = weft_graph_create();
    if (!g)
        return NULL;
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, FRAMES, SIDE, SIDE, WIDTH));
    x = weft_unary(g, WEFT_OP_SILU, weft_nn_conv(g, "conv", x, WIDTH, conv, false));
    x = weft_nn_rms_norm(g, "norm_in", x, 1e-6);
    x = weft_reshape(g, x, WEFT_SHAPE(1, FRAMES * SIDE * SIDE, WIDTH));
    weft_value heads[3];
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    for (int i = 0; i < 3; i++)
        heads[i] = weft_nn_split_heads(g, weft_nn_linear(g, names[i], x, WIDTH, WEFT_LINEAR_XAVIER),
                                       HEADS);
    const weft_value attended = weft_nn_attend(g, heads[0], heads[1], heads[2], WEFT_NONE);
    x = weft_add(g, x, weft_nn_join_heads(g, attended));
    x = weft_nn_layer_norm(g, "norm", x, 1e-6);
    x = weft_nn_feed_forward(g, "ff", x, 2 * WIDTH, WEFT_NN_GELU_TANH);
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, x)));
    return g;
}

/* Runs a training step of the small graph on one rank. */
static weft_status run_step(const weft_run *run, const weft_backend *backend)
{
    const weft_optimizer_config optimizer = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_norm = 1, .ema_decay = 0.9};
    const weft_exec_config exec = {.backend = backend,
                                   .mesh = {.axis_count = 1, .axis = {{"dp", 1}}},
                                   .bf16_compute = run->precision == WEFT_PRECISION_BF16};
    weft_step step = {0};
    weft_store *store = weft_store_create_on(backend->device);
    weft_graph *g = small_graph();
    weft_status_code status = WEFT_OK;
    if (!store || !g) {
        weft_graph_free(g);
        WEFT_GO(weft_no_memory("the measurement of memory"));
    }
    WEFT_GO(weft_step_make(g, &optimizer, &exec, store, 0, &step));
    for (int32_t n = 0; n < weft_graph_node_count(step.graph); n++) {
        const weft_node *node = weft_graph_node(step.graph, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *input =
            weft_program_input(step.program, weft_value_get(step.graph, node->out[0])->name);
        if (input)
            memset(input->data, 0,
                   (size_t)(weft_shape_count(&input->shape) * weft_dtype_bytes(input->dtype)));
    }
    WEFT_GO(weft_program_run(step.program));
out:
    weft_step_free(&step);
    weft_store_free(store);
    return status;
}

int64_t weft_process_unreported(void)
{
    enum { MOST = 5 << 20, THREAD = 1 << 18 };
    return MOST - WEFT_PROCESS_GROWS + (int64_t)omp_get_max_threads() * THREAD;
}

static bool decodes(const weft_run *run, const bool *encoded)
{
    for (int64_t i = 0; i < run->train_stages.count; i++)
        if (!encoded || !encoded[i])
            return true;
    return false;
}

/* Sets the size of the largest clips of the run. */
static void set_clip_size(const weft_run *run, weft_decoder_memory *setup)
{
    for (int64_t i = 0; i < run->train_stages.count; i++) {
        const weft_train_stage *train_stage = (const weft_train_stage *)run->train_stages.item + i;
        for (int b = 0; b < weft_train_stage_bucket_count(train_stage); b++) {
            const weft_bucket *size = weft_train_stage_bucket(train_stage, b);
            setup->frames = size->frames > setup->frames ? size->frames : setup->frames;
            setup->height = size->height > setup->height ? size->height : setup->height;
            setup->width = size->width > setup->width ? size->width : setup->width;
        }
    }
}

/* Decodes with the threads of the loader, unless all clips are encoded. Faces and masks are decoded
 * in the steps, one at a time. *bytes: of the decoders that need the most. */
static weft_status measure_decoders(const weft_run *run, const bool *encoded, int64_t *bytes)
{
    const char *split,
        *first = weft_run_data_first(&run->data, &split),
        *set[] = {decodes(run, encoded) ? first : "", run->control.face, run->control.mask};
    weft_decoder_memory setup = {.split = split[0] ? split : NULL};
    set_clip_size(run, &setup);
    for (int i = 0; i < WEFT_COUNT(set); i++) {
        int64_t own = 0;
        if (!set[i] || !set[i][0])
            continue;
        setup.shards = set[i];
        setup.threads = i ? 1 : run->data.threads;
        WEFT_TRY(weft_decoder_memory_measure(&setup, &own));
        *bytes = own > *bytes ? own : *bytes;
    }
    return WEFT_OK;
}

weft_status weft_process_memory_measure(const weft_run *run, const bool *encoded, int ranks,
                                        weft_process_memory *memory)
{
    const weft_backend *backend = weft_backend_find(run->backend);
    const bool bf16 = run->precision == WEFT_PRECISION_BF16;
    double gflops;
    int64_t mpi = 0;
    *memory = (weft_process_memory){0};
    if (!backend->device->meta) {
        WEFT_TRY(weft_measure_gemm(backend, WEFT_F32, 0, &gflops));
        if (bf16)
            WEFT_TRY(weft_measure_gemm(backend, WEFT_BF16, 0, &gflops));
        WEFT_TRY(run_step(run, backend));
        WEFT_TRY(measure_decoders(run, encoded, &memory->decoders));
        mpi = ranks > 1 ? weft_comm_mpi_bytes() : 0;
    }
    weft_memory_trim();
    memory->resident = weft_memory_resident() + mpi + WEFT_PROCESS_GROWS;
    return WEFT_OK;
}
