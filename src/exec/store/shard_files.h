/* Tensors of a store to and from safetensors. Each tensor shard is written once, by a rank that
 * holds it, and can be read by any mesh.
 *
 *   one rank       <stem>.safetensors (or several files and an index)
 *   several ranks  <stem>-rank-00000-of-00002.safetensors    written by rank 0
 *                  <stem>-rank-00001-of-00002.safetensors    ...
 *                  <stem>.safetensors.index.json             index of all files
 *
 * A complete tensor has its own name, so that any reader of sharded safetensors can read it. The
 * name of a shard has its range per dim, begin:end/whole, so that no file has a shard under the
 * name of the complete tensor:
 *
 *   adamw.m.proj.weight[0:8/16,0:32/32]     rows 0 to 7 of 16
 *   adamw.m.proj.bias                       the complete tensor */
#ifndef WEFT_EXEC_STORE_SHARD_FILES_H
#define WEFT_EXEC_STORE_SHARD_FILES_H

#include "base/status.h"
#include "exec/store/store.h"
#include "exec/store/tensor_shard.h"

/* Tensors of a store that one set of files contains. */
typedef struct weft_part_set {
    const char *folder; /* folder below the call's folder; "": the same folder */
    const char *stem;
    const char *prefix; /* "transformer.", "adamw." */
    bool strip;         /* names in the files lack the prefix */
    bool trained;       /* trainable tensors only */
} weft_part_set;

typedef struct weft_part_writer {
    int rank, ranks;     /* this rank and number of ranks, for file names */
    int64_t shard_bytes; /* maximum bytes per file; 0 (default): no limit */
    int64_t staging;     /* maximum bytes of copies not yet written; 0: no limit */
} weft_part_writer;

/* Copies a store to files through a staging buffer of bounded size:
 *
 *   owner:   weft_part_stream_feed    copies tensors in; waits while the buffer is full
 *   writer:  weft_part_stream_drain   writes them; in another thread, or later if all bytes fit */
typedef struct weft_part_stream weft_part_stream;

/* Creates the stream of the shards that this rank writes. Shards held by several ranks are
 * distributed over these ranks by bytes. `store` is borrowed until weft_part_stream_feed
 * returns. */
weft_status weft_part_stream_create(weft_store *store, const weft_part_set *sets, int count,
                                    const weft_part_writer *writer, weft_part_stream **stream);
int64_t weft_part_stream_bytes(const weft_part_stream *stream); /* bytes in total */
void weft_part_stream_free(weft_part_stream *stream);           /* accepts NULL */
/* Returns when the store may change again, also after the writer has failed. */
weft_status weft_part_stream_feed(weft_part_stream *stream);
/* Writes the files below `folder`. The folders of the sets must exist. Sends no messages. */
weft_status weft_part_stream_drain(weft_part_stream *stream, const char *folder);

/* Writes the index of a set after all ranks have written its files. Writes none if the set is
 * empty. */
weft_status weft_part_set_index(const weft_part_set *set, const char *folder);

/* Fills every tensor of the set from all its files below `folder`, written by any mesh. The files
 * must contain each tensor exactly once, with the same complete shape and type, and no other
 * tensors. Errors name missing, unknown and repeated tensors. */
weft_status weft_part_set_load(weft_store *store, const weft_part_set *set, const char *folder);

#endif
