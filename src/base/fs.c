#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

weft_status weft_make_dirs(const char *path)
{
    char *copy = weft_strdup(path);
    if (!copy)
        return weft_fail(WEFT_E_MEMORY, "out of memory for path %s", path);
    weft_status_code status = WEFT_OK;
    for (char *p = copy + 1; status == WEFT_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        const char kept = *p;
        *p = '\0';
        if (mkdir(copy, 0777) != 0 && !(errno == EEXIST && weft_path_is_dir(copy)))
            status = weft_fail_errno("cannot make folder %s", copy);
        *p = kept;
        if (kept == '\0')
            break;
    }
    weft_free(copy);
    return status;
}

weft_status weft_make_parent(const char *path)
{
    const int64_t length = weft_path_base(path) - path;
    if (length <= 1)
        return WEFT_OK; /* here, or the root */
    char *folder = weft_strdup(path);
    if (!folder)
        return weft_fail(WEFT_E_MEMORY, "out of memory for path %s", path);
    folder[length - 1] = '\0';
    const weft_status_code status = weft_make_dirs(folder);
    weft_free(folder);
    return status;
}

weft_status weft_remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? WEFT_OK : weft_fail_errno("cannot remove %s", path);
    if (S_ISDIR(st.st_mode)) {
        weft_names names = {0};
        WEFT_TRY(weft_list_dir(path, false, &names));
        weft_status_code status = WEFT_OK;
        for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
            char *child = weft_path_join(path, names.name[i]);
            status = child ? weft_remove_tree(child) : weft_fail(WEFT_E_MEMORY, "out of memory");
            weft_free(child);
        }
        weft_names_free(&names);
        WEFT_TRY(status);
        return rmdir(path) == 0 ? WEFT_OK : weft_fail_errno("cannot remove folder %s", path);
    }
    return unlink(path) == 0 ? WEFT_OK : weft_fail_errno("cannot remove %s", path);
}

static weft_status read_all(int fd, const char *path, char *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = read(fd, data + done, (size_t)(bytes - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_fail_errno("cannot read %s", path);
        if (n == 0)
            return weft_fail(WEFT_E_IO, "%s: shrank while it was read", path);
        done += n;
    }
    return WEFT_OK;
}

weft_status weft_file_read(const char *path, int64_t limit, char **data, int64_t *bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weft_fail_errno("cannot open %s", path);
    weft_status_code status = WEFT_OK;
    char *buffer = NULL;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        status = weft_fail_errno("cannot stat %s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        status = weft_fail(WEFT_E_FORMAT, "%s: not a regular file", path);
        goto out;
    }
    if (st.st_size > limit) {
        status = weft_fail(WEFT_E_FORMAT, "%s: %lld bytes, more than the %lld this kind of file may have",
                           path, (long long)st.st_size, (long long)limit);
        goto out;
    }
    buffer = weft_alloc((int64_t)st.st_size + 1);
    if (!buffer) {
        status = weft_fail(WEFT_E_MEMORY, "%s: out of memory for %lld bytes", path,
                           (long long)st.st_size);
        goto out;
    }
    WEFT_GO(read_all(fd, path, buffer, st.st_size));
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
    weft_buf_printf(&temporary, "%s.tmp.%ld", path, (long)getpid());
    writer->path = weft_strdup(path);
    writer->temporary = temporary.data;
    if (temporary.failed || !writer->path) {
        weft_file_abort(writer);
        return weft_fail(WEFT_E_MEMORY, "out of memory for path %s", path);
    }
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        const weft_status_code status = weft_fail_errno("cannot write %s", path);
        weft_file_abort(writer);
        return status;
    }
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
            return weft_fail_errno("cannot write %s (%lld bytes in)", writer->path,
                                   (long long)(writer->bytes + done));
        done += n;
    }
    writer->bytes += bytes;
    return WEFT_OK;
}

static weft_status sync_folder_of(const char *path)
{
    char *copy = weft_strdup(path);
    if (!copy)
        return weft_fail(WEFT_E_MEMORY, "out of memory for path %s", path);
    char *slash = strrchr(copy, '/');
    if (slash == copy)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    const int fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    weft_free(copy);
    if (fd < 0)
        return weft_fail_errno("cannot open the folder of %s", path);
    const int failed = fsync(fd) != 0 && errno != EINVAL; /* some file systems cannot */
    close(fd);
    return failed ? weft_fail_errno("cannot sync the folder of %s", path) : WEFT_OK;
}

