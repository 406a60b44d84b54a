/* A folder of this machine with the files of a bucket, for commands that several machines run at
 * the same time.
 *
 *     s3://BUCKET/out ── pull ──> COPIES/shared-0123456789abcdef/files/
 *                     <── send: single files ──
 *
 * The bucket decides which files exist. A file of the folder that was not sent is unfinished work:
 * the next command drops the file and repeats the work. Several machines may send the same file, if
 * each writes the same bytes. Objects that the caller leaves in the bucket have a name here and no
 * file.
 *
 * The journal of the folder has a line for each file that was sent or received: size, time, and
 * version in the bucket. Processes of one machine share the folder and the journal;
 * forked children send as well. Names of locks, and hidden and temporary names, stay here. */
#ifndef WEFT_STORAGE_SHARED_COPY_H
#define WEFT_STORAGE_SHARED_COPY_H

#include "storage/storage.h"

typedef struct weft_shared_copy weft_shared_copy;
/* `location`: s3://BUCKET/PREFIX. `left`: whether objects of this name are not copied; NULL: all
 * are. The folder is empty or old until the first pull. WEFT_E_UNSUPPORTED: the location is only
 * read. */
weft_status weft_shared_copy_open(const char *location, bool (*left)(const char *name),
                                  weft_shared_copy **copy);
/* Sends nothing. Accepts NULL. */
void weft_shared_copy_close(weft_shared_copy *copy);
const char *weft_shared_copy_folder(const weft_shared_copy *copy); /* borrowed */
/* Receives new and changed files, and removes the files that the bucket lost. Changed files that
 * are not sent yet stay, unless the bucket has changed as well. */
weft_status weft_shared_copy_pull(weft_shared_copy *copy);
/* Sends files, several at a time, that are new or changed; missing files are skipped. Any process
 * and thread; Ctrl-C does not end it. */
weft_status weft_shared_copy_send(weft_shared_copy *copy, char *const *name, int64_t count);
/* Receives a file that the folder has not, if the bucket has it. *found: the folder has it now. */
weft_status weft_shared_copy_fetch(weft_shared_copy *copy, const char *name, bool *found);
/* Removes files that the bucket has, there and in the folder. */
weft_status weft_shared_copy_remove(weft_shared_copy *copy, char *const *name, int64_t count);
/* Whether the bucket has the file as it is in the folder, or, if `left`, any file of this name: as
 * of the last pull and later sends of this process. */
bool weft_shared_copy_has(weft_shared_copy *copy, const char *name);
/* Appends the names of the bucket's files in a folder without subfolders, without the folder, as
 * `has` knows them. */
weft_status weft_shared_copy_list(weft_shared_copy *copy, const char *folder, weft_names *names);

#endif
