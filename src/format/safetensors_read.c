#include "base/fs.h"
#include "base/hash.h"
#include "format/safetensors_sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 4096, MAX_HEADER_BYTES = 100 * 1000 * 1000 };

struct weft_tensors {
    weft_arena *arena;
    weft_map *map;     /* [file_count] */
    const char **path; /* [file_count], in the arena */
    int64_t file_count, file_capacity, path_capacity;
    json_t *metadata;
    weft_stored_tensor *tensor; /* sorted by name */
    int64_t count, capacity;
};

static const struct {
    const char *name;
    weft_dtype dtype;
} dtype_names[] = {
    {"F32", WEFT_F32}, {"BF16", WEFT_BF16}, {"F16", WEFT_F16}, {"F8_E4M3", WEFT_F8E4M3},
    {"I32", WEFT_I32}, {"I64", WEFT_I64},   {"U8", WEFT_U8},   {"F64", WEFT_F64},
};

static weft_status parse_dtype(const char *path, const char *name, const json_t *entry,
                               weft_dtype *dtype)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (size_t i = 0; text && i < sizeof dtype_names / sizeof *dtype_names; i++)
        if (!strcmp(text, dtype_names[i].name)) {
            *dtype = dtype_names[i].dtype;
            return WEFT_OK;
        }
    return weft_fail(text ? WEFT_E_UNSUPPORTED : WEFT_E_FORMAT,
                     "%s: tensor \"%s\" has %s%s as its dtype", path, name,
                     text ? "unsupported " : "nothing", text ? text : "");
}

static weft_status parse_shape(const char *path, weft_stored_tensor *t, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > WEFT_TENSORS_MAX_RANK)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: tensor \"%s\": \"shape\" must be a list of at most %d sizes", path,
                         t->name, WEFT_TENSORS_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    t->count = 1;
    const int64_t limit = INT64_MAX / weft_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        const int64_t n = json_integer_value(size);
        if (!json_is_integer(size) || n < 0 || (n > 0 && t->count > limit / n))
            return weft_fail(
                WEFT_E_FORMAT,
                "%s: tensor \"%s\": size %d of its shape is negative, too large or no integer",
                path, t->name, i);
        t->dim[i] = n;
        t->count *= n;
    }
    t->bytes = t->count * weft_dtype_bytes(t->dtype);
    return WEFT_OK;
}

/* Bytes are relative to the data section of `data_bytes`. */
static weft_status parse_entry(weft_tensors *ts, const char *path, const char *name,
                               const json_t *entry, const unsigned char *data, int64_t data_bytes)
{
    weft_stored_tensor t = {.file = path, .name = weft_arena_strdup(ts->arena, name)};
    if (!t.name)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    if (!json_is_object(entry))
        return weft_fail(WEFT_E_FORMAT, "%s: tensor \"%s\" is no object in the header", path, name);
    WEFT_TRY(parse_dtype(path, name, entry, &t.dtype));
    WEFT_TRY(parse_shape(path, &t, entry));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return weft_fail(WEFT_E_FORMAT, "%s: tensor \"%s\": \"data_offsets\" must be two integers",
                         path, name);
    const int64_t begin = json_integer_value(first), end = json_integer_value(second);
    if (begin < 0 || end < begin || end > data_bytes)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: tensor \"%s\" lies at bytes %lld to %lld of %lld: outside the file%s",
                         path, name, (long long)begin, (long long)end, (long long)data_bytes,
                         end > data_bytes ? " (truncated download?)" : "");
    if (end - begin != t.bytes)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: tensor \"%s\" has %lld bytes, but its shape and dtype need %lld",
                         path, name, (long long)(end - begin), (long long)t.bytes);
    t.data = data + begin;
    WEFT_TRY(weft_grow((void **)&ts->tensor, ts->count, &ts->capacity, sizeof *ts->tensor));
    ts->tensor[ts->count++] = t;
    return WEFT_OK;
}

static int by_place(const void *a, const void *b)
{
    const weft_stored_tensor *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weft_stored_tensor *)a)->name, ((const weft_stored_tensor *)b)->name);
}

