#include "curate/operators/process_scorer.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_ERRORS = 200 };

struct weft_process_scorer {
    const weft_operator_config *config;
    void (*beat)(void *);
    void *user;
    pid_t pid;              /* 0: none */
    int in, out, error;     /* of the process */
    weft_buf line;          /* received, not complete */
    char said[KEPT_ERRORS]; /* end of its standard error */
    size_t said_bytes;
    int64_t requests; /* so far */
    int failures;     /* in sequence */
    char last[300];   /* reason of the last one */
};

weft_status weft_process_scorer_open(const weft_operator_config *config, void (*beat)(void *),
                                     void *user, weft_process_scorer **scorer)
{
    weft_process_scorer *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a scorer"));
    *s = (weft_process_scorer){
        .config = config, .beat = beat, .user = user, .in = -1, .out = -1, .error = -1};
    *scorer = s;
    return WEFT_OK;
}

/* ---- the process --------------------------------------------------------------------------- */

/* Runs in the child: only functions that are safe in signal handlers may be called. */
static _Noreturn void become(char **argv, int in, int out, int error, pid_t parent)
{
    weft_interrupt_detach_child(parent);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(error, STDERR_FILENO) >= 0)
        execvp(argv[0], argv);
    _exit(127);
}

static weft_status start(weft_process_scorer *s)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    char **argv;
    const pid_t parent = getpid();
    WEFT_TRY(WEFT_NEW(argv, s->config->process.count + 1, "the arguments of a process"));
    for (int64_t i = 0; i < s->config->process.count; i++)
        argv[i] = (char *)s->config->process.item[i];
    pid_t pid = -1;
    if (pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0 &&
        pipe2(pipes[2], O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0)
        become(argv, pipes[0][0], pipes[1][1], pipes[2][1], parent);
    const int error = errno;
    weft_free(argv);
    for (int i = 0; i < 3; i++) {
        const int child_end = pipes[i][i > 0], own_end = pipes[i][i == 0];
        if (child_end >= 0)
            close(child_end);
        if (pid < 0 && own_end >= 0)
            close(own_end);
    }
    if (pid < 0)
        return weft_error(WEFT_MSG_SCORER_FAILED, WEFT_AT(.key = s->config->name),
                          "the process cannot be started: %s", strerror(error));
    s->pid = pid;
    s->in = pipes[0][1];
    s->out = pipes[1][0];
    s->error = pipes[2][0];
    s->said_bytes = 0;
    s->line.len = 0;
    const int own[] = {s->in, s->out, s->error};
    for (int i = 0; i < 3; i++)
        (void)fcntl(own[i], F_SETFL, O_NONBLOCK);
    return WEFT_OK;
}

/* Kills the process if it runs. Returns its wait status. */
static int stop(weft_process_scorer *s)
{
    int state = 0;
    int *const ends[] = {&s->in, &s->out, &s->error};
    for (int i = 0; i < 3; i++) {
        if (*ends[i] >= 0)
            close(*ends[i]);
        *ends[i] = -1;
    }
    if (s->pid > 0) {
        kill(-s->pid, SIGKILL);
        kill(s->pid, SIGKILL); /* it may not have a group yet */
        while (waitpid(s->pid, &state, 0) < 0 && errno == EINTR)
            ;
    }
    s->pid = 0;
    return state;
}

void weft_process_scorer_close(weft_process_scorer *s)
{
    if (!s)
        return;
    stop(s);
    weft_buf_free(&s->line);
    weft_free(s);
}

/* Keeps the end of the standard error. */
static void read_error(weft_process_scorer *s)
{
    char piece[4096];
    ssize_t n;
    while ((n = read(s->error, piece, sizeof piece)) > 0) {
        const size_t bytes = (size_t)n < KEPT_ERRORS ? (size_t)n : KEPT_ERRORS;
        const size_t kept =
            s->said_bytes + bytes > KEPT_ERRORS ? KEPT_ERRORS - bytes : s->said_bytes;
        memmove(s->said, s->said + s->said_bytes - kept, kept);
        memcpy(s->said + kept, piece + (size_t)n - bytes, bytes);
        s->said_bytes = kept + bytes;
    }
}

