/* Preloaded into a program under test: it gets a signal when it has given a file its name, so that it
 * stops at a defined place, however fast it or the machine is.
 *
 *   SIGNAL_AT=*.walk.safetensors   pattern (fnmatch) of the name
 *   SIGNAL_COUNT=3                 the third file with such a name; absent: the first
 *   SIGNAL_NUMBER=2                the signal
 *   SIGNAL_RANK=1                  this rank of the job alone; absent: every rank
 *   SIGNAL_TO=pid.1                file with the number of the process that gets it; absent: this one */
#include <dlfcn.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_meant(const char *name)
{
    static atomic_int seen;
    const char *pattern = getenv("SIGNAL_AT"), *count = getenv("SIGNAL_COUNT"),
               *wanted = getenv("SIGNAL_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!pattern || fnmatch(pattern, name, 0) != 0 || (wanted && rank && strcmp(wanted, rank)))
        return 0;
    return atomic_fetch_add(&seen, 1) + 1 == (count ? atoi(count) : 1);
}

/* Returns when the signal has been delivered. */
static void send_signal(int number)
{
    sigset_t pending;
    const char *path = getenv("SIGNAL_TO");
    FILE *file = path ? fopen(path, "r") : NULL;
    int other = 0;
    if (file && fscanf(file, "%d", &other) == 1 && other > 0 && other != getpid())
        kill(other, number);
    else
        kill(getpid(), number);
    if (file)
        fclose(file);
    do {
        usleep(1000);
        sigpending(&pending);
    } while (sigismember(&pending, number));
}

int rename(const char *from, const char *to)
{
    int (*own)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    const int result = own(from, to);
    const char *number = getenv("SIGNAL_NUMBER");
    if (result == 0 && number && is_meant(to))
        send_signal(atoi(number));
    return result;
}
