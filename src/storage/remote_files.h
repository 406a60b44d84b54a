/* Copies whole files between a storage and a folder of this machine, several at a time. */
#ifndef WEFT_STORAGE_REMOTE_FILES_H
#define WEFT_STORAGE_REMOTE_FILES_H

#include "storage/storage.h"

/* The folder of copies: WEFT_COPIES, or $XDG_CACHE_HOME/weft/copies, or ~/.cache/weft/copies. The
 * caller owns *folder, which exists. */
weft_status weft_remote_copies_folder(char **folder);
/* WEFT_E_FORMAT: the name cannot be a path below a folder, such as "../a" or "a//b". */
weft_status weft_remote_name_check(const char *name);
/* Creates and locks the file `lock` in the folder of a copy; `kind`: LOCK_SH or LOCK_EX. *lock: a
 * descriptor, and closing it unlocks. Waits for other processes. If another process removes the
 * folder meanwhile, the function creates the folder again. */
weft_status weft_remote_copy_lock(const char *folder, int kind, int *lock);
/* Removes the folder of a copy whose file `lock` no process has locked. False: it stays. */
bool weft_remote_copy_remove(const char *folder);
/* A file of a transfer. */
typedef struct weft_remote_file {
    const char *name; /* below the folder and the storage's root; borrowed */
    int64_t bytes;    /* to send: the first bytes of the file */
    int64_t mtime;    /* for the caller */
    bool done;        /* the transfer has done it, also if others have failed */
} weft_remote_file;

/* Writes the files below `folder`, in pieces. Each has all its bytes or keeps those it had. */
weft_status weft_remote_receive(weft_storage *storage, char *const *name, int64_t count,
                                const char *folder);
/* Sends the files below `folder`. One that was removed meanwhile is skipped. */
weft_status weft_remote_send(weft_storage *storage, weft_remote_file *file, int64_t count,
                             const char *folder);
/* Removes the files of the storage. */
weft_status weft_remote_remove(weft_storage *storage, weft_remote_file *file, int64_t count);

#endif
