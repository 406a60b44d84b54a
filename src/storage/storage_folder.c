/* A folder as a storage.
 *
 * A file is opened at its first read. The last WEFT_STORAGE_OPEN_FILES files stay open, because a
 * dataset can have more shards than a process can have open files. Files are read with pread and
 * not mapped: truncating a file in use is then an error of the read, whereas access past the end
 * of a map would end the process. */
#include "storage/storage_folder.h"

#include "storage/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

typedef struct open_file {
    char *path;    /* owned; NULL: a free slot */
    uint64_t hash; /* hash of the name */
    int64_t used;  /* time of the last use, on the folder's clock */
    int fd;
    int users;  /* reads in progress */
    bool stale; /* the name now refers to another file; closed after the last reader */
} open_file;

typedef struct folder {
    char *root;
    pthread_mutex_t lock;
    open_file file[WEFT_STORAGE_OPEN_FILES];
    int64_t clock;
} folder;

static weft_status folder_open(const char *root, void **self)
{
    folder *f = weft_alloc(sizeof *f);
    if (f)
        f->root = weft_strdup(root);
    if (!f || !f->root) {
        weft_free(f);
        return weft_no_memory("%s", root);
    }
    pthread_mutex_init(&f->lock, NULL);
    *self = f;
    return WEFT_OK;
}

static void forget(open_file *file)
{
    if (file->path)
        close(file->fd);
    weft_free(file->path);
    *file = (open_file){0};
}

static void folder_close(void *self)
{
    folder *f = self;
    for (int i = 0; i < WEFT_STORAGE_OPEN_FILES; i++)
        forget(&f->file[i]);
    pthread_mutex_destroy(&f->lock);
    weft_free(f->root);
    weft_free(f);
}

static char *path_in(const folder *f, const char *name)
{
    char *path = weft_path_join(f->root, name);
    if (!path)
        (void)!weft_no_memory("%s/%s", f->root, name);
    return path;
}

static weft_status folder_facts(void *self, const char *name, weft_storage_facts *facts)
{
    char *path = path_in(self, name);
    struct stat st;
    if (!path)
        return WEFT_E_MEMORY;
    weft_status_code status = WEFT_OK;
    if (stat(path, &st) != 0)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot read the size of the file");
    else if (!S_ISREG(st.st_mode))
        status =
            weft_error(WEFT_MSG_FILE_KIND, WEFT_AT(.file = path), "this is not a regular file");
    else
        *facts = (weft_storage_facts){.bytes = st.st_size,
                                      .stamp = (uint64_t)st.st_mtim.tv_sec * 1000000000u +
                                               (uint64_t)st.st_mtim.tv_nsec};
    weft_free(path);
    return status;
}

/* The place of this file, or the one that is free or was used longest ago; NULL: all are in use. */
static open_file *find_slot(folder *f, uint64_t hash, const char *path, bool *found)
{
    open_file *best = NULL;
    *found = false;
    for (int i = 0; i < WEFT_STORAGE_OPEN_FILES; i++) {
        open_file *file = &f->file[i];
        if (file->path && !file->stale && file->hash == hash && !strcmp(file->path, path)) {
            *found = true;
            return file;
        }
        if (file->users == 0 && (!best || file->used < best->used))
            best = file;
    }
    return best;
}

/* Takes `path`. *shared is the place that the descriptor belongs to; NULL: the caller's alone. */
static weft_status take_fd(folder *f, char *path, open_file **shared, int *fd)
{
    const uint64_t hash = XXH3_64bits(path, strlen(path));
    bool found;
    pthread_mutex_lock(&f->lock);
    open_file *file = find_slot(f, hash, path, &found);
    if (found) {
        weft_free(path);
    } else {
        *fd = open(path, O_RDONLY | O_CLOEXEC);
        if (*fd < 0) {
            pthread_mutex_unlock(&f->lock);
            const weft_status_code status =
                weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
            weft_free(path);
            return status;
        }
        if (file) {
            forget(file);
            *file = (open_file){.path = path, .hash = hash, .fd = *fd};
        } else {
            weft_free(path);
        }
    }
    if (file) {
        file->users++;
        file->used = ++f->clock;
        *fd = file->fd;
    }
    pthread_mutex_unlock(&f->lock);
    *shared = file;
    return WEFT_OK;
}

