#include "base/log.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

/* ---- the terminal ---------------------------------------------------------------------------- */

/* The progress line that standard error's terminal shows now; "": none. A process has one terminal,
 * and its threads write messages there. */
enum { LINE = 512 };
static struct {
    pthread_mutex_t lock;
    char progress[LINE];
} terminal = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A line of a message in place of the progress line, which follows it. One call of fprintf: lines
 * of other processes do not come between. */
static void print_line(const char *prefix, const char *text, bool again)
{
    pthread_mutex_lock(&terminal.lock);
    const bool shown = terminal.progress[0] != '\0';
    if (!again)
        terminal.progress[0] = '\0';
    fprintf(stderr, "%s%s%s\n%s", shown ? "\r\033[K" : "", prefix, text, terminal.progress);
    fflush(stderr);
    pthread_mutex_unlock(&terminal.lock);
}

/* Cut to the columns of the terminal: a line that wraps cannot be rewritten. */
static void show_on_terminal(char *line, bool last)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 &&
        strlen(line) >= size.ws_col)
        line[size.ws_col - 1] = '\0';
    pthread_mutex_lock(&terminal.lock);
    snprintf(terminal.progress, sizeof terminal.progress, "%s", last ? "" : line);
    fprintf(stderr, "\r%s\033[K%s", line, last ? "\n" : "");
    fflush(stderr);
    pthread_mutex_unlock(&terminal.lock);
}

/* ---- messages -------------------------------------------------------------------------------- */

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
    print_line(prefix[level], text, true);
}

void weft_log_last(const char *line)
{
    print_line("", line, false);
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

/* `left` seconds to go; negative: unknown. */
static void show(weft_progress *progress, int64_t done, const char *detail, bool last, double left)
{
    char rest[48] = "", span[32], count[64], line[LINE];
    if (last)
        snprintf(rest, sizeof rest, "  %s",
                 weft_format_seconds(weft_now() - progress->started, span));
    else if (left >= 0)
        snprintf(rest, sizeof rest, "  %s left", weft_format_seconds(left, span));
    if (progress->total > 0)
        snprintf(count, sizeof count, "%lld/%lld  %3.0f %%", (long long)done,
                 (long long)progress->total, 100.0 * (double)done / (double)progress->total);
    else
        snprintf(count, sizeof count, "%lld", (long long)done);
    const bool has_detail = detail && *detail;
    snprintf(line, sizeof line, "%-10s %s%s%.300s%s", progress->title, count,
             has_detail ? "  " : "", has_detail ? detail : "", rest);
    if (progress->terminal)
        show_on_terminal(line, last);
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

void weft_progress_turn(weft_progress *progress)
{
    if (progress->terminal)
        progress->shown = 0;
}

void weft_progress_update_left(weft_progress *progress, int64_t done, const char *detail,
                               double left)
{
    const double now = weft_now();
    if (progress->quiet || now - progress->shown < (progress->terminal ? 0.1 : 10))
        return;
    progress->shown = now;
    show(progress, done, detail, false, left);
}

void weft_progress_update(weft_progress *progress, int64_t done, const char *detail)
{
    const int64_t made = done - progress->first;
    const double elapsed = weft_now() - progress->started;
    weft_progress_update_left(progress, done, detail,
                              progress->total > 0 && made > 0
                                  ? elapsed * (double)(progress->total - done) / (double)made
                                  : -1);
}

void weft_progress_end(weft_progress *progress, int64_t done, const char *detail)
{
    if (!progress->quiet)
        show(progress, done, detail, true, -1);
}