weft_status weft_file_commit(weft_file_writer *writer)
{
    if (fsync(writer->fd) != 0)
        return weft_fail_errno("cannot write %s to disk", writer->path);
    const int closed = close(writer->fd);
    writer->fd = -1;
    if (closed != 0)
        return weft_fail_errno("cannot close %s", writer->path);
    if (rename(writer->temporary, writer->path) != 0)
        return weft_fail_errno("cannot rename %s to its final name", writer->temporary);
    weft_free(writer->temporary);
    writer->temporary = NULL;
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

weft_status weft_file_write_atomic(const char *path, const void *data, int64_t bytes)
{
    weft_file_writer writer;
    WEFT_TRY(weft_file_begin(&writer, path));
    weft_status_code status = weft_file_write(&writer, data, bytes);
    if (status == WEFT_OK)
        status = weft_file_commit(&writer);
    weft_file_abort(&writer);
    return status;
}

weft_status weft_map_open(const char *path, weft_map *map)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weft_fail_errno("cannot open %s", path);
    struct stat st;
    void *data = NULL;
    weft_status_code status = WEFT_OK;
    if (fstat(fd, &st) != 0)
        status = weft_fail_errno("cannot stat %s", path);
    else if (!S_ISREG(st.st_mode))
        status = weft_fail(WEFT_E_FORMAT, "%s: not a regular file", path);
    else if (st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = weft_fail_errno("cannot map %s (%lld bytes)", path, (long long)st.st_size);
    }
    close(fd);
    if (status == WEFT_OK)
        *map = (weft_map){.data = data, .bytes = st.st_size};
    return status;
}

void weft_map_close(weft_map *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (weft_map){0};
}

static weft_status add_name(weft_names *names, const char *prefix, const char *name)
{
    WEFT_TRY(weft_grow((void **)&names->name, names->count, &names->capacity, sizeof *names->name));
    char *copy = *prefix ? weft_path_join(prefix, name) : weft_strdup(name);
    if (!copy)
        return weft_fail(WEFT_E_MEMORY, "out of memory listing a folder");
    names->name[names->count++] = copy;
    return WEFT_OK;
}

/* Adds what is in dir/prefix; `prefix` is "" at the top. */
static weft_status list_into(const char *dir, const char *prefix, bool recursive, weft_names *names)
{
    weft_status_code status = WEFT_OK;
    char *here = *prefix ? weft_path_join(dir, prefix) : weft_strdup(dir);
    if (!here)
        return weft_fail(WEFT_E_MEMORY, "out of memory listing %s", dir);
    DIR *stream = opendir(here);
    if (!stream && *prefix && errno == EACCES) { /* its name stands for what is in it: whoever opens it says why */
        status = add_name(names, "", prefix);
        goto out;
    }
    if (!stream) {
        status = weft_fail_errno("cannot read folder %s", here);
        goto out;
    }
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        struct stat st;
        if (recursive && fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(st.st_mode)) {
            char *below =
                *prefix ? weft_path_join(prefix, entry->d_name) : weft_strdup(entry->d_name);
            status = below ? list_into(dir, below, true, names)
                           : weft_fail(WEFT_E_MEMORY, "out of memory listing %s", dir);
            weft_free(below);
            if (status != WEFT_OK)
                goto out;
            continue;
        }
        if (recursive &&
            (fstatat(dirfd(stream), entry->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode)))
            continue;
        WEFT_GO(add_name(names, prefix, entry->d_name));
    }
out:
    if (stream)
        closedir(stream);
    weft_free(here);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

weft_status weft_list_dir(const char *dir, bool recursive, weft_names *names)
{
    weft_names found = {0};
    const weft_status_code status = list_into(dir, "", recursive, &found);
    if (status != WEFT_OK) {
        weft_names_free(&found);
        return status;
    }
    if (found.count > 1)
        qsort(found.name, (size_t)found.count, sizeof *found.name, compare_names);
    *names = found;
    return WEFT_OK;
}

void weft_names_free(weft_names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        weft_free(names->name[i]);
    weft_free(names->name);
    *names = (weft_names){0};
}
