#include "base/fs.h"
#include "base/compare.h"
#include "base/location.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

char *weft_path_join(const char *dir, const char *name)
{
    weft_buf buf = {0};
    const size_t len = strlen(dir);
    weft_buf_printf(&buf, "%s%s%s", dir, len && dir[len - 1] == '/' ? "" : "/", name);
    if (buf.failed) {
        weft_buf_free(&buf);
        return NULL;
    }
    return buf.data;
}

const char *weft_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *weft_path_extension(const char *path)
{
    const char *dot = strrchr(weft_path_base(path), '.');
    return dot ? dot + 1 : "";
}

bool weft_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool weft_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool weft_program_find(const char *name, char path[4096])
{
    const char *folders = getenv("PATH");
    bool found = false;
    if (strchr(name, '/'))
        return snprintf(path, 4096, "%s", name) < 4096 && is_program(path);
    while (!found && folders && *folders) {
        const int n = (int)strcspn(folders, ":");
        found = snprintf(path, 4096, "%.*s/%s", n, folders, name) < 4096 && is_program(path);
        folders += n + (folders[n] == ':');
    }
    return found;
}

static weft_status make_dir(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return WEFT_OK;
    if (errno != EEXIST)
        return weft_error_errno(WEFT_AT(.file = path), "cannot make this folder");
    return weft_path_is_dir(path)
               ? WEFT_OK
               : weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = path),
                            "a folder is needed here, but this is a file. Move the file, or name "
                            "another folder.");
}

weft_status weft_make_dirs(const char *path)
{
    if (!*path)
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_NOWHERE, "the name of a folder is empty");
    WEFT_TRY(weft_location_check_local(path, NULL));
    char *copy = weft_strdup(path);
    WEFT_TRY(WEFT_ALLOCATED(copy, "path %s", path));
    weft_status_code status = WEFT_OK;
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        const char saved = *p;
        *p = '\0';
        WEFT_GO(make_dir(copy));
        if (saved == '\0')
            break;
        *p = saved;
    }
out:
    weft_free(copy);
    return status;
}

weft_status weft_make_parent(const char *path)
{
    const int64_t length = weft_path_base(path) - path;
    if (length <= 1)
        return WEFT_OK; /* here, or the root */
    char *folder = weft_strdup(path);
    WEFT_TRY(WEFT_ALLOCATED(folder, "path %s", path));
    folder[length - 1] = '\0';
    const weft_status_code status = weft_make_dirs(folder);
    weft_free(folder);
    return status;
}

static weft_status remove_children(const char *path)
{
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_list_dir(path, false, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *child = weft_path_join(path, names.name[i]);
        status = child ? weft_remove_tree(child) : weft_no_memory("a path");
        weft_free(child);
        WEFT_GO(status);
    }
out:
    weft_names_free(&names);
    return status;
}

weft_status weft_remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? WEFT_OK
                               : weft_error_errno(WEFT_AT(.file = path), "cannot remove it");
    if (S_ISDIR(st.st_mode)) {
        WEFT_TRY(remove_children(path));
        return rmdir(path) == 0
                   ? WEFT_OK
                   : weft_error_errno(WEFT_AT(.file = path), "cannot remove the folder");
    }
    return unlink(path) == 0 ? WEFT_OK
                             : weft_error_errno(WEFT_AT(.file = path), "cannot remove the file");
}

static weft_status remove_files(const char *dir, bool deep,
                                bool (*unwanted)(const char *name, void *user), void *user)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(dir, deep, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count; i++) {
        if (!unwanted(names.name[i], user))
            continue;
        char *path = weft_path_join(dir, names.name[i]);
        const bool gone = path && (unlink(path) == 0 || errno == ENOENT);
        if (!gone && status == WEFT_OK)
            status = path ? weft_error_errno(WEFT_AT(.file = path), "cannot remove the file")
                          : weft_no_memory("%s", dir);
        weft_free(path);
    }
    weft_names_free(&names);
    return status;
}

weft_status weft_remove_files(const char *dir, bool (*unwanted)(const char *name, void *user),
                              void *user)
{
    return remove_files(dir, false, unwanted, user);
}

/* The process id after ".tmp." at the end of a name; -1: the name has none. */
static long temporary_writer(const char *name)
{
    const char *mark = NULL, *next = name;
    while ((next = strstr(next, ".tmp.")))
        mark = next++;
    if (!mark || mark[5] < '1' || mark[5] > '9')
        return -1;
    char *end;
    errno = 0;
    const long pid = strtol(mark + 5, &end, 10);
    return *end || errno ? -1 : pid;
}

