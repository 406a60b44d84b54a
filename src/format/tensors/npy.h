/* NumPy's .npy, for latents and text embeddings in shards: little endian, C order, version 1.0. */
#ifndef WEFT_FORMAT_TENSORS_NPY_H
#define WEFT_FORMAT_TENSORS_NPY_H

#include "base/dtype.h"
#include "base/memory.h"

enum { WEFT_NPY_MAX_RANK = 8 };

typedef struct weft_npy {
    weft_dtype dtype; /* F32, F16, F64, I32, I64, U8 */
    int rank;
    int64_t dim[WEFT_NPY_MAX_RANK];
    int64_t count;
    const void *data; /* inside the bytes given; alignment 1 */
} weft_npy;

/* Messages print `name`. */
weft_status weft_npy_parse(const void *bytes, int64_t size, const char *name, weft_npy *npy);
/* Parses the header of a file of `size` bytes. The first `have` bytes are in memory and include the
 * whole header. */
weft_status weft_npy_parse_head(const void *bytes, int64_t have, int64_t size, const char *name,
                                weft_npy *npy);
/* Appends header and data; `data` NULL: the header alone, for data that follows in pieces. */
void weft_npy_format(weft_dtype dtype, int rank, const int64_t *dim, const void *data,
                     weft_buf *out);

#endif
