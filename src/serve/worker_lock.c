#include "serve/worker_lock.h"

#include "base/fs.h"
#include "base/interrupt.h"
#include "serve/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

weft_status weft_worker_try_lock(const weft_server *s, int64_t group, int *fd)
{
    char name[WEFT_WORKER_LOCK];
    weft_worker_lock_name(group, name);
    char *path = weft_path_join(s->state, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "a lock"));
    weft_status_code status = WEFT_OK;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot open the lock of the worker");
    else if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            status = weft_error_errno(WEFT_AT(.file = path), "cannot lock");
        close(file);
        file = -1;
    }
    *fd = file;
    weft_free(path);
    return status;
}

/* Whether a worker of an earlier server may run in a group. */
static bool has_lock(const weft_server *s, int64_t group)
{
    char name[WEFT_WORKER_LOCK];
    weft_worker_lock_name(group, name);
    char *path = weft_path_join(s->state, name);
    const bool found = !path || weft_path_exists(path);
    weft_free(path);
    return found;
}

weft_status weft_worker_wait(const weft_server *s, int64_t group)
{
    int fd = has_lock(s, group) ? -1 : 0;
    while (fd < 0) {
        WEFT_TRY(weft_worker_try_lock(s, group, &fd));
        if (fd < 0)
            usleep(10000);
        WEFT_TRY(weft_interrupt_check());
    }
    if (fd > 0)
        close(fd);
    return WEFT_OK;
}
