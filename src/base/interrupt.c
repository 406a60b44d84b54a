#include "base/interrupt.h"

#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { DISCARDED = 2, DISCARDED_ALONE };
static volatile sig_atomic_t interrupted; /* 0, 1, DISCARDED or DISCARDED_ALONE */

static void on_signal(int number)
{
    static const char message[] = "\nstopping cleanly; once more to stop at once\n";
    if (interrupted) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    interrupted = 1;
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
        return; /* the pipe has no reader; the flag is enough */
}

static sigset_t stopping(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

static void *listen(void *unused)
{
    const sigset_t set = stopping();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;)
        pause();
    return unused;
}

/* Blocks the signals in all threads that compute. The SGEMM of oneDNN 2.6 points the stack pointer
  * at a packing buffer on the heap. The kernel would write a handler's frame below that pointer,
  * over other data of the heap. Threads that are created after this call inherit the mask. */
void weft_interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const sigset_t set = stopping();
    pthread_t thread;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, listen, NULL) != 0) {
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        weft_warning(WEFT_MSG_ENVIRONMENT_IGNORED, WEFT_NOWHERE,
                     "no thread can be started to receive Ctrl-C; it will stop the command at "
                     "once, without a checkpoint");
        return;
    }
    pthread_detach(thread);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void weft_interrupt_leave_to_parent(void)
{
    const sigset_t set = stopping();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void weft_interrupt_detach_child(pid_t parent)
{
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before the call above */
        _exit(127);
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void weft_interrupt_request(bool stops)
{
    interrupted = stops;
}

void weft_interrupt_discard(bool alone)
{
    interrupted = alone ? DISCARDED_ALONE : DISCARDED;
}

bool weft_interrupt_discards(void)
{
    return interrupted >= DISCARDED;
}

bool weft_interrupt_ends_programs(void)
{
    return interrupted == DISCARDED_ALONE;
}

bool weft_interrupted(void)
{
    return interrupted != 0;
}

weft_status weft_interrupt_check(void)
{
    if (!interrupted)
        return WEFT_OK;
    return weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "stopped by the user");
}
