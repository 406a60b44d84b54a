/* Checksums of a damaged index, from the shard and the note of `weft shard`. Private to data/. */
#ifndef WEFT_DATA_INDEX_RESTORE_H
#define WEFT_DATA_INDEX_RESTORE_H

#include "data/index.h"

/* Completes an index that was built from the headers of a shard with a damaged index. If the shard
 * has the bytes that its note (.<shard>.json) names, the index gets all checksums and is the one
 * that was written. Without a note the checksums are lost, which is a warning. WEFT_E_FORMAT: the
 * shard has other bytes than the note names. */
weft_status weft_index_restore(weft_storage *storage, const char *shard, weft_index *index);

#endif
