/* Tensors of a store to and from safetensors: each part is written once, by a rank that holds it,
 * and read by any mesh.
 *
 *   one rank       <stem>.safetensors (or shards and an index)
 *   several ranks  <stem>-rank-00000-of-00002.safetensors    what rank 0 wrote
 *                  <stem>-rank-00001-of-00002.safetensors    ...
 *                  <stem>.safetensors.index.json             which names them all
 *
 * A tensor that one rank holds whole stands under its own name, so that any reader of sharded
 * safetensors understands it. A part's name says where it belongs, per dim begin:end/whole, so that
 * no file ever holds a part under the whole tensor's name:
 *
 *   adamw.m.proj.weight[0:8/16,0:32/32]     rows 0 to 7 of 16
 *   adamw.m.proj.bias                       all of it                                            */
#ifndef WEFT_RUNTIME_PART_FILES_H
#define WEFT_RUNTIME_PART_FILES_H

#include "runtime/part.h"

/* Which tensors of a store go into one set of files. */
typedef struct weft_part_set {
    const char *folder; /* below that of the call; "": that itself */
    const char *stem;
    const char *prefix; /* "transformer.", "adamw." */
    bool strip;         /* names in the files do without the prefix */
    bool trained;       /* only what is trained */
} weft_part_set;

typedef struct weft_part_writer {
    int rank, ranks;     /* of the run: for the files' names */
    int64_t shard_bytes; /* of a file at most; 0: no limit */
    int64_t staging;     /* bytes of copies that wait to be written, at most; 0: no limit */
} weft_part_writer;

/* A copy of a store on its way to files through a staging memory of bounded size:
 *
 *   owner:   weft_part_stream_feed    copies tensors in; waits while the staging is full
 *   writer:  weft_part_stream_drain   (another thread, or later where all fits) writes them      */
typedef struct weft_part_stream weft_part_stream;

/* What this rank writes of the sets: of parts that several ranks hold, each writes some, by bytes.
 * `store` is borrowed until feed has returned. */
weft_status weft_part_stream_create(weft_store *store, const weft_part_set *sets, int count,
                                    const weft_part_writer *writer, weft_part_stream **stream);
int64_t weft_part_stream_bytes(const weft_part_stream *stream); /* that it will write in all */
void weft_part_stream_free(weft_part_stream *stream);           /* accepts NULL */
/* Returns when the store may change again, also when the writer has failed. */
void weft_part_stream_feed(weft_part_stream *stream);
/* Writes the files below `folder`; its folders must be there. No messages are exchanged. */
weft_status weft_part_stream_drain(weft_part_stream *stream, const char *folder);

/* The index of a set that several ranks have written; none when they wrote nothing. */
weft_status weft_part_set_index(const weft_part_set *set, const char *folder);

/* Fills every tensor of the set from all such files below `folder`, whatever mesh wrote them. Each
 * must be covered exactly, with the same whole shape and type, and the files must hold nothing
 * else: errors name what is missing, unknown or there twice. */
weft_status weft_part_set_load(weft_store *store, const weft_part_set *set, const char *folder);

#endif
