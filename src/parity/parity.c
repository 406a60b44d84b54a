#include "parity/parity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

weft_status weft_parity_need(const weft_parity *p, const char *name, const weft_stored_tensor **t)
{
    *t = weft_tensors_find(p->golden, name);
    return *t ? WEFT_OK
              : weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = p->file, .key = name),
                           "the tensor is missing");
}

double weft_parity_norm(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

double weft_parity_error(const float *actual, const float *expected, int64_t count, double scale)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(actual[i]) || !isfinite(expected[i]))
            return NAN;
        const double d = (double)actual[i] - (double)expected[i];
        sum += d * d;
    }
    return scale > 0 ? sqrt(sum) / scale : sqrt(sum);
}

void weft_parity_count(weft_parity *p, const char *name, bool bad)
{
    p->compared++;
    if (bad && p->failures++ == 0)
        snprintf(p->first, sizeof p->first, "%s", name);
}

void weft_parity_judge(weft_parity *p, const char *what, const char *name, const float *actual,
                       const float *expected, int64_t count, double scale, double tolerance,
                       double *worst)
{
    const double error = weft_parity_error(actual, expected, count, scale);
    const bool bad = !(error <= tolerance);
    weft_parity_count(p, name, bad);
    if (!(error <= *worst))
        *worst = error;
    if (bad || p->verbose)
        printf("  %-8s %-60s %.2e%s\n", what, name, error, bad ? "  FAIL" : "");
}
