#include "serve/child_process.h"

#include "base/config.h"
#include "base/interrupt.h"
#include "serve/child_starter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_LOCK = 3 };

/* Messages and progress of children are lines of JSON, four times a second at most. A value of the
 * last variable that the server has is kept. */
static const char *const settings[] = {"WEFT_LOG=info", "WEFT_LOG_FORMAT=json",
                                       "WEFT_PROGRESS_INTERVAL=0.25"};

static bool is_set_by(const char *variable, const char *setting)
{
    const size_t name = strcspn(setting, "=") + 1;
    return !strncmp(variable, setting, name);
}

/* Adds a setting. A variable of the server is replaced, or has precedence (`keeps`). */
static void add_setting(char **list, int64_t *count, const char *setting, bool keeps)
{
    for (int64_t i = 0; i < *count; i++)
        if (is_set_by(list[i], setting)) {
            list[i] = keeps ? list[i] : (char *)setting;
            return;
        }
    list[(*count)++] = (char *)setting;
}

/* The environment of a child (heap; its strings are borrowed). */
static weft_status make_environment(const weft_child_start_options *o, char ***out)
{
    int64_t count = 0, used = 0;
    while (environ[count])
        count++;
    WEFT_TRY(WEFT_NEW(*out, count + WEFT_COUNT(settings) + o->default_count + 2, "an environment"));
    for (; used < count; used++)
        (*out)[used] = environ[used];
    for (int i = 0; i < WEFT_COUNT(settings); i++)
        add_setting(*out, &used, settings[i], i == WEFT_COUNT(settings) - 1);
    for (int i = 0; i < o->default_count; i++)
        add_setting(*out, &used, o->defaults[i], true);
    if (o->replaced)
        add_setting(*out, &used, o->replaced, false);
    return WEFT_OK;
}

typedef struct pipes {
    int input[2], output[2], error[2]; /* both ends; -1: none */
} pipes;

static int input_of(const weft_child_start_options *o, const pipes *p, int null)
{
    return o->with_input ? p->input[0] : o->input > 0 ? o->input : null;
}

/* Runs in the child: only functions that are safe in signal handlers may be called. */
static _Noreturn void become(const weft_child_start_options *o, char **environment, const pipes *p,
                             pid_t parent)
{
    const int lock = o->lock;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    weft_interrupt_detach_child(parent);
    if (o->last_signal)
        prctl(PR_SET_PDEATHSIG, o->last_signal);
    if (o->niceness) /* fails without an effect on the videos */
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + o->niceness);
    if (null < 0 || chdir(o->folder) != 0 || dup2(p->error[1], STDERR_FILENO) < 0 ||
        dup2(o->with_output ? p->output[1] : null, STDOUT_FILENO) < 0 ||
        dup2(input_of(o, p, null), STDIN_FILENO) < 0)
        _exit(127);
    if (lock == KEPT_LOCK)
        fcntl(lock, F_SETFD, 0);
    else if (lock >= 0 && dup2(lock, KEPT_LOCK) < 0)
        _exit(127);
    execve(o->argv[0], o->argv, environment);
    _exit(127);
}

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

static bool open_pipes(const weft_child_start_options *o, pipes *p)
{
    return (!o->with_input || pipe2(p->input, O_CLOEXEC) == 0) &&
           (!o->with_output || pipe2(p->output, O_CLOEXEC) == 0) && pipe2(p->error, O_CLOEXEC) == 0;
}

/* Lets the starter of the server fork the child. Returns 0 if it cannot. */
static pid_t ask_starter(const weft_child_start_options *o, const pipes *p)
{
    if (!o->starter || o->default_count || o->replaced)
        return 0;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC),
              streams[3] = {input_of(o, p, null), o->with_output ? p->output[1] : null,
                            p->error[1]};
    const pid_t pid = null >= 0 ? weft_child_starter_fork(o->starter, o, streams) : 0;
    if (null >= 0)
        close(null);
    return pid;
}

