#include "exec/measure_products.h"

#include "base/dtype.h"
#include "base/log.h"
#include "comm/comm_internal.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "comm/rank_map.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "kernel/host.h"
#include "kernel/ref/table.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

/* Processor seconds used by all threads of this process. */
static double processor_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : 0;
}

/* Adds a node with this kind of work to an empty graph. `n`: rows of matrices; 0: attention and
 * convolution of small sizes, for the reference. */
static void add_work(weft_graph *g, weft_work work, weft_dtype dtype, int64_t n)
{
    const int64_t side = n ? 24 : 4, channels = n ? 64 : 4, tokens = n ? 512 : 16;
    if (work == WEFT_WORK_GEMM) {
        const weft_value a = weft_input(g, "a", dtype, WEFT_SHAPE(n, n));
        weft_output(g, "c", weft_matmul(g, a, a, false, true)); /* one operand needs less memory */
    } else if (work == WEFT_WORK_ATTENTION) {
        const weft_value a = weft_input(g, "a", dtype, WEFT_SHAPE(1, tokens, 4, 64));
        weft_output(g, "c",
                    weft_emit(g, WEFT_OP_ATTENTION, (weft_value[]){a, a, a}, 3,
                              &(weft_attr_attention){.scale = 0.125}));
    } else {
        const weft_value in[] = {
            weft_input(g, "a", dtype, WEFT_SHAPE(1, 4, side, side, channels)),
            weft_input(g, "w", dtype, WEFT_SHAPE(channels, channels, 3, 3, 3))};
        weft_output(g, "c",
                    weft_emit(g, WEFT_OP_CONV3D, in, 2,
                              &(weft_attr_conv){.stride = {1, 1, 1},
                                                .before = {1, 1, 1},
                                                .after = {1, 1, 1},
                                                .kernel = {3, 3, 3}}));
    }
}

static void fill(weft_program *program, const char *name)
{
    weft_tensor *x = weft_program_input(program, name);
    const int64_t count = x ? weft_shape_count(&x->shape) : 0;
    for (int64_t k = 0; k < count; k++) {
        const float value = (float)(k % 13) - 6;
        if (x->dtype == WEFT_BF16)
            ((uint16_t *)x->data)[k] = weft_f32_to_bf16(value);
        else
            ((float *)x->data)[k] = value;
    }
}

typedef struct measured {
    double wall, core; /* GFLOP/s by elapsed time; by processor time, of one thread */
} measured;

/* Best rates of the runs of a bound program that fit in `seconds`: 2 to MOST (no seconds: one
 * run). */
static weft_status run_for(weft_program *program, double flops, double seconds, measured *best)
{
    enum { MOST = 100 }; /* a simulated clock may advance by products alone */
    const int least = seconds > 0 ? 2 : 1;
    double spent = 0;
    *best = (measured){0};
    for (int i = 0; i < least || (spent < seconds && i < MOST); i++) {
        const double started = weft_now(), used = processor_seconds();
        WEFT_TRY(weft_program_run(program));
        const double took = weft_now() - started, busy = processor_seconds() - used;
        spent += took;
        best->wall = fmax(best->wall, flops / took);
        best->core = fmax(best->core, flops / (busy > 0 ? busy : took));
    }
    return WEFT_OK;
}

static weft_status measure(const weft_backend *backend, weft_work work, weft_dtype dtype, int64_t n,
                           double seconds, measured *best)
{
    weft_program *program = NULL;
    weft_store *store = weft_store_create_on(backend->device);
    weft_graph *g = weft_graph_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(g && store, "the measurement"));
    add_work(g, work, dtype, n);
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = backend}, &program));
    WEFT_GO(weft_program_bind(program, store, NULL));
    fill(program, "a");
    fill(program, "w");
    WEFT_GO(run_for(program, 1e-9 * (double)weft_graph_cost(g).flops, seconds, best));
out:
    weft_program_free(program);
    weft_graph_free(g);
    weft_store_free(store);
    weft_memory_trim(); /* the freed operands must not stay resident during the next measurement */
    return status;
}

weft_status weft_measure_gemm(const weft_backend *backend, weft_dtype dtype, double seconds,
                              double *gflops)
{
    measured best;
    WEFT_TRY(measure(backend, WEFT_WORK_GEMM, dtype, backend == &weft_backend_ref ? 64 : 1024,
                     seconds, &best));
    *gflops = best.wall;
    return WEFT_OK;
}

weft_status weft_measure_core(const weft_backend *backend, weft_dtype dtype, double seconds,
                              double *gflops)
{
    /* every start of a run measures this: the smallest products with the full rate */
    const int64_t n = backend == &weft_backend_ref ? 64 : weft_host_threads() > 4 ? 1024 : 512;
    measured best;
    WEFT_TRY(measure(backend, WEFT_WORK_GEMM, dtype, n, seconds, &best));
    *gflops = best.core;
    return WEFT_OK;
}

weft_status weft_measure_node(const weft_backend *backend, weft_work work, weft_dtype dtype,
                              double seconds, double *gflops)
{
    measured best;
    if (work == WEFT_WORK_GEMM)
        return weft_measure_gemm(backend, dtype, seconds, gflops);
    WEFT_TRY(measure(backend, work, dtype, backend != &weft_backend_ref, seconds, &best));
    *gflops = best.wall;
    return WEFT_OK;
}

weft_status weft_comm_measure_peak(weft_comm *comm, const weft_backend *backend, bool bf16,
                                   double seconds, weft_peak_gflops *peak)
{
    weft_core_rate own = {.threads = weft_host_threads(),
                          .cores = weft_rank_location_here().cores,
                          .online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)},
                   *all = weft_calloc(comm->ranks, sizeof *all);
    weft_status_code status = WEFT_OK;
    *peak = (weft_peak_gflops){0};
    WEFT_GO(WEFT_ALLOCATED(all, "the measurement"));
    for (int narrow = 0; narrow < 1 + bf16; narrow++) {
        WEFT_GO(weft_measure_core(backend, narrow ? WEFT_BF16 : WEFT_F32, seconds, &own.gflops));
        WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
        *(narrow ? &peak->bf16 : &peak->f32) = weft_measure_together(all, comm->node, comm->ranks);
    }
out:
    weft_free(all);
    return status;
}