/* The last line of the standard error, as UTF-8, with a colon before it; "": none. */
static void last_line(weft_process_scorer *s, char *to, size_t size)
{
    char text[KEPT_ERRORS + 1];
    size_t n = s->said_bytes, from;
    to[0] = 0;
    while (n && (unsigned char)s->said[n - 1] <= ' ')
        n--;
    for (from = n; from && s->said[from - 1] != '\n'; from--)
        ;
    memcpy(text, s->said + from, n - from);
    text[n - from] = 0;
    char *escaped = text[0] ? weft_utf8_escape(text) : NULL;
    if (escaped)
        snprintf(to, size, ": %s", escaped);
    weft_free(escaped);
}

/* ---- one shot ------------------------------------------------------------------------------ */

/* Bytes to send, and the deadline. */
typedef struct exchange {
    const char *head;
    const uint8_t *frames;
    int64_t head_bytes, frame_bytes, sent;
    double deadline;
} exchange;

/* Ends the process and reports its failure. */
static weft_status fail(weft_process_scorer *s, const char *why)
{
    char said[KEPT_ERRORS * 4];
    if (s->error >= 0)
        read_error(s);
    last_line(s, said, sizeof said);
    stop(s);
    s->failures++;
    snprintf(s->last, sizeof s->last, "%s%s", why, said);
    return weft_error(WEFT_MSG_SCORER_FAILED, WEFT_AT(.key = s->config->name), "%s", s->last);
}

/* The process closed its output. */
static weft_status fail_ended(weft_process_scorer *s)
{
    char why[120];
    /* its exit status, unless it closed the pipe and runs on */
    int state = 0;
    pid_t ended = 0;
    for (int i = 0; i < 100 && ended == 0; i++) {
        ended = waitpid(s->pid, &state, WNOHANG);
        if (ended == 0)
            poll(NULL, 0, 10);
    }
    if (ended == s->pid)
        s->pid = 0;
    if (ended == 0)
        snprintf(why, sizeof why, "the process closed its standard output");
    else if (WIFSIGNALED(state))
        snprintf(why, sizeof why, "the process was killed by signal %d", WTERMSIG(state));
    else if (WEXITSTATUS(state) == 127)
        snprintf(why, sizeof why, "the process cannot be run (exit status 127)");
    else
        snprintf(why, sizeof why, "the process ended with exit status %d", WEXITSTATUS(state));
    return fail(s, why);
}

/* Sends as much as the pipe takes. False: the process does not read any more. */
static bool send_some(weft_process_scorer *s, exchange *x)
{
    while (x->sent < x->head_bytes + x->frame_bytes) {
        const bool head = x->sent < x->head_bytes;
        const int64_t at = head ? x->sent : x->sent - x->head_bytes,
                      left = (head ? x->head_bytes : x->frame_bytes) - at;
        const ssize_t n =
            write(s->in, head ? (const void *)(x->head + at) : x->frames + at, (size_t)left);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        x->sent += n;
    }
    return true;
}

/* Appends to the line. -1: the end; 0: no line yet; 1: a line. */
static int read_line(weft_process_scorer *s)
{
    char piece[4096];
    const ssize_t n = read(s->out, piece, sizeof piece);
    if (n > 0)
        weft_buf_append(&s->line, piece, n);
    if (s->line.len > 0 && memchr(s->line.data, '\n', (size_t)s->line.len))
        return 1;
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ? -1 : 0;
}