/* Runs the program in a new process. */
static weft_status execute(const weft_child_start_options *o, const pipes *p, pid_t *pid)
{
    char **environment;
    const pid_t parent = getpid();
    WEFT_TRY(make_environment(o, &environment));
    *pid = fork();
    if (*pid == 0)
        become(o, environment, p, parent);
    weft_free(environment);
    return WEFT_OK;
}

weft_status weft_child_start(const weft_child_start_options *o, weft_child *c)
{
    pipes p = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t pid = -1;
    if (open_pipes(o, &p)) {
        pid = ask_starter(o, &p);
        if (!pid && execute(o, &p, &pid) != WEFT_OK)
            pid = -1;
    }
    if (pid < 0) {
        const weft_status_code status = weft_error(
            WEFT_MSG_WORKER_FAILED, WEFT_AT(WEFT_NUMBER(errno)), "no child process can be started");
        close_pair(p.input);
        close_pair(p.output);
        close_pair(p.error);
        return status;
    }
    if (o->with_input)
        close(p.input[0]);
    if (o->with_output)
        close(p.output[1]);
    close(p.error[1]);
    *c = (weft_child){.pid = pid, .input = p.input[1], .output = p.output[0], .error = p.error[0]};
    (void)fcntl(c->error, F_SETFL, O_NONBLOCK);
    if (o->with_output)
        (void)fcntl(c->output, F_SETFL, O_NONBLOCK);
    if (o->with_input) /* a child that reads nothing must not stop the server */
        (void)fcntl(c->input, F_SETFL, O_NONBLOCK);
    return WEFT_OK;
}

weft_status weft_child_write(const weft_child *c, const void *bytes, int64_t count)
{
    ssize_t done = 0;
    while (done < count) {
        const ssize_t n = write(c->input, (const char *)bytes + done, (size_t)(count - done));
        if (n < 0 && errno != EINTR)
            return weft_error_errno(WEFT_NOWHERE, "the worker takes no command");
        done += n > 0 ? n : 0;
    }
    return WEFT_OK;
}

void weft_child_drop(weft_child *c, int64_t count)
{
    weft_buf *text = &c->error_text;
    if (!count)
        return;
    memmove(text->data, text->data + count, (size_t)(text->len - count) + 1); /* with the NUL */
    text->len -= count;
    c->dropped += count;
}

/* Keeps the last bytes of a text that has twice as many. Returns the number of removed bytes. */
static int64_t drop_first(weft_buf *text)
{
    const int64_t count = text->len - WEFT_CHILD_TEXT;
    if (text->len < 2 * WEFT_CHILD_TEXT)
        return 0;
    memmove(text->data, text->data + count, WEFT_CHILD_TEXT + 1); /* with the final NUL */
    text->len = WEFT_CHILD_TEXT;
    return count;
}

/* Appends the available bytes. `dropped` counts the removed bytes. */
static void read_stream(int *fd, weft_buf *to, int64_t *dropped)
{
    char bytes[4096];
    ssize_t n;
    while (*fd >= 0) {
        n = read(*fd, bytes, sizeof bytes);
        if (n > 0) {
            weft_buf_append(to, bytes, n);
            *dropped += drop_first(to);
        }
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        close(*fd);
        *fd = -1;
    }
}

bool weft_child_read(weft_child *c)
{
    int64_t of_output = 0;
    read_stream(&c->output, &c->output_text, &of_output);
    read_stream(&c->error, &c->error_text, &c->dropped);
    return c->output >= 0 || c->error >= 0;
}

int weft_child_wait(weft_child *c)
{
    int status = 0;
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    c->pid = 0;
    return status;
}

void weft_child_close(weft_child *c)
{
    const int open_ones[] = {c->input, c->output, c->error};
    for (int i = 0; i < 3; i++)
        if (open_ones[i] > 0)
            close(open_ones[i]);
    weft_buf_free(&c->output_text);
    weft_buf_free(&c->error_text);
    *c = (weft_child){0};
}
