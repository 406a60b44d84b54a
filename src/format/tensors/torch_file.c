/* Files of torch.save, in both forms.
 *
 *   newer:  a zip with nothing compressed:   NAME/data.pkl, NAME/data/0, NAME/data/1, ...
 *   older:  pickle of a magic number | pickle of 1001 | pickle of sizes | pickle of the object
 *           | pickle of a list of storage keys | for each: i64 elements, elements
 *
 * The object is a dict of names and tensors. Or it is a dict that contains such a dict under
 * "state_dict" or another usual name, averaged weights first, or as its only dict. Other content is
 * ignored. */
#include "format/tensors/torch_file.h"

#include "base/config.h"
#include "base/log.h"
#include "format/tensors/pickle.h"
#include "format/tensors/tensors_internal.h"

#include <stdio.h>
#include <string.h>

/* PROTO 2 to 5, from 4 on FRAME and its size, LONG1 of the magic number's 10 bytes. */
bool weft_pickle_is(const weft_map *map)
{
    static const unsigned char magic[] = {0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9};
    const unsigned char *p = map->data;
    if (map->bytes >= 4 && !memcmp(p, "PK\3\4", 4))
        return true;
    if (map->bytes < 11 + (int64_t)sizeof magic || p[0] != 0x80 || p[1] < 2 || p[1] > 5)
        return false;
    return !memcmp(p + (p[2] == 0x95 ? 11 : 2), magic, sizeof magic);
}

static uint64_t number_at(const unsigned char *p, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--)
        n = n << 8 | p[i];
    return n;
}

/* ---- storages ------------------------------------------------------------------------------- */

typedef struct piece {
    const char *key; /* terminated */
    const unsigned char *data;
    int64_t bytes;
} piece;

typedef struct pieces {
    piece *at;
    int64_t count, capacity;
} pieces;

static const piece *find(const pieces *all, const char *key)
{
    for (int64_t i = 0; i < all->count; i++)
        if (!strcmp(all->at[i].key, key))
            return &all->at[i];
    return NULL;
}

static weft_status add_piece(pieces *all, const piece *p)
{
    WEFT_TRY(weft_grow((void **)&all->at, all->count, &all->capacity, sizeof *all->at));
    all->at[all->count++] = *p;
    return WEFT_OK;
}

/* ---- the object ----------------------------------------------------------------------------- */

static weft_status read_dims(const weft_pickled *v, weft_stored_tensor *t)
{
    if (v->size->count > WEFT_TENSORS_MAX_RANK || v->stride->count != v->size->count)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = t->file, .key = t->name),
                          "the tensor has %" PRId64 " sizes and %" PRId64
                          " strides; both must be the same and at most %d",
                          v->size->count, v->stride->count, WEFT_TENSORS_MAX_RANK);
    t->rank = (int)v->size->count;
    for (int i = 0; i < t->rank; i++)
        t->dim[i] = v->size->item[i]->kind == WEFT_PICKLED_NUMBER ? v->size->item[i]->number : -1;
    WEFT_TRY(weft_stored_size(t));
    int64_t dense = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dim[i] > 1 && v->stride->item[i]->number != dense)
            return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = t->file, .key = t->name),
                              "the tensor is not in C order (it was transposed or sliced). Save it "
                              "as x.contiguous().");
        dense *= t->dim[i];
    }
    return WEFT_OK;
}

static weft_status add_tensor(weft_tensors *ts, const char *path, const char *name,
                              const weft_pickled *v, const pieces *all)
{
    weft_stored_tensor t = {.file = path, .name = name, .dtype = v->dtype, .packing = v->packing};
    WEFT_TRY(read_dims(v, &t));
    const piece *own = find(all, v->storage->text);
    const int64_t each = t.packing ? t.packing->bytes : weft_dtype_bytes(t.dtype);
    if (!own || v->number < 0 || v->number > own->bytes / each ||
        t.bytes > own->bytes - v->number * each)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = name),
                          "the tensor needs %" PRId64 " bytes of storage \"%s\", which has %" PRId64
                          ". Download "
                          "the file again.",
                          t.bytes, v->storage->text, own ? own->bytes : 0);
    t.data = own->data + v->number * each;
    return weft_tensors_append(ts, &t);
}

