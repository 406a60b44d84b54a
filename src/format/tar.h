/* tar archives: reading in place from a memory map, atomic writing.
 *
 * Read: ustar, GNU long names and big sizes, pax path and size. Written: ustar, with a pax header
 * only for names and sizes over its limits. */
#ifndef WEFT_FORMAT_TAR_H
#define WEFT_FORMAT_TAR_H

#include "base/fs.h"

typedef struct weft_tar_member {
    const char *name;          /* arena */
    const unsigned char *data; /* in the map */
    int64_t bytes;
} weft_tar_member;

typedef struct weft_tar_index {
    weft_tar_member *member; /* owned */
    int64_t count, capacity;
    char *damage; /* arena; NULL: whole. The first damage with its place; members before and behind
                     it are good */
    int64_t damaged_places;
} weft_tar_index;

/* Regular files of the archive in order. A cut or damaged archive is not an error here: see
 * `damage`; behind a damaged header reading goes on at the next whole one, and an archive without
 * its end mark counts as cut. A file that is no tar at all is WEFT_E_FORMAT. `path` stands in
 * messages. */
weft_status weft_tar_open(const weft_map *map, const char *path, weft_arena *arena,
                          weft_tar_index *index);
void weft_tar_close(weft_tar_index *index);

typedef struct weft_tar_writer weft_tar_writer;
/* Deterministic: ustar (pax for long names), mode 0644, owner 0, time 0. */
weft_status weft_tar_create(const char *path, weft_tar_writer **writer);
weft_status weft_tar_add(weft_tar_writer *writer, const char *name, const void *data,
                         int64_t bytes);
/* End of archive, fsync, rename. *hash (may be NULL) is XXH3-64 of the file, *bytes (may be NULL)
 * its size. */
weft_status weft_tar_finish(weft_tar_writer *writer, uint64_t *hash, int64_t *bytes);
void weft_tar_free(weft_tar_writer *writer); /* without finish: nothing stays on disk */

#endif
