#include "runtime/measure.h"

#include "base/compare.h"
#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double weft_measure_quick(double *value, int count, int part)
{
    const int taken = (count + part - 1) / part;
    double sum = 0;
    qsort(value, (size_t)count, sizeof *value, weft_compare_f64);
    for (int i = 0; i < taken; i++)
        sum += value[i];
    return sum / taken;
}

double weft_measure_drag(double *alone, double *both, int count, double seconds)
{
    const double lost =
        (weft_measure_quick(both, count, 4) - weft_measure_quick(alone, count, 4)) / seconds;
    return lost < 0 ? 0 : lost > 1 ? 1 : lost;
}

double weft_measure_work(int64_t count)
{
    double a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    volatile double sink;
    const double begun = weft_now();
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < 8; k++)
            a[k] = a[k] * 0.999 + 0.001;
    for (int k = 0; k < 8; k++)
        sink = a[k];
    (void)sink;
    return weft_now() - begun;
}

/* Seconds of the processor that all threads of this process have used. */
static double processor_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : 0;
}

/* Best rates of the products that fit in `seconds`, at least two: `wall` by elapsed time, `core` by
 * processor time, which is the rate of one thread. */
static weft_status measure_products(const weft_backend *backend, double seconds, double *wall,
                                    double *core)
{
    const int64_t n = backend == &weft_backend_ref ? 64 : 1024;
    const double flops = 2e-9 * (double)(n * n * n);
    weft_program *program = NULL;
    weft_store *store = weft_store_create();
    weft_graph *g = weft_graph_create();
    weft_status_code status = WEFT_OK;
    double spent = 0;
    *wall = *core = 0;
    if (!g || !store) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    const weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(n, n));
    const weft_value b = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(n, n));
    weft_output(g, "c", weft_matmul(g, a, b, false, true));
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = backend}, &program));
    WEFT_GO(weft_program_bind(program, store, NULL));
    for (int i = 0; i < 2; i++) {
        float *x = weft_program_input(program, i ? "b" : "a")->data;
        for (int64_t k = 0; k < n * n; k++)
            x[k] = (float)(k % 13) - 6;
    }
    for (int i = 0; i < 2 || spent < seconds; i++) {
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
    return status;
}

weft_status weft_measure_gemm(const weft_backend *backend, double seconds, double *gflops)
{
    double core;
    return measure_products(backend, seconds, gflops, &core);
}

weft_status weft_measure_core(const weft_backend *backend, double seconds, double *gflops)
{
    double wall;
    return measure_products(backend, seconds, &wall, gflops);
}

double weft_measure_together(const weft_core_rate *rate, const int *machine, int ranks)
{
    double all = 0;
    for (int first = 0; first < ranks; first++) {
        double best = 0;
        int64_t threads = 0, online = 0;
        for (int r = 0; r < ranks; r++) {
            if (machine[r] != machine[first])
                continue;
            if (r < first) /* the machine was counted */
                break;
            const int32_t own = rate[r].threads < rate[r].cores ? rate[r].threads : rate[r].cores;
            best = fmax(best, rate[r].gflops);
            threads += own;
            online = rate[r].online > online ? rate[r].online : online;
        }
        all += best * (double)(threads < online ? threads : online);
    }
    return all;
}

weft_status weft_measure_memory(int64_t bytes, double seconds, double *bytes_per_second)
{
    char *from = weft_alloc_aligned(bytes), *to = weft_alloc_aligned(bytes);
    double best = 0, spent = 0;
    if (!from || !to) {
        weft_free(from);
        weft_free(to);
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    }
    memset(from, 1, (size_t)bytes);
    memset(to, 2, (size_t)bytes);
    while (spent < seconds || best == 0) {
        const double started = weft_now();
#pragma omp parallel for schedule(static)
        for (int64_t part = 0; part < 64; part++)
            memcpy(to + part * (bytes / 64), from + part * (bytes / 64), (size_t)(bytes / 64));
        const double took = weft_now() - started;
        spent += took;
        if (2 * (double)bytes / took > best)
            best = 2 * (double)bytes / took;
        from[0] = to[bytes - 1];
    }
    *bytes_per_second = best;
    weft_free(from);
    weft_free(to);
    return WEFT_OK;
}

weft_status weft_measure_touch(int64_t bytes, double *seconds)
{
    enum { TURNS = 5, PAGE = 4096 };
    double took[TURNS];
    for (int i = 0; i < TURNS; i++) {
        volatile char *data = weft_alloc_aligned(bytes);
        if (!data)
            return weft_fail(WEFT_E_MEMORY, "out of memory");
        const double started = weft_now();
        for (int64_t at = 0; at < bytes; at += PAGE)
            data[at] = 1;
        took[i] = weft_now() - started;
        weft_free((void *)(uintptr_t)data);
    }
    qsort(took, TURNS, sizeof *took, weft_compare_f64);
    *seconds = took[TURNS / 2] / (double)bytes;
    return WEFT_OK;
}