enum { MOST_NESTED = 3 }; /* dicts around the one with the tensors */

static bool has_tensors(const weft_pickled *dict)
{
    for (int64_t i = 1; i < dict->count; i += 2)
        if (dict->item[i]->kind == WEFT_PICKLED_TENSOR)
            return true;
    return false;
}

/* Whether tensors are in the dict, or in dicts inside it. */
static bool leads_to_tensors(const weft_pickled *dict, int depth)
{
    if (dict->kind != WEFT_PICKLED_DICT || has_tensors(dict))
        return dict->kind == WEFT_PICKLED_DICT;
    for (int64_t i = 1; i < dict->count && depth > 1; i += 2)
        if (leads_to_tensors(dict->item[i], depth - 1))
            return true;
    return false;
}

/* The dict of that name in `dict`; NULL: none, or one without tensors, as a count of steps or the
 * list of an averaging class. */
static const weft_pickled *nest_of(const weft_pickled *dict, const char *name)
{
    for (int64_t i = 0; i + 1 < dict->count; i += 2)
        if (dict->item[i]->kind == WEFT_PICKLED_TEXT && !strcmp(dict->item[i]->text, name) &&
            leads_to_tensors(dict->item[i + 1], MOST_NESTED))
            return dict->item[i + 1];
    return NULL;
}

/* The dict in `dict` that holds the tensors: of a usual name, or the only one that has any.
 * Averaged weights come first, as the authors of Open-Sora-Plan (ema_state_dict), Latte (ema) and
 * Self-Forcing (generator_ema) read their own files. */
static const weft_pickled *inner_of(const char *path, const weft_pickled *dict)
{
    static const char *const averaged[] = {"ema_state_dict", "ema", "generator_ema"};
    static const char *const trained[] = {"state_dict", "model_state_dict", "model",
                                          "module",     "generator",        "gen_model"};
    const weft_pickled *first = NULL, *only = NULL;
    const char *name = NULL, *other = NULL;
    int candidates = 0;
    for (int n = 0; n < WEFT_COUNT(averaged) && !first; n++)
        if ((first = nest_of(dict, averaged[n])))
            name = averaged[n];
    for (int n = 0; n < WEFT_COUNT(trained) && !other; n++) {
        const weft_pickled *nest = nest_of(dict, trained[n]);
        if (nest)
            other = trained[n];
        if (nest && !first)
            first = nest;
    }
    if (name && other)
        weft_notice(WEFT_MSG_WEIGHTS_AVERAGED, WEFT_AT(.file = path, .key = name),
                    "the file has averaged weights (%s) and others (%s); weft reads the averaged "
                    "ones",
                    name, other);
    if (first)
        return first;
    for (int64_t i = 1; i < dict->count; i += 2)
        if (dict->item[i]->kind == WEFT_PICKLED_DICT && has_tensors(dict->item[i])) {
            only = dict->item[i];
            candidates++;
        }
    return candidates == 1 ? only : NULL;
}

static weft_status add_object(weft_tensors *ts, const char *path, const weft_pickled *root,
                              const pieces *all)
{
    for (int depth = 0;
         depth < MOST_NESTED && root->kind == WEFT_PICKLED_DICT && !has_tensors(root); depth++) {
        const weft_pickled *inner = inner_of(path, root);
        if (!inner)
            break;
        root = inner;
    }
    if (root->kind != WEFT_PICKLED_DICT || !has_tensors(root))
        return weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = path),
                          "the file has no dict of tensors (a state_dict). Save it with "
                          "torch.save(model.state_dict(), ...).");
    for (int64_t i = 0; i + 1 < root->count; i += 2)
        if (root->item[i]->kind == WEFT_PICKLED_TEXT &&
            root->item[i + 1]->kind == WEFT_PICKLED_TENSOR)
            WEFT_TRY(add_tensor(ts, path, root->item[i]->text, root->item[i + 1], all));
    return WEFT_OK;
}

/* ---- the zip -------------------------------------------------------------------------------- */

