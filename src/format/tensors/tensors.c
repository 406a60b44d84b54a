#include "format/tensors/tensors.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/listing.h"
#include "format/tensors/gguf.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/scaled_weights.h"
#include "format/tensors/tensors_internal.h"
#include "format/tensors/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 4096 };

bool weft_tensors_is_file(const char *name)
{
    static const char *const extensions[] = {"safetensors", "gguf", "pt", "pth", "bin"};
    for (int i = 0; i < WEFT_COUNT(extensions); i++)
        if (!strcmp(weft_path_extension(name), extensions[i]))
            return true;
    return false;
}

/* ---- sizes ---------------------------------------------------------------------------------- */

weft_status weft_stored_size(weft_stored_tensor *t)
{
    const weft_packing *p = t->packing;
    const int64_t bytes = p ? p->bytes : weft_dtype_bytes(t->dtype), elements = p ? p->elements : 1;
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        const int64_t n = t->dim[i];
        if (n < 0 || (n > 0 && t->count > INT64_MAX / bytes / n))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = t->file, .key = t->name, WEFT_NUMBER(n)),
                              "size %d of the shape is negative, too large or not an integer", i);
        t->count *= n;
    }
    if (t->count % elements)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = t->file, .key = t->name, WEFT_NUMBER(t->count)),
                          "%" PRId64 " elements are not a whole number of %s blocks of %d",
                          t->count, p->name, p->elements);
    t->bytes = t->count / elements * bytes;
    return WEFT_OK;
}

weft_status weft_tensors_append(weft_tensors *ts, const weft_stored_tensor *t)
{
    WEFT_TRY(weft_grow((void **)&ts->tensor, ts->count, &ts->capacity, sizeof *ts->tensor));
    ts->tensor[ts->count++] = *t;
    return WEFT_OK;
}

const char *weft_stored_type(const weft_stored_tensor *t)
{
    return t->packing ? t->packing->name : weft_dtype_name(t->dtype);
}

/* ---- files ---------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weft_stored_tensor *)a)->name, ((const weft_stored_tensor *)b)->name);
}

static weft_status sort(weft_tensors *ts, const char *path)
{
    if (ts->count > 1)
        qsort(ts->tensor, (size_t)ts->count, sizeof *ts->tensor, by_name);
    for (int64_t i = 1; i < ts->count; i++)
        if (!strcmp(ts->tensor[i].name, ts->tensor[i - 1].name))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = path, .key = ts->tensor[i].name),
                              ts->file_count > 1 ? "the tensor is in two files"
                                                 : "the tensor is in the file twice");
    return WEFT_OK;
}

static weft_status add_file(weft_tensors *ts, const char *path)
{
    const char *owned = weft_arena_strdup(ts->arena, path);
    WEFT_TRY(WEFT_ALLOCATED(owned, "%s", path));
    WEFT_TRY(weft_grow((void **)&ts->map, ts->file_count, &ts->file_capacity, sizeof *ts->map));
    WEFT_TRY(weft_grow((void **)&ts->path, ts->file_count, &ts->path_capacity, sizeof *ts->path));
    ts->path[ts->file_count] = owned;
    WEFT_TRY(weft_map_open(path, &ts->map[ts->file_count]));
    ts->file_count++;
    const weft_map *map = &ts->map[ts->file_count - 1];
    return weft_gguf_is(map)     ? weft_gguf_read(ts, owned, map)
           : weft_pickle_is(map) ? weft_pickle_read(ts, owned, map)
                                 : weft_safetensors_read(ts, owned, map);
}

/* All files of the index that are not in its folder, in one error. */
static weft_status check_shards(const char *path, const char *folder, const json_t *weight_map)
{
    weft_listing missing = {0};
    weft_names seen = {0};
    const char *name;
    json_t *value;
    weft_status_code status = WEFT_OK;
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, value)
    {
        const char *file = json_string_value(value);
        bool known = !file || strchr(file, '/'); /* rejected below */
        for (int64_t i = 0; i < seen.count && !known; i++)
            known = !strcmp(seen.name[i], file);
        if (known)
            continue;
        WEFT_GO(weft_grow((void **)&seen.name, seen.count, &seen.capacity, sizeof *seen.name));
        char *copy = weft_strdup(file);
        char *full = *folder ? weft_path_join(folder, file) : weft_strdup(file);
        if (copy)
            seen.name[seen.count++] = copy;
        if (!copy || !full)
            status = weft_no_memory("the tensors of a file");
        else if (!weft_path_exists(full))
            weft_listing_add(&missing, file);
        weft_free(full);
        WEFT_GO(status);
    }
    if (missing.count)
        status = weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                            "%" PRId64 " of the %" PRId64
                            " files that this index names are missing: %s. "
                            "Download them into the same folder.",
                            missing.count, seen.count, weft_listing_text(&missing));
