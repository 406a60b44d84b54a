/* Curated clips: a folder that `weft curate` wrote, or a bucket with the same files.
 *
 * Metadata and lists of a bucket are copied by the open (storage/input_copy.h). Its clips are read
 * in pieces through the cache of the machine. */
#ifndef WEFT_DATA_CURATED_SET_H
#define WEFT_DATA_CURATED_SET_H

#include "storage/storage.h"

typedef struct weft_curated_set weft_curated_set;
/* `in`: a folder or s3://BUCKET/PREFIX; borrowed. A missing folder is an error of the list. */
weft_status weft_curated_set_open(const char *in, weft_curated_set **set);
void weft_curated_set_close(weft_curated_set *set); /* accepts NULL */
/* Folder of this machine with metas/, manifest.jsonl, rejects.jsonl and captions.csv; borrowed. */
const char *weft_curated_set_folder(const weft_curated_set *set);
/* Lists the files of clips/, sorted; the caller frees *names. */
weft_status weft_curated_set_list(const weft_curated_set *set, weft_names *names);
/* Mixes size and version of a file, such as "clips/a.mp4", into *stamp. Returns the size, 0 without
 * the file. */
int64_t weft_curated_set_stamp(const weft_curated_set *set, const char *name, uint64_t *stamp);
/* Announces that a clip is read soon. */
void weft_curated_set_expect(const weft_curated_set *set, const char *name);

/* A clip that is being read. */
typedef struct weft_curated_clip {
    const weft_curated_set *set; /* NULL: not open */
    const char *name;            /* borrowed */
    int64_t bytes;
    int fd; /* -1: a bucket */
} weft_curated_clip;

/* *usable false: a file of a folder cannot be read, and the error says why. A bucket that cannot be
 * read is an error of the call. */
weft_status weft_curated_clip_open(const weft_curated_set *set, const char *name,
                                   weft_curated_clip *clip, bool *usable);
/* Reads up to `most` bytes at byte `at`; *got is at least 1. */
weft_status weft_curated_clip_read(const weft_curated_clip *clip, int64_t at, int64_t most,
                                   void *to, int64_t *got);
void weft_curated_clip_close(weft_curated_clip *clip);

#endif