/* Returns a descriptor. After an error the file is opened again, as it may have been repaired. */
static void give_fd(folder *f, open_file *shared, int fd, bool failed)
{
    if (!shared) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&f->lock);
    shared->stale |= failed;
    if (--shared->users == 0 && shared->stale)
        forget(shared);
    pthread_mutex_unlock(&f->lock);
}

/* The file of this path was removed or replaced. */
static void drop_fd(folder *f, const char *path)
{
    bool found;
    pthread_mutex_lock(&f->lock);
    open_file *file = find_slot(f, XXH3_64bits(path, strlen(path)), path, &found);
    if (found) {
        file->stale = true;
        if (file->users == 0)
            forget(file);
    }
    pthread_mutex_unlock(&f->lock);
}

static weft_status read_all(int fd, int64_t at, int64_t bytes, char *to)
{
    const int64_t done = weft_read_at(fd, to, bytes, at);
    if (done == bytes)
        return WEFT_OK;
    if (errno)
        return weft_error_errno(WEFT_NOWHERE, "cannot read at byte %" PRId64, at + done);
    return weft_error(WEFT_MSG_FILE_CHANGED, WEFT_NOWHERE,
                      "the file ends at byte %" PRId64 ", and bytes up to %" PRId64
                      " are needed. It "
                      "was truncated, or another program is writing it.",
                      at + done, at + bytes);
}

static weft_status folder_read(void *self, const char *name, int64_t at, int64_t bytes, void *to)
{
    folder *f = self;
    char *path = path_in(f, name);
    open_file *shared = NULL;
    int fd = -1;
    if (!path)
        return WEFT_E_MEMORY;
    WEFT_TRY(take_fd(f, path, &shared, &fd));
    const weft_status_code status = read_all(fd, at, bytes, to);
    give_fd(f, shared, fd, status != WEFT_OK);
    if (status != WEFT_OK) {
        char full_path[1024];
        snprintf(full_path, sizeof full_path, "%s/%s", f->root, name);
        return weft_error_at(status, WEFT_AT(.file = full_path));
    }
    return WEFT_OK;
}

static weft_status folder_list(void *self, weft_names *names)
{
    return weft_list_dir(((folder *)self)->root, false, names);
}

static weft_status folder_list_all(void *self, weft_names *names)
{
    return weft_list_dir(((folder *)self)->root, true, names);
}

static weft_status folder_remove(void *self, const char *name)
{
    char *path = path_in(self, name);
    if (!path)
        return WEFT_E_MEMORY;
    const weft_status_code status =
        unlink(path) == 0 || errno == ENOENT
            ? WEFT_OK
            : weft_error_errno(WEFT_AT(.file = path), "cannot remove the file");
    drop_fd(self, path);
    weft_free(path);
    return status;
}

/* A file that is being written. */
typedef struct folder_file {
    folder *folder;
    weft_file_writer writer;
} folder_file;

static weft_status folder_begin(void *self, const char *name, bool hasty, void **file)
{
    char *path = path_in(self, name);
    folder_file *f = weft_alloc(sizeof *f);
    weft_status_code status = WEFT_OK;
    WEFT_GO(path && f ? weft_make_parent(path) : weft_no_memory("%s", name));
    WEFT_GO(weft_file_begin(&f->writer, path));
out:
    weft_free(path);
    if (status != WEFT_OK) {
        weft_free(f);
        return status;
    }
    f->folder = self;
    f->writer.hasty = hasty;
    *file = f;
    return WEFT_OK;
}

static weft_status folder_write(void *file, const void *data, int64_t bytes)
{
    return weft_file_write(&((folder_file *)file)->writer, data, bytes);
}

static weft_status folder_commit(void *file)
{
    folder_file *f = file;
    char *path = weft_strdup(f->writer.path);
    weft_status_code status = WEFT_OK;
    WEFT_GO(path ? weft_file_commit(&f->writer) : weft_no_memory("a path"));
    drop_fd(f->folder, path);
out:
    weft_free(path);
    return status;
}

static void folder_free(void *file)
{
    weft_file_abort(&((folder_file *)file)->writer);
    weft_free(file);
}

const weft_storage_kind weft_storage_folder = {.scheme = "",
                                               .open = folder_open,
                                               .close = folder_close,
                                               .facts = folder_facts,
                                               .read = folder_read,
                                               .list = folder_list,
                                               .list_all = folder_list_all,
                                               .remove = folder_remove,
                                               .begin = folder_begin,
                                               .write = folder_write,
                                               .commit = folder_commit,
                                               .free = folder_free};
