/* Tensors in files of others and our own, mapped and named: safetensors (sharded, too), GGUF, and
 * what torch.save wrote (only tensors: nothing in a pickle is executed).
 *
 * What files pack (format/packing.h) and scale (fp8 with a factor beside each matrix) is expanded
 * when it is read; everything else can be taken from the map as it lies. */
#ifndef WEFT_FORMAT_TENSORS_H
#define WEFT_FORMAT_TENSORS_H

#include "base/dtype.h"
#include "base/json.h"
#include "base/memory.h"
#include "format/packing.h"

enum { WEFT_TENSORS_MAX_RANK = 8 };

/* Factors that the stored numbers are to be multiplied by:
 *
 *   factor [1]               one of all
 *   factor [rows, 1]         one of each row
 *   factor [rows, n, 1]      one of each stretch of columns / n in a row
 *   factor [r, c]            one of each tile of 128 x 128 */
typedef struct weft_scaling {
    const float *factor;
    int64_t rows, columns;           /* of factors; {1, 1}: one */
    int64_t tile_rows, tile_columns; /* elements of the tensor that one is for */
} weft_scaling;

typedef struct weft_stored_tensor {
    const char *name; /* owned by the reader */
    weft_dtype dtype; /* F32 where packed: what it expands to */
    int rank;
    int64_t dim[WEFT_TENSORS_MAX_RANK];
    int64_t count, bytes;
    const void *data; /* in the memory map, alignment 1: copy before use as anything but bytes */
    const char *file; /* for messages */
    const weft_packing *packing; /* NULL: `data` are elements of dtype */
    const weft_scaling *scaling; /* NULL: none */
    /* A view of some rows (along dim 0) of a stored tensor: where they begin in `data`, how many of
     * others lie between their halves, and whether these change places. */
    int64_t first, between;
    bool swapped;
} weft_stored_tensor;

/* Elements of dtype in C order at `data`, nothing to be done to them. */
static inline bool weft_stored_is_plain(const weft_stored_tensor *t)
{
    return !t->packing && !t->scaling && !t->swapped && t->first == 0 && t->between == 0;
}
/* Where row `row` of the view is in what is stored. */
static inline int64_t weft_stored_row(const weft_stored_tensor *t, int64_t row)
{
    const int64_t half = t->dim[0] / 2;
    const int64_t at = t->swapped ? (row + half) % t->dim[0] : row;
    return t->first + at + (at < half ? 0 : t->between);
}
/* "bf16", "Q4_K". */
const char *weft_stored_type(const weft_stored_tensor *t);

typedef struct weft_tensors weft_tensors;

/* `path`: a file (safetensors, GGUF, .pt/.pth/.bin of torch: told by its bytes), an index of shards
 * (.index.json), or a folder that holds one of the usual names. Tensors are mapped, not read. */
weft_status weft_tensors_open(const char *path, weft_tensors **tensors);
void weft_tensors_close(weft_tensors *tensors); /* accepts NULL */
/* Reads all files and holds them against the checksums that weft's writer puts into their metadata;
 * files of others pass. */
weft_status weft_tensors_verify(const weft_tensors *tensors);
int64_t weft_tensors_count(const weft_tensors *tensors);
/* Sorted by name. */
const weft_stored_tensor *weft_tensors_at(const weft_tensors *tensors, int64_t index);
/* NULL: none. */
const weft_stored_tensor *weft_tensors_find(const weft_tensors *tensors, const char *name);
/* The "__metadata__" string of the first file (of GGUF: "general.architecture" and its like), or
 * NULL. */
const char *weft_tensors_metadata(const weft_tensors *tensors, const char *key);
/* What was opened. */
const char *weft_tensors_path(const weft_tensors *tensors);

/* The set anew, of views: `with` is called with every tensor in order of names and adds what stands
 * for it (nothing: it is left out). Views have names that the set keeps a copy of. */
typedef weft_status (*weft_tensors_viewer)(void *user, const weft_stored_tensor *tensor,
                                           weft_tensors *to);
weft_status weft_tensors_review(weft_tensors *tensors, weft_tensors_viewer with, void *user);
/* For a viewer: `tensor`, or `rows` rows of it from `row` on, under `name`. */
weft_status weft_tensors_view(weft_tensors *to, const weft_stored_tensor *tensor, const char *name,
                              int64_t row, int64_t rows, bool swapped);
/* The rows of the last one that was added become two halves of `half` rows, the first from `row`
 * on, the second from `second` on. */
weft_status weft_tensors_part(weft_tensors *to, int64_t row, int64_t second, int64_t half);
/* The last one that was added has these dims, of as many elements. */
void weft_tensors_reshape(weft_tensors *to, int rank, const int64_t *dim);

/* Converts to f32 in to[count]; F8E4M3 and integers by value. */
void weft_tensor_to_f32(const weft_stored_tensor *tensor, float *to);
/* WEFT_E_FORMAT, with file, name and index, if one of its elements is NaN or infinite. */
weft_status weft_stored_check_finite(const weft_stored_tensor *tensor);
/* The same of `count` elements from index `first` on, which are at `data` as `dtype`. */
weft_status weft_stored_check_data(const weft_stored_tensor *tensor, int64_t first,
                                   const void *data, weft_dtype dtype, int64_t count);
/* Elements [first, first + count) of it. */
void weft_stored_read(const weft_stored_tensor *tensor, int64_t first, int64_t count, float *to);

#endif
