#include "base/interrupt.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool blocked(int number)
{
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, number) == 1;
}

static void *look(void *seen)
{
    *(bool *)seen = blocked(SIGINT) && blocked(SIGTERM);
    return NULL;
}

/* Neither the thread that catches nor one that it makes is ever interrupted; the flag is raised. */
Test(interrupt, reaches_no_thread_that_computes)
{
    pthread_t thread;
    bool there = false;
    weft_interrupt_catch();
    cr_assert(blocked(SIGINT) && blocked(SIGTERM));
    cr_assert_eq(pthread_create(&thread, NULL, look, &there), 0);
    pthread_join(thread, NULL);
    cr_assert(there);
    cr_assert_not(weft_interrupted());
    kill(getpid(), SIGTERM);
    while (!weft_interrupted())
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_assert_eq(weft_interrupt_check(), WEFT_E_CANCELLED);
}

Test(interrupt, twice_ends_the_process)
{
    const pid_t pid = fork();
    if (pid == 0) {
        weft_interrupt_catch();
        kill(getpid(), SIGINT);
        while (!weft_interrupted())
            ;
        kill(getpid(), SIGINT);
        for (;;)
            pause();
    }
    int state;
    cr_assert_eq(waitpid(pid, &state, 0), pid);
    cr_assert(WIFSIGNALED(state) && WTERMSIG(state) == SIGINT);
}

Test(interrupt, a_child_leaves_ctrl_c_to_its_parent)
{
    weft_interrupt_catch();
    const pid_t pid = fork();
    if (pid == 0) {
        weft_interrupt_leave_to_parent();
        raise(SIGINT);
        raise(SIGTERM);
        _exit(0);
    }
    int state;
    cr_assert_eq(waitpid(pid, &state, 0), pid);
    cr_assert(WIFSIGNALED(state) && WTERMSIG(state) == SIGTERM);
}