out:
    weft_names_free(&seen);
    weft_listing_free(&missing);
    return status;
}

/* Checks that the index of file `path` names exactly the tensors of its files. */
static weft_status check_index(const weft_tensors *ts, const char *path, const json_t *weight_map)
{
    for (int64_t i = 0; i < ts->count; i++)
        if (!json_object_get(weight_map, ts->tensor[i].name))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = path, .key = ts->tensor[i].name),
                              "the tensor is in %s and not in this index. Download the files and "
                              "their index again.",
                              ts->tensor[i].file);
    if ((int64_t)json_object_size(weight_map) != ts->count)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                          "the index names %zu tensors, and its files have %" PRId64
                          ". Download the files and their index again.",
                          json_object_size(weight_map), ts->count);
    return WEFT_OK;
}

/* Adds each file of the index once, then checks that the index has the file of each tensor. */
static weft_status add_index(weft_tensors *ts, const char *path)
{
    json_t *json = NULL;
    weft_names files = {0};
    char *full = NULL, *folder = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_json_load(path, &json));
    folder = weft_strdup(path);
    const json_t *weight_map = json_object_get(json, "weight_map");
    if (!folder || !json_is_object(weight_map)) {
        status = folder
                     ? weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = path, .key = "weight_map"),
                                  "the index must have this object, which maps tensors to files")
                     : weft_no_memory("the tensors of a file");
        goto out;
    }
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    WEFT_GO(check_shards(path, slash ? folder : "", weight_map));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)weight_map, name, value)
    {
        const char *file = json_string_value(value);
        if (!file || strchr(file, '/') || files.count >= MAX_FILES)
            WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED,
                               WEFT_AT(.file = path, .key = name, .value = file),
                               "\"weight_map\" must map the tensor to the name of a file in the "
                               "same folder (at most %d files)",
                               MAX_FILES));
        bool known = false;
        for (int64_t i = 0; i < files.count && !known; i++)
            known = !strcmp(files.name[i], file);
        if (known)
            continue;
        WEFT_GO(weft_grow((void **)&files.name, files.count, &files.capacity, sizeof *files.name));
        files.name[files.count] = weft_strdup(file);
        WEFT_GO(WEFT_ALLOCATED(files.name[files.count++], "the tensors of a file"));
        full = slash ? weft_path_join(folder, file) : weft_strdup(file);
        WEFT_GO(WEFT_ALLOCATED(full, "the tensors of a file"));
        WEFT_GO(add_file(ts, full));
        weft_free(full);
        full = NULL;
    }
    status = check_index(ts, path, weight_map);
out:
    weft_free(full);
    weft_free(folder);
    weft_names_free(&files);
    json_decref(json);
    return status;
}

static weft_status no_tensors(const char *path)
{
    char *marker = weft_path_join(path, ".metadata");
    const bool dcp = marker && weft_path_exists(marker);
    weft_free(marker);
    if (dcp)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path),
                          "weft does not read distributed checkpoints of torch (.metadata, "
                          "*.distcp). `python -m torch.distributed.checkpoint.format_utils "
                          "dcp_to_torch %s model.pt` converts it to one file.",
                          path);
    static const char *const inside[] = {"adapter", "transformer", "model"};
    char hint[600] = "";
    for (int i = 0; i < WEFT_COUNT(inside) && !*hint; i++) {
        char *folder = weft_path_join(path, inside[i]);
        if (folder && weft_path_is_dir(folder))
            snprintf(hint, sizeof hint, ", or give %.500s", folder);
        weft_free(folder);
    }
    return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                      "the folder has no diffusion_pytorch_model.safetensors, model.safetensors or "
                      "adapter_model.safetensors, no such file of torch (.bin), and no .gguf file. "
                      "Download the weights into it%s.",
                      hint);
}

