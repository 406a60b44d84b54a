/* tar archives: listing members with their places, atomic writing.
 *
 * Read: ustar, GNU long names and big sizes, pax path and size. Written: ustar, with a pax header
 * only for names and sizes over its limits. */
#ifndef WEFT_FORMAT_TAR_H
#define WEFT_FORMAT_TAR_H

#include "base/fs.h"

typedef struct weft_tar_member {
    const char *name; /* arena */
    int64_t header;   /* place of its first header: of the extended one, where it has one */
    int64_t at;       /* place of its data */
    int64_t bytes;    /* of them; at + bytes lie inside the archive */
} weft_tar_member;

typedef struct weft_tar_index {
    weft_tar_member *member; /* owned */
    int64_t count, capacity;
    /* Arena; NULL: whole. The first damage with its place; members before and behind are good. */
    char *damage;
    int64_t damaged_places;
    int64_t links;    /* hard and symbolic ones; they are no members */
    const char *link; /* name of the first one; arena */
} weft_tar_index;

/* Where an archive is read from; `read` gives all bytes or an error. */
typedef struct weft_tar_input {
    void *self;
    int64_t bytes; /* of the archive */
    weft_status (*read)(void *self, int64_t at, int64_t bytes, void *to);
} weft_tar_input;
weft_tar_input weft_tar_memory(const weft_map *map); /* borrowed */

/* Regular files of the archive in order; their data are not read. A cut or damaged archive is not
 * an error here: see `damage`; behind a damaged header reading goes on at the next whole one, and
 * an archive without its end mark counts as cut. A file that is no tar at all is WEFT_E_FORMAT.
 * `path` stands in messages. */
weft_status weft_tar_open(const weft_tar_input *input, const char *path, weft_arena *arena,
                          weft_tar_index *index);
void weft_tar_close(weft_tar_index *index);

typedef struct weft_tar_writer weft_tar_writer;
/* Where an archive is written to. `free` after `commit` frees, without it nothing stays. */
typedef struct weft_tar_output {
    void *self;
    weft_status (*write)(void *self, const void *data, int64_t bytes);
    weft_status (*commit)(void *self);
    void (*free)(void *self);
} weft_tar_output;
/* Deterministic: ustar (pax for long names), mode 0644, owner 0, time 0. Takes `output`, also where
 * it fails. */
weft_status weft_tar_create_on(const weft_tar_output *output, weft_tar_writer **writer);
weft_status weft_tar_create(const char *path, weft_tar_writer **writer); /* a file */
weft_status weft_tar_add(weft_tar_writer *writer, const char *name, const void *data,
                         int64_t bytes);
/* The same in pieces: `bytes` are announced, then come in calls of weft_tar_append, which together
 * must give as many; weft_tar_end says when they do not. */
weft_status weft_tar_begin(weft_tar_writer *writer, const char *name, int64_t bytes);
weft_status weft_tar_append(weft_tar_writer *writer, const void *data, int64_t bytes);
weft_status weft_tar_end(weft_tar_writer *writer);
/* The member that was added last. `name` is not set. */
weft_tar_member weft_tar_last(const weft_tar_writer *writer, uint64_t *xxh3_of_its_data);
/* End of archive, commit. *hash (may be NULL) is XXH3-64 of the file, *bytes (may be NULL)
 * its size. */
weft_status weft_tar_finish(weft_tar_writer *writer, uint64_t *hash, int64_t *bytes);
void weft_tar_free(weft_tar_writer *writer); /* without finish: nothing stays on disk */

#endif
