#include "format/tensors/safetensors_write.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/hex.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/safetensors_sum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct declared {
    char *name;
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_TENSORS_MAX_RANK];
    int64_t count, bytes, shard;
} declared;

struct weft_tensors_writer {
    char *folder, *stem;
    int64_t max_shard_bytes;
    json_t *metadata;
    declared *tensor;
    int64_t count, capacity;
    int64_t shards;  /* known when the first data comes */
    int64_t next;    /* tensor that comes next */
    int64_t written; /* bytes of the tensor so far */
    int64_t open;    /* shard that `file` writes, -1: none */
    weft_file_writer file;
    XXH3_state_t *sum;    /* checksum of the bytes in `file` */
    int64_t sum_at;       /* byte of `file` where its checksum goes */
    weft_names committed; /* shard files under their final names */
    bool finished, hasty;
};

static weft_status no_memory(void)
{
    return weft_no_memory("writing tensors");
}

weft_status weft_tensors_writer_create(const char *folder, const char *stem,
                                       int64_t max_shard_bytes, weft_tensors_writer **writer)
{
    weft_tensors_writer *w;
    WEFT_TRY(WEFT_NEW(w, 1, "writing tensors"));
    w->file.fd = -1;
    w->open = -1;
    w->max_shard_bytes = max_shard_bytes;
    w->folder = weft_strdup(folder);
    w->stem = weft_strdup(stem);
    w->metadata = json_object();
    w->sum = XXH3_createState();
    if (!w->folder || !w->stem || !w->metadata || !w->sum ||
        json_object_set_new(w->metadata, "format", json_string("pt")) ||
        json_object_set_new(w->metadata, WEFT_TENSORS_SUM, json_string(WEFT_TENSORS_NO_SUM))) {
        weft_tensors_writer_free(w);
        return no_memory();
    }
    const weft_status_code status = weft_make_dirs(folder);
    if (status != WEFT_OK) {
        weft_tensors_writer_free(w);
        return status;
    }
    *writer = w;
    return WEFT_OK;
}

weft_status weft_tensors_writer_metadata(weft_tensors_writer *w, const char *key, const char *value)
{
    return json_object_set_new(w->metadata, key, json_string(value)) ? no_memory() : WEFT_OK;
}

void weft_tensors_writer_hasten(weft_tensors_writer *w)
{
    w->hasty = true;
}

weft_status weft_tensors_writer_declare(weft_tensors_writer *w, const char *name, weft_dtype dtype,
                                        int rank, const int64_t *dim)
{
    if (w->next || w->open >= 0)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name),
                          "the tensor is declared after data was written");
    if (rank > WEFT_TENSORS_MAX_RANK)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = name, WEFT_NUMBER(rank)),
                          "the tensor has %d dimensions; at most %d can be stored", rank,
                          WEFT_TENSORS_MAX_RANK);
    WEFT_TRY(weft_grow((void **)&w->tensor, w->count, &w->capacity, sizeof *w->tensor));
    declared t = {.name = weft_strdup(name), .dtype = dtype, .rank = rank, .count = 1};
    WEFT_TRY(WEFT_ALLOCATED(t.name, "writing tensors"));
    for (int i = 0; i < rank; i++) {
        t.dim[i] = dim[i];
        t.count *= dim[i];
    }
    t.bytes = t.count * weft_dtype_bytes(dtype);
    w->tensor[w->count++] = t;
    return WEFT_OK;
}

static void assign_shards(weft_tensors_writer *w)
{
    int64_t shard = 0, used = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (w->max_shard_bytes > 0 && used > 0 && used + w->tensor[i].bytes > w->max_shard_bytes) {
            shard++;
            used = 0;
        }
        w->tensor[i].shard = shard;
        used += w->tensor[i].bytes;
    }
    w->shards = shard + 1;
}

static void shard_name(const weft_tensors_writer *w, int64_t shard, weft_buf *name)
{
    if (w->shards == 1)
        weft_buf_printf(name, "%s.safetensors", w->stem);
    else
        weft_buf_printf(name, "%s-%05" PRId64 "-of-%05" PRId64 ".safetensors", w->stem, shard + 1,
                        w->shards);
}

