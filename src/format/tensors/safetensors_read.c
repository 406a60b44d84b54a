#include "format/tensors/safetensors_read.h"

#include "base/config.h"
#include "base/hash.h"
#include "base/hex.h"
#include "format/tensors/gguf.h"
#include "format/tensors/safetensors_sum.h"
#include "format/tensors/tensors_internal.h"
#include "format/tensors/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER_BYTES = 100 * 1000 * 1000 };

static const struct {
    const char *name;
    weft_dtype dtype;
} dtype_names[] = {
    {"F32", WEFT_F32}, {"BF16", WEFT_BF16}, {"F16", WEFT_F16}, {"F8_E4M3", WEFT_F8E4M3},
    {"I32", WEFT_I32}, {"I64", WEFT_I64},   {"U8", WEFT_U8},   {"F64", WEFT_F64},
};

static weft_status parse_dtype(weft_stored_tensor *t, const json_t *entry)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; text && i < WEFT_COUNT(dtype_names); i++)
        if (!strcmp(text, dtype_names[i].name)) {
            t->dtype = dtype_names[i].dtype;
            return WEFT_OK;
        }
    t->packing = text ? weft_packing_find(text) : NULL;
    if (t->packing && t->packing->elements == 1)
        return WEFT_OK;
    return weft_error(
        text ? WEFT_MSG_FORMAT_UNSUPPORTED : WEFT_MSG_FORMAT_DAMAGED,
        WEFT_AT(.file = t->file, .key = t->name, .value = text), "the tensor has %s%s",
        text ? "the unsupported dtype " : "no dtype. Download the file again.", text ? text : "");
}

static weft_status parse_shape(weft_stored_tensor *t, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > WEFT_TENSORS_MAX_RANK)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = t->file, .key = t->name),
                          "\"shape\" must be a list of at most %d sizes", WEFT_TENSORS_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        t->dim[i] = json_is_integer(size) ? json_integer_value(size) : -1;
    }
    return weft_stored_size(t);
}

/* Bytes are relative to the data section of `data_bytes`. */
static weft_status parse_entry(weft_tensors *ts, const char *path, const char *name,
                               const json_t *entry, const unsigned char *data, int64_t data_bytes)
{
    weft_stored_tensor t = {.file = path, .name = weft_arena_strdup(ts->arena, name)};
    WEFT_TRY(WEFT_ALLOCATED(t.name, "%s", path));
    if (!json_is_object(entry))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = name),
                          "the entry in the header is not a JSON object");
    WEFT_TRY(parse_dtype(&t, entry));
    WEFT_TRY(parse_shape(&t, entry));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = name),
                          "\"data_offsets\" must be two integers");
    const int64_t begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0 || end < begin || end > data_bytes)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = name),
                          "the tensor is at bytes %" PRId64 " to %" PRId64
                          " of the data, outside its %" PRId64 " "
                          "bytes. Download the file again.",
                          begin, end, data_bytes);
    if (end - begin != t.bytes)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = name),
                          "the tensor has %" PRId64 " bytes, and its shape and dtype need %" PRId64,
                          end - begin, t.bytes);
    t.data = data + begin;
    return weft_tensors_append(ts, &t);
}

static int by_offset(const void *a, const void *b)
{
    const weft_stored_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that the tensors from `first` on, which are from one file, tile its data section. */
static weft_status check_tiling(weft_tensors *ts, int64_t first, const char *path,
                                const unsigned char *data, int64_t data_bytes)
{
    if (ts->count > first)
        qsort(ts->tensor + first, (size_t)(ts->count - first), sizeof *ts->tensor, by_offset);
    int64_t at = 0;
    for (int64_t i = first; i < ts->count; i++) {
        const weft_stored_tensor *t = &ts->tensor[i];
        const int64_t begin = (const unsigned char *)t->data - data;
        if (begin < at)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = t->name),
                              "the tensor overlaps \"%s\" at byte %" PRId64 " of the data",
                              ts->tensor[i - 1].name, begin);
        if (begin > at)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = t->name),
                              "bytes %" PRId64 " to %" PRId64
                              " before this tensor belong to no tensor",
                              at, begin);
        at = begin + t->bytes;
    }
    if (at != data_bytes)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                          "the last %" PRId64 " bytes belong to no tensor", data_bytes - at);
    return WEFT_OK;
}