bool weft_is_temporary(const char *name)
{
    return temporary_writer(name) > 0;
}

bool weft_process_lives(long pid)
{
    char path[64], line[512];
    if (kill((pid_t)pid, 0) != 0)
        return errno != ESRCH;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    const size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = 0;
    const char *name_end = strrchr(line, ')'); /* "12 (name) Z ..." */
    return !name_end || (strncmp(name_end, ") Z", 3) != 0 && strncmp(name_end, ") X", 3) != 0);
}

static bool writer_is_gone(const char *dir, const char *name)
{
    const long pid = temporary_writer(name);
    if (pid <= 0 || weft_process_lives(pid))
        return false;
    char *path = weft_path_join(dir, name);
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    weft_free(path);
    if (fd < 0)
        return false;
    const bool unlocked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return unlocked;
}

typedef struct leftovers {
    const char *dir, *of; /* name of the file that they were to become; NULL: any */
    bool stem;            /* `of` is a prefix of such names */
} leftovers;

static bool is_leftover(const char *name, void *user)
{
    const leftovers *l = user;
    const size_t length = l->of ? strlen(l->of) : 0;
    if (l->of && (strncmp(name, l->of, length) != 0 ||
                  (!l->stem && strncmp(name + length, ".tmp.", 5) != 0)))
        return false;
    return weft_is_temporary(name) && writer_is_gone(l->dir, name);
}

weft_status weft_remove_leftovers(const char *dir, bool deep)
{
    leftovers all = {.dir = dir};
    return remove_files(dir, deep, is_leftover, &all);
}

/* Removes leftovers whose name equals the first `length` letters of the path's name, or with `stem`
 * begins with them. */
static weft_status remove_named(const char *path, size_t length, bool stem)
{
    const char *base = weft_path_base(path);
    char *copy = weft_strdup(path), *name = weft_strdup(base);
    weft_status_code status = WEFT_OK;
    if (!copy || !name) {
        status = weft_no_memory("path %s", path);
    } else {
        copy[base - path] = '\0';
        name[length] = '\0';
        leftovers one = {copy[0] ? copy : ".", name, stem};
        status = remove_files(one.dir, false, is_leftover, &one);
    }
    weft_free(copy);
    weft_free(name);
    return status;
}

weft_status weft_remove_leftovers_of(const char *path)
{
    return remove_named(path, strlen(weft_path_base(path)), false);
}

weft_status weft_remove_leftovers_named_after(const char *path)
{
    const size_t length = strlen(weft_path_base(path)), ending = strlen(weft_path_extension(path));
    return remove_named(path, length - ending, true); /* "dog." */
}

static weft_status read_all(int fd, const char *path, char *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = read(fd, data + done, (size_t)(bytes - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_error_errno(WEFT_AT(.file = path), "cannot read the file");
        if (n == 0)
            return weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = path),
                              "the file became shorter while it was read");
        done += n;
    }
    return WEFT_OK;
}

/* A repository that was cloned without Git LFS has such a text in the place of a large file. */
weft_status weft_lfs_pointer_refuse(const char *name, const void *data, int64_t bytes)
{
    static const char begin[] = "version https://git-lfs.github.com/spec/v1\n";
    const int64_t length = (int64_t)sizeof begin - 1;
    if (bytes < length || bytes > WEFT_LFS_POINTER_MOST || memcmp(data, begin, (size_t)length) != 0)
        return WEFT_OK;
    return weft_error(WEFT_MSG_GIT_LFS_POINTER, WEFT_AT(.file = name),
                      "this is a Git LFS pointer and not the file itself. Run `git lfs pull` in "
                      "its repository, or download the file");
}