static const char *stored_name(weft_dtype dtype)
{
    static const char *const names[WEFT_DTYPE_COUNT] = {"F32", "BF16", "F16", "F8_E4M3",
                                                        "I32", "I64",  "U8",  "F64"};
    return names[dtype];
}

static json_t *header_of(const weft_tensors_writer *w, int64_t shard)
{
    json_t *header = json_object();
    int64_t at = 0;
    json_object_set(header, "__metadata__", w->metadata);
    for (int64_t i = 0; i < w->count; i++) {
        const declared *t = &w->tensor[i];
        if (t->shard != shard)
            continue;
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer(t->dim[d]));
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I,I]}", "dtype", stored_name(t->dtype),
                                      "shape", shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + t->bytes)));
        at += t->bytes;
    }
    return header;
}

static weft_status write_bytes(weft_tensors_writer *w, const void *data, int64_t bytes)
{
    XXH3_64bits_update(w->sum, data, (size_t)bytes);
    return weft_file_write(&w->file, data, bytes);
}

static weft_status begin_shard(weft_tensors_writer *w, int64_t shard)
{
    weft_buf name = {0};
    shard_name(w, shard, &name);
    char *path = name.failed ? NULL : weft_path_join(w->folder, name.data);
    weft_buf_free(&name);
    json_t *header = header_of(w, shard);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    weft_buf out = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path && text, "writing tensors"));
    const int64_t len = (int64_t)strlen(text),
                  padded = (len + 7) / 8 * 8; /* data begins 8-byte aligned */
    unsigned char size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    weft_buf_append(&out, size, 8);
    weft_buf_append(&out, text, len);
    weft_buf_append(&out, "       ", padded - len);
    WEFT_GO(weft_buf_check(&out));
    WEFT_GO(weft_file_begin(&w->file, path));
    w->file.hasty = w->hasty;
    w->open = shard;
    w->sum_at = weft_tensors_sum_at(out.data, out.len);
    XXH3_64bits_reset(w->sum);
    status = write_bytes(w, out.data, out.len);
out:
    weft_buf_free(&out);
    free(text);
    weft_free(path);
    return status;
}

/* Into its place in the header, which was summed with zeros there. */
static weft_status write_sum(weft_tensors_writer *w)
{
    char sum[WEFT_HEX_BYTES];
    weft_hex_print(XXH3_64bits_digest(w->sum), sum);
    if (pwrite(w->file.fd, sum, WEFT_TENSORS_SUM_BYTES, w->sum_at) != WEFT_TENSORS_SUM_BYTES)
        return weft_error_errno(WEFT_AT(.file = w->file.path), "cannot write the checksum");
    return WEFT_OK;
}

static weft_status end_shard(weft_tensors_writer *w)
{
    WEFT_TRY(write_sum(w));
    WEFT_TRY(weft_grow((void **)&w->committed.name, w->committed.count, &w->committed.capacity,
                       sizeof(char *)));
    char *path = weft_strdup(w->file.path);
    WEFT_TRY(WEFT_ALLOCATED(path, "writing tensors"));
    w->committed.name[w->committed.count++] = path;
    w->open = -1;
    return weft_file_commit(&w->file);
}

static weft_status write_converted(weft_tensors_writer *w, const declared *t, const float *from)
{
    enum { CHUNK = 16384 };
    uint16_t half[CHUNK];
    for (int64_t done = 0; done < t->count; done += CHUNK) {
        const int64_t n = t->count - done < CHUNK ? t->count - done : CHUNK;
        for (int64_t i = 0; i < n; i++)
            half[i] = t->dtype == WEFT_BF16 ? weft_f32_to_bf16(from[done + i])
                                            : weft_f32_to_f16(from[done + i]);
        WEFT_TRY(write_bytes(w, half, 2 * n));
    }
    return WEFT_OK;
}

