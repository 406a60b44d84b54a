/* Files and folders. Errors name the path. */
#ifndef WEFT_BASE_FS_H
#define WEFT_BASE_FS_H

#include "base/memory.h"

/* "dir/name"; heap, free with weft_free; NULL: out of memory. */
char *weft_path_join(const char *dir, const char *name);
const char *weft_path_base(const char *path);      /* after the last '/' */
const char *weft_path_extension(const char *path); /* after the last '.' of the base, or "" */
bool weft_path_exists(const char *path);
bool weft_path_is_dir(const char *path);

/* Finds an executable file: `name` with a '/', or a file of this name in a folder of PATH. */
bool weft_program_find(const char *name, char path[4096]);
weft_status weft_make_dirs(const char *path);   /* like mkdir -p */
weft_status weft_make_parent(const char *path); /* the folder that contains `path` */
weft_status weft_remove_tree(const char *path);
/* Removes the files of `dir` (not below it) for whose name `unwanted` is true. The first that
 * cannot be removed is the error; the others are removed all the same. */
weft_status weft_remove_files(const char *dir, bool (*unwanted)(const char *name, void *user),
                              void *user);
/* Whether the name is one of weft_file_begin's: "<...>.tmp.<pid>". */
bool weft_is_temporary(const char *name);
/* Whether a process of this machine has this id and can still write. A zombie process counts as
 * dead: ranks whose launcher was killed may stay zombies for ever. */
bool weft_process_lives(long pid);
/* Removes the temporary files in `dir`, or (`deep`) also below it, whose writers were killed. A
 * file is removed only if the writer's lock on it is free and no process of this machine has the
 * writer's id. Any other file stays. */
weft_status weft_remove_leftovers(const char *dir, bool deep);
/* Removes the temporary files of the file `path` only; other processes may use its folder. */
weft_status weft_remove_leftovers_of(const char *path);
/* Removes the temporary files of `path` and of the files of its folder that are named after it:
 * dog.npy and dog.sampling.safetensors for dog.mp4. */
weft_status weft_remove_leftovers_named_after(const char *path);

/* Whole file into a heap buffer with a NUL after it. More than `limit` bytes is WEFT_E_FORMAT, and
 * so is a Git LFS pointer. */
weft_status weft_file_read(const char *path, int64_t limit, char **data, int64_t *bytes);
/* Returns an error of the file `name` if its content is a Git LFS pointer. Files of more than
 * WEFT_LFS_POINTER_MOST bytes are none. */
enum { WEFT_LFS_POINTER_MOST = 1024 };
weft_status weft_lfs_pointer_refuse(const char *name, const void *data, int64_t bytes);

/* Atomic writing: bytes go to "<path>.tmp.<pid>", which is locked (flock) while it is written;
 * commit does fsync, rename, fsync of the folder.
 * weft_file_abort (also after a failed write or commit) removes the temporary file. */
typedef struct weft_file_writer {
    int fd;
    char *path, *temporary; /* owned */
    int64_t bytes;          /* written so far */
    /* Set after weft_file_begin: commit does not wait for the disk. After a crash of the machine
     * the file may have wrong bytes. For files with checksums that weft can write again. */
    bool hasty;
} weft_file_writer;
weft_status weft_file_begin(weft_file_writer *writer, const char *path);
weft_status weft_file_write(weft_file_writer *writer, const void *data, int64_t bytes);
weft_status weft_file_commit(weft_file_writer *writer);
void weft_file_abort(weft_file_writer *writer); /* harmless after commit */
weft_status weft_file_write_atomic(const char *path, const void *data, int64_t bytes);
/* Does the same without waiting for the disk (`hasty` of weft_file_writer). */
weft_status weft_file_write_hasty(const char *path, const void *data, int64_t bytes);
/* Does the same with a buffer, which is freed in any case. Fails as weft_buf_check does. */
weft_status weft_file_write_buf(const char *path, weft_buf *buf);
/* Fails if a file cannot be written at `path`. Changes nothing. Called before the work begins. */
weft_status weft_file_try(const char *path);

/* Writes `bytes` at offset `at` of an open file. Returns the bytes written; fewer: errno. */
int64_t weft_write_at(int fd, const void *data, int64_t bytes, int64_t at);
/* Reads `bytes` at offset `at` of an open file. Returns the bytes read; fewer: errno, which is 0 at
 * the end of the file. */
int64_t weft_read_at(int fd, void *to, int64_t bytes, int64_t at);

/* Read-only memory map; bytes 0 gives data NULL. A Git LFS pointer is WEFT_E_FORMAT. */
typedef struct weft_map {
    const unsigned char *data;
    int64_t bytes;
} weft_map;
weft_status weft_map_open(const char *path, weft_map *map);
void weft_map_close(weft_map *map);
/* Drops the whole pages of a part of a mapped file from the resident memory of this process. A
 * later access reads them from the file again. Written data is kept. */
void weft_map_forget(const void *data, int64_t bytes);

/* Names in a folder, sorted by bytes, without "." and ".."; recursive gives paths relative to
 * `dir` of regular files only (symbolic links to files are followed, to folders are not); a folder
 * below that may not be read gives its own path instead. */
typedef struct weft_names {
    char **name; /* owned, each too */
    int64_t count, capacity;
} weft_names;
weft_status weft_list_dir(const char *dir, bool recursive, weft_names *names);
/* Lists all regular files below `dir`, through symbolic links to files and to folders. Every folder
 * is visited once, so that cycles of links are harmless: under its own path if it is below `dir`
 * itself, else under the first link by name. The folder `except` (NULL: none) is skipped. `others`
 * lists all other entries: dangling links, links to a visited folder, sockets, pipes, devices.
 * Both are sorted by bytes. */
weft_status weft_list_tree(const char *dir, const char *except, weft_names *files,
                           weft_names *others);
void weft_names_free(weft_names *names);

#endif
