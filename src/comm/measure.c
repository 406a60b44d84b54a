#include "comm/measure.h"

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

double weft_measure_slowdown(double *alone, double *both, int count, double seconds)
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

double weft_measure_together(const weft_core_rate *rate, const int *machine, int ranks)
{
    double all = 0;
    for (int first = 0; first < ranks; first++) {
        double best = 0;
        int64_t threads = 0, online = 0;
        for (int r = 0; r < ranks; r++) {
            if (machine[r] != machine[first])
                continue;
            if (r < first) /* the machine has been counted */
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
        return weft_no_memory("the measurement");
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
    weft_memory_trim(); /* as measure_products.c does */
    return WEFT_OK;
}

weft_status weft_measure_touch(int64_t bytes, double *seconds)
{
    enum { ROUNDS = 5, PAGE = 4096 };
    double took[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        volatile char *data = weft_alloc_aligned(bytes);
        WEFT_TRY(WEFT_ALLOCATED(data, "the measurement"));
        const double started = weft_now();
        for (int64_t at = 0; at < bytes; at += PAGE)
            data[at] = 1;
        took[i] = weft_now() - started;
        weft_free((void *)(uintptr_t)data);
    }
    qsort(took, ROUNDS, sizeof *took, weft_compare_f64);
    *seconds = took[ROUNDS / 2] / (double)bytes;
    return WEFT_OK;
}
