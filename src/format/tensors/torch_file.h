#ifndef WEFT_FORMAT_TENSORS_TORCH_FILE_H
#define WEFT_FORMAT_TENSORS_TORCH_FILE_H

#include "base/fs.h"
#include "format/tensors/tensors.h"

/* A zip of the newer torch.save, or the older stream of pickles. */
weft_status weft_pickle_read(weft_tensors *ts, const char *path, const weft_map *map);
bool weft_pickle_is(const weft_map *map);

#endif
