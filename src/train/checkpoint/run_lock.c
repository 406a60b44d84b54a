#include "train/checkpoint/run_lock.h"

#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct weft_run_lock {
    int fd;
    char path[640];
    size_t folder; /* length of the folder's path */
    size_t there;  /* length of the part that existed before */
    bool made;     /* this run created the lock file */
};

/* Holder of the lock, from the file: "pid 123 on host, since 2026-01-01 12:00:00". */
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
        weft_warning(WEFT_MSG_SAVE_FAILED, WEFT_NOWHERE,
                     "cannot write the process id into the lock file of the run: %s",
                     strerror(errno));
}

/* Whether the holder may still run. Used on file systems without locks. */
static bool may_live(const holder *h)
{
    char host[128];
    own_host(host);
    if (h->pid <= 0)
        return false;
    return strcmp(host, h->host) != 0 || weft_process_lives(h->pid);
}

/* 1: locked; 0: another process has the lock; -1: error in errno. */
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

/* Length of the longest leading part of a path that exists. */
static size_t existing_part(const char *path)
{
    char part[640];
    size_t length = (size_t)snprintf(part, sizeof part, "%s", path);
    if (length >= sizeof part)
        return length;
    while (length > 0 && !weft_path_exists(part)) {
        while (length > 0 && part[length - 1] == '/')
            length--;
        while (length > 0 && part[length - 1] != '/')
            length--;
        part[length] = 0;
    }
    return length;
}

static weft_status open_lock(weft_run_lock *lock, const char *folder)
{
    WEFT_TRY(weft_make_dirs(folder));
    lock->fd = open(lock->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    lock->made = lock->fd >= 0;
    if (!lock->made && errno == EEXIST)
        lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return lock->fd < 0 ? weft_error_errno(WEFT_AT(.file = lock->path), "cannot open the lock file")
                        : WEFT_OK;
}

/* False: a failed run has removed the file since it was opened. */
static bool is_there(const weft_run_lock *lock)
{
    struct stat own, named;
    return fstat(lock->fd, &own) == 0 && stat(lock->path, &named) == 0 &&
           own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

weft_status weft_run_lock_take(const char *folder, double patience, weft_run_lock **out)
{
    weft_run_lock *lock;
    WEFT_TRY(WEFT_NEW(lock, 1, "the lock of the run"));
    *lock = (weft_run_lock){.fd = -1, .folder = strlen(folder), .there = existing_part(folder)};
    snprintf(lock->path, sizeof lock->path, "%s/.lock", folder);
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_lock(lock, folder));
    const double began = weft_now();
    int taken;
    while ((taken = try_lock(lock->fd)) == 0 && weft_now() - began < patience)
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    if (taken > 0 && !is_there(lock)) {
        close(lock->fd);
        weft_free(lock);
        return weft_run_lock_take(folder, patience, out);
    }
    if (taken < 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = lock->path), "cannot lock the file"));
    if (!taken) {
        const holder h = read_holder(lock->fd);
        WEFT_GO(weft_error(
            WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = folder, WEFT_NUMBER(h.pid)),
            "another run writes here (process %ld on %s, since %s). Give this run another out, or "
            "wait. Start the ranks of a job with mpirun: processes that do not know each other "
            "cannot share a folder. If that process has ended, remove %s",
            h.pid, h.host[0] ? h.host : "an unknown machine",
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

bool weft_run_lock_created(const weft_run_lock *lock)
{
    return lock && lock->made && lock->there < lock->folder;
}

/* Whether the folder contains only the lock file. */
static bool is_bare(const weft_run_lock *lock)
{
    char folder[640];
    snprintf(folder, sizeof folder, "%.*s", (int)lock->folder, lock->path);
    weft_names names = {0};
    if (weft_list_dir(folder, false, &names) != WEFT_OK)
        return false;
    const bool bare = names.count == 1 && !strcmp(names.name[0], ".lock");
    weft_names_free(&names);
    return bare;
}

/* Removes the lock file and the folders created with the lock, while the lock is held. */
static void remove_made(const weft_run_lock *lock)
{
    char folder[640];
    size_t length = lock->folder;
    snprintf(folder, sizeof folder, "%.*s", (int)length, lock->path);
    if (unlink(lock->path) != 0)
        return;
    while (length > lock->there && rmdir(folder) == 0) {
        while (length > lock->there && folder[length - 1] == '/')
            length--;
        while (length > lock->there && folder[length - 1] != '/')
            length--;
        folder[length] = 0;
    }
}

void weft_run_lock_release(weft_run_lock *lock, bool discard)
{
    if (!lock)
        return;
    if (discard && lock->made && is_bare(lock))
        remove_made(lock);
    else if (ftruncate(lock->fd, 0) != 0) /* keep the file: other processes may have it open */
        weft_warning(WEFT_MSG_SAVE_FAILED, WEFT_AT(.file = lock->path),
                     "cannot clear the lock file: %s", strerror(errno));
    close(lock->fd);
    weft_free(lock);
}
