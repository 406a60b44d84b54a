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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 256, KINDS = 2, DONE = '=' };

/* A child without a job. Only a pool with the same `serve` can use it. */
typedef struct resident {
    pid_t pid;
    int fd, requests;
    weft_status_code (*serve)(void *, const json_t *, int, const weft_heartbeat *);
} resident;

struct weft_pool_residents {
    resident idle[CHILDREN * KINDS];
    int count;
};

typedef struct child {
    pid_t pid; /* 0: free */
    int fd;
    int requests; /* socket for the jobs of a resident child; -1: of one job */
    int64_t job;
    double heard;
    weft_pool_outcome outcome;
    int message_bytes; /* -1: no message began */
    bool locked;       /* the job's error is folder-locked */
} child;

/* ---- the child ----------------------------------------------------------------------------- */

static bool receive(int fd, void *to, int64_t bytes)
{
    for (int64_t got = 0; got < bytes;) {
        const ssize_t n = recv(fd, (char *)to + got, (size_t)(bytes - got), 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        got += n > 0 ? n : 0;
    }
    return true;
}

/* Reads a request: its bytes, and JSON. *request NULL: the parent has no more. */
static weft_status receive_request(int fd, json_t **request)
{
    int64_t bytes;
    char *text;
    *request = NULL;
    if (!receive(fd, &bytes, sizeof bytes))
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(text, bytes + 1, "a request"));
    const weft_status_code status =
        receive(fd, text, bytes) ? weft_json_parse(text, bytes, "request", request) : WEFT_OK;
    weft_free(text);
    return status;
}

static weft_status serve_requests(const weft_pool *pool, int fd, const weft_heartbeat *heart)
{
    for (;;) {
        json_t *request;
        const char done = DONE;
        WEFT_TRY(receive_request(fd, &request));
        if (!request)
            return WEFT_OK;
        const int threads = (int)json_integer_value(json_object_get(request, "threads"));
        const weft_status_code status = pool->serve(pool->context, request, threads, heart);
        json_decref(request);
        WEFT_TRY(status);
        if (write(heart->fd, &done, 1) != 1)
            return WEFT_OK; /* the parent has exited */
    }
}

/* Without copies of a resident's socket in later children, its end reaches the resident. */
static void close_residents(const weft_pool *pool)
{
    for (int i = 0; pool->residents && i < pool->residents->count; i++) {
        close(pool->residents->idle[i].requests);
        close(pool->residents->idle[i].fd);
    }
}

/* `requests`: socket of a resident child; -1: the child runs `job` only. */
static void child_main(const weft_pool *pool, int64_t job, int fd, int requests, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a child must not write after a restarted run begins */
    if (getppid() != parent)
        _exit(1);
    weft_interrupt_leave_to_parent();
    signal(SIGPIPE, SIG_IGN);
    if (!weft_memory_limit(pool->memory))
        weft_debug("curate: this system does not limit the memory of a worker");
    const weft_heartbeat heart = {fd, pool->memory, weft_memory_resident()};
    const weft_status_code status = requests >= 0
                                        ? serve_requests(pool, requests, &heart)
                                        : pool->job(pool->context, job, pool->threads, &heart);
    if (status != WEFT_OK) {
        char text[1024];
        const bool locked = weft_error_class() == WEFT_MSG_FOLDER_LOCKED;
        const int n = snprintf(text, sizeof text, "%c%c%s", locked ? '?' : '!',
                               (char)('A' + status), weft_error_message());
        const ssize_t sent =
            write(fd, text, (size_t)(n < (int)sizeof text ? n : (int)sizeof text - 1));
        (void)sent;
    }
    _exit(status == WEFT_OK ? 0 : 1);
}

/* ---- the parent ---------------------------------------------------------------------------- */

