/* Whether files have changed, without reading them. */
#ifndef WEFT_BASE_PATH_STAMP_H
#define WEFT_BASE_PATH_STAMP_H

#include <stdint.h>

/* Hash of names, inodes, sizes and times of a file, or of the files of a folder and of its
 * subfolders down to `depth`: another value after a change of a file. Continues `stamp`. A path
 * that cannot be read adds nothing. */
uint64_t weft_path_stamp(uint64_t stamp, const char *path, int depth);

#endif
