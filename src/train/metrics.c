#include "train/metrics.h"

#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct weft_metrics {
    FILE *file;
    char path[600];
    int64_t log_every, steps_seen;
    double seconds, samples, tokens, flops; /* decayed sums for the rates */
    double peak;
    weft_progress progress;
    int64_t done;
};

/* Keeps the lines of steps up to `step`, and drops the rest and a line cut in the middle. */
static weft_status cut_back(const char *path, int64_t step)
{
    char *text;
    int64_t bytes;
    if (!weft_path_exists(path))
        return WEFT_OK;
    WEFT_TRY(weft_file_read(path, (int64_t)4 << 30, &text, &bytes));
    weft_buf kept = {0};
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        long long at;
        if (sscanf(line, "{\"step\": %lld", &at) == 1 && at <= step)
            weft_buf_append(&kept, line, end + 1 - line);
    }
    weft_status_code status = weft_buf_check(&kept);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path, kept.data ? kept.data : "", kept.len);
    weft_buf_free(&kept);
    weft_free(text);
    return status;
}

weft_status weft_metrics_open(const char *run, int64_t step, int64_t total, int64_t log_every, double peak_gflops,
                              weft_metrics **out)
{
    weft_metrics *m = weft_alloc(sizeof *m);
    if (!m)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", run);
    m->log_every = log_every;
    m->peak = peak_gflops;
    weft_status_code status = cut_back(m->path, step);
    if (status == WEFT_OK && !(m->file = fopen(m->path, "ae")))
        status = weft_fail_errno("%s", m->path);
    if (status != WEFT_OK) {
        weft_free(m);
        return status;
    }
    m->done = step;
    weft_progress_begin(&m->progress, "train", total, step);
    *out = m;
    return WEFT_OK;
}

static double resident_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

/* JSON has no NaN: such a figure is null. */
static void put_number(weft_buf *out, const char *name, double value)
{
    if (isfinite(value))
        weft_buf_printf(out, ", \"%s\": %.9g", name, value);
    else
        weft_buf_printf(out, ", \"%s\": null", name);
}

static weft_status write_line(weft_metrics *m, const weft_step_figures *f)
{
    weft_buf line = {0};
    weft_buf_printf(&line, "{\"step\": %lld", (long long)f->step);
    put_number(&line, "loss", f->loss);
    put_number(&line, "grad_norm", f->grad_norm);
    put_number(&line, "lr", f->lr);
    for (int i = 0; i < 2; i++)
        if (f->extra_name[i])
            put_number(&line, f->extra_name[i], f->extra[i]);
    put_number(&line, "seconds", f->seconds);
    put_number(&line, "samples_per_second", m->samples / m->seconds);
    put_number(&line, "gflops", 1e-9 * m->flops / m->seconds);
    weft_buf_printf(&line, "%s, \"skipped\": %lld}\n", f->skipped ? ", \"outlier\": true" : "", (long long)f->skipped_total);
    weft_status_code status = weft_buf_check(&line);
    if (status == WEFT_OK && (fwrite(line.data, 1, (size_t)line.len, m->file) != (size_t)line.len || fflush(m->file)))
        status = weft_fail_errno("%s", m->path);
    weft_buf_free(&line);
    return status;
}

weft_status weft_metrics_note(weft_metrics *m, const weft_step_figures *f)
{
    const double keep = m->steps_seen++ < 2 ? 0 : 0.95; /* the first step is slow: caches are cold */
    m->seconds = keep * m->seconds + f->seconds;
    m->samples = keep * m->samples + (double)f->samples;
    m->tokens = keep * m->tokens + (double)f->tokens;
    m->flops = keep * m->flops + f->flops;
    if (f->step % m->log_every == 0 || f->skipped)
        WEFT_TRY(write_line(m, f));
    char detail[320], memory[32], share[32] = "", skipped[40] = "", tokens[40] = "";
    const double gflops = 1e-9 * m->flops / m->seconds;
    if (m->peak > 0)
        snprintf(share, sizeof share, " (%.0f %% of peak)", 100 * gflops / m->peak);
    if (f->skipped_total > 0)
        snprintf(skipped, sizeof skipped, "  %lld skipped", (long long)f->skipped_total);
    if (m->tokens > 0)
        snprintf(tokens, sizeof tokens, "  %.0f tokens/s", m->tokens / m->seconds);
    snprintf(detail, sizeof detail, "%s%sloss %.4f  norm %.3f  %.1f samples/s%s  %.1f GFLOP/s%s  %s%s", f->stage,
             f->stage[0] ? "  " : "", f->loss, f->grad_norm, m->samples / m->seconds, tokens, gflops, share,
             weft_format_bytes((int64_t)resident_bytes(), memory), skipped);
    m->done = f->step;
    weft_progress_update(&m->progress, f->step, detail);
    return WEFT_OK;
}

weft_status weft_metrics_close(weft_metrics *m)
{
    if (!m)
        return WEFT_OK;
    weft_progress_end(&m->progress, m->done, NULL);
    weft_status_code status = WEFT_OK;
    if (fclose(m->file) != 0)
        status = weft_fail_errno("%s", m->path);
    weft_free(m);
    return status;
}
