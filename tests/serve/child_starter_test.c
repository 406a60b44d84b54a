/* The server's side of the process that forks children: the test answers in its place. */
#include "serve/child_starter.h"

#include "base/interrupt.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOUR_MS = 3600 * 1000, PID = 4711 };

/* *end: the starter's end of the connection, which has said that it is ready. No other starter
 * follows it. */
static weft_child_starter connected(int *end)
{
    int ends[2];
    const weft_child_answer ready = 0;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    cr_assert_eq(send(ends[1], &ready, sizeof ready, 0), (ssize_t)sizeof ready);
    *end = ends[1];
    weft_child_starter st = {.program = "/none", .folder = "/", .socket = ends[0], .failures = 2};
    st.process.pid = fork();
    if (st.process.pid == 0)
        for (;;)
            pause();
    return st;
}

/* Orders a child with the standard streams of the test. */
static pid_t order(weft_child_starter *st)
{
    char *argv[] = {"weft", "estimate", NULL};
    const weft_child_start_options options = {.argv = argv, .folder = "/", .lock = -1};
    return weft_child_starter_fork(st, &options, (const int[]){0, 1, 2});
}

static ssize_t answer(int end, weft_child_answer pid)
{
    return send(end, &pid, sizeof pid, MSG_NOSIGNAL);
}

Test(child_starter, an_answer_is_the_child)
{
    int end;
    weft_child_starter st = connected(&end);
    answer(end, PID);
    st.answer_ms = HOUR_MS;
    cr_assert_eq(order(&st), PID);
    cr_assert(st.process.pid && st.failures == 2);
    weft_child_starter_close(&st);
}

/* The server starts another child: the one of a late answer must learn that it is not wanted. The
 * connection has ended while the starter still lives, so that no answer is lost unseen. */
Test(child_starter, a_late_child_is_refused)
{
    int end;
    char message[WEFT_CHILD_ORDER_BYTES];
    weft_child_starter st = connected(&end);
    st.answer_ms = 1;
    cr_assert_eq(order(&st), 0);
    cr_assert(!st.process.pid && st.failures == 3);
    cr_assert_gt(recv(end, message, sizeof message, 0), 0, "the order arrived");
    cr_assert(answer(end, PID) < 0 && errno == EPIPE);
}

/* A request to stop ends the wait; a child that has answered by then is the server's. */
Test(child_starter, a_request_to_stop_ends_the_wait)
{
    int end;
    for (int answers = 0; answers < 2; answers++) {
        weft_child_starter st = connected(&end);
        if (answers)
            answer(end, PID);
        st.answer_ms = HOUR_MS;
        weft_interrupt_request(true);
        cr_assert_eq(order(&st), answers ? PID : 0);
        cr_assert(!st.process.pid && answer(end, PID) < 0, "no second child");
        weft_interrupt_request(false);
    }
}
