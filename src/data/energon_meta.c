#include "data/energon_meta.h"

#include "base/json.h"
#include "data/index.h"
#include "format/tar/tar.h"
#include "format/tar/tar_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct archive {
    weft_storage *storage;
    const char *name;
} archive;

static weft_status read_archive(void *self, int64_t at, int64_t bytes, void *to)
{
    const archive *a = self;
    return weft_storage_read(a->storage, a->name, at, bytes, to);
}

static void put_offset(weft_buf *out, int64_t offset)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)offset >> (8 * i));
    weft_buf_append(out, (const char *)bytes, 8);
}

/* Appends the offset of each sample of an archive, and the end of the last one. */
static void list_offsets(const weft_tar_index *tar, weft_buf *out)
{
    const char *last = "";
    int64_t last_len = -1, end = 0;
    for (int64_t i = 0; i < tar->count; i++) {
        const weft_tar_member *m = &tar->member[i];
        const char *suffix;
        int64_t len;
        end = m->at + (m->bytes + 511) / 512 * 512;
        if (!weft_webdataset_split(m->name, &len, &suffix) ||
            (len == last_len && !strncmp(last, m->name, (size_t)len)))
            continue;
        put_offset(out, m->header);
        last = m->name;
        last_len = len;
    }
    put_offset(out, end);
}

static weft_status write_offsets(weft_storage *storage, const char *shard)
{
    char index_path[300];
    weft_storage_facts facts;
    weft_tar_index tar = {0};
    weft_buf offsets = {0};
    archive a = {.storage = storage, .name = shard};
    snprintf(index_path, sizeof index_path, "%s.idx", shard);
    if (weft_storage_facts_of(storage, index_path, &facts) == WEFT_OK)
        return WEFT_OK;
    WEFT_TRY(weft_storage_facts_of(storage, shard, &facts));
    weft_arena *arena = weft_arena_create();
    const weft_tar_input input = {.self = &a, .bytes = facts.bytes, .read = read_archive};
    weft_status_code status;
    WEFT_GO(arena ? weft_tar_open(&input, shard, arena, &tar) : weft_no_memory("%s", shard));
    list_offsets(&tar, &offsets);
    WEFT_GO(weft_buf_check(&offsets));
    WEFT_GO(weft_storage_put(storage, index_path, offsets.data, offsets.len));
out:
    weft_buf_free(&offsets);
    weft_tar_close(&tar);
    weft_arena_free(arena);
    return status;
}

static weft_status put_text(weft_storage *storage, const char *name, const weft_buf *text)
{
    WEFT_TRY(weft_buf_check(text));
    return weft_storage_put(storage, name, text->data, text->len);
}

static weft_status write_split(weft_storage *storage, const json_t *shards)
{
    static const char *const parts[][2] = {
        {"train", "train-"}, {"val", "heldout-"}, {"test", NULL}};
    weft_buf text = {0};
    weft_buf_printf(&text, "exclude: []\nsplit_parts:\n");
    for (int p = 0; p < 3; p++) {
        int count = 0;
        for (size_t i = 0; parts[p][1] && i < json_array_size(shards); i++) {
            const json_t *entry = json_array_get(shards, i);
            const char *file = json_string_value(json_object_get(entry, "file"));
            if (strncmp(file, parts[p][1], strlen(parts[p][1])) != 0 ||
                json_integer_value(json_object_get(entry, "samples")) == 0)
                continue;
            if (count++ == 0)
                weft_buf_printf(&text, "  %s:\n", parts[p][0]);
            weft_buf_printf(&text, "  - %s\n", file);
        }
        if (count == 0)
            weft_buf_printf(&text, "  %s: []\n", parts[p][0]);
    }
    const weft_status_code status = put_text(storage, ".nv-meta/split.yaml", &text);
    weft_buf_free(&text);
    return status;
}

static weft_status write_counts(weft_storage *storage, const json_t *shards)
{
    weft_buf text = {0};
    json_t *counts = json_object();
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *entry = json_array_get(shards, i);
        json_t *samples = json_object_get(entry, "samples");
        if (json_integer_value(samples) > 0)
            json_object_set(counts, json_string_value(json_object_get(entry, "file")), samples);
    }
    json_t *info = json_pack("{s:o}", "shard_counts", counts);
    char *dump = info ? json_dumps(info, JSON_INDENT(2)) : NULL;
    json_decref(info);
    WEFT_TRY(WEFT_ALLOCATED(dump, ".nv-meta"));
    weft_buf_printf(&text, "%s\n", dump);
    free(dump);
    const weft_status_code status = put_text(storage, ".nv-meta/.info.json", &text);
    weft_buf_free(&text);
    return status;
}

weft_status weft_energon_write(weft_storage *storage, const json_t *shards)
{
    static const char dataset[] = "__module__: megatron.energon\n__class__: CrudeWebdataset\n";
    for (size_t i = 0; i < json_array_size(shards); i++)
        WEFT_TRY(write_offsets(
            storage, json_string_value(json_object_get(json_array_get(shards, i), "file"))));
    WEFT_TRY(weft_storage_put(storage, ".nv-meta/dataset.yaml", dataset, sizeof dataset - 1));
    WEFT_TRY(write_split(storage, shards));
    return write_counts(storage, shards);
}
