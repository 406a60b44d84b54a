#ifndef WEFT_FORMAT_TAR_TAR_WRITE_H
#define WEFT_FORMAT_TAR_TAR_WRITE_H

#include "base/status.h"
#include "format/tar/tar.h"

/* Deterministic: ustar (pax for long names), mode 0644, owner 0, time 0. Takes `output`, also where
 * it fails. */
weft_status weft_tar_create_on(const weft_tar_output *output, weft_tar_writer **writer);
weft_status weft_tar_create(const char *path, weft_tar_writer **writer); /* a file */
weft_status weft_tar_add(weft_tar_writer *writer, const char *name, const void *data,
                         int64_t bytes);
/* Writes a member in pieces: weft_tar_begin states `bytes`, and the calls of weft_tar_append must
 * add up to this number. weft_tar_end returns an error if they do not. */
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
