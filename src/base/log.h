/* Messages to standard error, and a progress line with time left. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_log_level {
    WEFT_LOG_ERROR,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_DEBUG
} weft_log_level;

/* Level comes from WEFT_LOG=error|warn|info|debug (default info), read at the first message. */
void weft_log(weft_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define weft_warn(...)  weft_log(WEFT_LOG_WARN, __VA_ARGS__)
#define weft_info(...)  weft_log(WEFT_LOG_INFO, __VA_ARGS__)
#define weft_debug(...) weft_log(WEFT_LOG_DEBUG, __VA_ARGS__)

/* The same of a whole line, without a prefix, whatever the level: the message of a program's end. A
 * progress line does not come back after it. */
void weft_log_last(const char *line);

/* Seconds of a monotonic clock. */
double weft_now(void);
/* That a processor has worked for the calling thread. */
double weft_thread_seconds(void);

/* One line that is rewritten on a terminal (at most 10 times a second) and printed every 10 s, and
 * at the end, elsewhere: "train  120/800  15 %  loss 0.123  2 min 10 s left". A message of weft_log
 * clears the line, and the line is drawn again below the message. Of several lines of a process the
 * terminal shows the last one. Not thread safe. */
typedef struct weft_progress {
    const char *title; /* borrowed */
    int64_t total;     /* 0: unknown */
    int64_t first;     /* where a resumed job started, for the time left */
    double started, shown;
    bool quiet, terminal, open_line;
} weft_progress;
void weft_progress_begin(weft_progress *progress, const char *title, int64_t total, int64_t first);
/* `detail` may be NULL or "". The time left is that of equal items since the beginning. */
void weft_progress_update(weft_progress *progress, int64_t done, const char *detail);
/* The same with `left` seconds to go; negative: unknown, and not printed. */
void weft_progress_update_left(weft_progress *progress, int64_t done, const char *detail,
                               double left);
/* The next update is shown on a terminal, however soon it comes: another phase begins. */
void weft_progress_turn(weft_progress *progress);
void weft_progress_end(weft_progress *progress, int64_t done, const char *detail);

#endif
