#include "train/run_lock.h"

#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct weft_run_lock {
    int fd;
    char path[640];
};

/* Who holds the lock, as the file says: "pid 123 on host, since 2026-01-01 12:00:00". */
typedef struct holder {
    long pid; /* 0: the file is empty */
    char host[128], since[32];
} holder;

static void own_host(char host[128])
{
    memset(host, 0, 128);
    if (gethostname(host, 127) != 0 || !host[0])
        strcpy(host, "localhost");
}

static holder read_holder(int fd)
{
    char text[256] = "";
    holder h = {0};
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0 || sscanf(text, "pid %ld on %127[^,], since %31[^\n]", &h.pid, h.host, h.since) < 2)
        h.pid = 0;
    return h;
}

static void write_holder(int fd)
{
    char text[256], host[128], since[32];
    const time_t now = time(NULL);
    struct tm tm;
    own_host(host);
    localtime_r(&now, &tm);
    strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &tm);
    const int n =
        snprintf(text, sizeof text, "pid %ld on %s, since %s\n", (long)getpid(), host, since);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        weft_warn("the lock of the run has no name: %s", strerror(errno));
}

/* Without locks of the file system: whether the holder may still be there. */
static bool may_live(const holder *h)
{
    char host[128];
    own_host(host);
    if (h->pid <= 0)
        return false;
    return strcmp(host, h->host) != 0 || weft_process_lives(h->pid);
}

/* 1: taken, 0: somebody else has it, -1: an error that errno names. */
static int try_lock(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 1;
    if (errno == EWOULDBLOCK)
        return 0;
    if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return -1;
    const holder h = read_holder(fd);
    return !may_live(&h);
}

weft_status weft_run_lock_take(const char *folder, double patience, weft_run_lock **out)
{
    weft_run_lock *lock = weft_alloc(sizeof *lock);
    if (!lock)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    snprintf(lock->path, sizeof lock->path, "%s/.lock", folder);
    lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    weft_status_code status = WEFT_OK;
    if (lock->fd < 0)
        WEFT_GO(weft_fail_errno("%s", lock->path));
    const double began = weft_now();
    int taken;
    while ((taken = try_lock(lock->fd)) == 0 && weft_now() - began < patience)
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    if (taken < 0)
        WEFT_GO(weft_fail_errno("%s: cannot be locked", lock->path));
    if (!taken) {
        const holder h = read_holder(lock->fd);
        WEFT_GO(weft_fail(WEFT_E_PERMISSION,
                          "%s: another run writes here (process %ld on %s, since %s). Give this "
                          "one another out, or wait. Ranks of one job are started with mpirun: "
                          "processes that do not know of each other cannot share a folder. If that "
                          "process is gone, remove %s",
                          folder, h.pid, h.host[0] ? h.host : "an unknown machine",
                          h.since[0] ? h.since : "an unknown time", lock->path));
    }
    write_holder(lock->fd);
    *out = lock;
    return WEFT_OK;
out:
    if (lock->fd >= 0)
        close(lock->fd);
    weft_free(lock);
    return status;
}

void weft_run_lock_release(weft_run_lock *lock)
{
    if (!lock)
        return;
    if (ftruncate(lock->fd, 0) != 0) /* nobody holds it; the file stays, others may have it open */
        weft_warn("%s: %s", lock->path, strerror(errno));
    close(lock->fd);
    weft_free(lock);
}
