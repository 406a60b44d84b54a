#ifndef WEFT_MODEL_ADAPTER_WRITE_H
#define WEFT_MODEL_ADAPTER_WRITE_H

#include "model/adapter.h"

extern const char *const weft_adapter_formats[]; /* ends with NULL */
/* Writes <folder>/<stem>.safetensors atomically. */
weft_status weft_adapter_write(const weft_adapter_file *file, const weft_adapter_pair *pair,
                               int64_t count);

#endif
