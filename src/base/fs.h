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

weft_status weft_make_dirs(const char *path);   /* like mkdir -p */
weft_status weft_make_parent(const char *path); /* the folder that `path` lies in */
weft_status weft_remove_tree(const char *path);
/* Removes the files of `dir` (not below it) for whose name `unwanted` is true. The first that
 * cannot be removed is the error; the others are removed all the same. */
weft_status weft_remove_files(const char *dir, bool (*unwanted)(const char *name, void *user),
                              void *user);
/* Whether the name is one of weft_file_begin's: "<...>.tmp.<pid>". */
bool weft_is_temporary(const char *name);
/* Whether a process of this machine has the number and can still write: one that ended is dead also
 * while nobody has asked how it ended (ranks whose launcher was killed may stay so for ever). */
bool weft_process_lives(long pid);
/* Removes the temporary files of `dir`, or (`deep`) also below it, whose writers were killed. Proof
 * is that the lock which a writer holds on its file is free, and that no process of this machine
 * has its number; a file of which this cannot be said stays. */
weft_status weft_remove_leftovers(const char *dir, bool deep);
/* The same of the one file `path`, whose folder others may use; */
weft_status weft_remove_leftovers_of(const char *path);
/* of it and of all files beside it that are named after it: dog.npy and dog.walk.safetensors of
 * dog.mp4. */
weft_status weft_remove_leftovers_beside(const char *path);

/* Whole file into a heap buffer with a NUL after it. More than `limit` bytes is WEFT_E_FORMAT, and
 * so is a Git LFS pointer. */
weft_status weft_file_read(const char *path, int64_t limit, char **data, int64_t *bytes);

/* Atomic writing: bytes go to "<path>.tmp.<pid>", which is locked (flock) while it is written;
 * commit does fsync, rename, fsync of the folder.
 * weft_file_abort (also after a failed write or commit) removes the temporary file. */
typedef struct weft_file_writer {
    int fd;
    char *path, *temporary; /* owned */
    int64_t bytes;          /* written so far */
    /* Set after weft_file_begin: commit waits for no disk. A machine that fails may leave a file of
     * this name with other bytes: for what is checked when it is read and can be made again. */
    bool hasty;
} weft_file_writer;
weft_status weft_file_begin(weft_file_writer *writer, const char *path);
weft_status weft_file_write(weft_file_writer *writer, const void *data, int64_t bytes);
weft_status weft_file_commit(weft_file_writer *writer);
void weft_file_abort(weft_file_writer *writer); /* harmless after commit */
weft_status weft_file_write_atomic(const char *path, const void *data, int64_t bytes);
/* Whether a file may be written there, which stays as it is: said before the work begins. */
weft_status weft_file_try(const char *path);

/* Read-only memory map; bytes 0 gives data NULL. A Git LFS pointer is WEFT_E_FORMAT. */
typedef struct weft_map {
    const unsigned char *data;
    int64_t bytes;
} weft_map;
weft_status weft_map_open(const char *path, weft_map *map);
void weft_map_close(weft_map *map);
/* Part of a file's map that will hardly be looked at again: its whole pages count no longer as
 * memory of this process, and come back from the file when they are; what was written stays. */
void weft_map_forget(const void *data, int64_t bytes);

/* Names in a folder, sorted by bytes, without "." and ".."; recursive gives paths relative to
 * `dir` of regular files only (symbolic links to files are followed, to folders are not); a folder
 * below that may not be read gives its own path instead. */
typedef struct weft_names {
    char **name; /* owned, each too */
    int64_t count, capacity;
} weft_names;
weft_status weft_list_dir(const char *dir, bool recursive, weft_names *names);
/* All regular files below `dir`, through symbolic links to files and to folders. Every folder is
 * walked once, so that links may go round in circles: under its own path where it lies below `dir`
 * itself, else under the first link by name. The folder `except` (NULL: none) is left out wherever
 * it is met. `others` is what gave no file: links to nothing or to a folder that was walked
 * already, sockets, pipes, devices. Both sorted by bytes. */
weft_status weft_list_tree(const char *dir, const char *except, weft_names *files,
                           weft_names *others);
void weft_names_free(weft_names *names);

#endif
