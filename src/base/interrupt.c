#include "base/interrupt.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

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
        return; /* nobody is reading; the flag is what counts */
}

void weft_interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool weft_interrupted(void)
{
    return interrupted != 0;
}

weft_status weft_interrupt_check(void)
{
    if (!interrupted)
        return WEFT_OK;
    return weft_fail(WEFT_E_CANCELLED, "stopped by the user");
}