weft_status weft_file_read(const char *path, int64_t limit, char **data, int64_t *bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
    weft_status_code status = WEFT_OK;
    char *buffer = NULL;
    struct stat st;
    if (fstat(fd, &st) != 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot read the file's size"));
    if (!S_ISREG(st.st_mode))
        WEFT_GO(
            weft_error(WEFT_MSG_FILE_KIND, WEFT_AT(.file = path), "this is not a regular file"));
    if (st.st_size > limit)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, WEFT_NUMBER(st.st_size)),
                           "the file has %" PRId64
                           " bytes; files of this kind have at most %" PRId64,
                           (int64_t)st.st_size, limit));
    buffer = weft_alloc((int64_t)st.st_size + 1);
    WEFT_GO(WEFT_ALLOCATED(buffer, "%s: %" PRId64 " bytes", path, (int64_t)st.st_size));
    WEFT_GO(read_all(fd, path, buffer, st.st_size));
    WEFT_GO(weft_lfs_pointer_refuse(path, buffer, st.st_size));
    *data = buffer;
    *bytes = st.st_size;
    buffer = NULL;
out:
    weft_free(buffer);
    close(fd);
    return status;
}

weft_status weft_file_begin(weft_file_writer *writer, const char *path)
{
    *writer = (weft_file_writer){.fd = -1};
    weft_buf temporary = {0};
    WEFT_TRY(weft_location_check_local(path, NULL));
    weft_buf_printf(&temporary, "%s.tmp.%ld", path, (long)getpid());
    writer->path = weft_strdup(path);
    writer->temporary = temporary.data;
    if (temporary.failed || !writer->path) {
        weft_file_abort(writer);
        return weft_no_memory("path %s", path);
    }
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        const weft_status_code status =
            weft_error_errno(WEFT_AT(.file = path), "cannot write the file");
        weft_file_abort(writer);
        return status;
    }
    (void)flock(writer->fd, LOCK_EX | LOCK_NB); /* marks the file as being written */
    return WEFT_OK;
}

weft_status weft_file_write(weft_file_writer *writer, const void *data, int64_t bytes)
{
    const char *p = data;
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = write(writer->fd, p + done, (size_t)(bytes - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_error_errno(WEFT_AT(.file = writer->path),
                                    "cannot write the file after %" PRId64 " bytes",
                                    writer->bytes + done);
        done += n;
    }
    writer->bytes += bytes;
    return WEFT_OK;
}

static weft_status sync_folder_of(const char *path)
{
    char *copy = weft_strdup(path);
    WEFT_TRY(WEFT_ALLOCATED(copy, "path %s", path));
    char *slash = strrchr(copy, '/');
    if (slash == copy)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    const int fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    weft_free(copy);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the folder of the file");
    const int failed = fsync(fd) != 0 && errno != EINVAL; /* some file systems cannot */
    close(fd);
    return failed ? weft_error_errno(WEFT_AT(.file = path),
                                     "cannot write the folder of the file to disk")
                  : WEFT_OK;
}

weft_status weft_file_commit(weft_file_writer *writer)
{
    if (!writer->hasty && fsync(writer->fd) != 0)
        return weft_error_errno(WEFT_AT(.file = writer->path), "cannot write the file to disk");
    const int closed = close(writer->fd);
    writer->fd = -1;
    if (closed != 0)
        return weft_error_errno(WEFT_AT(.file = writer->path), "cannot close the file");
    if (rename(writer->temporary, writer->path) != 0)
        return weft_error_errno(WEFT_AT(.file = writer->temporary), "cannot rename the file to %s",
                                writer->path);
    weft_free(writer->temporary);
    writer->temporary = NULL;
    if (!writer->hasty)
        WEFT_TRY(sync_folder_of(writer->path));
    weft_free(writer->path);
    *writer = (weft_file_writer){.fd = -1};
    return WEFT_OK;
}

void weft_file_abort(weft_file_writer *writer)
{
    if (writer->fd >= 0 && writer->temporary)
        close(writer->fd);
    if (writer->temporary)
        unlink(writer->temporary);
    weft_free(writer->temporary);
    weft_free(writer->path);
    *writer = (weft_file_writer){.fd = -1};
}

static weft_status write_whole(const char *path, const void *data, int64_t bytes, bool hasty)
{
    weft_file_writer writer;
    WEFT_TRY(weft_file_begin(&writer, path));
    weft_status_code status = WEFT_OK;
    writer.hasty = hasty;
    WEFT_GO(weft_file_write(&writer, data, bytes));
    WEFT_GO(weft_file_commit(&writer));
out:
    weft_file_abort(&writer);
    return status;
}

weft_status weft_file_write_atomic(const char *path, const void *data, int64_t bytes)
{
    return write_whole(path, data, bytes, false);
}

weft_status weft_file_write_hasty(const char *path, const void *data, int64_t bytes)
{
    return write_whole(path, data, bytes, true);
}

weft_status weft_file_write_buf(const char *path, weft_buf *buf)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(buf));
    WEFT_GO(weft_file_write_atomic(path, buf->data ? buf->data : "", buf->len));
