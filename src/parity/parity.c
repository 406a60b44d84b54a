#include "parity/parity.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
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

bool weft_parity_is_larger(double error, double worst)
{
    return !isnan(worst) && !(error <= worst);
}

bool weft_parity_is_class(const json_t *json, const char *name)
{
    const char *own = json_string_value(json_object_get(json, "_class_name"));
    return own && !strcmp(own, name);
}

void weft_parity_say(const weft_parity *p, const char *format, ...)
{
    weft_buf line = {0};
    va_list args;
    if (!p->line)
        return;
    va_start(args, format);
    weft_buf_vprintf(&line, format, args);
    va_end(args);
    p->line(line.data ? line.data : "");
    weft_buf_free(&line);
}

void weft_parity_measured(weft_parity *p, const char *of, double worst, double limit)
{
    weft_parity_record *r = &p->record;
    assert(r->measures < WEFT_PARITY_MEASURES);
    r->measure[r->measures++] = (weft_parity_measure){of, worst, limit};
}

void weft_parity_measured_both(weft_parity *p, const double worst[2])
{
    weft_parity_measured(p, "outputs", worst[0], p->output_tolerance);
    weft_parity_measured(p, "gradients", worst[1], p->gradient_tolerance);
}

void weft_parity_count(weft_parity *p, const char *name, bool bad)
{
    p->record.compared++;
    if (bad && p->record.failures++ == 0)
        snprintf(p->record.first, sizeof p->record.first, "%s", name);
}

void weft_parity_judge(weft_parity *p, const char *what, const char *name, const float *actual,
                       const float *expected, int64_t count, double scale, double tolerance,
                       double *worst)
{
    const double error = weft_parity_error(actual, expected, count, scale);
    const bool bad = !(error <= tolerance);
    weft_parity_count(p, name, bad);
    if (weft_parity_is_larger(error, *worst))
        *worst = error;
    if (bad || p->verbose)
        weft_parity_say(p, "  %-8s %-60s %.2e%s", what, name, error, bad ? "  FAIL" : "");
}
