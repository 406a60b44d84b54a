#include "data/dataset.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "format/tar.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

struct weft_dataset {
    weft_arena *arena;
    weft_map *map;
    int64_t shard_count, shard_capacity;
    weft_sample *sample;
    int64_t count, capacity;
    int64_t damaged, bytes;
    uint64_t fingerprint;
};

int64_t weft_file_stamp(const char *path, uint64_t *stamp)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return 0;
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.st_size);
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.st_mtim.tv_sec);
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.st_mtim.tv_nsec);
    return facts.st_size;
}

bool weft_webdataset_split(const char *name, int64_t *key_len, const char **suffix)
{
    const char *base = weft_path_base(name);
    const char *dot = strchr(base, '.');
    const size_t len = strlen(base);
    if (!*base || !dot || dot == base ||
        (len > 4 && !strncmp(base, "__", 2) && !strcmp(base + len - 2, "__")))
        return false;
    *key_len = dot - name;
    *suffix = dot + 1;
    return true;
}

const weft_part_data *weft_sample_part(const weft_sample *sample, const char *suffix)
{
    for (int i = 0; i < sample->part_count; i++)
        if (!strcmp(sample->part[i].suffix, suffix))
            return &sample->part[i];
    return NULL;
}

const weft_part_data *weft_sample_video(const weft_sample *sample)
{
    static const char *const suffixes[] = {"mp4", "webm", "mkv", "mov",  "avi",
                                           "ogv", "png",  "jpg", "jpeg", "webp"};
    for (int i = 0; i < WEFT_COUNT(suffixes); i++) {
        const weft_part_data *p = weft_sample_part(sample, suffixes[i]);
        if (p)
            return p;
    }
    return NULL;
}

