#include "train/monitor/train_logger.h"

#include "base/memory.h"
#include "format/log/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct weft_train_logger {
    weft_metrics *metrics;
    int64_t log_every, steps_seen;
    double seconds, samples, tokens, flops; /* decayed sums for the rates */
    double peak;                            /* GFLOP/s: measured, or the highest rate of a step */
    weft_progress progress;
    int64_t done;
};

weft_status weft_train_logger_open(const char *run, int64_t step, int64_t total, int64_t log_every,
                                   double peak_gflops, weft_train_logger **out)
{
    weft_train_logger *m;
    WEFT_TRY(WEFT_NEW(m, 1, "the training log"));
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

static weft_status write_figures(weft_train_logger *m, const weft_step_figures *f)
{
    weft_metric own[9 + WEFT_TRAIN_LOGGER_EXTRAS] = {
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
        own[count++] = (weft_metric){"tokens_per_second", m->tokens / m->seconds};
    if (f->bucket >= 0)
        own[count++] = (weft_metric){"bucket", f->bucket};
    for (int i = 0; i < WEFT_TRAIN_LOGGER_EXTRAS; i++)
        if (f->extra_name[i])
            own[count++] = (weft_metric){f->extra_name[i], f->extra[i]};
    if (!f->more_count)
        return weft_metrics_write(m->metrics, f->step, own, count);
    weft_metric *all;
    WEFT_TRY(WEFT_NEW(all, count + f->more_count, "the training log"));
    memcpy(all, own, (size_t)count * sizeof *own);
    memcpy(all + count, f->more, (size_t)f->more_count * sizeof *all);
    const weft_status_code status =
        weft_metrics_write(m->metrics, f->step, all, count + f->more_count);
    weft_free(all);
    return status;
}

static double rate_of(const weft_train_logger *m)
{
    return m->seconds > 0 ? 1e-9 * m->flops / m->seconds : 0;
}

double weft_train_logger_share(const weft_train_logger *m)
{
    return m->peak > 0 ? rate_of(m) / m->peak : 0;
}

weft_status weft_train_logger_record(weft_train_logger *m, const weft_step_figures *f)
{
    const double decay =
        m->steps_seen++ < 2 ? 0 : 0.95; /* the first step is slow: caches are cold */
    m->seconds = decay * m->seconds + f->seconds;
    m->samples = decay * m->samples + (double)f->samples;
    m->tokens = decay * m->tokens + (double)f->tokens;
    m->flops = decay * m->flops + f->flops;
    if (f->step % m->log_every == 0 || f->skipped)
        WEFT_TRY(write_figures(m, f));
    char detail[320], memory[32], share[32] = "", skipped[40] = "", tokens[40] = "";
    if (m->peak > 0) {
        m->peak = fmax(m->peak, rate_of(m));
        snprintf(share, sizeof share, " (%.0f %% of peak)", 100 * weft_train_logger_share(m));
    }
    if (f->skipped_total > 0)
        snprintf(skipped, sizeof skipped, "  %" PRId64 " skipped", f->skipped_total);
    if (m->tokens > 0)
        snprintf(tokens, sizeof tokens, "  %.0f tokens/s", m->tokens / m->seconds);
    snprintf(detail, sizeof detail,
             "%s%sloss %.4f  grad_norm %.3f  %.1f samples/s%s  %.1f GFLOP/s%s  peak %s%s",
             f->train_stage, f->train_stage[0] ? "  " : "", f->loss, f->grad_norm,
             m->samples / m->seconds, tokens, rate_of(m), share,
             weft_format_bytes(weft_memory_peak(), memory), skipped);
    m->done = f->step;
    weft_progress_update(&m->progress, f->step, detail);
    return WEFT_OK;
}

weft_status weft_train_logger_flush(weft_train_logger *m)
{
    return weft_tfevents_flush(weft_metrics_events(m->metrics));
}

weft_status weft_train_logger_close(weft_train_logger *m)
{
    if (!m)
        return WEFT_OK;
    weft_progress_end(&m->progress, m->done, NULL);
    const weft_status_code status = weft_metrics_close(m->metrics);
    weft_free(m);
    return status;
}