static void close_pair(const int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

static weft_status start(const weft_pool *pool, int64_t job, child *c)
{
    int fd[2] = {-1, -1}, requests[2] = {-1, -1};
    const bool opened =
        pipe2(fd, O_CLOEXEC) == 0 &&
        (!pool->residents || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, requests) == 0);
    const pid_t parent = getpid();
    fflush(NULL);
    const pid_t pid = opened ? fork() : -1;
    if (pid < 0) {
        const int error = errno;
        close_pair(fd);
        close_pair(requests);
        return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE, "cannot start a worker process: %s",
                          strerror(error));
    }
    if (pid == 0) {
        close(fd[0]);
        if (requests[0] >= 0)
            close(requests[0]);
        close_residents(pool);
        child_main(pool, job, fd[1], requests[1], parent);
    }
    close(fd[1]);
    if (requests[1] >= 0)
        close(requests[1]);
    *c = (child){.pid = pid, .fd = fd[0], .requests = requests[0], .job = job, .message_bytes = -1};
    return WEFT_OK;
}

/* Takes an idle child of the pool's kind. */
static bool take_resident(const weft_pool *pool, int64_t job, child *c)
{
    weft_pool_residents *r = pool->residents;
    for (int i = r ? r->count - 1 : -1; i >= 0; i--)
        if (r->idle[i].serve == pool->serve) {
            const resident taken = r->idle[i];
            r->idle[i] = r->idle[--r->count];
            *c = (child){.pid = taken.pid,
                         .fd = taken.fd,
                         .requests = taken.requests,
                         .job = job,
                         .message_bytes = -1};
            return true;
        }
    return false;
}

/* Keeps a child whose job is done. */
static void keep_resident(const weft_pool *pool, child *c)
{
    weft_pool_residents *r = pool->residents;
    r->idle[r->count++] =
        (resident){.pid = c->pid, .fd = c->fd, .requests = c->requests, .serve = pool->serve};
    c->pid = 0;
}

/* Waits for the end of a child and frees its slot. Returns its wait status. */
static int reap(child *c)
{
    int state = 0;
    if (c->requests >= 0)
        close(c->requests);
    while (waitpid(c->pid, &state, 0) < 0 && errno == EINTR)
        ;
    close(c->fd);
    c->pid = 0;
    return state;
}

static bool send_all(int fd, const void *from, int64_t bytes)
{
    for (int64_t sent = 0; sent < bytes;) {
        const ssize_t n = send(fd, (const char *)from + sent, (size_t)(bytes - sent), MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        sent += n > 0 ? n : 0;
    }
    return true;
}

/* Makes the request of a job, as one line. */
static weft_status describe(const weft_pool *pool, int64_t job, char **text)
{
    json_t *request;
    WEFT_TRY(pool->describe(pool->context, job, &request));
    json_object_set_new(request, "threads", json_integer(pool->threads));
    *text = weft_json_line(request);
    json_decref(request);
    return WEFT_ALLOCATED(*text, "a request");
}

/* Gives a job to an idle resident child, or to a new one. A resident that ended meanwhile, perhaps
 * because memory ran out, is replaced. */
static weft_status begin(const weft_pool *pool, int64_t job, child *c)
{
    char *text = NULL;
    bool sent = false;
    weft_status_code status = WEFT_OK;
    if (!pool->residents) {
        WEFT_TRY(start(pool, job, c));
        c->heard = weft_now();
        return WEFT_OK;
    }
    WEFT_GO(describe(pool, job, &text));
    for (bool fresh = false; !sent && !fresh;) {
        fresh = !take_resident(pool, job, c);
        if (fresh)
            WEFT_GO(start(pool, job, c));
        const int64_t bytes = (int64_t)strlen(text);
        sent = send_all(c->requests, &bytes, sizeof bytes) && send_all(c->requests, text, bytes);
        if (!sent && !fresh)
            reap(c);
    }
    c->heard = weft_now(); /* a new child that did not read its request is found to have ended */
out:
    weft_free(text);
    return status;
}

weft_status weft_pool_residents_open(weft_pool_residents **residents)
{
    return WEFT_NEW(*residents, 1, "the curation");
}

void weft_pool_residents_close(weft_pool_residents *r)
{
    for (int i = 0; r && i < r->count; i++)
        close(r->idle[i].requests);
    for (int i = 0; r && i < r->count; i++) {
        struct pollfd polled = {.fd = r->idle[i].fd, .events = POLLIN};
        char rest[64];
        while (poll(&polled, 1, 10000) > 0 && read(r->idle[i].fd, rest, sizeof rest) > 0)
            ;
        kill(r->idle[i].pid, SIGKILL); /* it has ended, unless it hangs */
        reap(&(child){.pid = r->idle[i].pid, .fd = r->idle[i].fd, .requests = -1});
    }
    weft_free(r);
}

typedef enum heard { HEARD_MORE, HEARD_DONE, HEARD_END } heard;

/* Reads the child's messages. HEARD_DONE: a resident child has finished its job. */
static heard listen_to(const weft_pool *pool, child *c)
{
    char bytes[4096];
    const ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n < 0)
        return errno == EINTR ? HEARD_MORE : HEARD_END;
    c->heard = weft_now();
    for (ssize_t i = 0; i < n; i++) {
        if (c->message_bytes < 0) {
            c->message_bytes = bytes[i] == '!' || bytes[i] == '?' ? 0 : -1;
            c->locked = bytes[i] == '?';
            if (bytes[i] == '+' && pool->part)
                pool->part(pool->context, c->job);
            if (bytes[i] == '^' && pool->loaded)
                ++*pool->loaded;
            if (bytes[i] == DONE)
                return HEARD_DONE; /* the last byte: the child waits */
            continue;
        }
        if (c->outcome.status == WEFT_OK)
            c->outcome.status = (weft_status_code)(bytes[i] - 'A');
        else if (c->message_bytes < (int)sizeof c->outcome.message - 1)
            c->outcome.message[c->message_bytes++] = bytes[i];
    }
    return n > 0 ? HEARD_MORE : HEARD_END;
}

