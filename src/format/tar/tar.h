/* tar archives: listing members with their places, atomic writing.
 *
 * Read: ustar, GNU long names and big sizes, pax path and size. Written: ustar, with a pax header
 * only for names and sizes over its limits. */
#ifndef WEFT_FORMAT_TAR_TAR_H
#define WEFT_FORMAT_TAR_TAR_H

#include "base/fs.h"

typedef struct weft_tar_member {
    const char *name; /* arena */
    int64_t header;   /* offset of its first header: of the extended one, where it has one */
    int64_t at;       /* offset of its data */
    int64_t bytes;    /* size of the data; at + bytes is inside the archive */
} weft_tar_member;

typedef struct weft_tar_index {
    weft_tar_member *member; /* owned */
    int64_t count, capacity;
    /* Arena. The first damage with its place; members before and after are intact. NULL: none. */
    char *damage;
    int64_t damaged_regions;
    int64_t links;    /* hard and symbolic links, which are not members */
    const char *link; /* name of the first link; arena */
} weft_tar_index;

/* The source of an archive; `read` returns all bytes or an error. */
typedef struct weft_tar_input {
    void *self;
    int64_t bytes; /* size of the archive */
    weft_status (*read)(void *self, int64_t at, int64_t bytes, void *to);
} weft_tar_input;

typedef struct weft_tar_writer weft_tar_writer;
/* The target of an archive. `free` after `commit` releases the object; `free` without `commit` also
 * removes the archive. */
typedef struct weft_tar_output {
    void *self;
    weft_status (*write)(void *self, const void *data, int64_t bytes);
    weft_status (*commit)(void *self);
    void (*free)(void *self);
} weft_tar_output;

#endif
