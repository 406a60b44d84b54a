#include "storage/remote_files.h"

#include "base/config.h"
#include "storage/work_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Servers read ahead of a range, so that long ranges cost them less. */
enum { PIECE = 32 << 20 };

weft_status weft_remote_copies_folder(char **folder)
{
    const char *named = getenv("WEFT_COPIES"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    weft_buf path = {0};
    if (named && *named)
        weft_buf_printf(&path, "%s", named);
    else if (base && *base)
        weft_buf_printf(&path, "%s/weft/copies", base);
    else
        weft_buf_printf(&path, "%s/.cache/weft/copies", home ? home : "");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_error_add(weft_make_dirs(path.data),
                           "WEFT_COPIES names another folder for copies of buckets."));
    *folder = path.data;
    return WEFT_OK;
out:
    weft_buf_free(&path);
    return status;
}

weft_status weft_remote_copy_lock(const char *folder, int kind, int *lock)
{
    char *path = weft_path_join(folder, "lock");
    int fd = -1;
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", folder));
    weft_status_code status = WEFT_OK;
    for (bool taken = false; !taken;) {
        struct stat own, named;
        WEFT_GO(weft_make_parent(path));
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 && errno == ENOENT) /* removed since */
            continue;
        const bool locked = fd >= 0 && flock(fd, kind) == 0;
        if (!locked && (fd < 0 || errno != EINTR))
            WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot lock the file"));
        taken =
            locked && fstat(fd, &own) == 0 && stat(path, &named) == 0 && own.st_ino == named.st_ino;
        if (!taken)
            close(fd);
        else
            *lock = fd;
        fd = -1;
    }
out:
    if (fd >= 0)
        close(fd);
    weft_free(path);
    return status;
}

bool weft_remote_copy_remove(const char *folder)
{
    char *path = weft_path_join(folder, "lock");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    weft_free(path);
    if (fd < 0)
        return false;
    const bool removed = flock(fd, LOCK_EX | LOCK_NB) == 0 && weft_remove_tree(folder) == WEFT_OK;
    close(fd);
    return removed;
}

/* Whether the first `length` bytes are a name of a file. */
static bool is_file_name(const char *part, size_t length)
{
    const bool dots = part[0] == '.' && (length == 1 || (length == 2 && part[1] == '.'));
    return length > 0 && !dots;
}

weft_status weft_remote_name_check(const char *name)
{
    for (const char *part = name;;) {
        const size_t length = strcspn(part, "/");
        if (!is_file_name(part, length))
            return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = name),
                              "an object of the bucket has a name that no file can have. Rename or "
                              "remove the object.");
        if (!part[length])
            return WEFT_OK;
        part += length + 1;
    }
}

/* ---- receiving ----------------------------------------------------------------------------- */

typedef struct incoming {
    char *path, *temporary; /* owned */
    int64_t bytes, first;   /* first: number of its first piece */
    int64_t left;           /* pieces that are not written yet */
} incoming;

typedef struct reception {
    weft_storage *storage;
    char *const *name;
    incoming *file; /* owned, [count] */
    int64_t count, pieces;
    pthread_mutex_t lock; /* of `left` */
} reception;

static weft_status describe(reception *r, const char *folder, int64_t i)
{
    weft_storage_facts facts;
    weft_buf temporary = {0};
    incoming *f = &r->file[i];
    WEFT_TRY(weft_remote_name_check(r->name[i]));
    WEFT_TRY(weft_storage_facts_of(r->storage, r->name[i], &facts));
    f->path = weft_path_join(folder, r->name[i]);
    weft_buf_printf(&temporary, "%s.tmp.%ld", f->path ? f->path : "", (long)getpid());
    f->temporary = temporary.data;
    WEFT_TRY(WEFT_ALLOCATED(f->path && !temporary.failed, "%s", r->name[i]));
    WEFT_TRY(weft_make_parent(f->path));
    if (unlink(f->temporary) != 0 && errno != ENOENT)
        return weft_error_errno(WEFT_AT(.file = f->temporary), "cannot remove the file");
    f->bytes = facts.bytes;
    f->left = f->bytes > PIECE ? (f->bytes + PIECE - 1) / PIECE : 1;
    f->first = r->pieces;
    r->pieces += f->left;
    return WEFT_OK;
}

/* A piece that is being received. */
typedef struct arrival {
    const char *path;
    int fd;
    int64_t at; /* first byte of the piece in the file */
} arrival;

static weft_status write_arrival(void *user, int64_t at, const void *data, int64_t bytes)
{
    const arrival *a = user;
    const int64_t done = weft_write_at(a->fd, data, bytes, a->at + at);
    return done == bytes ? WEFT_OK
                         : weft_error_errno(WEFT_AT(.file = a->path),
                                            "cannot write at byte %" PRId64, a->at + at + done);
}