static char *lower_copy(weft_arena *arena, const char *text)
{
    char *copy = weft_arena_strdup(arena, text);
    for (char *p = copy; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return copy;
}

static weft_status add_part(weft_dataset *ds, weft_sample *s, const char *path, const char *suffix,
                            const weft_tar_member *m)
{
    const char *own = lower_copy(ds->arena, suffix);
    if (!own)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    if (weft_sample_part(s, own))
        return weft_fail(WEFT_E_FORMAT, "%s: sample \"%s\" has the suffix .%s twice", path, s->key,
                         own);
    if (s->part_count == WEFT_SAMPLE_MAX_PARTS)
        return weft_fail(WEFT_E_FORMAT, "%s: sample \"%s\" has more than %d parts", path, s->key,
                         WEFT_SAMPLE_MAX_PARTS);
    s->part[s->part_count++] = (weft_part_data){own, m->data, m->bytes};
    return WEFT_OK;
}

/* By curation's name, else by the one that other tools use; 0 when neither is there. */
static double number(const json_t *json, const char *key, const char *other)
{
    const json_t *value = json_object_get(json, key);
    const double n = json_number_value(value ? value : json_object_get(json, other));
    return n >= 0 && n < 1e15 ? n : 0; /* what no video can be says nothing */
}

int64_t weft_meta_frames(const json_t *meta)
{
    return (int64_t)number(meta, "num_frames", "frames");
}

/* Caption and sizes from the parts; a sample whose .json is damaged keeps its other parts. */
static weft_status read_facts(weft_dataset *ds, weft_sample *s, const char *path)
{
    s->caption = "";
    const weft_part_data *text = weft_sample_part(s, "txt"), *meta = weft_sample_part(s, "json");
    if (text) {
        int64_t len = text->bytes;
        while (len > 0 && isspace(text->data[len - 1]))
            len--;
        char *copy = weft_arena_alloc(ds->arena, len + 1);
        if (!copy)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
        memcpy(copy, text->data, (size_t)len);
        s->caption = copy;
    }
    json_t *json = NULL;
    if (!meta || weft_json_parse((const char *)meta->data, meta->bytes, s->key, &json) != WEFT_OK) {
        if (meta)
            weft_warn("%s: %s; its sizes are taken as unknown", path, weft_error_message());
        return WEFT_OK;
    }
    const char *caption = json_string_value(json_object_get(json, "caption"));
    if (!text && caption)
        s->caption = weft_arena_strdup(ds->arena, caption);
    s->frames = weft_meta_frames(json);
    s->width = (int64_t)number(json, "width", "width");
    s->height = (int64_t)number(json, "height", "height");
    s->fps = number(json, "framerate", "fps");
    s->seconds = s->fps > 0 ? (double)s->frames / s->fps : 0;
    json_decref(json);
    return s->caption ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
}

static weft_status group(weft_dataset *ds, int shard, const char *path, const weft_tar_index *index)
{
    const int64_t first = ds->count;
    const char *file = weft_arena_strdup(ds->arena, path);
    if (!file)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    for (int64_t i = 0; i < index->count; i++) {
        const weft_tar_member *m = &index->member[i];
        int64_t key_len;
        const char *suffix;
        if (!weft_webdataset_split(m->name, &key_len, &suffix))
            continue;
        weft_sample *last = ds->count > first ? &ds->sample[ds->count - 1] : NULL;
        if (!last || (int64_t)strlen(last->key) != key_len ||
            strncmp(last->key, m->name, (size_t)key_len) != 0) {
            WEFT_TRY(weft_grow((void **)&ds->sample, ds->count, &ds->capacity, sizeof *ds->sample));
            last = &ds->sample[ds->count];
            *last =
                (weft_sample){.shard = shard,
                              .file = file,
                              .key = weft_arena_printf(ds->arena, "%.*s", (int)key_len, m->name)};
            if (!last->key)
                return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
            last->id = XXH3_64bits(last->key, (size_t)key_len);
            ds->count++;
        }
        WEFT_TRY(add_part(ds, last, path, suffix, m));
    }
    for (int64_t i = first; i < ds->count; i++)
        WEFT_TRY(read_facts(ds, &ds->sample[i], path));
    return WEFT_OK;
}

static weft_status add_shard(weft_dataset *ds, const char *path, bool strict)
{
    weft_tar_index index = {0};
    WEFT_TRY(weft_grow((void **)&ds->map, ds->shard_count, &ds->shard_capacity, sizeof *ds->map));
    weft_map *map = &ds->map[ds->shard_count];
    WEFT_TRY(weft_map_open(path, map));
    ds->shard_count++;
    ds->bytes += map->bytes;
    const char *base = weft_path_base(path);
    ds->fingerprint = weft_seed_mix(ds->fingerprint, XXH3_64bits(base, strlen(base)));
    (void)weft_file_stamp(path, &ds->fingerprint);
    weft_status_code status = weft_tar_open(map, path, ds->arena, &index);
    if (status == WEFT_E_FORMAT && !strict) {
        weft_warn("%s; the shard is left out", weft_error_message());
        ds->damaged++;
        return WEFT_OK;
    }
    if (status == WEFT_OK && index.damage) {
        if (strict)
            status = weft_fail(WEFT_E_FORMAT, "%s", index.damage);
        else
            weft_warn("%s; its whole members are used", index.damage);
        ds->damaged++;
    }
    if (status == WEFT_OK)
        status = group(ds, (int)ds->shard_count - 1, path, &index);
    weft_tar_close(&index);
    return status;
}

/* "dir/{000..012}.tar" -> the numbers keep their width. */
static weft_status add_braces(weft_dataset *ds, const char *path, bool strict)
{
    const char *open = strchr(path, '{');
    long long first, last;
    int used = 0;
    if (sscanf(open, "{%lld..%lld}%n", &first, &last, &used) != 2 || used == 0 || first < 0 ||
        last < first)
        return weft_fail(WEFT_E_ARG, "%s: write braces as {000..012}", path);
    const int width = (int)(strstr(open, "..") - open - 1);
    for (long long i = first; i <= last; i++) {
        weft_buf name = {0};
        weft_buf_printf(&name, "%.*s%0*lld%s", (int)(open - path), path, width, i, open + used);
        weft_status_code status = weft_buf_check(&name);
        if (status == WEFT_OK)
            status = add_shard(ds, name.data, strict);
        weft_buf_free(&name);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

static weft_status add_folder(weft_dataset *ds, const char *path, const char *split, bool strict)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(path, false, &names));
    weft_status_code status = WEFT_OK;
    const size_t split_len = split ? strlen(split) : 0;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        if (strcmp(weft_path_extension(names.name[i]), "tar") != 0 ||
            (split &&
             (strncmp(names.name[i], split, split_len) != 0 || names.name[i][split_len] != '-')))
            continue;
        char *full = weft_path_join(path, names.name[i]);
        status = full ? add_shard(ds, full, strict)
                      : weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
        weft_free(full);
    }
    weft_names_free(&names);
    if (status == WEFT_OK && ds->shard_count == 0)
        status = weft_fail(WEFT_E_NOT_FOUND, "%s: no shards named %s%s*.tar in this folder%s", path,
                           split ? split : "", split ? "-" : "",
                           split && strcmp(split, "heldout") == 0
                               ? "; `weft shard --set heldout=0.1` keeps clips for it"
                               : "");
    return status;
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const weft_sample *const *)a)->key, (*(const weft_sample *const *)b)->key);
}

