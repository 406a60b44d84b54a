#include "data/index_restore.h"

#include "base/config.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/log.h"
#include "storage/storage_json.h"

#include <stdio.h>

/* The checksum that the note of `weft shard` names. False: the shard has no complete note. */
static bool read_note(weft_storage *storage, const char *shard, char hex[WEFT_HEX_BYTES])
{
    json_t *note = NULL;
    weft_buf name = {0};
    weft_buf_printf(&name, ".%s.json", shard);
    const bool read = !name.failed && weft_storage_json_load(storage, name.data, &note) == WEFT_OK;
    const char *sum = read ? json_string_value(json_object_get(note, "xxh3")) : NULL;
    if (sum)
        snprintf(hex, WEFT_HEX_BYTES, "%s", sum);
    json_decref(note);
    weft_buf_free(&name);
    weft_error_clear();
    return sum != NULL;
}

/* XXH3-64 of every part in order. */
static weft_status hash_parts(weft_storage *storage, const char *shard, const weft_index *index,
                              uint64_t *sum)
{
    int64_t capacity = 0, part = 0;
    char *data = NULL;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < index->count; i++)
        for (int k = 0; k < index->sample[i].part_count; k++) {
            const weft_part_data *p = &index->sample[i].part[k];
            if (p->bytes > capacity) {
                weft_free(data);
                capacity = p->bytes;
                WEFT_GO(WEFT_NEW(data, capacity, "%s", shard));
            }
            WEFT_GO(weft_storage_read(storage, shard, p->at, p->bytes, data));
            sum[part++] = XXH3_64bits(data, (size_t)p->bytes);
        }
out:
    weft_free(data);
    return status;
}

weft_status weft_index_restore(weft_storage *storage, const char *shard, weft_index *index)
{
    char written[WEFT_HEX_BYTES], present[WEFT_HEX_BYTES];
    char *path = weft_path_join(weft_storage_root(storage), shard);
    uint64_t *sum = NULL, whole;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "%s", shard));
    if (!read_note(storage, shard, written)) {
        weft_warning(WEFT_MSG_INDEX_REBUILT, WEFT_AT(.file = path),
                     "the checksums of its samples are lost, because the shard has no note of "
                     "`weft shard`; changed bytes are not found from now on");
        goto out;
    }
    WEFT_GO(weft_storage_sum(storage, shard, &whole));
    if (strcmp(weft_hex_print(whole, present), written) != 0) {
        status = weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = path, .value = present),
                            "the index is damaged, and the shard has other bytes than `weft "
                            "shard` wrote (checksum %s), so changed samples cannot be found. "
                            "Restore the shard or its index, or run `weft shard` again.",
                            written);
        goto out;
    }
    WEFT_GO(WEFT_NEW(sum, index->parts + 1, "%s", shard));
    WEFT_GO(hash_parts(storage, shard, index, sum));
    weft_index_set_sums(index, sum, whole);
out:
    weft_free(sum);
    weft_free(path);
    return status;
}