/* The tensor that comes next, its shard open; `name` is what the caller thinks that it is. */
static weft_status next_tensor(weft_tensors_writer *w, const char *name, const declared **next)
{
    if (w->shards == 0)
        assign_shards(w);
    if (w->next >= w->count || strcmp(w->tensor[w->next].name, name) != 0)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name),
                          "the data of the tensor is written out of order");
    const declared *t = &w->tensor[w->next];
    if (w->open != t->shard) {
        if (w->open >= 0)
            WEFT_TRY(end_shard(w));
        WEFT_TRY(begin_shard(w, t->shard));
    }
    *next = t;
    return WEFT_OK;
}

weft_status weft_tensors_writer_some(weft_tensors_writer *w, const char *name, const void *data,
                                     int64_t bytes)
{
    const declared *t;
    WEFT_TRY(next_tensor(w, name, &t));
    if (bytes < 0 || w->written + bytes > t->bytes)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = name),
                          "more data is written than the shape of the tensor has");
    w->written += bytes;
    if (w->written == t->bytes) {
        w->next++;
        w->written = 0;
    }
    return write_bytes(w, data, bytes);
}

weft_status weft_tensors_writer_data(weft_tensors_writer *w, const char *name, weft_dtype from,
                                     const void *data)
{
    const declared *t;
    WEFT_TRY(next_tensor(w, name, &t));
    if (from == t->dtype)
        return weft_tensors_writer_some(w, name, data, t->bytes);
    if (from != WEFT_F32 || (t->dtype != WEFT_BF16 && t->dtype != WEFT_F16))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.key = name),
                          "a tensor of %s cannot be written as %s", weft_dtype_name(from),
                          weft_dtype_name(t->dtype));
    w->next++;
    return write_converted(w, t, data);
}

static weft_status write_index(weft_tensors_writer *w)
{
    json_t *map = json_object();
    int64_t total = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < w->count; i++) {
        weft_buf name = {0};
        shard_name(w, w->tensor[i].shard, &name);
        json_object_set_new(map, w->tensor[i].name, json_string(name.data ? name.data : ""));
        weft_buf_free(&name);
        total += w->tensor[i].bytes;
    }
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    weft_buf name = {0};
    weft_buf_printf(&name, "%s.safetensors.index.json", w->stem);
    char *path = name.failed ? NULL : weft_path_join(w->folder, name.data);
    status = index && path ? weft_json_save(path, index) : no_memory();
    weft_free(path);
    weft_buf_free(&name);
    json_decref(index);
    return status;
}

/* An index of an earlier, sharded writing would be read in place of the one file. */
static weft_status remove_stale_index(const weft_tensors_writer *w)
{
    weft_buf path = {0};
    weft_buf_printf(&path, "%s/%s.safetensors.index.json", w->folder, w->stem);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&path));
    if (unlink(path.data) != 0 && errno != ENOENT)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path.data), "cannot remove the file"));
out:
    weft_buf_free(&path);
    return status;
}

weft_status weft_tensors_writer_finish(weft_tensors_writer *w)
{
    if (w->shards == 0)
        assign_shards(w);
    if (w->next != w->count)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "the data of %" PRId64 " tensors was not written", w->count - w->next);
    if (w->open < 0 && w->count == 0)
        WEFT_TRY(begin_shard(w, 0)); /* a file without tensors is legal */
    WEFT_TRY(end_shard(w));
    if (w->shards > 1)
        WEFT_TRY(write_index(w));
    else
        WEFT_TRY(remove_stale_index(w));
    w->finished = true;
    return WEFT_OK;
}

void weft_tensors_writer_free(weft_tensors_writer *w)
{
    if (!w)
        return;
    if (w->file.path)
        weft_file_abort(&w->file);
    for (int64_t i = 0; !w->finished && i < w->committed.count; i++)
        remove(w->committed.name[i]);
    weft_names_free(&w->committed);
    for (int64_t i = 0; i < w->count; i++)
        weft_free(w->tensor[i].name);
    weft_free(w->tensor);
    json_decref(w->metadata);
    XXH3_freeState(w->sum);
    weft_free(w->folder);
    weft_free(w->stem);
    weft_free(w);
}
