#include "train/meter.h"

#include "base/memory.h"
#include "format/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct weft_meter {
    weft_metrics *metrics;
    int64_t log_every, steps_seen;
    double seconds, samples, tokens, flops; /* decayed sums for the rates */
    double peak; /* GFLOP/s: measured, or what steps have reached if that is more */
    weft_progress progress;
    int64_t done;
};

weft_status weft_meter_open(const char *run, int64_t step, int64_t total, int64_t log_every,
                            double peak_gflops, weft_meter **out)
{
    weft_meter *m = weft_alloc(sizeof *m);
    if (!m)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    m->log_every = log_every;
    m->peak = peak_gflops;
    m->done = step;
    const weft_status_code status = weft_metrics_open(run, step + 1, &m->metrics);
    if (status != WEFT_OK) {
        weft_free(m);
        return status;
    }
    weft_progress_begin(&m->progress, "train", total, step);
    *out = m;
    return WEFT_OK;
}

static weft_status write_figures(weft_meter *m, const weft_step_figures *f)
{
    weft_metric metric[9 + WEFT_METER_EXTRAS] = {
        {"loss", f->loss},
        {"grad_norm", f->grad_norm},
        {"lr", f->lr},
        {"step_seconds", f->seconds},
        {"samples_per_second", m->samples / m->seconds},
        {"gflops", 1e-9 * m->flops / m->seconds},
        {"skipped", (double)f->skipped_total},
    };
    int count = 7;
    if (m->tokens > 0)
        metric[count++] = (weft_metric){"tokens_per_second", m->tokens / m->seconds};
    if (f->bucket >= 0)
        metric[count++] = (weft_metric){"bucket", f->bucket};
    for (int i = 0; i < WEFT_METER_EXTRAS; i++)
        if (f->extra_name[i])
            metric[count++] = (weft_metric){f->extra_name[i], f->extra[i]};
    return weft_metrics_write(m->metrics, f->step, metric, count);
}

static double rate_of(const weft_meter *m)
{
    return m->seconds > 0 ? 1e-9 * m->flops / m->seconds : 0;
}

double weft_meter_share(const weft_meter *m)
{
    return m->peak > 0 ? rate_of(m) / m->peak : 0;
}

weft_status weft_meter_note(weft_meter *m, const weft_step_figures *f)
{
    const double keep =
        m->steps_seen++ < 2 ? 0 : 0.95; /* the first step is slow: caches are cold */
    m->seconds = keep * m->seconds + f->seconds;
    m->samples = keep * m->samples + (double)f->samples;
    m->tokens = keep * m->tokens + (double)f->tokens;
    m->flops = keep * m->flops + f->flops;
    if (f->step % m->log_every == 0 || f->skipped)
        WEFT_TRY(write_figures(m, f));
    char detail[320], memory[32], share[32] = "", skipped[40] = "", tokens[40] = "";
    if (m->peak > 0) {
        m->peak = fmax(m->peak, rate_of(m));
        snprintf(share, sizeof share, " (%.0f %% of peak)", 100 * weft_meter_share(m));
    }
    if (f->skipped_total > 0)
        snprintf(skipped, sizeof skipped, "  %lld skipped", (long long)f->skipped_total);
    if (m->tokens > 0)
        snprintf(tokens, sizeof tokens, "  %.0f tokens/s", m->tokens / m->seconds);
    snprintf(detail, sizeof detail,
             "%s%sloss %.4f  norm %.3f  %.1f samples/s%s  %.1f GFLOP/s%s  %s%s", f->stage,
             f->stage[0] ? "  " : "", f->loss, f->grad_norm, m->samples / m->seconds, tokens,
             rate_of(m), share, weft_format_bytes(weft_memory_peak(), memory), skipped);
    m->done = f->step;
    weft_progress_update(&m->progress, f->step, detail);
    return WEFT_OK;
}

weft_status weft_meter_flush(weft_meter *m)
{
    return weft_tfevents_flush(weft_metrics_events(m->metrics));
}

weft_status weft_meter_close(weft_meter *m)
{
    if (!m)
        return WEFT_OK;
    weft_progress_end(&m->progress, m->done, NULL);
    const weft_status_code status = weft_metrics_close(m->metrics);
    weft_free(m);
    return status;
}