/* The tensors from `first` on are those of one file: they must tile its data section. */
static weft_status check_tiling(weft_tensors *ts, int64_t first, const char *path,
                                const unsigned char *data, int64_t data_bytes)
{
    if (ts->count > first)
        qsort(ts->tensor + first, (size_t)(ts->count - first), sizeof *ts->tensor, by_place);
    int64_t at = 0;
    for (int64_t i = first; i < ts->count; i++) {
        const weft_stored_tensor *t = &ts->tensor[i];
        const int64_t begin = (const unsigned char *)t->data - data;
        if (begin < at)
            return weft_fail(WEFT_E_FORMAT, "%s: tensors \"%s\" and \"%s\" overlap at byte %lld",
                             path, ts->tensor[i - 1].name, t->name, (long long)begin);
        if (begin > at)
            return weft_fail(WEFT_E_FORMAT,
                             "%s: bytes %lld to %lld before tensor \"%s\" belong to nothing", path,
                             (long long)at, (long long)begin, t->name);
        at = begin + t->bytes;
    }
    if (at != data_bytes)
        return weft_fail(WEFT_E_FORMAT, "%s: %lld bytes at the end belong to no tensor", path,
                         (long long)(data_bytes - at));
    return WEFT_OK;
}

static weft_status parse_file(weft_tensors *ts, const char *path, const weft_map *map)
{
    if (map->bytes < 8)
        return weft_fail(WEFT_E_FORMAT, "%s: %lld bytes; a safetensors file has at least 8", path,
                         (long long)map->bytes);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | map->data[i];
    if (header > MAX_HEADER_BYTES || header > (uint64_t)(map->bytes - 8))
        return weft_fail(
            WEFT_E_FORMAT,
            "%s: its first 8 bytes promise a header of %llu bytes, but the file has %lld: not a "
            "safetensors file, or a truncated one",
            path, (unsigned long long)header, (long long)map->bytes);
    json_t *json;
    WEFT_TRY(weft_json_parse((const char *)map->data + 8, (int64_t)header, path, &json));
    weft_status_code status = WEFT_OK;
    const unsigned char *data = map->data + 8 + header;
    const int64_t data_bytes = map->bytes - 8 - (int64_t)header, first = ts->count;
    if (!json_is_object(json)) {
        status = weft_fail(WEFT_E_FORMAT, "%s: its header is no JSON object", path);
        goto out;
    }
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

static weft_status add_file(weft_tensors *ts, const char *path)
{
    const char *kept = weft_arena_strdup(ts->arena, path);
    if (!kept)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    WEFT_TRY(weft_grow((void **)&ts->map, ts->file_count, &ts->file_capacity, sizeof *ts->map));
    WEFT_TRY(weft_grow((void **)&ts->path, ts->file_count, &ts->path_capacity, sizeof *ts->path));
    ts->path[ts->file_count] = kept;
    WEFT_TRY(weft_map_open(path, &ts->map[ts->file_count]));
    ts->file_count++;
    return parse_file(ts, kept, &ts->map[ts->file_count - 1]);
}

/* Adds each file that the index names once, then checks that it says where each tensor is. */
static weft_status add_index(weft_tensors *ts, const char *path)
{
    json_t *json = NULL;
    weft_names files = {0};
    char *full = NULL, *folder = NULL;
    weft_status_code status = weft_json_load(path, &json);
    if (status != WEFT_OK)
        return status;
    folder = weft_strdup(path);
    const json_t *weight_map = json_object_get(json, "weight_map");
    if (!folder || !json_is_object(weight_map)) {
        status = folder ? weft_fail(WEFT_E_FORMAT, "%s: no \"weight_map\"", path)
                        : weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || strchr(file, '/') || files.count >= MAX_FILES) {
            status = weft_fail(WEFT_E_FORMAT,
                               "%s: \"weight_map\" of \"%s\" is not the name of a file beside it",
                               path, name);
            goto out;
        }
        bool known = false;
        for (int64_t i = 0; i < files.count && !known; i++)
            known = !strcmp(files.name[i], file);
        if (known)
            continue;
        WEFT_GO(weft_grow((void **)&files.name, files.count, &files.capacity, sizeof *files.name));
        files.name[files.count] = weft_strdup(file);
        if (!files.name[files.count++]) {
            status = weft_fail(WEFT_E_MEMORY, "out of memory");
            goto out;
        }
        full = slash ? weft_path_join(folder, file) : weft_strdup(file);
        if (!full) {
            status = weft_fail(WEFT_E_MEMORY, "out of memory");
            goto out;
        }
        WEFT_GO(add_file(ts, full));
        weft_free(full);
        full = NULL;
    }
    for (int64_t i = 0; i < ts->count; i++)
        if (!json_object_get(weight_map, ts->tensor[i].name)) {
            status = weft_fail(WEFT_E_FORMAT, "%s: tensor \"%s\" of %s is not in the index", path,
                               ts->tensor[i].name, ts->tensor[i].file);
            goto out;
        }
    if ((int64_t)json_object_size(weight_map) != ts->count)
        status = weft_fail(WEFT_E_FORMAT, "%s: the index names %zu tensors, its files hold %lld",
                           path, json_object_size(weight_map), (long long)ts->count);
out:
    weft_free(full);
    weft_free(folder);
    weft_names_free(&files);
    json_decref(json);
    return status;
}

