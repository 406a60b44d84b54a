#include "estimate/precision_rates.h"

#include "base/log.h"
#include "comm/measure.h"
#include "exec/measure_products.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"

#include <stdio.h>

/* Gain that rounding to bf16 must be worth, which also exceeds the noise of the measurement. */
static const double least_gain = 1.1;

/* Replaces the estimated figures of this machine by measured ones. */
static weft_status measure_device(const weft_backend *backend, weft_device_type *d)
{
    double rate[2][WEFT_WORK_MEMORY] = {{0}}, bandwidth;
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int work = 0; work < WEFT_WORK_MEMORY; work++)
            WEFT_TRY(weft_measure_node(backend, (weft_work)work, bf16 ? WEFT_BF16 : WEFT_F32, 0.05,
                                       &rate[bf16][work]));
    WEFT_TRY(weft_measure_memory(32 << 20, 0.05, &bandwidth));
    d->flops = 1e9 * rate[0][WEFT_WORK_GEMM];
    d->bf16_flops = 1e9 * rate[1][WEFT_WORK_GEMM];
    d->gemm = d->bf16_gemm = 1;
    d->attention = rate[0][WEFT_WORK_ATTENTION] / rate[0][WEFT_WORK_GEMM];
    d->conv = rate[0][WEFT_WORK_CONV] / rate[0][WEFT_WORK_GEMM];
    d->bf16_attention = rate[1][WEFT_WORK_ATTENTION] / rate[1][WEFT_WORK_GEMM];
    d->bf16_conv = rate[1][WEFT_WORK_CONV] / rate[1][WEFT_WORK_GEMM];
    d->memory_bandwidth = bandwidth;
    d->memory_fraction = 1;
    return WEFT_OK;
}

weft_status weft_precision_rates_open(const weft_backend *backend, bool local,
                                      weft_cluster *cluster, char name[512], weft_buf *why,
                                      weft_precision_rates *rates)
{
    weft_device_type *d = &cluster->device;
    *rates = (weft_precision_rates){.decided = true};
    if (local && backend && (backend->device->meta || backend->refresh)) {
        rates->bf16 = backend->device->meta;
        weft_buf_printf(why, "backend %s", backend->name);
    } else if (!local && !d->rates && !(d->bf16_flops > 0)) {
        rates->bf16 = true; /* GPUs: products of f32 are slower */
        weft_buf_printf(why, "cluster %s has figures of products in bf16 only", name);
    } else if (local && backend == &weft_backend_cpu && !cpu_isa_get()->bf16_units)
        weft_buf_printf(why, "the processor has no units for bf16");
    else {
        rates->decided = false;
        if (!local || !backend || d->rates)
            return WEFT_OK;
        WEFT_TRY(measure_device(backend, d));
        snprintf(name, 512, "measured now");
    }
    return weft_buf_check(why);
}

bool weft_precision_gains(const double seconds[2], const char *what, weft_buf *why)
{
    char text[2][32];
    weft_buf_printf(why, "%s predicted %s in f32 and %s in bf16 on one rank", what,
                    weft_format_seconds(seconds[0], text[0]),
                    weft_format_seconds(seconds[1], text[1]));
    return seconds[0] >= least_gain * seconds[1];
}
