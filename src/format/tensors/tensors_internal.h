/* Inside format/: a set of stored tensors, as the readers of its file formats fill it. */
#ifndef WEFT_FORMAT_TENSORS_TENSORS_INTERNAL_H
#define WEFT_FORMAT_TENSORS_TENSORS_INTERNAL_H

#include "base/fs.h"
#include "format/tensors/tensors.h"

struct weft_tensors {
    weft_arena *arena; /* names, paths, scales */
    const char *opened;
    weft_map *map;     /* [file_count] */
    const char **path; /* [file_count] */
    int64_t file_count, file_capacity, path_capacity;
    json_t *metadata;           /* name -> string */
    weft_stored_tensor *tensor; /* sorted by name once all files are read */
    int64_t count, capacity;
    weft_tensors *joined; /* sets whose tensors are in this one, without their maps; NULL: none */
};

#endif