weft_status weft_safetensors_read(weft_tensors *ts, const char *path, const weft_map *map)
{
    if (map->bytes < 8)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                          "the file has %" PRId64
                          " bytes; a file of weights has more than 8. Download it again.",
                          map->bytes);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | map->data[i];
    if (header > MAX_HEADER_BYTES || header > (uint64_t)(map->bytes - 8))
        return weft_error(
            WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = path),
            "this is not a file of weights, or a truncated one: it is not GGUF, not of torch.save, "
            "and as safetensors its header would have %" PRIu64 " bytes, but the file has %" PRId64,
            header, map->bytes);
    json_t *json;
    WEFT_TRY(weft_json_parse((const char *)map->data + 8, (int64_t)header, path, &json));
    weft_status_code status = WEFT_OK;
    const unsigned char *data = map->data + 8 + header;
    const int64_t data_bytes = map->bytes - 8 - (int64_t)header, first = ts->count;
    if (!json_is_object(json))
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                           "the header is not a JSON object"));
    const char *name;
    json_t *entry;
    json_object_foreach(json, name, entry)
    {
        if (!strcmp(name, "__metadata__")) {
            if (!ts->metadata)
                ts->metadata = json_incref(entry);
            continue;
        }
        WEFT_GO(parse_entry(ts, path, name, entry, data, data_bytes));
    }
    status = check_tiling(ts, first, path, data, data_bytes);
out:
    json_decref(json);
    return status;
}

int64_t weft_tensors_sum_at(const void *header, int64_t bytes)
{
    static const char before[] = "\"" WEFT_TENSORS_SUM "\":\"";
    const int64_t length = (int64_t)sizeof before - 1;
    const char *at = memmem(header, (size_t)bytes, before, (size_t)length);
    const int64_t offset = at ? at - (const char *)header + length : -1;
    return offset >= 0 && offset + WEFT_TENSORS_SUM_BYTES < bytes ? offset : -1;
}

/* Adds the file to the checksum in pieces and evicts each piece, so that the checksum of a large
 * file needs little resident memory. */
static void add_to_sum(XXH3_state_t *state, const unsigned char *from, int64_t bytes)
{
    enum { PIECE = 16 << 20 };
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        XXH3_64bits_update(state, from + at, (size_t)n);
        weft_map_forget(from + at, n);
    }
}

weft_status weft_tensors_verify(const weft_tensors *ts)
{
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(state, "a checksum"));
    for (int64_t i = 0; i < ts->file_count; i++) {
        const weft_map *map = &ts->map[i];
        if (weft_gguf_is(map) || weft_pickle_is(map))
            continue;
        char sum[WEFT_HEX_BYTES];
        uint64_t header = 0;
        memcpy(&header, map->data, 8); /* it was checked when the file was opened */
        const int64_t at = weft_tensors_sum_at(map->data, 8 + (int64_t)header);
        if (at < 0)
            continue;
        const unsigned char *rest = map->data + at + WEFT_TENSORS_SUM_BYTES;
        XXH3_64bits_reset(state);
        XXH3_64bits_update(state, map->data, (size_t)at);
        XXH3_64bits_update(state, WEFT_TENSORS_NO_SUM, WEFT_TENSORS_SUM_BYTES);
        add_to_sum(state, rest, map->data + map->bytes - rest);
        weft_hex_print(XXH3_64bits_digest(state), sum);
        if (memcmp(sum, map->data + at, WEFT_TENSORS_SUM_BYTES) != 0)
            WEFT_GO(weft_error(WEFT_MSG_CHECKSUM_MISMATCH, WEFT_AT(.file = ts->path[i]),
                               "the checksum of the content is %s, and %.*s was written. Copy the "
                               "file again; if it was changed on purpose, remove " WEFT_TENSORS_SUM
                               " from its metadata.",
                               sum, WEFT_TENSORS_SUM_BYTES, (const char *)map->data + at));
    }
out:
    XXH3_freeState(state);
    return status;
}
