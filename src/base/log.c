#include "base/log.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static weft_log_level threshold(void)
{
    const char *name = getenv("WEFT_LOG");
    if (!name || !strcmp(name, "info"))
        return WEFT_LOG_INFO;
    if (!strcmp(name, "error"))
        return WEFT_LOG_ERROR;
    if (!strcmp(name, "warn"))
        return WEFT_LOG_WARN;
    return WEFT_LOG_DEBUG;
}

void weft_log(weft_log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", "", "debug: "};
    if (level > threshold())
        return;
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "%s%s\n", prefix[level], text); /* one call: lines of threads do not mix */
}

double weft_thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double weft_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void weft_progress_begin(weft_progress *progress, const char *title, int64_t total, int64_t first)
{
    *progress = (weft_progress){.title = title,
                                .total = total,
                                .first = first,
                                .started = weft_now(),
                                .quiet = threshold() < WEFT_LOG_INFO,
                                .terminal = isatty(STDERR_FILENO) != 0};
    progress->shown = progress->started - (progress->terminal ? 1 : 8);
}

static void show(weft_progress *progress, int64_t done, const char *detail, bool last)
{
    char left[48] = "", span[32], count[64];
    const double elapsed = weft_now() - progress->started;
    if (last) {
        snprintf(left, sizeof left, "  %s", weft_format_seconds(elapsed, span));
    } else if (progress->total > 0 && done > progress->first) {
        const double rate = (double)(done - progress->first) / elapsed;
        const double remaining = (double)(progress->total - done) / rate;
        snprintf(left, sizeof left, "  %s left", weft_format_seconds(remaining, span));
    }
    if (progress->total > 0)
        snprintf(count, sizeof count, "%lld/%lld  %3.0f %%", (long long)done,
                 (long long)progress->total, 100.0 * (double)done / (double)progress->total);
    else
        snprintf(count, sizeof count, "%lld", (long long)done);
    const bool has_detail = detail && *detail;
    fprintf(stderr, "%s%-10s %s%s%s%s%s%s", progress->terminal ? "\r" : "", progress->title, count,
            has_detail ? "  " : "", has_detail ? detail : "", left,
            progress->terminal ? "\033[K" : "", progress->terminal && !last ? "" : "\n");
    fflush(stderr);
}

void weft_progress_update(weft_progress *progress, int64_t done, const char *detail)
{
    const double now = weft_now();
    if (progress->quiet || now - progress->shown < (progress->terminal ? 0.1 : 10))
        return;
    progress->shown = now;
    show(progress, done, detail, false);
}

void weft_progress_end(weft_progress *progress, int64_t done, const char *detail)
{
    if (!progress->quiet)
        show(progress, done, detail, true);
}