/* Receives a piece; the last one gives the file its name. The bytes are written as they arrive,
 * while they are in the processor's cache. */
static weft_status receive(reception *r, const char *name, incoming *f, int64_t bytes, int64_t at)
{
    arrival a = {f->path, open(f->temporary, O_WRONLY | O_CREAT | O_CLOEXEC, 0666), at};
    const weft_byte_sink sink = {write_arrival, &a};
    if (a.fd < 0)
        return weft_error_errno(WEFT_AT(.file = f->path), "cannot write the file");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_stream(r->storage, name, at, bytes, &sink));
    pthread_mutex_lock(&r->lock);
    const bool last = --f->left == 0;
    pthread_mutex_unlock(&r->lock);
    if (last && (fsync(a.fd) != 0 || rename(f->temporary, f->path) != 0))
        status = weft_error_errno(WEFT_AT(.file = f->path), "cannot name the file");
out:
    close(a.fd);
    return status;
}

static weft_status_code receive_piece(void *user, int64_t item)
{
    reception *r = user;
    int64_t low = 0, high = r->count - 1;
    while (low < high) { /* the last file whose first piece is not after this one */
        const int64_t middle = (low + high + 1) / 2;
        if (r->file[middle].first <= item)
            low = middle;
        else
            high = middle - 1;
    }
    incoming *f = &r->file[low];
    const int64_t at = (item - f->first) * PIECE,
                  bytes = f->bytes - at < PIECE ? f->bytes - at : PIECE;
    return receive(r, r->name[low], f, bytes, at);
}

weft_status weft_remote_receive(weft_storage *storage, char *const *name, int64_t count,
                                const char *folder)
{
    reception r = {.storage = storage, .name = name, .count = count};
    WEFT_TRY(WEFT_NEW(r.file, count + 1, "%s", folder));
    pthread_mutex_init(&r.lock, NULL);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count; i++)
        WEFT_GO(describe(&r, folder, i));
    status = weft_work_run(r.pieces, receive_piece, &r);
out:
    for (int64_t i = 0; i < count; i++) {
        if (status != WEFT_OK && r.file[i].temporary)
            (void)unlink(r.file[i].temporary);
        weft_free(r.file[i].path);
        weft_free(r.file[i].temporary);
    }
    pthread_mutex_destroy(&r.lock);
    weft_free(r.file);
    return status;
}

/* ---- sending and removing ------------------------------------------------------------------ */

typedef struct sending {
    weft_storage *storage;
    weft_remote_file *file;
    const char *folder;
} sending;

static weft_status copy_out(weft_storage_file *file, int fd, int64_t bytes)
{
    enum { STEP = 1 << 20 };
    char *step;
    WEFT_TRY(WEFT_NEW(step, STEP, "a file"));
    weft_status_code status = WEFT_OK;
    for (int64_t at = 0; at < bytes;) {
        const ssize_t n = read(fd, step, (size_t)(bytes - at < STEP ? bytes - at : STEP));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            WEFT_GO(weft_error_errno(WEFT_NOWHERE, "cannot read at byte %" PRId64, at));
        if (n == 0)
            WEFT_GO(weft_error(WEFT_MSG_FILE_CHANGED, WEFT_NOWHERE,
                               "the file was truncated while it was sent"));
        WEFT_GO(weft_storage_write(file, step, n));
        at += n;
    }
out:
    weft_free(step);
    return status;
}

static weft_status_code send_file(void *user, int64_t item)
{
    const sending *s = user;
    weft_remote_file *sent = &s->file[item];
    weft_storage_file *file = NULL;
    char *path = weft_path_join(s->folder, sent->name);
    int fd = -1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "%s", sent->name));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        goto out;
    if (fd < 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot open the file"));
    WEFT_GO(weft_storage_begin(s->storage, sent->name, &file));
    WEFT_GO(weft_error_at(copy_out(file, fd, sent->bytes), WEFT_AT(.file = path)));
    WEFT_GO(weft_storage_commit(file));
    sent->done = true;
out:
    weft_storage_file_free(file);
    if (fd >= 0)
        close(fd);
    weft_free(path);
    return status;
}

weft_status weft_remote_send(weft_storage *storage, weft_remote_file *file, int64_t count,
                             const char *folder)
{
    sending s = {.storage = storage, .file = file, .folder = folder};
    return weft_work_run(count, send_file, &s);
}

static weft_status_code remove_file(void *user, int64_t item)
{
    const sending *s = user;
    WEFT_TRY(weft_storage_remove(s->storage, s->file[item].name));
    s->file[item].done = true;
    return WEFT_OK;
}

weft_status weft_remote_remove(weft_storage *storage, weft_remote_file *file, int64_t count)
{
    sending s = {.storage = storage, .file = file};
    return weft_work_run(count, remove_file, &s);
}