/* Exchanges a request with a line. */
static weft_status talk(weft_process_scorer *s, exchange *x)
{
    for (;;) {
        char why[80];
        const bool sending = x->sent < x->head_bytes + x->frame_bytes;
        struct pollfd polled[] = {{.fd = s->out, .events = POLLIN},
                                  {.fd = s->error, .events = POLLIN},
                                  {.fd = sending ? s->in : -1, .events = POLLOUT}};
        const double left = x->deadline - weft_now();
        WEFT_TRY(weft_interrupt_check());
        if (s->beat)
            s->beat(s->user);
        if (left <= 0) {
            snprintf(why, sizeof why, "no score within %g s (timeout_seconds)",
                     s->config->timeout_seconds);
            return fail(s, why);
        }
        poll(polled, 3, left < 0.2 ? (int)(left * 1000) + 1 : 200);
        if (polled[1].revents & POLLIN)
            read_error(s);
        else if (polled[1].revents) { /* closed */
            close(s->error);
            s->error = -1;
        }
        if (polled[0].revents) {
            const int got = read_line(s);
            if (got < 0)
                return fail_ended(s);
            if (s->line.len > WEFT_PROCESS_MOST_LINE)
                return fail(s, "a line of the process is longer than 64 KiB");
            if (got > 0)
                return sending ? fail(s, "the process printed a line before it read all frames")
                               : weft_buf_check(&s->line);
        } else if (polled[2].revents && !send_some(s, x)) {
            return fail_ended(s);
        }
    }
}

/* Reads the score from the received line. */
static weft_status read_score(weft_process_scorer *s, double *score)
{
    char why[300];
    const char *end = memchr(s->line.data, '\n', (size_t)s->line.len);
    json_t *reply = NULL;
    if (end + 1 != s->line.data + s->line.len)
        return fail(s, "the process printed more than one line for a shot");
    char *shown = weft_utf8_escape(s->line.data);
    if (shown)
        shown[strcspn(shown, "\n")] = 0;
    snprintf(why, sizeof why, "the line of the process has no \"score\": %.200s",
             shown ? shown : "");
    weft_free(shown);
    const bool parsed =
        weft_json_parse(s->line.data, end - s->line.data, "line", &reply) == WEFT_OK;
    const json_t *number = json_object_get(reply, "score");
    const char *failed = json_string_value(json_object_get(reply, "failed"));
    weft_status_code status = WEFT_OK;
    const json_t *request = json_object_get(reply, "request");
    s->line.len = 0;
    if (parsed && (!json_is_integer(request) || json_integer_value(request) != s->requests)) {
        snprintf(why, sizeof why, "the line of the process does not have \"request\": %" PRId64,
                 s->requests);
        status = fail(s, why);
    } else if (parsed && json_is_number(number) && isfinite(json_number_value(number))) {
        *score = json_number_value(number);
        s->failures = 0;
    } else if (parsed && failed) { /* the process is well, the shot is not */
        s->failures = 0;
        status =
            weft_error(WEFT_MSG_SCORER_FAILED, WEFT_AT(.key = s->config->name), "%.300s", failed);
    } else {
        status = fail(s, why);
    }
    json_decref(reply);
    return status;
}

weft_status weft_process_scorer_score(weft_process_scorer *s, json_t *request,
                                      const weft_shot_frames *f, double *score)
{
    json_t *times = json_array();
    if (s->failures >= WEFT_PROCESS_MOST_FAILURES)
        return json_decref(times),
               weft_error(WEFT_MSG_SCORER_FAILED, WEFT_AT(.key = s->config->name),
                          "the process failed %d times in sequence: %s", s->failures, s->last);
    for (int64_t i = 0; i < f->count; i++)
        json_array_append_new(times, json_real(f->seconds[i]));
    json_object_set_new(request, "request", json_integer(++s->requests));
    json_object_set_new(request, "frames", json_integer(f->count));
    json_object_set_new(request, "width", json_integer(f->width));
    json_object_set_new(request, "height", json_integer(f->height));
    json_object_set_new(request, "times", times);
    char *head = weft_json_line(request);
    weft_buf line = {0};
    weft_buf_printf(&line, "%s\n", head ? head : "");
    weft_free(head);
    weft_status_code status = head ? weft_buf_check(&line) : weft_no_memory("a request");
    WEFT_GO(status);
    if (s->pid == 0)
        WEFT_GO(start(s));
    exchange x = {.head = line.data,
                  .head_bytes = line.len,
                  .frames = f->rgb,
                  .frame_bytes = f->count * f->width * f->height * 3,
                  .deadline = weft_now() + s->config->timeout_seconds};
    WEFT_GO(talk(s, &x));
    status = read_score(s, score);
out:
    weft_buf_free(&line);
    return status;
}
