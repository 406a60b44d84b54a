#include "curate/worker_pool.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct child {
    pid_t pid; /* 0: free */
    int fd;
    int64_t job;
    double heard;
    weft_pool_outcome outcome;
    int message_bytes; /* -1: no message began */
} child;

static void child_main(const weft_pool *pool, int64_t job, int fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a child must not write after a restarted run begins */
    if (getppid() != parent)
        _exit(1);
    weft_interrupt_leave_to_parent();
    signal(SIGPIPE, SIG_IGN);
    if (!weft_memory_limit(pool->memory))
        weft_debug("curate: this system does not limit the memory of a worker");
    const weft_heartbeat heart = {fd, pool->memory, weft_memory_resident()};
    const weft_status_code status = pool->job(pool->context, job, pool->threads, &heart);
    if (status != WEFT_OK) {
        char text[1024];
        const int n =
            snprintf(text, sizeof text, "!%c%s", (char)('A' + status), weft_error_message());
        const ssize_t sent =
            write(fd, text, (size_t)(n < (int)sizeof text ? n : (int)sizeof text - 1));
        (void)sent;
    }
    _exit(status == WEFT_OK ? 0 : 1);
}

static weft_status start(const weft_pool *pool, int64_t job, child *c)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) != 0)
        return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE,
                          "cannot open a pipe for a worker process: %s", strerror(errno));
    const pid_t parent = getpid();
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        const int error = errno;
        close(fd[0]);
        close(fd[1]);
        return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE, "cannot start a worker process: %s",
                          strerror(error));
    }
    if (pid == 0) {
        close(fd[0]);
        child_main(pool, job, fd[1], parent);
    }
    close(fd[1]);
    *c = (child){.pid = pid, .fd = fd[0], .job = job, .heard = weft_now(), .message_bytes = -1};
    return WEFT_OK;
}

/* Reads the child's messages; false at the end. */
static bool listen_to(const weft_pool *pool, child *c)
{
    char bytes[4096];
    const ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n < 0)
        return errno == EINTR;
    c->heard = weft_now();
    for (ssize_t i = 0; i < n; i++) {
        if (c->message_bytes < 0) {
            c->message_bytes = bytes[i] == '!' ? 0 : -1;
            if (bytes[i] == '+' && pool->part)
                pool->part(pool->context, c->job);
            continue;
        }
        if (c->outcome.status == WEFT_OK)
            c->outcome.status = (weft_status_code)(bytes[i] - 'A');
        else if (c->message_bytes < (int)sizeof c->outcome.message - 1)
            c->outcome.message[c->message_bytes++] = bytes[i];
    }
    return n > 0;
}

static weft_status finish(const weft_pool *pool, child *c)
{
    int state = 0;
    while (waitpid(c->pid, &state, 0) < 0 && errno == EINTR)
        ;
    close(c->fd);
    c->pid = 0;
    if (WIFSIGNALED(state))
        c->outcome.signal = WTERMSIG(state);
    else if (WIFEXITED(state) && WEXITSTATUS(state) != 0 && c->outcome.status == WEFT_OK)
        c->outcome.status = WEFT_E_INTERNAL;
    return pool->done(pool->context, c->job, &c->outcome);
}

static void kill_all(child *children, int count)
{
    for (int i = 0; i < count; i++)
        if (children[i].pid > 0) {
            kill(children[i].pid, SIGKILL);
            while (waitpid(children[i].pid, NULL, 0) < 0 && errno == EINTR)
                ;
            close(children[i].fd);
            children[i].pid = 0;
        }
}

/* Waits for messages of any child and processes them. */
static weft_status attend(const weft_pool *pool, child *children, int *running)
{
    struct pollfd polled[256];
    int owner[256], n = 0;
    for (int i = 0; i < pool->workers; i++)
        if (children[i].pid > 0) {
            polled[n] = (struct pollfd){.fd = children[i].fd, .events = POLLIN};
            owner[n++] = i;
        }
    poll(polled, (nfds_t)n, 200);
    for (int k = 0; k < n; k++) {
        child *c = &children[owner[k]];
        if ((polled[k].revents & (POLLIN | POLLHUP | POLLERR)) && !listen_to(pool, c)) {
            --*running;
            WEFT_TRY(finish(pool, c));
        } else if (weft_now() - c->heard > pool->stall_seconds && !c->outcome.hung) {
            c->outcome.hung = true;
            kill(c->pid, SIGKILL); /* its end of the pipe closes */
        }
    }
    if (pool->tick)
        pool->tick(pool->context);
    return weft_interrupt_check();
}

weft_status weft_pool_run(const weft_pool *pool)
{
    child *children;
    WEFT_TRY(WEFT_NEW(children, 256, "the curation"));
    int running = 0;
    int64_t next = 0;
    weft_status_code status = WEFT_OK;
    while (next < pool->count || running > 0) {
        for (int i = 0; i < pool->workers && next < pool->count; i++)
            if (children[i].pid == 0) {
                WEFT_GO(start(pool, next++, &children[i]));
                running++;
            }
        WEFT_GO(attend(pool, children, &running));
    }
out:
    kill_all(children, pool->workers);
    weft_free(children);
    return status;
}