out:
    weft_buf_free(buf);
    return status;
}

int64_t weft_write_at(int fd, const void *data, int64_t bytes, int64_t at)
{
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t n =
            pwrite(fd, (const char *)data + done, (size_t)(bytes - done), (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            break;
        done += n > 0 ? n : 0;
    }
    return done;
}

int64_t weft_read_at(int fd, void *to, int64_t bytes, int64_t at)
{
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t n = pread(fd, (char *)to + done, (size_t)(bytes - done), (off_t)(at + done));
        if (n == 0)
            errno = 0;
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        done += n > 0 ? n : 0;
    }
    return done;
}

weft_status weft_file_try(const char *path)
{
    weft_file_writer probe;
    WEFT_TRY(weft_file_begin(&probe, path));
    weft_file_abort(&probe);
    return WEFT_OK;
}

static weft_status map_file(const char *path, int fd, weft_map *map)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot read the file's size");
    if (!S_ISREG(st.st_mode))
        return weft_error(WEFT_MSG_FILE_KIND, WEFT_AT(.file = path), "this is not a regular file");
    if (st.st_size == 0) {
        *map = (weft_map){0};
        return WEFT_OK;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return weft_error_errno(WEFT_AT(.file = path), "cannot map the file (%" PRId64 " bytes)",
                                (int64_t)st.st_size);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_lfs_pointer_refuse(path, data, st.st_size));
    *map = (weft_map){.data = data, .bytes = st.st_size};
    return WEFT_OK;
out:
    munmap(data, (size_t)st.st_size);
    return status;
}

weft_status weft_map_open(const char *path, weft_map *map)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
    const weft_status_code status = map_file(path, fd, map);
    close(fd);
    return status;
}

void weft_map_close(weft_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (weft_map){0};
}

