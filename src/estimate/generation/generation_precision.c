#include "estimate/generation/generation_precision.h"

#include "base/log.h"
#include "estimate/precision_rates.h"
#include "kernel/cpu/table.h"

#include <stdio.h>
#include <string.h>

static weft_status step_seconds(const weft_generation_estimator *estimator,
                                const weft_cluster *cluster, bool bf16, double *seconds)
{
    weft_generation_estimator one = *estimator;
    weft_generator_options options = *estimator->options;
    weft_generation_estimate estimate;
    options.precision_auto = false;
    options.bf16 = bf16;
    options.parallel = NULL;
    options.memory = INT64_MAX;
    options.resident = NULL;
    one.options = &options;
    one.cluster = cluster;
    one.ranks = 1;
    WEFT_TRY(weft_generation_estimate_own(&one, &estimate));
    *seconds = estimate.step;
    return WEFT_OK;
}

static weft_status choose(const weft_generation_estimator *estimator, const char *spec, bool *bf16,
                          weft_buf *why)
{
    const weft_backend *backend = estimator->options->backend;
    weft_cluster cluster = *estimator->cluster;
    weft_precision_rates rates;
    double seconds[2];
    char name[512];
    snprintf(name, sizeof name, "%s", spec);
    WEFT_TRY(weft_precision_rates_open(backend ? backend : &weft_backend_cpu,
                                       !strcmp(spec, "local"), &cluster, name, why, &rates));
    *bf16 = rates.bf16;
    if (rates.decided)
        return WEFT_OK;
    for (int i = 0; i < 2; i++)
        WEFT_TRY(step_seconds(estimator, &cluster, i, &seconds[i]));
    *bf16 = weft_precision_gains(seconds, "a step is", why);
    weft_buf_printf(why, " (rates: %s)", name);
    return weft_buf_check(why);
}

weft_status weft_generation_choose_precision(const weft_generation_estimator *estimator,
                                             const char *spec, bool *bf16)
{
    weft_buf why = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(choose(estimator, spec, bf16, &why));
    const char *name = *bf16 ? "bf16" : "f32";
    weft_notice(
        WEFT_MSG_LAYOUT_CHOSEN,
        WEFT_AT(WEFT_DETAILS(WEFT_WORD("source", "estimate"), WEFT_WORD("precision", name))),
        "precision: auto is %s: %s", name, why.data ? why.data : "");
out:
    weft_buf_free(&why);
    return status;
}
