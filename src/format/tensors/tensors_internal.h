/* Inside format/: a set of stored tensors, as the readers of its file formats fill it. */
#ifndef WEFT_FORMAT_TENSORS_INSIDE_H
#define WEFT_FORMAT_TENSORS_INSIDE_H

#include "base/fs.h"
#include "format/tensors.h"

struct weft_tensors {
    weft_arena *arena; /* names, paths, scales */
    const char *opened;
    weft_map *map;     /* [file_count] */
    const char **path; /* [file_count] */
    int64_t file_count, file_capacity, path_capacity;
    json_t *metadata;           /* name -> string */
    weft_stored_tensor *tensor; /* sorted by name once all files are read */
    int64_t count, capacity;
};

/* Each appends the tensors of one mapped file, checked: their data lie inside the map. */
weft_status weft_safetensors_read(weft_tensors *ts, const char *path, const weft_map *map);
weft_status weft_gguf_read(weft_tensors *ts, const char *path, const weft_map *map);
/* A zip of the newer torch.save, or the older stream of pickles. */
weft_status weft_pickle_read(weft_tensors *ts, const char *path, const weft_map *map);
bool weft_gguf_is(const weft_map *map);
bool weft_pickle_is(const weft_map *map);

/* Factors of fp8 and int8 files (format/scaled.c) go to the tensors that they are for, and they and
 * what else describes such a file leave the set. */
weft_status weft_scaled_attach(weft_tensors *ts);

/* count and bytes from dtype or packing and dims; WEFT_E_FORMAT where they pass 2^63 or a block is
 * cut. `name`, `file`, `dtype`, `packing`, `rank`, `dim` are set. */
weft_status weft_stored_size(weft_stored_tensor *t);
weft_status weft_tensors_append(weft_tensors *ts, const weft_stored_tensor *t);

#endif