/* A shard of weights, "model-00001-of-00003.safetensors": its index is missing. */
static weft_status refuse_shard(const char *path, const char *name)
{
    int digits = 0;
    const char *dash = strstr(name, "-00");
    if (!dash || sscanf(dash, "-%*5d-of-%*5d.safetensors%n", &digits) < 0 || !digits)
        return WEFT_OK;
    return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                      "the folder has shards of weights (%s) without their index. Download "
                      "%.*s.safetensors.index.json into it.",
                      name, (int)(dash - name), name);
}

/* The one file of the folder that ends so: GGUF files have names of their own. */
static weft_status add_gguf(weft_tensors *ts, const char *path)
{
    weft_names names = {0};
    const char *found = NULL;
    WEFT_TRY(weft_list_dir(path, false, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count; i++) {
        WEFT_GO(refuse_shard(path, names.name[i]));
        if (strcmp(weft_path_extension(names.name[i]), "gguf") != 0)
            continue;
        if (found)
            WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                               "the folder has two files of weights, %s and %s. Give one file, or "
                               "remove the other.",
                               found, names.name[i]));
        found = names.name[i];
    }
    if (!found)
        WEFT_GO(no_tensors(path));
    char *file = weft_path_join(path, found);
    status = file ? add_file(ts, file) : weft_no_memory("%s", path);
    weft_free(file);
out:
    weft_names_free(&names);
    return status;
}

static weft_status add_folder(weft_tensors *ts, const char *path)
{
    static const char *const names[] = {"diffusion_pytorch_model.safetensors",
                                        "model.safetensors",
                                        "adapter_model.safetensors",
                                        "pytorch_lora_weights.safetensors",
                                        "diffusion_pytorch_model.bin",
                                        "pytorch_model.bin",
                                        "adapter_model.bin"};
    for (int i = 0; i < 2 * WEFT_COUNT(names); i++) {
        char *file = weft_path_join(path, names[i / 2]);
        weft_buf full = {0};
        if (file)
            weft_buf_printf(&full, "%s%s", file, i % 2 ? "" : ".index.json");
        weft_free(file);
        WEFT_TRY(WEFT_ALLOCATED(full.data, "%s", path));
        const bool there = weft_path_exists(full.data);
        weft_status_code status = WEFT_OK;
        if (there)
            status = i % 2 ? add_file(ts, full.data) : add_index(ts, full.data);
        weft_buf_free(&full);
        if (there)
            return status;
    }
    return add_gguf(ts, path);
}

weft_status weft_tensors_open(const char *path, weft_tensors **tensors)
{
    weft_tensors *ts = weft_alloc(sizeof *ts);
    if (ts)
        ts->arena = weft_arena_create();
    if (ts && ts->arena)
        ts->opened = weft_arena_strdup(ts->arena, path);
    if (!ts || !ts->arena || !ts->opened) {
        weft_tensors_close(ts);
        return weft_no_memory("%s", path);
    }
    const size_t len = strlen(path);
    weft_status_code status;
    if (weft_path_is_dir(path))
        WEFT_GO(add_folder(ts, path));
    else if (len > 5 && !strcmp(path + len - 5, ".json"))
        WEFT_GO(add_index(ts, path));
    else
        WEFT_GO(add_file(ts, path));
    WEFT_GO(sort(ts, path));
    WEFT_GO(weft_scaled_attach(ts));
out:
    if (status != WEFT_OK) {
        weft_tensors_close(ts);
        return status;
    }
    *tensors = ts;
    return WEFT_OK;
}

