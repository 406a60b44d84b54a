#include "base/log.h"

#include "base/json.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static weft_log_receiver receiver;   /* zero: standard error */
static atomic_int chosen_level = -1; /* -1: WEFT_LOG */

void weft_log_set_receiver(const weft_log_receiver *replacement)
{
    receiver = *replacement;
}

void weft_log_set_level(weft_log_level level)
{
    atomic_store(&chosen_level, (int)level);
}

static weft_log_level threshold(void)
{
    const int chosen = atomic_load(&chosen_level);
    if (chosen >= 0)
        return (weft_log_level)chosen;
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

/* The lines of progress that standard error's terminal shows now, the last one without its end; "":
 * none. A process has one terminal, and its threads write messages there. */
enum { LINE = 512, BLOCK = 4096 };
static struct {
    pthread_mutex_t lock;
    char progress[BLOCK];
} terminal = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What moves to the start of the shown lines and clears them. */
static const char *clearing(char text[24])
{
    int above = 0;
    for (const char *c = terminal.progress; *c; c++)
        above += *c == '\n';
    if (above > 0)
        snprintf(text, 24, "\r\033[%dA\033[J", above);
    else
        snprintf(text, 24, "%s", terminal.progress[0] ? "\r\033[K" : "");
    return text;
}

/* A line of a message in place of the progress, which follows it. One call of fprintf: lines of
 * other processes do not come between. */
static void print_line(const char *prefix, const char *text, bool redraw)
{
    char clear[24];
    pthread_mutex_lock(&terminal.lock);
    clearing(clear);
    if (!redraw)
        terminal.progress[0] = '\0';
    fprintf(stderr, "%s%s%s\n%s", clear, prefix, text, terminal.progress);
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

bool weft_log_has_table(void)
{
    return !receiver.has_progress && !weft_message_as_json() && threshold() >= WEFT_LOG_INFO &&
           isatty(STDERR_FILENO) != 0;
}

/* Copies at most `rows` lines, each cut to `columns`. */
static void fit(const char *lines, int64_t rows, int64_t columns, char block[BLOCK])
{
    size_t n = 0;
    for (int64_t row = 0; *lines && row < rows; row++) {
        const size_t length = strcspn(lines, "\n"),
                     shown = (int64_t)length < columns ? length : (size_t)(columns - 1);
        if (n + shown + 2 > BLOCK)
            break;
        if (row > 0)
            block[n++] = '\n';
        memcpy(block + n, lines, shown);
        n += shown;
        lines += length + (lines[length] == '\n');
    }
    block[n] = '\0';
}

void weft_log_show_table(const char *lines, bool last)
{
    struct winsize size;
    char block[BLOCK], clear[24];
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    fit(lines, known && size.ws_row > 1 ? size.ws_row - 1 : 24, known ? size.ws_col : 80, block);
    pthread_mutex_lock(&terminal.lock);
    fprintf(stderr, "%s%s%s", clearing(clear), block, last && block[0] ? "\n" : "");
    snprintf(terminal.progress, sizeof terminal.progress, "%s", last ? "" : block);
    fflush(stderr);
    pthread_mutex_unlock(&terminal.lock);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void print_message(weft_log_level level, weft_message_class kind,
                          const weft_message_fields *at, const char *text)
{
    static const char *const name[] = {"error", "warning", "info", "debug"};
    char location[2048], prefix[2200], id[80] = "";
    if (receiver.has_message) {
        if (receiver.message)
            receiver.message(receiver.message_user, level, kind, at, text);
        return;
    }
    weft_message_location(at, location, sizeof location);
    if (weft_message_as_json()) {
        char whole[8192];
        snprintf(whole, sizeof whole, "%s%s", location, text);
        char *line = weft_message_json(name[level], NULL, kind, at, whole);
        print_line("", line ? line : whole, true);
        weft_free(line);
        return;
    }
    if (kind != WEFT_MSG_NONE)
        snprintf(id, sizeof id, "[%s]", weft_message_id(kind));
    snprintf(prefix, sizeof prefix, "%s%s%s%s", level == WEFT_LOG_INFO ? "" : name[level],
             level == WEFT_LOG_INFO ? "" : id, level == WEFT_LOG_INFO ? "" : ": ", location);
    print_line(prefix, text, true);
}

enum { TEXT_BYTES = 4096 };

/* Prints a message of `level` if WEFT_LOG does not hide it. */
static void print_at(weft_log_level level, weft_message_class kind, const weft_message_fields *at,
                     const char *fmt, va_list args)
{
    if (threshold() < level)
        return;
    char text[TEXT_BYTES];
    vsnprintf(text, sizeof text, fmt, args);
    print_message(level, kind, at, text);
}

void weft_debug(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_at(WEFT_LOG_DEBUG, WEFT_MSG_NONE, NULL, fmt, args);
    va_end(args);
}

void weft_warning(weft_message_class kind, const weft_message_fields *at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_at(WEFT_LOG_WARN, kind, at, fmt, args);
    va_end(args);
}

void weft_notice(weft_message_class kind, const weft_message_fields *at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_at(WEFT_LOG_INFO, kind, at, fmt, args);
    va_end(args);
}

void weft_warn_error(weft_message_class kind, const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *error = weft_error_text();
    const size_t length = strlen(error);
    const int without_period = (int)length - (length > 0 && error[length - 1] == '.');
    weft_warning(kind, weft_error_fields(), "%.*s; %s", without_period, error, text);
}

void weft_log_last(const char *line)
{
    if (receiver.has_message) {
        if (receiver.message)
            receiver.message(receiver.message_user, WEFT_LOG_ERROR, WEFT_MSG_NONE, NULL, line);
        return;
    }
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

/* Seconds between two lines of progress. WEFT_PROGRESS_INTERVAL is for programs that read the
 * lines. */
static double line_interval(bool on_terminal)
{
    enum { DEFAULT = 10 };
    if (on_terminal)
        return 0.1;
    const char *text = getenv("WEFT_PROGRESS_INTERVAL");
    char *end;
    const double seconds = text && *text ? strtod(text, &end) : DEFAULT;
    return seconds >= 0 ? seconds : DEFAULT;
}

void weft_progress_begin(weft_progress *progress, const char *title, int64_t total, int64_t first)
{
    *progress = (weft_progress){.title = title,
                                .total = total,
                                .first = first,
                                .started = weft_now(),
                                .quiet = !receiver.has_progress && threshold() < WEFT_LOG_INFO,
                                .terminal = receiver.has_progress || isatty(STDERR_FILENO) != 0};
    progress->interval = line_interval(progress->terminal);
    progress->shown = progress->started - (progress->terminal ? 1 : 0.8 * progress->interval);
}

static void show_as_json(const weft_progress *progress, int64_t done, const char *detail, bool last,
                         double left)
{
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:f}", "level", "progress", "title", progress->title, "done",
                  (json_int_t)done, "seconds", weft_now() - progress->started);
    if (progress->total > 0)
        json_object_set_new(object, "total", json_integer(progress->total));
    if (left >= 0)
        json_object_set_new(object, "seconds_left", json_real(left));
    if (detail)
        json_object_set_new(object, "detail", json_string(detail));
    json_object_set_new(object, "finished", json_boolean(last));
    char *line = weft_json_line(object);
    json_decref(object);
    if (line)
        print_line("", line, true);
    weft_free(line);
}

void weft_progress_begin_late(weft_progress *progress, const char *title, int64_t total)
{
    weft_progress_begin(progress, title, total, 0);
    progress->late = true;
    progress->shown = progress->started;
}

/* Whether it is too early to show this late progress. */
static bool is_early(weft_progress *p, double now, double left)
{
    enum { EARLY = 3, LONG = 10 };
    char text[32];
    if (!p->late || p->announced)
        return false;
    if (left > LONG) {
        p->announced = true;
        weft_notice(WEFT_MSG_ESTIMATE, WEFT_NOWHERE, "%s takes about %s", p->title,
                    weft_format_seconds(left, text));
    } else {
        p->announced = now - p->started >= EARLY;
    }
    return !p->announced;
}

/* `left` seconds to go; negative: unknown. */
static void show(weft_progress *progress, int64_t done, const char *detail, bool last, double left)
{
    char rest[48] = "", span[32], count[64], line[LINE];
    if (receiver.has_progress) {
        if (receiver.progress)
            receiver.progress(receiver.progress_user, progress->title, done, progress->total, left,
                              detail ? detail : "", last);
        return;
    }
    if (last)
        snprintf(rest, sizeof rest, "  %s",
                 weft_format_seconds(weft_now() - progress->started, span));
    else if (left >= 0)
        snprintf(rest, sizeof rest, "  eta %s", weft_format_seconds(left, span));
    if (progress->total > 0)
        snprintf(count, sizeof count, "%" PRId64 "/%" PRId64 "  %3.0f %%", done, progress->total,
                 100.0 * (double)done / (double)progress->total);
    else
        snprintf(count, sizeof count, "%" PRId64, done);
    const bool has_detail = detail && *detail;
    if (weft_message_as_json()) {
        show_as_json(progress, done, has_detail ? detail : NULL, last, left);
        return;
    }
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
    if (progress->terminal || weft_message_as_json())
        progress->shown = -progress->interval;
}

void weft_progress_update_left(weft_progress *progress, int64_t done, const char *detail,
                               double left)
{
    const double now = weft_now();
    if (progress->quiet || is_early(progress, now, left))
        return;
    if (now - progress->shown < progress->interval)
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
    if (!progress->quiet && (!progress->late || progress->announced))
        show(progress, done, detail, true, -1);
}