void weft_map_forget(const void *data, int64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data,
                    first = (begin + page - 1) / page * page,
                    end = (begin + (uintptr_t)bytes) / page * page;
    if (end > first)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

static weft_status add_name(weft_names *names, const char *prefix, const char *name)
{
    WEFT_TRY(weft_grow((void **)&names->name, names->count, &names->capacity, sizeof *names->name));
    char *copy = *prefix ? weft_path_join(prefix, name) : weft_strdup(name);
    WEFT_TRY(WEFT_ALLOCATED(copy, "listing a folder"));
    names->name[names->count++] = copy;
    return WEFT_OK;
}

typedef struct folder_id {
    dev_t device;
    ino_t inode;
    enum { FOLDER_NONE, FOLDER_SEEN, FOLDER_EXCEPT } state;
} folder_id;

typedef struct walk {
    const char *dir;
    bool recursive, follow;
    weft_names names, links, others; /* links: to folders, not yet walked */
    folder_id *seen;                 /* a hash table, only where links are followed */
    int64_t seen_count, seen_slots;  /* slots: 0 or a power of two, at most half full */
} walk;

static void walk_free(walk *w)
{
    weft_names_free(&w->names);
    weft_names_free(&w->links);
    weft_names_free(&w->others);
    weft_free(w->seen);
}

/* The folder's slot in the hash table, or the empty slot for it. */
static folder_id *find_folder(folder_id *table, int64_t slots, dev_t device, ino_t inode)
{
    uint64_t at = ((uint64_t)inode ^ (uint64_t)device << 40) * 0x9E3779B97F4A7C15u >> 20;
    while (table[at &= (uint64_t)slots - 1].state != FOLDER_NONE &&
           (table[at].device != device || table[at].inode != inode))
        at++;
    return &table[at];
}

/* Enters the folder as visited in state `as`. *state: its state before. */
static weft_status meet_folder(walk *w, const struct stat *st, int as, int *state)
{
    if (2 * w->seen_count >= w->seen_slots) {
        const int64_t slots = w->seen_slots ? 2 * w->seen_slots : 64;
        folder_id *table;
        WEFT_TRY(WEFT_NEW(table, slots, "listing %s", w->dir));
        for (int64_t i = 0; i < w->seen_slots; i++)
            if (w->seen[i].state != FOLDER_NONE)
                *find_folder(table, slots, w->seen[i].device, w->seen[i].inode) = w->seen[i];
        weft_free(w->seen);
        w->seen = table;
        w->seen_slots = slots;
    }
    folder_id *f = find_folder(w->seen, w->seen_slots, st->st_dev, st->st_ino);
    *state = (int)f->state;
    if (f->state == FOLDER_NONE) {
        *f = (folder_id){.device = st->st_dev, .inode = st->st_ino};
        f->state = as;
        w->seen_count++;
    }
    return WEFT_OK;
}

static weft_status list_into(walk *w, const char *prefix);

/* One entry of the folder `prefix`. */
static weft_status list_entry(walk *w, const char *prefix, int folder, const char *name)
{
    struct stat own, st;
    const bool there = fstatat(folder, name, &own, AT_SYMLINK_NOFOLLOW) == 0;
    if (!w->recursive)
        return add_name(&w->names, prefix, name);
    if (there && S_ISDIR(own.st_mode)) {
        char *below = *prefix ? weft_path_join(prefix, name) : weft_strdup(name);
        const weft_status_code status =
            below ? list_into(w, below) : weft_no_memory("listing %s", w->dir);
        weft_free(below);
        return status;
    }
    const bool leads = fstatat(folder, name, &st, 0) == 0;
    if (leads && S_ISREG(st.st_mode))
        return add_name(&w->names, prefix, name);
    if (!w->follow)
        return WEFT_OK;
    return add_name(leads && S_ISDIR(st.st_mode) ? &w->links : &w->others, prefix, name);
}

/* Adds what is in dir/prefix; `prefix` is "" at the top. */
static weft_status list_into(walk *w, const char *prefix)
{
    weft_status_code status = WEFT_OK;
    char *here = *prefix ? weft_path_join(w->dir, prefix) : weft_strdup(w->dir);
    WEFT_TRY(WEFT_ALLOCATED(here, "listing %s", w->dir));
    DIR *stream = opendir(here);
    struct stat st;
    if (!stream && *prefix &&
        errno == EACCES) { /* list the folder's own name: opening it reports the error */
        status = add_name(&w->names, "", prefix);
        goto out;
    }
    if (!stream || fstat(dirfd(stream), &st) != 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = here), "cannot read the folder"));
    if (w->follow) {
        int known;
        WEFT_GO(meet_folder(w, &st, FOLDER_SEEN, &known));
        if (known == FOLDER_SEEN)
            status = add_name(&w->others, "", prefix);
        if (known != FOLDER_NONE)
            goto out;
    }
    for (struct dirent *entry; (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            WEFT_GO(list_entry(w, prefix, dirfd(stream), entry->d_name));
out:
    if (stream)
        closedir(stream);
    weft_free(here);
    return status;
}

static void sort_names(weft_names *names)
{
    if (names->count > 1)
        qsort(names->name, (size_t)names->count, sizeof *names->name, weft_compare_text);
}

weft_status weft_list_dir(const char *dir, bool recursive, weft_names *names)
{
    walk w = {.dir = dir, .recursive = recursive};
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_into(&w, ""));
    sort_names(&w.names);
    *names = w.names;
    w.names = (weft_names){0};
out:
    walk_free(&w);
    return status;
}

weft_status weft_list_tree(const char *dir, const char *except, weft_names *files,
                           weft_names *others)
{
    walk w = {.dir = dir, .recursive = true, .follow = true};
    weft_status_code status = WEFT_OK;
    struct stat st;
    int known;
    if (except && stat(except, &st) == 0)
        WEFT_GO(meet_folder(&w, &st, FOLDER_EXCEPT, &known));
    WEFT_GO(list_into(&w, ""));
    /* Links come after the folders, sorted by name: a file's path must not depend on the order in
     * which the file system lists entries. */
    while (w.links.count > 0) {
        int64_t first = 0;
        for (int64_t i = 1; i < w.links.count; i++)
            if (strcmp(w.links.name[i], w.links.name[first]) < 0)
                first = i;
        char *link = w.links.name[first];
        w.links.name[first] = w.links.name[--w.links.count];
        status = list_into(&w, link);
        weft_free(link);
        WEFT_GO(status);
    }
    sort_names(&w.names);
    sort_names(&w.others);
    *files = w.names;
    *others = w.others;
    w.names = w.others = (weft_names){0};
out:
    walk_free(&w);
    return status;
}

void weft_names_free(weft_names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        weft_free(names->name[i]);
    weft_free(names->name);
    *names = (weft_names){0};
}
