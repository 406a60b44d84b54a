#include "serve/child_starter.h"

#include "base/config.h"
#include "base/interrupt.h"
#include "base/log.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* POLL_MS: a request to stop the server ends the wait for an answer. */
enum { ANSWER_MS = 1000, POLL_MS = 20, MOST_FAILURES = 3 };

void weft_child_starter_open(weft_child_starter *st)
{
    char verb[] = WEFT_CHILD_STARTER, *argv[] = {(char *)(uintptr_t)st->program, verb, NULL};
    int ends[2];
    if (st->process.pid || st->failures >= MOST_FAILURES || weft_interrupted() ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    const weft_child_start_options options = {
        .argv = argv, .folder = st->folder, .lock = -1, .input = ends[1]};
    if (weft_child_start(&options, &st->process) == WEFT_OK) {
        st->socket = ends[0];
        st->ready = false;
    } else {
        weft_error_clear(); /* the children are started without it */
        st->process = (weft_child){0};
        close(ends[0]);
    }
    close(ends[1]);
}

void weft_child_starter_close(weft_child_starter *st)
{
    if (!st->process.pid)
        return;
    kill(st->process.pid, SIGKILL);
    (void)weft_child_wait(&st->process);
    weft_child_close(&st->process);
    close(st->socket);
    st->ready = false;
}

/* Reads the next message, if there is one. */
static bool receive(const weft_child_starter *st, weft_child_answer *answer)
{
    return recv(st->socket, answer, sizeof *answer, MSG_DONTWAIT) == sizeof *answer;
}

/* Waits for the answer to an order. Without one in time, the connection ends before the last look:
 * a child that answers later cannot send its number, and ends before it does anything. */
static bool receive_answer(const weft_child_starter *st, weft_child_answer *answer, bool *late)
{
    const int ms = st->answer_ms ? st->answer_ms : ANSWER_MS;
    for (int waited = 0; waited < ms && !weft_interrupted(); waited += POLL_MS) {
        struct pollfd fd = {st->socket, POLLIN, 0};
        if (poll(&fd, 1, POLL_MS) != 0)
            return receive(st, answer);
    }
    *late = true;
    (void)shutdown(st->socket, SHUT_RDWR);
    return receive(st, answer);
}

/* Whether the starter has said that it is ready. *failed: it has ended. */
static bool is_ready(weft_child_starter *st, bool *failed)
{
    weft_child_answer first;
    struct pollfd fd = {st->socket, 0, 0}; /* POLLHUP alone: the end of the connection */
    st->ready = st->ready || receive(st, &first);
    *failed = poll(&fd, 1, 0) != 0;
    return st->ready && !*failed;
}

static bool add_text(char *message, size_t *used, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    if (*used + bytes > WEFT_CHILD_ORDER_BYTES)
        return false;
    memcpy(message + *used, text, bytes);
    *used += bytes;
    return true;
}

/* Returns the bytes of the message; 0: it is too long. */
static size_t write_order(const weft_child_start_options *o, char *message)
{
    weft_child_order order = {.niceness = o->niceness,
                              .last_signal = o->last_signal,
                              .descriptors = o->lock >= 0 ? 4 : 3};
    size_t used = sizeof order;
    bool fits = add_text(message, &used, o->folder);
    for (order.count = 1; fits && o->argv[order.count]; order.count++)
        fits = add_text(message, &used, o->argv[order.count]);
    memcpy(message, &order, sizeof order);
    return fits ? used : 0;
}

static bool send_order(const weft_child_starter *st, const char *message, size_t bytes,
                       const int *descriptors, int count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(WEFT_CHILD_DESCRIPTORS * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec text = {(char *)(uintptr_t)message, bytes};
    struct msghdr m = {.msg_iov = &text,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(head), descriptors, (size_t)count * sizeof(int));
    return sendmsg(st->socket, &m, MSG_NOSIGNAL) == (ssize_t)bytes;
}

pid_t weft_child_starter_fork(weft_child_starter *st, const weft_child_start_options *o,
                              const int streams[3])
{
    char message[WEFT_CHILD_ORDER_BYTES];
    const size_t bytes = write_order(o, message);
    const int descriptors[WEFT_CHILD_DESCRIPTORS] = {streams[0], streams[1], streams[2], o->lock};
    weft_child_answer answer = -1;
    bool failed = false, late = false;
    if (!bytes || !st->process.pid)
        return 0;
    if (is_ready(st, &failed)) {
        /* Only while the child loses its parent: orphans of other children are not the server's. */
        failed = prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
                 !send_order(st, message, bytes, descriptors, o->lock >= 0 ? 4 : 3) ||
                 !receive_answer(st, &answer, &late) || answer <= 0;
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    }
    if (failed || late) {
        st->failures++;
        weft_debug("serve: the process that starts children has failed");
        weft_child_starter_close(st);
        weft_child_starter_open(st);
    }
    return answer > 0 && !failed ? answer : 0;
}
