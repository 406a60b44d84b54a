/* weft inspect model FILE, for weights without a config. Internal to cli/. */
#ifndef WEFT_CLI_INSPECT_FILE_H
#define WEFT_CLI_INSPECT_FILE_H

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>

/* Prints the family, the naming, the types, and the differences from the nearest published size.
 * With `tensors`: prints all tensors under the family's own names instead. */
weft_status weft_inspect_file(const char *path, bool tensors);

/* Sets *size to the published size of the family with exactly the tensors of `path`.
 * WEFT_E_NOT_FOUND: no size matches. */
weft_status weft_inspect_published(const char *path, const char **size);

/* Prints "name type 3,16,1", one line of a tensor list, without the newline. */
void weft_inspect_put_tensor(const char *name, const char *type, int rank, const int64_t *dim,
                             weft_buf *out);

#endif
