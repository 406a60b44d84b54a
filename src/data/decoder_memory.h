/* Memory of the decoders of a data set, measured before a run reserves memory. */
#ifndef WEFT_DATA_DECODER_MEMORY_H
#define WEFT_DATA_DECODER_MEMORY_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_decoder_memory {
    const char *shards, *split;    /* arguments of weft_dataset_open */
    int64_t threads;               /* decoders at the same time */
    int64_t frames, height, width; /* size of the clips */
} weft_decoder_memory;

/* Decodes the first clip of the first shard on all threads. Sets *bytes to the resident bytes that
 * the decoders need while they decode: contexts, reference frames, and memory of their threads. The
 * pages of their libraries stay resident in this process and are not part of *bytes. 0: no clip can
 * be read. Reports no errors of the data, which the loader reports when it opens. */
weft_status weft_decoder_memory_measure(const weft_decoder_memory *decoders, int64_t *bytes);

#endif