/*  end of central directory, 22 bytes and a comment:  "PK\5\6" ... u16 entries at 10, u32 bytes at
 *     12, u32 begin at 16;  if these are all ones, 20 bytes before, "PK\6\7" with the offset of the
 *     64-bit form ("PK\6\6": u64 entries at 32, begin at 48)
 *  an entry, 46 bytes and name, extra, comment:       "PK\1\2" ... u16 method at 10, u32 packed at
 *     20, u32 bytes at 24, u16 name, extra, comment at 28, 30, 32, u32 begin at 42
 *  before the data, 30 bytes and name, extra:         "PK\3\4" ... u16 name, extra at 26, 28 */
typedef struct directory {
    int64_t begin, entries;
} directory;

static weft_status no_zip(const char *path)
{
    return weft_error(
        WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
        "the directory of this zip file is missing or damaged. Download the file again.");
}

static weft_status find_directory(const char *path, const weft_map *map, directory *d)
{
    const int64_t least = map->bytes > 65557 ? map->bytes - 65557 : 0;
    int64_t at = map->bytes - 22;
    while (at >= least && memcmp(map->data + at, "PK\5\6", 4))
        at--;
    if (at < least)
        return no_zip(path);
    *d = (directory){(int64_t)number_at(map->data + at + 16, 4),
                     (int64_t)number_at(map->data + at + 10, 2)};
    if ((d->begin == 0xffffffff || d->entries == 0xffff) && at >= 20 &&
        !memcmp(map->data + at - 20, "PK\6\7", 4)) {
        const uint64_t wide = number_at(map->data + at - 20 + 8, 8);
        if (wide > (uint64_t)map->bytes - 56 || memcmp(map->data + wide, "PK\6\6", 4))
            return no_zip(path);
        d->entries = (int64_t)number_at(map->data + wide + 32, 8);
        d->begin = (int64_t)number_at(map->data + wide + 48, 8);
    }
    return d->begin >= 0 && d->begin <= map->bytes && d->entries >= 0 ? WEFT_OK : no_zip(path);
}

/* Replaces 32-bit fields that are all ones by the 64-bit fields of the entry's extra field 1. */
static void widen(const unsigned char *entry, uint64_t *bytes, uint64_t *packed, uint64_t *begin)
{
    const unsigned char *at = entry + 46 + number_at(entry + 28, 2),
                        *end = at + number_at(entry + 30, 2);
    while (end - at >= 4) {
        const int64_t length = (int64_t)number_at(at + 2, 2);
        const unsigned char *p = at + 4, *stop = p + length < end ? p + length : end;
        if (number_at(at, 2) == 1) {
            uint64_t *const field[] = {bytes, packed, begin};
            for (int i = 0; i < 3; i++)
                if (*field[i] == 0xffffffff && stop - p >= 8) {
                    *field[i] = number_at(p, 8);
                    p += 8;
                }
            return;
        }
        at += 4 + length;
    }
}

static weft_status read_entry(const char *path, const weft_map *map, const unsigned char *entry,
                              weft_arena *arena, piece *out)
{
    uint64_t packed = number_at(entry + 20, 4), bytes = number_at(entry + 24, 4),
             begin = number_at(entry + 42, 4);
    const int64_t length = (int64_t)number_at(entry + 28, 2);
    widen(entry, &bytes, &packed, &begin);
    out->key = weft_arena_printf(arena, "%.*s", (int)length, (const char *)entry + 46);
    WEFT_TRY(WEFT_ALLOCATED(out->key, "%s", path));
    if (number_at(entry + 10, 2) != 0 || packed != bytes)
        return weft_error(
            WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path, .key = out->key),
            "this member of the zip file is compressed; torch.save writes it uncompressed");
    const uint64_t size = (uint64_t)map->bytes;
    if (begin > size - 30 || memcmp(map->data + begin, "PK\3\4", 4))
        return no_zip(path);
    const uint64_t data =
        begin + 30 + number_at(map->data + begin + 26, 2) + number_at(map->data + begin + 28, 2);
    if (data > size || bytes > size - data)
        return no_zip(path);
    out->data = map->data + data;
    out->bytes = (int64_t)bytes;
    return WEFT_OK;
}

