#include "exec/measure_products.h"

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

weft_status weft_comm_measure_peak(weft_comm *comm, const weft_backend *backend, double seconds,
                                   double *gflops)
{
    weft_core_rate own = {.threads = weft_host_threads(),
                          .cores = weft_rank_location_here().cores,
                          .online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)},
                   *all = weft_calloc(comm->ranks, sizeof *all);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(all, "the measurement"));
    WEFT_GO(weft_measure_core(backend, seconds, &own.gflops));
    WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    *gflops = weft_measure_together(all, comm->node, comm->ranks);
out:
    weft_free(all);
    return status;
}

/* Processor seconds used by all threads of this process. */

static double processor_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : 0;
}
/* Best rates in GFLOP/s of the products of n x n matrices that fit in `seconds`, at least two (no
 * seconds: one). `wall`: by elapsed time. `core`: by processor time, the rate of one thread. */

static weft_status measure_products(const weft_backend *backend, int64_t n, double seconds,
                                    double *wall, double *core)
{
    const double flops = 2e-9 * (double)(n * n * n);
    weft_program *program = NULL;
    weft_store *store = weft_store_create_on(backend->device);
    weft_graph *g = weft_graph_create();
    weft_status_code status = WEFT_OK;
    double spent = 0;
    *wall = *core = 0;
    WEFT_GO(WEFT_ALLOCATED(g && store, "the measurement"));
    const weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(n, n));
    weft_output(g, "c", weft_matmul(g, a, a, false, true)); /* one operand needs less memory */
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = backend}, &program));
    WEFT_GO(weft_program_bind(program, store, NULL));
    float *x = weft_program_input(program, "a")->data;
    for (int64_t k = 0; k < n * n; k++)
        x[k] = (float)(k % 13) - 6;
    for (int i = 0; i < (seconds > 0 ? 2 : 1) || spent < seconds; i++) {
        const double started = weft_now(), used = processor_seconds();
        WEFT_GO(weft_program_run(program));
        const double took = weft_now() - started, busy = processor_seconds() - used;
        spent += took;
        *wall = fmax(*wall, flops / took);
        *core = fmax(*core, flops / (busy > 0 ? busy : took));
    }
out:
    weft_program_free(program);
    weft_graph_free(g);
    weft_store_free(store);
    weft_memory_trim(); /* the freed operands must not stay resident during the next measurement */
    return status;
}

weft_status weft_measure_gemm(const weft_backend *backend, double seconds, double *gflops)
{
    double core;
    return measure_products(backend, backend == &weft_backend_ref ? 64 : 1024, seconds, gflops,
                            &core);
}

weft_status weft_measure_core(const weft_backend *backend, double seconds, double *gflops)
{
    /* every start of a run measures this: the smallest products with the full rate */
    const int64_t n = backend == &weft_backend_ref ? 64 : weft_host_threads() > 4 ? 1024 : 512;
    double wall;
    return measure_products(backend, n, seconds, &wall, gflops);
}