static weft_status add_folder(weft_tensors *ts, const char *path)
{
    static const char *const names[] = {"diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model.safetensors",
                                        "model.safetensors.index.json", "model.safetensors"};
    for (int i = 0; i < 4; i++) {
        char *full = weft_path_join(path, names[i]);
        if (!full)
            return weft_fail(WEFT_E_MEMORY, "out of memory");
        const bool there = weft_path_exists(full);
        weft_status_code status = WEFT_OK;
        if (there)
            status = i % 2 ? add_file(ts, full) : add_index(ts, full);
        weft_free(full);
        if (there)
            return status;
    }
    return weft_fail(WEFT_E_NOT_FOUND, "%s: no %s and no %s in this folder", path, names[1],
                     names[3]);
}

weft_status weft_tensors_open(const char *path, weft_tensors **tensors)
{
    weft_tensors *ts = weft_alloc(sizeof *ts);
    if (ts)
        ts->arena = weft_arena_create();
    if (!ts || !ts->arena) {
        weft_free(ts);
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    }
    const size_t len = strlen(path);
    weft_status_code status;
    if (weft_path_is_dir(path))
        status = add_folder(ts, path);
    else if (len > 5 && !strcmp(path + len - 5, ".json"))
        status = add_index(ts, path);
    else
        status = add_file(ts, path);
    if (status == WEFT_OK && ts->count > 1)
        qsort(ts->tensor, (size_t)ts->count, sizeof *ts->tensor, by_name);
    for (int64_t i = 1; status == WEFT_OK && i < ts->count; i++)
        if (!strcmp(ts->tensor[i].name, ts->tensor[i - 1].name))
            status = weft_fail(WEFT_E_FORMAT, "%s: tensor \"%s\" is in two files", path,
                               ts->tensor[i].name);
    if (status != WEFT_OK) {
        weft_tensors_close(ts);
        return status;
    }
    *tensors = ts;
    return WEFT_OK;
}

void weft_tensors_close(weft_tensors *ts)
{
    if (!ts)
        return;
    for (int64_t i = 0; i < ts->file_count; i++)
        weft_map_close(&ts->map[i]);
    weft_free(ts->map);
    weft_free(ts->path);
    weft_free(ts->tensor);
    json_decref(ts->metadata);
    weft_arena_free(ts->arena);
    weft_free(ts);
}

int64_t weft_tensors_sum_at(const void *header, int64_t bytes)
{
    static const char before[] = "\"" WEFT_TENSORS_SUM "\":\"";
    const int64_t length = (int64_t)sizeof before - 1;
    const char *at = memmem(header, (size_t)bytes, before, (size_t)length);
    const int64_t place = at ? at - (const char *)header + length : -1;
    return place >= 0 && place + WEFT_TENSORS_SUM_BYTES < bytes ? place : -1;
}

