/* GGUF, versions 2 and 3:
 *
 *   "GGUF" | u32 version | u64 tensors | u64 keys
 *   | keys x { text name | u32 kind | value }                 text: u64 bytes, then they
 *   | tensors x { text name | u32 dims | u64 dim[dims] (innermost first) | u32 type | u64 offset }
 *   | fill up to the alignment | data
 *
 * Keys with texts become metadata. The key "comfy.gguf.orig_shape.NAME" has the original shape of a
 * tensor that was stored as rows of 256 elements. */
#include "format/tensors/gguf.h"

#include "base/config.h"
#include "format/tensors/tensors_internal.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DIMS = 5, MOST_DEPTH = 3 };

enum { G_U8, G_I8, G_U16, G_I16, G_U32, G_I32, G_F32, G_BOOL, G_TEXT, G_LIST, G_U64, G_I64, G_F64 };

typedef struct cursor {
    const char *path;
    const unsigned char *at, *end;
} cursor;

bool weft_gguf_is(const weft_map *map)
{
    return map->bytes >= 4 && !memcmp(map->data, "GGUF", 4);
}

static weft_status cut(const cursor *c)
{
    return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = c->path),
                      "the file ends within its header, or a length in the header is wrong. "
                      "Download the file again.");
}

static weft_status take(cursor *c, int bytes, uint64_t *value)
{
    *value = 0;
    if (c->end - c->at < bytes)
        return cut(c);
    for (int i = bytes - 1; i >= 0; i--)
        *value = *value << 8 | c->at[i];
    c->at += bytes;
    return WEFT_OK;
}

/* Borrowed from the map: not terminated. */
static weft_status take_text(cursor *c, const char **text, int64_t *length)
{
    uint64_t n;
    *text = (const char *)c->at;
    *length = 0;
    WEFT_TRY(take(c, 8, &n));
    if (n > (uint64_t)(c->end - c->at))
        return cut(c);
    *text = (const char *)c->at;
    *length = (int64_t)n;
    c->at += n;
    return WEFT_OK;
}

static int number_bytes(uint64_t kind)
{
    static const signed char bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, -1, -1, 8, 8, 8};
    return kind < sizeof bytes ? bytes[kind] : -1;
}

/* A list of shapes: I32 sizes as text "d0,d1". */
static weft_status add_list(weft_tensors *ts, const char *name, uint64_t kind, uint64_t count,
                            const unsigned char *at)
{
    weft_buf text = {0};
    for (uint64_t i = 0; (kind == G_I32 || kind == G_U32) && i < count && i < 8; i++)
        weft_buf_printf(&text, "%s%u", i ? "," : "",
                        (unsigned)(at[4 * i] | at[4 * i + 1] << 8 | at[4 * i + 2] << 16 |
                                   (unsigned)at[4 * i + 3] << 24));
    if (text.data)
        json_object_set_new(ts->metadata, name, json_string(text.data));
    weft_buf_free(&text);
    return WEFT_OK;
}

static weft_status skip_value(cursor *c, uint64_t kind, int depth)
{
    const char *text;
    int64_t length;
    uint64_t inner, count;
    if (kind == G_TEXT)
        return take_text(c, &text, &length);
    if (kind == G_LIST && depth < MOST_DEPTH) {
        WEFT_TRY(take(c, 4, &inner));
        WEFT_TRY(take(c, 8, &count));
        const int each = number_bytes(inner);
        if (each > 0) {
            if (count > (uint64_t)(c->end - c->at) / (uint64_t)each)
                return cut(c);
            c->at += count * (uint64_t)each;
            return WEFT_OK;
        }
        for (uint64_t i = 0; i < count; i++)
            WEFT_TRY(skip_value(c, inner, depth + 1));
        return WEFT_OK;
    }
    if (number_bytes(kind) < 0)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = c->path, WEFT_NUMBER(kind)),
                          "a key has type %" PRIu64
                          ", which GGUF does not define. Download the file again.",
                          kind);
    uint64_t value;
    return take(c, number_bytes(kind), &value);
}

static weft_status read_key(cursor *c, weft_tensors *ts, uint64_t *alignment)
{
    const char *text;
    int64_t length;
    uint64_t kind;
    WEFT_TRY(take_text(c, &text, &length));
    char name[300];
    snprintf(name, sizeof name, "%.*s", (int)(length < 299 ? length : 299), text);
    WEFT_TRY(take(c, 4, &kind));
    const cursor before = *c;
    WEFT_TRY(skip_value(c, kind, 0));
    if (kind == G_TEXT) {
        cursor value = before;
        WEFT_TRY(take_text(&value, &text, &length));
        json_object_set_new(ts->metadata, name, json_stringn(text, (size_t)length));
    } else if (kind == G_LIST) {
        cursor value = before;
        uint64_t inner = 0, count = 0;
        WEFT_TRY(take(&value, 4, &inner));
        WEFT_TRY(take(&value, 8, &count));
        WEFT_TRY(add_list(ts, name, inner, count, value.at));
    } else if (kind == G_U32 && !strcmp(name, "general.alignment")) {
        cursor value = before;
        WEFT_TRY(take(&value, 4, alignment));
        if (*alignment == 0 || *alignment > 1 << 20 || *alignment & (*alignment - 1))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = c->path, .key = name, WEFT_NUMBER(*alignment)),
                              "%" PRIu64
                              " is not a power of two up to 1048576. Download the file again.",
                              *alignment);
    }
    return WEFT_OK;
}

