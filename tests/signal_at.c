/* Preloaded into a program under test: sends it a signal at a defined event, independent of the
 * speed of the program and the machine.
 *
 *   SIGNAL_ON=rename               a file or folder was renamed (also if SIGNAL_ON is absent),
 *             mkdir                a folder was created,
 *             write                bytes were written to a file or a pipe,
 *             sync                 fdatasync of a file has returned,
 *             send                 this rank sends a message (MPI), while a path matches SIGNAL_AT
 *   SIGNAL_AT=*.sampling.safetensors   pattern of the path (fnmatch; of `send`: glob)
 *   SIGNAL_COUNT=3                 the third such event of this process and its forks; absent: the
 *                                  first. A fork with a process group of its own counts its own
 *   SIGNAL_NUMBER=2                the signal
 *   SIGNAL_ONCE=FILE               only the first of several processes gets the signal; it creates
 *                                  the file
 *   SIGNAL_RANK=1                  only this rank of the job counts events; absent: every rank
 *   SIGNAL_TO=pid.0 pid.1          files with the numbers of the processes that get the signal;
 *                                  absent: this process
 *   SIGNAL_HEARD=yes               the event ends when weft in this process got the request to
 *                                  stop: for a SIGNAL_TO that forwards the signal, such as mpirun
 *
 * mpirun sleeps before it sends SIGTERM to the ranks and before it sends SIGKILL. Here these sleeps
 * end when the ranks have ended (their process numbers are in the files pid.RANK): a slow rank is
 * not killed, and a fast one costs no waiting. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int *seen; /* shared with forks */

__attribute__((constructor)) static void begin(void)
{
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int setpgid(pid_t pid, pid_t group)
{
    if (pid == 0 && group == 0)
        begin();
    return (int)syscall(SYS_setpgid, pid, group);
}

/* Whether the program waits for this kind of event on this rank. */
static bool is_awaited(const char *kind)
{
    const char *on = getenv("SIGNAL_ON"), *wanted = getenv("SIGNAL_RANK"),
               *rank = getenv("OMPI_COMM_WORLD_RANK");
    return getenv("SIGNAL_NUMBER") && getenv("SIGNAL_AT") && !strcmp(on ? on : "rename", kind) &&
           (!wanted || !rank || !strcmp(wanted, rank));
}

static bool is_last(void)
{
    const char *count = getenv("SIGNAL_COUNT"), *once = getenv("SIGNAL_ONCE");
    if (atomic_fetch_add(seen, 1) + 1 != (count ? atoi(count) : 1))
        return false;
    const int fd = once ? open(once, O_CREAT | O_EXCL | O_WRONLY, 0600) : -1;
    if (fd >= 0)
        close(fd);
    return !once || fd >= 0;
}

static bool is_pending(int number)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, number);
}

static int read_number(const char *path)
{
    FILE *file = fopen(path, "r");
    int number;
    if (!file || fscanf(file, "%d", &number) != 1) {
        fprintf(stderr, "signal_at: no number of a process in %s\n", path);
        abort();
    }
    fclose(file);
    return number;
}

/* Returns when the signal has been delivered. */
static void send_signal(void)
{
    const int number = atoi(getenv("SIGNAL_NUMBER"));
    const char *paths = getenv("SIGNAL_TO");
    bool (*heard)(void) =
        getenv("SIGNAL_HEARD") ? (bool (*)(void))dlsym(RTLD_DEFAULT, "weft_interrupted") : NULL;
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", paths ? paths : "");
    for (char *path = strtok(copy, " "); path; path = strtok(NULL, " "))
        kill(read_number(path), number);
    if (!paths)
        kill(getpid(), number);
    for (int ms = 0; ms == 0 || is_pending(number) || (heard && !heard()); ms++) {
        usleep(1000);
        if (ms > 600000) { /* a guard against hanging */
            fprintf(stderr, "signal_at: the signal does not arrive\n");
            abort();
        }
    }
}

/* Whether one of this process's children that pid.RANK names is running. */
static bool has_running_rank(void)
{
    glob_t found = {0};
    bool running = false;
    if (glob("pid.[0-9]*", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            siginfo_t ended = {0};
            if (waitid(P_PID, (id_t)read_number(found.gl_pathv[i]), &ended,
                       WEXITED | WNOHANG | WNOWAIT) == 0)
                running |= ended.si_pid == 0;
        }
    globfree(&found);
    return running;
}

unsigned sleep(unsigned seconds)
{
    static bool has_slept;
    if (strncmp(program_invocation_short_name, "mpirun", 6) != 0) { /* or mpirun.openmpi */
        unsigned (*own)(unsigned) = (unsigned (*)(unsigned))dlsym(RTLD_NEXT, "sleep");
        return own(seconds);
    }
    const bool passes_on = getenv("SIGNAL_HEARD") && !has_slept; /* the next is SIGTERM */
    has_slept = true;
    for (int ms = 0; !passes_on && has_running_rank(); ms++) {
        usleep(1000);
        if (ms > 600000) { /* a guard against hanging */
            fprintf(stderr, "signal_at: the ranks do not end\n");
            break;
        }
    }
    return 0;
}

static void happened(const char *kind, const char *path)
{
    if (is_awaited(kind) && fnmatch(getenv("SIGNAL_AT"), path, 0) == 0 && is_last())
        send_signal();
}

int rename(const char *from, const char *to)
{
    int (*own)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    const int result = own(from, to);
    if (result == 0)
        happened("rename", to);
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    int (*own)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    const int result = own(path, mode);
    if (result == 0)
        happened("mkdir", path);
    return result;
}

static void happened_to(const char *kind, int fd)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(name, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    happened(kind, path);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t (*own)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const ssize_t result = own(fd, bytes, count);
    if (result > 0 && is_awaited("write"))
        happened_to("write", fd);
    return result;
}

int fdatasync(int fd)
{
    int (*own)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const int result = own(fd);
    if (result == 0 && is_awaited("sync"))
        happened_to("sync", fd);
    return result;
}

/* The declaration of Open MPI; types and communicators are pointers. */
int MPI_Isend(const void *data, int count, void *type, int to, int tag, void *comm, void *request)
{
    int (*own)(const void *, int, void *, int, int, void *, void *) =
        (int (*)(const void *, int, void *, int, int, void *, void *))dlsym(RTLD_NEXT,
                                                                            "PMPI_Isend");
    static atomic_bool there;
    if (is_awaited("send")) {
        glob_t found = {0};
        if (!atomic_load(&there) && glob(getenv("SIGNAL_AT"), 0, NULL, &found) == 0) {
            atomic_store(&there, true);
            globfree(&found);
        }
        if (atomic_load(&there) && is_last())
            send_signal();
    }
    return own(data, count, type, to, tag, comm, request);
}