/* Keys of storages become what the pickle calls them: the last part of "NAME/data/0". */
static weft_status read_zip(weft_tensors *ts, const char *path, const weft_map *map, pieces *all,
                            weft_pickled **root)
{
    directory d = {0, 0};
    piece pickle = {0};
    WEFT_TRY(find_directory(path, map, &d));
    int64_t at = d.begin;
    for (int64_t i = 0; i < d.entries; i++) {
        const unsigned char *entry = map->data + at;
        if (map->bytes - at < 46 || memcmp(entry, "PK\1\2", 4))
            return no_zip(path);
        const int64_t length = 46 + (int64_t)(number_at(entry + 28, 2) + number_at(entry + 30, 2) +
                                              number_at(entry + 32, 2));
        if (map->bytes - at < length)
            return no_zip(path);
        piece p;
        WEFT_TRY(read_entry(path, map, entry, ts->arena, &p));
        const char *slash = strrchr(p.key, '/'), *last = slash ? slash + 1 : p.key;
        if (!strcmp(last, "data.pkl"))
            pickle = p;
        if (!strcmp(last, "byteorder") && p.bytes == 3 && !memcmp(p.data, "big", 3))
            return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path),
                              "the file was written on a big-endian machine, which weft does not "
                              "read. Save it as safetensors.");
        p.key = last;
        WEFT_TRY(add_piece(all, &p));
        at += length;
    }
    if (!pickle.data)
        return weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = path),
                          "the zip file has no data.pkl, so torch.save did not write it");
    return weft_pickle_parse(path, &pickle.data, pickle.data + pickle.bytes, ts->arena, NULL, root);
}

/* ---- the older form ------------------------------------------------------------------------- */

static const weft_pickled *storage_of(const weft_pickled *storages, const char *key)
{
    for (int64_t i = 0; i < storages->count; i++)
        if (!strcmp(storages->item[i]->text, key))
            return storages->item[i];
    return NULL;
}

static weft_status read_older(weft_tensors *ts, const char *path, const weft_map *map, pieces *all,
                              weft_pickled **root)
{
    const unsigned char *at = map->data, *end = map->data + map->bytes;
    weft_pickled *v[5], storages = {.kind = WEFT_PICKLED_LIST};
    for (int i = 0; i < 5; i++)
        WEFT_TRY(weft_pickle_parse(path, &at, end, ts->arena, &storages, &v[i]));
    *root = v[3];
    if (v[4]->kind != WEFT_PICKLED_LIST)
        return weft_error(
            WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
            "the list of storages after the pickle is missing. Download the file again.");
    for (int64_t i = 0; i < v[4]->count; i++) {
        const weft_pickled *key = v[4]->item[i];
        const weft_pickled *s =
            key->kind == WEFT_PICKLED_TEXT ? storage_of(&storages, key->text) : NULL;
        if (!s || end - at < 8)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                              "storage %" PRId64 " of %" PRId64
                              " is missing. Download the file again.",
                              i, v[4]->count);
        const uint64_t count = number_at(at, 8);
        const int64_t each = !s->typed    ? 1
                             : s->packing ? s->packing->bytes
                                          : weft_dtype_bytes(s->dtype);
        at += 8;
        if (count > (uint64_t)(end - at) / (uint64_t)each)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = s->text),
                              "the file ends within this storage. Download the file again.");
        WEFT_TRY(add_piece(all, &(piece){s->text, at, (int64_t)count * each}));
        at += (int64_t)count * each;
    }
    return WEFT_OK;
}

weft_status weft_pickle_read(weft_tensors *ts, const char *path, const weft_map *map)
{
    pieces all = {0};
    weft_pickled *root = NULL;
    const bool zip = !memcmp(map->data, "PK", 2);
    weft_status_code status = WEFT_OK;
    WEFT_GO(zip ? read_zip(ts, path, map, &all, &root) : read_older(ts, path, map, &all, &root));
    WEFT_GO(add_object(ts, path, root, &all));
out:
    weft_free(all.at);
    return status;
}