weft_status weft_tensors_verify(const weft_tensors *ts)
{
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status =
        state ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for a checksum");
    for (int64_t i = 0; i < ts->file_count && status == WEFT_OK; i++) {
        const weft_map *map = &ts->map[i];
        char sum[WEFT_TENSORS_SUM_BYTES + 1];
        uint64_t header = 0;
        memcpy(&header, map->data, 8); /* it was checked when the file was opened */
        const int64_t at = weft_tensors_sum_at(map->data, 8 + (int64_t)header);
        if (at < 0)
            continue;
        const unsigned char *rest = map->data + at + WEFT_TENSORS_SUM_BYTES;
        XXH3_64bits_reset(state);
        XXH3_64bits_update(state, map->data, (size_t)at);
        XXH3_64bits_update(state, WEFT_TENSORS_NO_SUM, WEFT_TENSORS_SUM_BYTES);
        XXH3_64bits_update(state, rest, (size_t)(map->data + map->bytes - rest));
        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
        if (memcmp(sum, map->data + at, WEFT_TENSORS_SUM_BYTES) != 0)
            status = weft_fail(
                WEFT_E_FORMAT,
                "%s: damaged: its checksum is %s, %.*s was written. Copy it again; "
                "if it was changed on purpose, take " WEFT_TENSORS_SUM " out of its metadata",
                ts->path[i], sum, WEFT_TENSORS_SUM_BYTES, (const char *)map->data + at);
    }
    XXH3_freeState(state);
    return status;
}

int64_t weft_tensors_count(const weft_tensors *ts)
{
    return ts->count;
}

const weft_stored_tensor *weft_tensors_at(const weft_tensors *ts, int64_t index)
{
    return &ts->tensor[index];
}

weft_status weft_tensors_rename(weft_tensors *ts,
                                bool (*rename)(void *user, const char *name, char *out,
                                               size_t size),
                                void *user)
{
    const char **name = weft_alloc((ts->count + 1) * (int64_t)sizeof *name);
    weft_status_code status = name ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for names");
    for (int64_t i = 0; i < ts->count && status == WEFT_OK; i++) {
        char made[600];
        if (!rename(user, ts->tensor[i].name, made, sizeof made))
            status = weft_fail(WEFT_E_FORMAT, "%s: too long a name: %.80s", ts->tensor[i].file,
                               ts->tensor[i].name);
        else if (!(name[i] = weft_arena_strdup(ts->arena, made)))
            status = weft_fail(WEFT_E_MEMORY, "out of memory for names");
    }
    for (int64_t i = 0; i < ts->count && status == WEFT_OK; i++)
        ts->tensor[i].name = name[i];
    if (status == WEFT_OK && ts->count)
        qsort(ts->tensor, (size_t)ts->count, sizeof *ts->tensor, by_name);
    weft_free(name);
    return status;
}

const weft_stored_tensor *weft_tensors_find(const weft_tensors *ts, const char *name)
{
    const weft_stored_tensor key = {.name = name};
    return ts->count ? bsearch(&key, ts->tensor, (size_t)ts->count, sizeof *ts->tensor, by_name)
                     : NULL;
}

const char *weft_tensors_metadata(const weft_tensors *ts, const char *key)
{
    return json_string_value(json_object_get(ts->metadata, key));
}

void weft_tensor_to_f32(const weft_stored_tensor *t, float *to)
{
    const unsigned char *p = t->data;
    const int64_t step = weft_dtype_bytes(t->dtype);
    if (t->dtype == WEFT_F32) {
        memcpy(to, p, (size_t)t->bytes);
        return;
    }
    for (int64_t i = 0; i < t->count; i++, p += step) {
        union {
            uint16_t u16;
            int32_t i32;
            int64_t i64;
            double f64;
        } v;
        memcpy(&v, p, (size_t)step);
        switch (t->dtype) {
        case WEFT_BF16: to[i] = weft_bf16_to_f32(v.u16); break;
        case WEFT_F16: to[i] = weft_f16_to_f32(v.u16); break;
        case WEFT_F8E4M3: to[i] = weft_f8e4m3_to_f32(*p); break;
        case WEFT_I32: to[i] = (float)v.i32; break;
        case WEFT_I64: to[i] = (float)v.i64; break;
        case WEFT_U8: to[i] = (float)*p; break;
        case WEFT_F64: to[i] = (float)v.f64; break;
        case WEFT_F32:
        case WEFT_DTYPE_COUNT: break;
        }
    }
}
