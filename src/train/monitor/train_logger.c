#include "train/monitor/train_logger.h"

#include "base/config.h"
#include "base/memory.h"
#include "format/log/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct weft_train_logger {
    weft_metrics *metrics;
    int64_t log_every, steps_seen;
    double seconds, samples, tokens, flops; /* decayed sums for the rates */
    double bf16_flops;                      /* part of `flops` in bf16 */
    weft_peak_gflops peak;                  /* measured */
    double best;                            /* largest share of the measured peak, at least 1 */
    weft_progress progress;
    int64_t done, first, total; /* steps: finished, before the start, of the run */
    int64_t all_samples;        /* since the start */
    double started;
    weft_metrics_server *server; /* borrowed; NULL: none */
};

weft_status weft_train_logger_open(const char *run, int64_t step, int64_t total, int64_t log_every,
                                   weft_peak_gflops peak, weft_train_logger **out)
{
    weft_train_logger *m;
    WEFT_TRY(WEFT_NEW(m, 1, "the training log"));
    m->log_every = log_every;
    m->peak = peak;
    m->best = 1;
    m->done = m->first = step;
    m->total = total;
    m->started = weft_now();
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

/* The share of the measured peak, which exceeds 1 if the machine was busy during the
 * measurement. */
static double measured_share(const weft_train_logger *m)
{
    const weft_peak_gflops *peak = &m->peak;
    const double bf16 = peak->bf16 > 0 ? peak->bf16 : peak->f32;
    return m->seconds > 0 && peak->f32 > 0
               ? 1e-9 * ((m->flops - m->bf16_flops) / peak->f32 + m->bf16_flops / bf16) / m->seconds
               : 0;
}

double weft_train_logger_share(const weft_train_logger *m)
{
    return measured_share(m) / m->best;
}

/* ---- Prometheus ----------------------------------------------------------------------------- */

void weft_train_metrics_print(const weft_step_figures *f, const weft_train_rates *r, weft_buf *text)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } metric[] = {
        {"weft_train_step", "gauge", "Steps done.", (double)f->step},
        {"weft_train_steps", "gauge", "Steps of the run.", (double)r->total},
        {"weft_train_loss", "gauge", "Loss of the last step.", f->loss},
        {"weft_train_gradient_norm", "gauge", "Norm of the last gradient.", f->grad_norm},
        {"weft_train_learning_rate", "gauge", "Learning rate of the last step.", f->lr},
        {"weft_train_step_seconds", "gauge", "Seconds of the last step.", f->seconds},
        {"weft_train_samples_per_second", "gauge", "Rate of the last steps, over all ranks.",
         r->samples_per_second},
        {"weft_train_tokens_per_second", "gauge", "Rate of the last steps, over all ranks.",
         r->tokens_per_second},
        {"weft_train_flops_per_second", "gauge", "Rate of the last steps, over all ranks.",
         r->flops_per_second},
        {"weft_train_remaining_seconds", "gauge", "Predicted seconds until the last step.",
         r->remaining_seconds},
        {"weft_train_samples_total", "counter", "Samples since the start, over all ranks.",
         (double)r->samples},
        {"weft_train_skipped_steps_total", "counter", "Steps that the outlier guard skipped.",
         (double)f->skipped_total},
        {"weft_train_peak_memory_bytes", "gauge", "Peak memory of rank 0.",
         (double)weft_memory_peak()},
    };
    weft_metric_text_head(text, "weft_build_info", "gauge", "Version of the running program.");
    weft_metric_text_value(text, "weft_build_info", "version", WEFT_VERSION, 1);
    for (int i = 0; i < WEFT_COUNT(metric); i++)
        weft_metric_text_one(text, metric[i].name, metric[i].type, metric[i].help, metric[i].value);
    weft_metric_text_head(text, "weft_train_figure", "gauge",
                          "Further figures of metrics.jsonl, by name.");
    for (int i = 0; i < WEFT_TRAIN_LOGGER_EXTRAS; i++)
        if (f->extra_name[i])
            weft_metric_text_value(text, "weft_train_figure", "name", f->extra_name[i],
                                   f->extra[i]);
    for (int i = 0; i < f->more_count; i++)
        weft_metric_text_value(text, "weft_train_figure", "name", f->more[i].name,
                               f->more[i].value);
}

void weft_train_logger_publish_to(weft_train_logger *m, weft_metrics_server *server)
{
    m->server = server;
}

static weft_status publish(weft_train_logger *m, const weft_step_figures *f)
{
    const int64_t made = f->step - m->first;
    const double each = made > 0 ? (weft_now() - m->started) / (double)made : NAN;
    const weft_train_rates rates = {.samples_per_second = m->samples / m->seconds,
                                    .tokens_per_second = m->tokens / m->seconds,
                                    .flops_per_second = m->flops / m->seconds,
                                    .remaining_seconds = each * (double)(m->total - f->step),
                                    .samples = m->all_samples,
                                    .total = m->total};
    weft_buf text = {0};
    weft_train_metrics_print(f, &rates, &text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&text));
    WEFT_GO(weft_metrics_server_publish(m->server, &text));
out:
    weft_buf_free(&text);
    return status;
}

weft_status weft_train_logger_record(weft_train_logger *m, const weft_step_figures *f)
{
    m->all_samples += f->samples;
    const double decay =
        m->steps_seen++ < 2 ? 0 : 0.95; /* the first step is slow: caches are cold */
    m->seconds = decay * m->seconds + f->seconds;
    m->samples = decay * m->samples + (double)f->samples;
    m->tokens = decay * m->tokens + (double)f->tokens;
    m->flops = decay * m->flops + f->flops;
    m->bf16_flops = decay * m->bf16_flops + f->bf16_flops;
    if (f->step % m->log_every == 0 || f->skipped)
        WEFT_TRY(write_figures(m, f));
    char detail[320], memory[32], share[32] = "", skipped[40] = "", tokens[40] = "";
    if (m->peak.f32 > 0) {
        m->best = fmax(m->best, measured_share(m));
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
    if (weft_metrics_server_is_due(m->server) || (m->server && f->step == m->total))
        WEFT_TRY(publish(m, f));
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