/* Moves the files of `from` to `to`, which then has views of all tensors. */
static weft_status take_files(weft_tensors *to, weft_tensors *from)
{
    for (int64_t i = 0; i < from->file_count; i++) {
        WEFT_TRY(weft_grow((void **)&to->map, to->file_count, &to->file_capacity, sizeof *to->map));
        WEFT_TRY(
            weft_grow((void **)&to->path, to->file_count, &to->path_capacity, sizeof *to->path));
        to->map[to->file_count] = from->map[i];
        to->path[to->file_count++] = from->path[i];
        from->map[i] = (weft_map){0};
    }
    return WEFT_OK;
}

weft_status weft_tensors_join(weft_tensors *ts, const char *prefix, weft_tensors *other)
{
    char name[600];
    weft_status_code status = WEFT_OK;
    WEFT_GO(take_files(ts, other));
    for (int64_t i = 0; i < other->count; i++) {
        weft_stored_tensor t = other->tensor[i];
        snprintf(name, sizeof name, "%s%s", prefix, t.name);
        t.name = weft_arena_strdup(ts->arena, name);
        WEFT_GO(WEFT_ALLOCATED(t.name, "%s", t.file));
        WEFT_GO(weft_tensors_append(ts, &t));
    }
    WEFT_GO(sort(ts, ts->opened));
    other->joined = ts->joined; /* its arena has the names of files, and factors */
    ts->joined = other;
    return WEFT_OK;
out:
    weft_tensors_close(other);
    return status;
}

void weft_tensors_close(weft_tensors *ts)
{
    if (!ts)
        return;
    for (int64_t i = 0; i < ts->file_count; i++)
        weft_map_close(&ts->map[i]);
    weft_tensors_close(ts->joined);
    weft_free(ts->map);
    weft_free(ts->path);
    weft_free(ts->tensor);
    json_decref(ts->metadata);
    weft_arena_free(ts->arena);
    weft_free(ts);
}

/* ---- contents ------------------------------------------------------------------------------- */

int64_t weft_tensors_count(const weft_tensors *ts)
{
    return ts->count;
}

const weft_stored_tensor *weft_tensors_at(const weft_tensors *ts, int64_t index)
{
    return &ts->tensor[index];
}

const weft_stored_tensor *weft_tensors_find(const weft_tensors *ts, const char *name)
{
    const weft_stored_tensor key = {.name = name};
    return ts->count ? bsearch(&key, ts->tensor, (size_t)ts->count, sizeof *ts->tensor, by_name)
                     : NULL;
}

weft_status weft_tensors_scale_columns(weft_tensors *ts, const char *name, const float *factor)
{
    weft_stored_tensor *t = (weft_stored_tensor *)(uintptr_t)weft_tensors_find(ts, name);
    if (!t || t->rank != 2)
        return weft_error(WEFT_MSG_TENSOR_NAMES, WEFT_AT(.key = name),
                          "the set has no such matrix");
    float *own = weft_arena_calloc(ts->arena, t->dim[1], sizeof *own);
    WEFT_TRY(WEFT_ALLOCATED(own, "%s", t->file));
    memcpy(own, factor, (size_t)t->dim[1] * sizeof *own);
    t->column = own;
    return WEFT_OK;
}

const char *weft_tensors_metadata(const weft_tensors *ts, const char *key)
{
    return json_string_value(json_object_get(ts->metadata, key));
}

const char *weft_tensors_path(const weft_tensors *ts)
{
    return ts->opened;
}

/* ---- views ---------------------------------------------------------------------------------- */

weft_status weft_tensors_review(weft_tensors *ts, weft_tensors_viewer with, void *user)
{
    weft_stored_tensor *old = ts->tensor;
    const int64_t count = ts->count;
    weft_status_code status = WEFT_OK;
    ts->tensor = NULL;
    ts->count = ts->capacity = 0;
    for (int64_t i = 0; i < count; i++)
        WEFT_GO(with(user, &old[i], ts));
    WEFT_GO(sort(ts, ts->opened));
out:
    weft_free(old);
    return status;
}

