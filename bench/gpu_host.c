/* bench/gpu_host: CPU time of the thread that enqueues a training step on backend `cuda`, of a Wan
 * transformer with 2 blocks of width 24. Needs no GPU: the driver is the emulated one.
 *   single launches   WEFT_CUDA_GRAPHS=off, each kernel by a call
 *   one graph         the third and later steps, which are recorded
 * Each is measured twice, with the emulated driver, and with calls of kernels, graphs and copies
 * that return at once. The latter is the time of weft; the difference is the emulated driver's. */
#include "base/log.h"
#include "doctor/gpu_check.h"
#include "exec/execute.h"
#include "exec/store/store.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 20, EMULATED_STEPS = 3, RECORDED = 2 };

static const char model[] =
    "{\"_class_name\":\"WanTransformer3DModel\",\"num_attention_heads\":2,"
    "\"attention_head_dim\":12,\"in_channels\":4,\"out_channels\":4,\"text_dim\":16,"
    "\"freq_dim\":32,\"ffn_dim\":48,\"num_layers\":2,\"rope_max_seq_len\":16}";

static void die(weft_status_code status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "bench/gpu_host: %s\n", weft_error_message());
        exit(1);
    }
}

/* ---- the driver ------------------------------------------------------------------------------ */

static weft_cuda_driver emulated; /* its calls */
static int64_t launches;

static cuda_result count_launch(cuda_function function, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared, cuda_stream stream,
                                void **parameters, void **extra)
{
    launches++;
    return emulated.launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                           stream, parameters, extra);
}

static cuda_result no_launch(cuda_function function, unsigned grid_x, unsigned grid_y,
                             unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared, cuda_stream stream, void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)parameters, (void)extra;
    return CUDA_OK;
}

static cuda_result no_graph_launch(cuda_graph_exec exec, cuda_stream stream)
{
    (void)exec, (void)stream;
    return CUDA_OK;
}

static cuda_result no_copy(cuda_address to, cuda_address from, size_t bytes, cuda_stream stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return CUDA_OK;
}

static cuda_result no_copy_2d(const cuda_copy_2d *copy, cuda_stream stream)
{
    (void)copy, (void)stream;
    return CUDA_OK;
}

static cuda_result no_fill(cuda_address to, unsigned char byte, size_t bytes, cuda_stream stream)
{
    (void)to, (void)byte, (void)bytes, (void)stream;
    return CUDA_OK;
}

/* Whether the driver does the work, which a real driver declares no accesses for. */
static void set_driver(weft_cuda_driver *driver, bool works)
{
    *driver = emulated;
    driver->launch = works ? count_launch : no_launch;
    if (works)
        return;
    driver->graph_launch = no_graph_launch;
    driver->copy = no_copy;
    driver->copy_2d = no_copy_2d;
    driver->fill = no_fill;
    driver->emulated_node = NULL;
    driver->emulated_access = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU seconds that enqueuing a step takes: the least of several, as other processes also use the
 * caches. The wait for the step does not count. */
static double enqueue_seconds(weft_program *p, int steps)
{
    double least = INFINITY;
    for (int i = 0; i < steps; i++) {
        const double began = thread_seconds();
        die(weft_program_launch(p));
        least = fmin(least, thread_seconds() - began);
        if (!weft_program_output(p, "loss"))
            die(WEFT_E_ARG);
    }
    return least;
}

static void measure(const weft_graph *g, weft_cuda_driver *driver, bool recorded)
{
    weft_program *p;
    weft_store *store = weft_store_create_on(weft_backend_cuda.device);
    set_driver(driver, true);
    die(WEFT_ALLOCATED(store, "a store"));
    setenv("WEFT_CUDA_GRAPHS", recorded ? "on" : "off", 1);
    die(weft_program_compile(g, &(weft_program_options){.backend = &weft_backend_cuda}, &p));
    die(weft_store_init(store, g, 1));
    die(weft_program_bind(p, store, NULL));
    const int64_t before = launches;
    enqueue_seconds(p, 1);
    const double count = (double)(launches - before);
    enqueue_seconds(p, RECORDED);
    const double all = 1e6 * enqueue_seconds(p, EMULATED_STEPS);
    set_driver(driver, false);
    const double own = 1e6 * enqueue_seconds(p, STEPS);
    printf("| %s | %.0f | %.0f | %.2f | %.0f | %.2f |\n",
           recorded ? "one graph" : "single launches", count, own, own / count, all - own,
           (all - own) / count);
    set_driver(driver, true);
    weft_program_free(p);
    weft_store_free(store);
}

int main(void)
{
    const weft_model_size size = {.batch = 1, .frames = 1, .height = 2, .width = 2, .text = 4};
    const weft_cuda_driver *driver;
    weft_graph *g;
    die(weft_cuda_driver_load(&driver));
    if (!driver->emulated_node) {
        fprintf(stderr, "bench/gpu_host: WEFT_CUDA_LIBRARY must name the emulated driver\n");
        return 1;
    }
    emulated = *driver;
    die(weft_gpu_step_build(model, &size, WEFT_PRODUCTS_F32, &g));
    printf("| step by | launches | us a step | us a launch | driver us a step | driver us a launch "
           "|\n|---|---|---|---|---|---|\n");
    for (int recorded = 0; recorded < 2; recorded++)
        measure(g, (weft_cuda_driver *)(uintptr_t)driver, recorded);
    weft_graph_free(g);
    return 0;
}
