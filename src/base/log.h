/* Messages to standard error, and a progress line with time left. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include "base/message.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stdint.h>

/* Level comes from WEFT_LOG=error|warn|info|debug (default info). With WEFT_LOG_FORMAT=json every
 * message and every line of progress is one line of JSON, with the id and fields of its class. */
void weft_warning(weft_message_class kind, const weft_message_fields *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A log event: what happens, or a figure. Printed without its id. */
void weft_notice(weft_message_class kind, const weft_message_fields *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* This thread's last error as a warning: the command continues with `text` ("the sample is left
 * out"), printed after the error. The class is `kind`, the fields are the error's. */
void weft_warn_error(weft_message_class kind, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Debugging output, without a class. */
void weft_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Receives messages and progress in place of standard error. Called by any thread of weft, also by
 * several at a time. A member that is NULL drops its calls. */
typedef struct weft_log_receiver {
    /* A message that the level does not hide, without its place, which `at` has (NULL: none). */
    void (*message)(void *user, weft_log_level level, weft_message_class kind,
                    const weft_message_fields *at, const char *text);
    /* `total` 0: unknown. `seconds_left` negative: unknown. `detail` is "" or further figures. */
    void (*progress)(void *user, const char *title, int64_t done, int64_t total,
                     double seconds_left, const char *detail, bool finished);
    void *message_user, *progress_user;
    bool has_message, has_progress; /* false: standard error */
} weft_log_receiver;
/* Sets the receiver of the process (copied). No other thread may call weft meanwhile. */
void weft_log_set_receiver(const weft_log_receiver *receiver);
/* Replaces the level of WEFT_LOG. */
void weft_log_set_level(weft_log_level level);

/* Prints a complete line whatever the level: the message of a program's end. A progress line does
 * not come back after it. */
void weft_log_last(const char *line);

/* Whether a table can be shown in place: standard error is a terminal, has no receiver, and prints
 * neither JSON nor only warnings. */
bool weft_log_has_table(void);
/* Shows `lines`, each with its end, in place of the lines shown before, below all messages. Lines
 * beyond the size of the terminal are cut off. `last`: they stay, and later output follows. */
void weft_log_show_table(const char *lines, bool last);

/* Seconds of a monotonic clock. */
double weft_now(void);
/* Processor seconds of the calling thread. */
double weft_thread_seconds(void);

/* One line that is rewritten on a terminal (at most 10 times a second) and printed every 10 s, and
 * at the end, elsewhere: "train  120/800  15 %  loss 0.123  2 min 10 s left". A message of weft_log
 * clears the line, and the line is drawn again below the message. Of several lines of a process the
 * terminal shows the last one. Not thread safe. */
typedef struct weft_progress {
    const char *title; /* borrowed */
    int64_t total;     /* 0: unknown */
    int64_t first;     /* the first item of a resumed job, for the time left */
    double started, shown;
    double interval; /* seconds between two lines */
    bool quiet, terminal;
    bool late, announced; /* weft_progress_begin_late; an update was shown, or the seconds to go */
} weft_progress;
void weft_progress_begin(weft_progress *progress, const char *title, int64_t total, int64_t first);
/* Begins progress of work that is quick in most cases: the first 3 seconds show nothing. If the
 * first items predict more than 10 s in total, a line prints the prediction. */
void weft_progress_begin_late(weft_progress *progress, const char *title, int64_t total);
/* `detail` may be NULL or "". The time left assumes that the remaining items need as long as the
 * finished ones did on average. */
void weft_progress_update(weft_progress *progress, int64_t done, const char *detail);
/* Updates with `left` remaining seconds from the caller; negative: unknown, and not printed. */
void weft_progress_update_left(weft_progress *progress, int64_t done, const char *detail,
                               double left);
/* The next update is shown on a terminal, and as JSON, however soon it comes: another phase
 * begins. */
void weft_progress_turn(weft_progress *progress);
void weft_progress_end(weft_progress *progress, int64_t done, const char *detail);

#endif
