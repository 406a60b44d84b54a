/* The file is accessed only through its mapping. Pages are dropped from the process right after
 * they are copied; they stay in the page cache while the machine has free memory. All blocks of the
 * file are reserved and no other process can open it. A write therefore cannot hit a full disk or a
 * truncated file. */
#include "base/scratch_map.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A file without a name; where the file system has none such, one whose name is removed at once. */
static int open_nameless(const char *dir)
{
    const int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char *path = weft_path_join(dir, ".weft-scratch-XXXXXX");
    const int named = path ? mkostemp(path, O_CLOEXEC) : -1;
    if (named >= 0)
        unlink(path);
    weft_free(path);
    return named;
}

static weft_status no_space(const char *dir, int64_t bytes, const char *remedy, int error)
{
    char text[2][32];
    struct statvfs fs;
    if (error != ENOSPC && error != EDQUOT && error != EFBIG)
        return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = dir),
                          "cannot create a file of %s in this folder: %s",
                          weft_format_bytes(bytes, text[0]), strerror(error));
    const int64_t left = statvfs(dir, &fs) ? 0 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = dir, WEFT_NUMBER(left)),
                      "offloading needs %s in this folder, and %s are free. %s",
                      weft_format_bytes(bytes, text[0]), weft_format_bytes(left, text[1]), remedy);
}

weft_status weft_scratch_map(const char *dir, int64_t bytes, const char *remedy, void **data)
{
    WEFT_TRY(weft_make_dirs(dir));
    const int fd = open_nameless(dir);
    if (fd < 0)
        return weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = dir),
                          "cannot create a file in this folder: %s", strerror(errno));
    const int error = posix_fallocate(fd, 0, bytes);
    if (error) {
        close(fd);
        return no_space(dir, bytes, remedy, error);
    }
    void *map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int failed = errno;
    close(fd);
    if (map == MAP_FAILED)
        return no_space(dir, bytes, remedy, failed);
    *data = map;
    return WEFT_OK;
}

void weft_scratch_unmap(void *data, int64_t bytes)
{
    if (data)
        munmap(data, (size_t)bytes);
}

weft_status weft_scratch_reserve(const char *dir, int64_t bytes, const char *remedy,
                                 weft_scratch *out)
{
    char text[32];
    *out = (weft_scratch){0};
    if (dir && bytes) {
        WEFT_TRY(weft_scratch_map(dir, bytes, remedy, &out->data));
        out->mapped = bytes;
        return WEFT_OK;
    }
    out->data = weft_alloc_aligned(bytes + !bytes);
    WEFT_TRY(WEFT_ALLOCATED(out->data, "%s", weft_format_bytes(bytes, text)));
    memset(out->data, 0, (size_t)bytes);
    return WEFT_OK;
}

void weft_scratch_drop(const weft_scratch *scratch)
{
    if (scratch->mapped)
        weft_map_forget(scratch->data, scratch->mapped);
}

void weft_scratch_release(weft_scratch *scratch)
{
    if (scratch->mapped)
        weft_scratch_unmap(scratch->data, scratch->mapped);
    else
        weft_free(scratch->data);
    *scratch = (weft_scratch){0};
}