static weft_status check_keys(const weft_dataset *ds)
{
    if (ds->count < 2)
        return WEFT_OK;
    const weft_sample **sorted = weft_alloc(ds->count * (int64_t)sizeof *sorted);
    if (!sorted)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld samples", (long long)ds->count);
    for (int64_t i = 0; i < ds->count; i++)
        sorted[i] = &ds->sample[i];
    qsort(sorted, (size_t)ds->count, sizeof *sorted, by_key);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 1; i < ds->count && status == WEFT_OK; i++)
        if (!strcmp(sorted[i]->key, sorted[i - 1]->key))
            status = weft_fail(WEFT_E_FORMAT,
                               "%s: the key \"%s\" stands for another sample in %s; rename one of "
                               "them, or write the "
                               "members of a sample side by side",
                               sorted[i]->file, sorted[i]->key, sorted[i - 1]->file);
    weft_free(sorted);
    return status;
}

weft_status weft_dataset_open(const char *path, const char *split, bool strict,
                              weft_dataset **dataset)
{
    weft_dataset *ds = weft_alloc(sizeof *ds);
    if (ds)
        ds->arena = weft_arena_create();
    if (!ds || !ds->arena) {
        weft_free(ds);
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    }
    weft_status_code status;
    if (weft_path_is_dir(path))
        status = add_folder(ds, path, split, strict);
    else if (!strchr(path, '{') && !weft_path_exists(path))
        status = weft_fail(
            WEFT_E_NOT_FOUND,
            "%s: no such shard or folder of shards; `weft shard --in CURATED --out %s` makes one",
            path, path);
    else
        status = strchr(path, '{') ? add_braces(ds, path, strict) : add_shard(ds, path, strict);
    if (status == WEFT_OK)
        status = check_keys(ds);
    if (status != WEFT_OK) {
        weft_dataset_close(ds);
        return status;
    }
    *dataset = ds;
    return WEFT_OK;
}

void weft_dataset_close(weft_dataset *ds)
{
    if (!ds)
        return;
    for (int64_t i = 0; i < ds->shard_count; i++)
        weft_map_close(&ds->map[i]);
    weft_free(ds->map);
    weft_free(ds->sample);
    weft_arena_free(ds->arena);
    weft_free(ds);
}

int64_t weft_dataset_count(const weft_dataset *ds)
{
    return ds->count;
}

const weft_sample *weft_dataset_at(const weft_dataset *ds, int64_t index)
{
    return &ds->sample[index];
}

int64_t weft_dataset_damaged(const weft_dataset *ds)
{
    return ds->damaged;
}

int64_t weft_dataset_bytes(const weft_dataset *ds)
{
    return ds->bytes;
}

uint64_t weft_dataset_fingerprint(const weft_dataset *ds)
{
    return ds->fingerprint;
}