static weft_status finish(const weft_pool *pool, child *c)
{
    const int state = reap(c);
    if (WIFSIGNALED(state))
        c->outcome.signal = WTERMSIG(state);
    else if (WIFEXITED(state) && WEXITSTATUS(state) != 0 && c->outcome.status == WEFT_OK)
        c->outcome.status = WEFT_E_INTERNAL;
    if (c->locked)
        return weft_error(WEFT_MSG_FOLDER_LOCKED, WEFT_NOWHERE, "%s", c->outcome.message);
    return pool->done(pool->context, c->job, &c->outcome);
}

static void kill_all(child *children, int count)
{
    for (int i = 0; i < count; i++)
        if (children[i].pid > 0) {
            kill(children[i].pid, SIGKILL);
            reap(&children[i]);
        }
}

/* Waits for messages of any child and processes them. */
static weft_status attend(const weft_pool *pool, child *children, int *running)
{
    struct pollfd polled[CHILDREN];
    int owner[CHILDREN], n = 0;
    for (int i = 0; i < pool->workers; i++)
        if (children[i].pid > 0) {
            polled[n] = (struct pollfd){.fd = children[i].fd, .events = POLLIN};
            owner[n++] = i;
        }
    poll(polled, (nfds_t)n, 200);
    for (int k = 0; k < n; k++) {
        child *c = &children[owner[k]];
        const heard what =
            polled[k].revents & (POLLIN | POLLHUP | POLLERR) ? listen_to(pool, c) : HEARD_MORE;
        if (what == HEARD_END) {
            --*running;
            WEFT_TRY(finish(pool, c));
        } else if (what == HEARD_DONE) {
            --*running;
            keep_resident(pool, c);
            WEFT_TRY(pool->done(pool->context, c->job, &c->outcome));
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
    WEFT_TRY(WEFT_NEW(children, CHILDREN, "the curation"));
    int running = 0;
    int64_t next = 0;
    weft_status_code status = WEFT_OK;
    while (next < pool->count || running > 0) {
        for (int i = 0; i < pool->workers && next < pool->count; i++)
            if (children[i].pid == 0) {
                WEFT_GO(begin(pool, next++, &children[i]));
                running++;
            }
        WEFT_GO(attend(pool, children, &running));
    }
out:
    kill_all(children, pool->workers);
    weft_free(children);
    return status;
}
