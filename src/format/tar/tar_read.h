#ifndef WEFT_FORMAT_TAR_TAR_READ_H
#define WEFT_FORMAT_TAR_TAR_READ_H

#include "base/fs.h"
#include "base/memory.h"
#include "format/tar/tar.h"

weft_tar_input weft_tar_memory(const weft_map *map); /* borrowed */
/* Lists the regular files of the archive in order, without reading their data. A truncated or
 * damaged archive is not an error: see `damage`. After a damaged header reading continues at the
 * next intact header. An archive without its end mark counts as truncated. WEFT_E_FORMAT: the file
 * is not a tar archive. Messages print `path`. */
weft_status weft_tar_open(const weft_tar_input *input, const char *path, weft_arena *arena,
                          weft_tar_index *index);
void weft_tar_close(weft_tar_index *index);

#endif
