/* Copies of remote models and files that are read as a whole.
 *
 *     s3://BUCKET/model ── list ──> names and versions ── hash ──> COPIES/in-0123456789abcdef/
 *                                                                   bytes          of the objects
 *                                                                   files/...      the objects
 *                                                                   complete       last
 *
 * A copy is of one version of all objects, and never changes: other versions have other folders. It
 * is shared by the processes of this machine. Copies that no process uses are removed, the one used
 * longest ago first, if a new one does not fit WEFT_COPIES_BYTES (default 200 GiB). */
#ifndef WEFT_STORAGE_INPUT_COPY_H
#define WEFT_STORAGE_INPUT_COPY_H

#include "storage/storage.h"

typedef struct weft_input_copy weft_input_copy;
/* `location`: a folder or an object, s3://BUCKET/PREFIX, or a file, https://HOST/PATH. Waits while
 * another process downloads the same. WEFT_E_NOT_FOUND: the object is missing. */
weft_status weft_input_copy_open(const char *location, weft_input_copy **copy);
/* Does the same without the files of weights of a folder; a location of one file is copied. */
weft_status weft_input_copy_open_configs(const char *location, weft_input_copy **copy);
/* Copies objects that the storage has listed, of the versions in its list. A child process may call
 * this with the storage of its parent. WEFT_MSG_FILE_CHANGED: another version exists now. */
weft_status weft_input_copy_open_names(weft_storage *storage, char *const *name, int64_t count,
                                       weft_input_copy **copy);
/* Does the same for one object, whose path is the copy's. */
weft_status weft_input_copy_open_object(weft_storage *storage, const char *name,
                                        weft_input_copy **copy);
/* Path of the folder or file; borrowed. */
const char *weft_input_copy_path(const weft_input_copy *copy);
/* A name of the version of all objects of a copy, the same on every machine; part of `path`. NULL:
 * the path is not of a copy. */
const char *weft_input_copy_version(const char *path);
/* The copy may be removed by other processes then. Accepts NULL. */
void weft_input_copy_close(weft_input_copy *copy);

#endif