/* F32, F16, BF16 and what the tables of types have. */
static weft_status set_type(weft_stored_tensor *t, uint64_t type)
{
    static const struct {
        int type;
        weft_dtype dtype;
    } plain[] = {{0, WEFT_F32},  {1, WEFT_F16},  {26, WEFT_I32},
                 {27, WEFT_I64}, {28, WEFT_F64}, {30, WEFT_BF16}};
    for (int i = 0; i < WEFT_COUNT(plain); i++)
        if ((uint64_t)plain[i].type == type) {
            t->dtype = plain[i].dtype;
            return WEFT_OK;
        }
    t->packing = weft_packing_gguf((int64_t)(type < 1000 ? type : 1000));
    return t->packing
               ? WEFT_OK
               : weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                            WEFT_AT(.file = t->file, .key = t->name, WEFT_NUMBER(type)),
                            "the tensor has GGUF type %" PRIu64
                            ", which weft does not read. Use a file "
                            "of Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, F16, BF16 or F32.",
                            type);
}

/* The shape before the writer cut it into rows. */
static weft_status own_shape(const weft_tensors *ts, weft_stored_tensor *t)
{
    char key[300];
    snprintf(key, sizeof key, "comfy.gguf.orig_shape.%s", t->name);
    const char *text = weft_tensors_metadata(ts, key);
    if (!text)
        return WEFT_OK;
    weft_stored_tensor other = *t;
    int used;
    for (other.rank = 0; other.rank < WEFT_TENSORS_MAX_RANK; other.rank++) {
        int64_t n;
        if (sscanf(text, "%" SCNd64 "%n", &n, &used) != 1)
            break;
        other.dim[other.rank] = n;
        text += used + (text[used] == ',');
    }
    WEFT_TRY(weft_stored_size(&other));
    if (other.count != t->count)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = t->file, .key = t->name),
                          "the shape in %s does not have the %" PRId64
                          " elements of the tensor. Download "
                          "the file again.",
                          key, t->count);
    *t = other;
    return WEFT_OK;
}

/* `offset` is left in t->first. */
static weft_status read_tensor(cursor *c, weft_tensors *ts)
{
    const char *text;
    int64_t length;
    uint64_t rank, n, type, offset;
    weft_stored_tensor t = {.file = c->path};
    WEFT_TRY(take_text(c, &text, &length));
    char *name = length < 600 ? weft_arena_printf(ts->arena, "%.*s", (int)length, text) : NULL;
    if (!name)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = c->path, WEFT_NUMBER(length)),
                          "the name of a tensor has %" PRId64
                          " bytes; up to 599 are read. Download the file again.",
                          length);
    t.name = name;
    WEFT_TRY(take(c, 4, &rank));
    if (rank > MOST_DIMS)
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = c->path, .key = name, WEFT_NUMBER(rank)),
            "the tensor has %" PRIu64 " dimensions; up to %d are read. Download the file again.",
            rank, MOST_DIMS);
    t.rank = (int)rank;
    for (int i = t.rank - 1; i >= 0; i--) {
        WEFT_TRY(take(c, 8, &n));
        t.dim[i] = n <= INT64_MAX ? (int64_t)n : -1;
    }
    WEFT_TRY(take(c, 4, &type));
    WEFT_TRY(take(c, 8, &offset));
    WEFT_TRY(set_type(&t, type));
    WEFT_TRY(weft_stored_size(&t));
    if (t.packing && t.rank > 0 && t.dim[t.rank - 1] % t.packing->elements)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = c->path, .key = name, WEFT_NUMBER(t.dim[t.rank - 1])),
                          "rows of %" PRId64 " elements are not a whole number of %s blocks of %d. "
                          "Download the file again.",
                          t.dim[t.rank - 1], t.packing->name, t.packing->elements);
    WEFT_TRY(own_shape(ts, &t));
    t.first = offset <= INT64_MAX ? (int64_t)offset : -1;
    return weft_tensors_append(ts, &t);
}

static weft_status locate_tensors(weft_tensors *ts, int64_t first, const cursor *c, int64_t bytes)
{
    for (int64_t i = first; i < ts->count; i++) {
        weft_stored_tensor *t = &ts->tensor[i];
        if (t->first < 0 || t->first > bytes || t->bytes > bytes - t->first)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = c->path, .key = t->name),
                              "the tensor needs %" PRId64 " bytes at byte %" PRId64
                              " of the data, and the file "
                              "has %" PRId64 " bytes of data. Download the file again.",
                              t->bytes, t->first, bytes);
        t->data = c->at + t->first;
        t->first = 0;
    }
    return WEFT_OK;
}

weft_status weft_gguf_read(weft_tensors *ts, const char *path, const weft_map *map)
{
    cursor c = {path, map->data + 4, map->data + map->bytes};
    uint64_t version, tensors, keys, alignment = 32;
    const int64_t first = ts->count;
    WEFT_TRY(take(&c, 4, &version));
    if (version != 2 && version != 3)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path, WEFT_NUMBER(version)),
                          "the file is GGUF version %" PRIu64 "; weft reads versions 2 and 3",
                          version);
    WEFT_TRY(take(&c, 8, &tensors));
    WEFT_TRY(take(&c, 8, &keys));
    if (!ts->metadata)
        ts->metadata = json_object();
    WEFT_TRY(WEFT_ALLOCATED(ts->metadata, "%s", path));
    for (uint64_t i = 0; i < keys; i++)
        WEFT_TRY(read_key(&c, ts, &alignment));
    for (uint64_t i = 0; i < tensors; i++)
        WEFT_TRY(read_tensor(&c, ts));
    const uint64_t used = (uint64_t)(c.at - map->data);
    const uint64_t begin = (used + alignment - 1) / alignment * alignment;
    if (begin > (uint64_t)map->bytes && tensors)
        return cut(&c);
    c.at = map->data + (begin < (uint64_t)map->bytes ? begin : (uint64_t)map->bytes);
    return locate_tensors(ts, first, &c, c.end - c.at);
}