weft_status weft_tensors_view(weft_tensors *to, const weft_stored_tensor *tensor, const char *name,
                              int64_t row, int64_t rows, bool swapped)
{
    weft_stored_tensor t = *tensor;
    const int64_t each = t.rank > 0 && t.dim[0] > 0 ? t.count / t.dim[0] : 1;
    t.name = weft_arena_strdup(to->arena, name);
    WEFT_TRY(WEFT_ALLOCATED(t.name, "%s", t.file));
    if (t.rank > 0 && (row != 0 || rows != t.dim[0])) {
        if (t.swapped || row < 0 || rows < 0 || row + rows > t.dim[0])
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = t.file, .key = tensor->name),
                              "the tensor has no rows %" PRId64 " to %" PRId64, row, row + rows);
        t.dim[0] = rows;
        t.first += row;
        t.count = rows * each;
        t.bytes = 0; /* not used for a part of packed data */
        if (!t.packing && !t.scaling) {
            t.data = (const char *)t.data + t.first * each * weft_dtype_bytes(t.dtype);
            t.first = 0;
            t.bytes = t.count * weft_dtype_bytes(t.dtype);
        }
    }
    t.swapped ^= swapped;
    return weft_tensors_append(to, &t);
}

weft_status weft_tensors_part(weft_tensors *to, int64_t row, int64_t second, int64_t half)
{
    weft_stored_tensor *t = &to->tensor[to->count - 1];
    const int64_t each = t->rank > 0 && t->dim[0] > 0 ? t->count / t->dim[0] : 1;
    if (t->rank < 1 || t->first || t->swapped || row < 0 || second < row + half ||
        second + half > t->dim[0])
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = t->file, .key = t->name),
                          "the tensor cannot be read as two parts of %" PRId64 " rows", half);
    t->first = row;
    t->between = second - row - half;
    t->dim[0] = 2 * half;
    t->count = 2 * half * each;
    return WEFT_OK;
}

void weft_tensors_reshape(weft_tensors *to, int rank, const int64_t *dim)
{
    weft_stored_tensor *t = &to->tensor[to->count - 1];
    t->rank = rank;
    memcpy(t->dim, dim, (size_t)rank * sizeof *dim);
}

/* ---- values --------------------------------------------------------------------------------- */

static void widen(weft_dtype dtype, const unsigned char *p, int64_t count, float *to)
{
    const int64_t step = weft_dtype_bytes(dtype);
    if (dtype == WEFT_F32)
        memcpy(to, p, (size_t)count * 4);
    for (int64_t i = 0; i < count && dtype != WEFT_F32; i++, p += step) {
        union {
            uint16_t u16;
            int32_t i32;
            int64_t i64;
            double f64;
        } v;
        memcpy(&v, p, (size_t)step);
        switch (dtype) {
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

/* Reads stored elements from `first` on, without swapped halves. */
static void read_straight(const weft_stored_tensor *t, int64_t first, int64_t count, float *to)
{
    if (t->packing)
        weft_packing_expand(t->packing, t->data, first, count, to);
    else
        widen(t->dtype, (const unsigned char *)t->data + first * weft_dtype_bytes(t->dtype), count,
              to);
    const weft_scaling *s = t->scaling;
    const int64_t each = t->rank > 0 && t->dim[0] > 0 ? t->count / t->dim[0] : t->count;
    for (int64_t i = 0; s && i < count; i++) {
        const int64_t row = (first + i) / each / s->tile_rows,
                      column = (first + i) % each / s->tile_columns;
        to[i] *= s->factor[row * s->columns + column];
    }
    for (int64_t i = 0; t->column && i < count; i++)
        to[i] *= t->column[(first + i) % each];
}

void weft_stored_read(const weft_stored_tensor *t, int64_t first, int64_t count, float *to)
{
    const int64_t each = t->rank > 0 && t->dim[0] > 0 ? t->count / t->dim[0] : t->count;
    const bool halves = t->swapped || t->between;
    const int64_t half = t->count / 2;
    while (count > 0) {
        const int64_t left = halves && first < half ? half - first : t->count - first;
        const int64_t here = count < left ? count : left;
        const int64_t at = !t->swapped ? first : first < half ? first + half : first - half;
        read_straight(t, (t->first + (at < half ? 0 : t->between)) * each + at, here, to);
        first += here;
        to += here;
        count -= here;
    }
}

void weft_tensor_to_f32(const weft_stored_tensor *t, float *to)
{
    weft_stored_read(t, 0, t->count, to);
}
