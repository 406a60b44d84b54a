/* The index of a shard, "<shard>.index": its samples and the offsets of their parts.
 *
 *     train-000000.tar         headers and data
 *     train-000000.tar.index   magic, bytes, stamp and checksum of the shard; samples; parts; text
 *
 * With indexes a dataset opens without reading its tar files, and each part can be read alone and
 * verified by its checksum. `weft shard` writes indexes. For a shard without an index, the first
 * start builds one and writes it if the folder is writable. It has no checksums, which would need
 * to read all data. An index is valid for a shard with the same size and time of change. For a
 * copied shard (same size, another time) the headers are read again, and members at unchanged
 * offsets keep the checksums of the old index. */
#ifndef WEFT_DATA_INDEX_H
#define WEFT_DATA_INDEX_H

#include "base/dtype.h"
#include "base/json.h"
#include "storage/storage.h"
#include "video/reader.h"

#include <string.h>

enum { WEFT_SAMPLE_MAX_PARTS = 12, WEFT_PART_MAX_RANK = 4 };

/* The shape of an .npy part of up to 4 dims. */
typedef struct weft_part_shape {
    int32_t dtype; /* weft_dtype */
    int32_t rank;
    int32_t dim[WEFT_PART_MAX_RANK];
} weft_part_shape;

typedef struct weft_part_data {
    const char *suffix;           /* lower case: "mp4", "json", "latent.npy" */
    int64_t at, bytes;            /* offset in the shard, and size */
    uint64_t sum;                 /* XXH3-64 of the bytes; 0: not known */
    const weft_part_shape *shape; /* NULL: no .npy, or one that cannot be read */
} weft_part_data;

typedef struct weft_sample {
    const char *key;
    uint64_t id; /* XXH3-64 of the key: the sample's address for random numbers, on any machine */
    const weft_part_data *part;    /* [part_count] */
    double fps;                    /* 0: not known */
    int32_t frames, width, height; /* 0: not known. From the .json, else from the container */
    int32_t shard;                 /* index of its file in the dataset */
    uint8_t part_count;
    bool captioned;  /* the caption is not empty */
    bool damaged;    /* "damaged" in its .json is true or more than 0 */
    bool unreadable; /* its .json has no size, and the video cannot be opened */
    uint16_t source; /* index of its source in the dataset; 0 for a single path */
    bool limited;    /* beyond the limit of its source */
} weft_sample;
/* Whether two samples have the same key. */
static inline bool weft_sample_same(const weft_sample *a, const weft_sample *b)
{
    return a->id == b->id && !strcmp(a->key, b->key);
}

typedef struct weft_index {
    weft_storage_facts facts; /* size and time of change of the shard */
    uint64_t sum;             /* XXH3-64 of the shard; 0: not known */
    weft_sample *sample;      /* arena, as all below it */
    int64_t count, parts;
    const char *damage; /* NULL: the shard is whole */
} weft_index;

/* Splits a member's path at webdataset's point. False: no key (a folder entry, "__name__", no dot).
 * `key_len` is a length in `name`; *suffix points into it. */
bool weft_webdataset_split(const char *name, int64_t *key_len, const char **suffix);
/* NULL: the sample has no such part. */
const weft_part_data *weft_sample_part(const weft_sample *sample, const char *suffix);
/* The part that is a video or an image; NULL: none. */
const weft_part_data *weft_sample_video(const weft_sample *sample);

/* Builds the index from the shard. A file that is not a tar archive gives an index without samples,
 * and `damage` has the reason. WEFT_E_FORMAT: a sample has two parts of one suffix, or too many. */
weft_status weft_index_make(weft_storage *storage, const char *shard, weft_arena *arena,
                            weft_index *index);
/* Room that the stored form of one index after the other is read into; zero-initialise, and free
 * what it has in the end. */
typedef struct weft_index_buffer {
    char *data; /* weft_free */
    int64_t bytes;
} weft_index_buffer;
/* The stored one where it fits, else made and, where the storage lets one, stored. *made (NULL: of
 * no interest) is set where it was made. */
weft_status weft_index_get(weft_storage *storage, const char *shard, weft_arena *arena,
                           weft_index_buffer *buffer, weft_index *index, bool *made);
weft_status weft_index_save(weft_storage *storage, const char *shard, const weft_index *index);

/* Sets the checksums after writing a shard: sum[index->parts] of the parts in order, and the sum of
 * the shard. */
void weft_index_set_sums(weft_index *index, const uint64_t *sum, uint64_t shard);

void weft_index_encode(const weft_index *index, weft_buf *out);
weft_status weft_index_decode(const void *data, int64_t bytes, const char *where, weft_arena *arena,
                              weft_index *index);
/* Tests: sets the checksum of an encoded index that was altered. */
void weft_index_seal(void *data, int64_t bytes);

/* Sets the members of a sample that its .json states, or that its container states. */
void weft_sample_set_metadata(weft_sample *sample, const json_t *meta);
void weft_sample_set_info(weft_sample *sample, const weft_video_info *info);

/* Number of frames in a clip's .json; 0 if it is missing or impossible. */
int64_t weft_metadata_frames(const json_t *meta);
/* The caption of a sample's .json; NULL: none. If the value is not a string, *wrong describes it
 * ("is a number"). */
const char *weft_metadata_caption(const json_t *meta, const char **wrong);
/* A caption out of a .txt: without a byte order mark and blanks at its end; NUL bytes become
 * blanks. In place; the length that is left. */
int64_t weft_caption_clean(char *text, int64_t bytes);

#endif
