/* Named tensors in memory-mapped files: safetensors (also sharded), GGUF, and files of torch.save
 * (only tensors: no code of a pickle is executed).
 *
 * Reading expands packed (quant_blocks.h) and scaled tensors (fp8 with a factor for each matrix).
 * All other tensors can be used from the map without a copy. */
#ifndef WEFT_FORMAT_TENSORS_TENSORS_H
#define WEFT_FORMAT_TENSORS_TENSORS_H

#include "base/dtype.h"
#include "base/json.h"
#include "base/memory.h"
#include "format/tensors/quant_blocks.h"

enum { WEFT_TENSORS_MAX_RANK = 8 };

/* Scale factors of the stored numbers:
 *
 *   factor [1]               one for the whole tensor
 *   factor [rows, 1]         one per row
 *   factor [rows, n, 1]      one per group of columns / n in a row
 *   factor [r, c]            one per tile of 128 x 128 */
typedef struct weft_scaling {
    const float *factor;
    int64_t rows, columns;           /* number of factors; {1, 1}: one */
    int64_t tile_rows, tile_columns; /* elements of the tensor per factor */
} weft_scaling;

typedef struct weft_stored_tensor {
    const char *name; /* owned by the reader */
    weft_dtype dtype; /* type after expansion: F32 if packed */
    int rank;
    int64_t dim[WEFT_TENSORS_MAX_RANK];
    int64_t count, bytes;
    const void
        *data; /* points into the memory map, alignment 1: copy before use, except as bytes */
    const char *file;            /* file name in messages */
    const weft_packing *packing; /* NULL: `data` are elements of dtype */
    const weft_scaling *scaling; /* NULL: none */
    const float *column;         /* [dim[1]] factors of the columns of a matrix; NULL: none */
    /* A view of some rows (along dim 0) of a stored tensor: its first row in `data`, the number of
     * other rows between its two halves, and whether the halves are swapped. */
    int64_t first, between;
    bool swapped;
} weft_stored_tensor;

/* Whether `data` has the elements of dtype in C order, without packing or factors. */
static inline bool weft_stored_is_plain(const weft_stored_tensor *t)
{
    return !t->packing && !t->scaling && !t->column && !t->swapped && t->first == 0 &&
           t->between == 0;
}
/* The stored row of row `row` of the view. */
static inline int64_t weft_stored_row(const weft_stored_tensor *t, int64_t row)
{
    const int64_t half = t->dim[0] / 2;
    const int64_t at = t->swapped ? (row + half) % t->dim[0] : row;
    return t->first + at + (at < half ? 0 : t->between);
}
/* "bf16", "Q4_K". */
const char *weft_stored_type(const weft_stored_tensor *t);

typedef struct weft_tensors weft_tensors;

/* Whether a file of this name has weights, by its extension. */
bool weft_tensors_is_file(const char *name);
/* `path`: a file (safetensors, GGUF, .pt/.pth/.bin of torch; its content decides the format), an
 * index of shards (.index.json), or a folder with one of the usual file names. Tensors are mapped,
 * not read. */
weft_status weft_tensors_open(const char *path, weft_tensors **tensors);
/* Adds the tensors of `other` as PREFIXname. Takes `other`, also if it fails. */
weft_status weft_tensors_join(weft_tensors *tensors, const char *prefix, weft_tensors *other);
void weft_tensors_close(weft_tensors *tensors); /* accepts NULL */
int64_t weft_tensors_count(const weft_tensors *tensors);
/* Sorted by name. */
const weft_stored_tensor *weft_tensors_at(const weft_tensors *tensors, int64_t index);
/* NULL: none. */
const weft_stored_tensor *weft_tensors_find(const weft_tensors *tensors, const char *name);
/* The "__metadata__" string of the first file (of GGUF: "general.architecture" and its like), or
 * NULL. */
const char *weft_tensors_metadata(const weft_tensors *tensors, const char *key);
/* The path that was opened. */
const char *weft_tensors_path(const weft_tensors *tensors);

/* Replaces the set by views. `with` is called for every tensor in order of names and adds its views
 * (none: the tensor is dropped). The set keeps copies of the views' names. */
typedef weft_status (*weft_tensors_viewer)(void *user, const weft_stored_tensor *tensor,
                                           weft_tensors *to);
weft_status weft_tensors_review(weft_tensors *tensors, weft_tensors_viewer with, void *user);
/* Adds a view of `tensor`, or of its `rows` rows from `row` on, as `name`. Call from a viewer. */
weft_status weft_tensors_view(weft_tensors *to, const weft_stored_tensor *tensor, const char *name,
                              int64_t row, int64_t rows, bool swapped);
/* The rows of the last one that was added become two halves of `half` rows, the first from `row`
 * on, the second from `second` on. */
weft_status weft_tensors_part(weft_tensors *to, int64_t row, int64_t second, int64_t half);
/* Sets the dims of the last added view. The number of elements must be the same. */
void weft_tensors_reshape(weft_tensors *to, int rank, const int64_t *dim);

/* Multiplies the columns of the matrix `name` by factor[dim[1]] when it is read. Copies
 * `factor`. */
weft_status weft_tensors_scale_columns(weft_tensors *tensors, const char *name,
                                       const float *factor);

/* Converts to f32 in to[count]; F8E4M3 and integers by value. */
void weft_tensor_to_f32(const weft_stored_tensor *tensor, float *to);
/* Reads elements [first, first + count) of the tensor as f32. */
void weft_stored_read(const weft_stored_tensor *tensor, int64_t first, int64_t count, float *to);

/* count and bytes from dtype or packing and dims; WEFT_E_FORMAT where they pass 2^63 or a block is
 * cut. `name`, `file`, `dtype`, `packing`, `rank`, `dim` are set. */
weft_status weft_stored_size(weft_stored_tensor *t);
weft_status weft_tensors_append(weft_tensors *ts, const weft_stored_tensor *t);

#endif
