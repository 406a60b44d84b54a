#ifndef WEFT_FORMAT_TENSORS_GGUF_H
#define WEFT_FORMAT_TENSORS_GGUF_H

#include "base/fs.h"
#include "format/tensors/tensors.h"

weft_status weft_gguf_read(weft_tensors *ts, const char *path, const weft_map *map);
bool weft_gguf_is(const weft_map *map);

#endif
