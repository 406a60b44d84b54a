/* Inside cli/: weft inspect model FILE, of weights without a config. */
#ifndef WEFT_CLI_INSPECT_FILE_H
#define WEFT_CLI_INSPECT_FILE_H

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>

/* Prints whose it is, in which names and types, and how it differs from the nearest published size;
 * with `tensors` all of them under the family's own names instead. */
weft_status weft_inspect_file(const char *path, bool tensors);

/* The published size of its family whose tensors are those of `path`, no more and no less.
 * WEFT_E_NOT_FOUND: none is. */
weft_status weft_inspect_published(const char *path, const char **size);

/* "name type 3,16,1": a line of a list of tensors, without its end. */
void weft_inspect_put_tensor(const char *name, const char *type, int rank, const int64_t *dim,
                             weft_buf *out);

#endif
