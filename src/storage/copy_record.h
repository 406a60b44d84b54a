/* The versions of a bucket's files, as a working copy last saw them: a table by name, kept in a
 * file. */
#ifndef WEFT_STORAGE_COPY_RECORD_H
#define WEFT_STORAGE_COPY_RECORD_H

#include "base/json.h"

typedef struct weft_copied_file {
    bool known;     /* false: the record has no such file */
    int64_t bytes;  /* of the file in the folder when it was copied */
    int64_t mtime;  /* nanoseconds since 1970 */
    uint64_t stamp; /* version in the bucket (weft_storage_facts) */
    bool pending;   /* is being sent or removed; the bucket may have it or not */
} weft_copied_file;

/* Reads size and time of a file of the folder; `bytes` is -1 without it. */
weft_status weft_copied_file_stat(const char *folder, const char *name, weft_copied_file *file);

typedef struct weft_copy_record {
    json_t *files; /* owned; name to members */
} weft_copy_record;

weft_status weft_copy_record_open(weft_copy_record *record);
void weft_copy_record_close(weft_copy_record *record);
void weft_copy_record_clear(weft_copy_record *record);
/* A missing or damaged file gives an empty record: then all files are copied again. */
weft_status weft_copy_record_load(weft_copy_record *record, const char *path);
weft_status weft_copy_record_save(const weft_copy_record *record, const char *path);
weft_copied_file weft_copy_record_get(const weft_copy_record *record, const char *name);
weft_status weft_copy_record_put(weft_copy_record *record, const char *name,
                                 const weft_copied_file *file);
void weft_copy_record_drop(weft_copy_record *record, const char *name);
/* The files that are not pending. */
int64_t weft_copy_record_count_settled(const weft_copy_record *record);

#endif
